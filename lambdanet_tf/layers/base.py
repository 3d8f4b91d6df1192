"""What every layer of this package checks before anything else."""

import inspect
import json
import numbers
from typing import Any

import numpy as np
import tensorflow as tf

from lambdanet_tf.arguments import did_you_mean
from lambdanet_tf.environment import KERAS_3

# What either Keras takes for any layer.
_OF_EVERY_LAYER = frozenset(
    {"activity_regularizer", "autocast", "batch_input_shape", "batch_shape"}
    | {"batch_size", "dtype", "dynamic", "input_dim", "input_shape"}
    | {"input_dtype", "name", "trainable", "weights"}
)


class CheckedCall(tf.keras.layers.Layer):
    """A Keras layer with clear errors for wrong tensors.

    A Keras 3 layer accepts a symbolic tensor of tf_keras without a word, and
    the model then does not own the layer's weights.
    """

    def __call__(self, inputs, *args, **kwargs):
        for tensor in tf.nest.flatten((inputs, args, kwargs)):
            _refuse_foreign(tensor, self.name)
        kwargs = {name: as_array(value) for name, value in kwargs.items()}
        training = kwargs.get("training")
        if KERAS_3 and tf.is_tensor(training):
            kwargs["training"] = _known(training, self.name)
        return super().__call__(inputs, *args, **kwargs)

    def get_config(self):
        config = super().get_config()
        if self.activity_regularizer is not None:  # tf_keras leaves it out.
            config["activity_regularizer"] = tf.keras.regularizers.serialize(
                self.activity_regularizer
            )
        if not getattr(self, "autocast" if KERAS_3 else "_autocast"):
            config["autocast"] = False  # Both leave it out.
        return config


class BaseLayer(CheckedCall):
    """A Keras layer whose sublayers follow it, with clear errors.

    Sublayers are attributes. They are frozen with the layer, whenever it was
    frozen, and compute in its precision. What was set for one of them alone
    stands in the configuration.

    Args:
        sublayers: None, or by attribute what is set for a sublayer alone, as
            in the configuration: "trainable", "dtype".
        **kwargs: of any Keras layer.
    """

    def __init__(self, sublayers=None, **kwargs):
        unknown = [name for name in kwargs if name not in _OF_EVERY_LAYER]
        if unknown:
            _refuse_argument(type(self), unknown[0])
        super().__init__(**kwargs)
        # As text: a dictionary would become a part of saved files.
        self._given_settings = json.dumps(sublayers or {})
        self._given_trainable = self.trainable

    @property
    def dtype_policy(self):
        return super().dtype_policy

    @dtype_policy.setter
    def dtype_policy(self, policy):
        tf.keras.layers.Layer.dtype_policy.__set__(self, policy)
        for layer in self._sublayers().values():
            layer.dtype_policy = policy

    def _sublayers(self):
        """The sublayers that exist, by attribute."""
        return {
            name: value
            for name, value in vars(self).items()
            if isinstance(value, tf.keras.layers.Layer)
        }

    def _settings(self):
        """What is set for sublayers alone, before they are made."""
        settings = json.loads(self._given_settings)
        if self.trainable != self._given_trainable:  # since set for all
            for said in settings.values():
                said.pop("trainable", None)
        return settings

    def _of_sublayer(self, name):
        """The arguments that a sublayer gets from this layer."""
        ours = {"trainable": self.trainable, "dtype": self.dtype_policy}
        return {"name": name, **ours, **self._settings().get(name, {})}

    def _build_sublayer(self, layer, shape):
        with tf.name_scope(layer.name):  # keeps tf_keras' names apart
            layer.build(shape)

    def get_config(self):
        config = super().get_config()
        settings = {} if self.built else self._settings()
        for name, layer in self._sublayers().items():
            settings[name] = {}
            if layer.trainable != self.trainable:
                settings[name]["trainable"] = layer.trainable
            if layer.dtype_policy.name != self.dtype_policy.name:
                settings[name]["dtype"] = layer.get_config()["dtype"]
        settings = {name: said for name, said in settings.items() if said}
        if settings:
            config["sublayers"] = settings
        return config


def as_array(value: Any) -> Any:
    """Lists of numbers as an array: so tf_keras reads constants from files."""
    if not isinstance(value, list | tuple):
        return value
    leaves = tf.nest.flatten(value)
    is_number = all(isinstance(x, numbers.Number | np.generic) for x in leaves)
    return np.asarray(value) if is_number else value


def not_converted(call):
    """`do_not_convert` that keeps the signature, which tf_keras reads.

    Its wrappers pass on what `call` takes by name: masks, and `training`.
    """
    wrapper = tf.autograph.experimental.do_not_convert(call)
    wrapper.__signature__ = inspect.signature(call)
    return wrapper


def _refuse_argument(layer_type, name):
    parameters = inspect.signature(layer_type.__init__).parameters
    names = [n for n in parameters if n not in ("self", "kwargs")]
    names += ["name", "dtype", "trainable"]
    raise ValueError(
        f"`{name}` is not an argument of {layer_type.__name__}."
        f"{did_you_mean(name, names)} It has: {', '.join(names)}."
    )


def _known(training, name):
    """The value of `training`; Keras 3 decides in Python which way to go."""
    value = tf.get_static_value(training)
    if value is None:
        raise ValueError(
            f"`training` of layer {name!r} must be True, False or None: Keras "
            "3 does not take a tensor whose value is known only at run time. "
            f"Received: {training}."
        )
    return bool(value)


def _keras_of(cls):
    """Which Keras a class comes from: "keras", "tf_keras", or None."""
    root = cls.__module__.split(".")[0]
    return root if root in ("keras", "tf_keras") else None


def _refuse_foreign(tensor, name):
    ours = _keras_of(tf.keras.layers.Layer)
    theirs = _keras_of(type(tensor))
    if theirs not in (None, ours):
        raise ValueError(
            f"Layer {name!r} is a layer of {ours} (what `tf.keras` is in this "
            f"process) and cannot take a tensor of {theirs}. Build the whole "
            "model with `tf.keras`; to use tf_keras, set the environment "
            "variable TF_USE_LEGACY_KERAS=1 before TensorFlow is imported."
        )
