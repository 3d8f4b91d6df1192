"""What every layer of this package checks before anything else."""

import inspect

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
        training = kwargs.get("training")
        if KERAS_3 and tf.is_tensor(training):
            kwargs["training"] = _known(training, self.name)
        return super().__call__(inputs, *args, **kwargs)


class BaseLayer(CheckedCall):
    """A Keras layer with clear errors for wrong arguments and tensors."""

    def __init__(self, **kwargs):
        unknown = [name for name in kwargs if name not in _OF_EVERY_LAYER]
        if unknown:
            _refuse_argument(type(self), unknown[0])
        super().__init__(**kwargs)


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
