"""The base of all layers: arguments, configurations, sublayers."""

import inspect

import tensorflow as tf

from lambdanet_tf.arguments import did_you_mean
from lambdanet_tf.layers.argument import KerasArguments
from lambdanet_tf.layers.argument import KerasLayer
from lambdanet_tf.layers.argument import constructor
from lambdanet_tf.layers.argument import declare


class BaseLayer(KerasLayer):
    """A Keras layer with declared arguments.

    The body of a class declares its arguments, see `argument`. Sublayers are
    attributes; they are frozen with the layer and compute in its precision.

    Args:
        **kwargs: the arguments of any Keras layer.
    """

    def __init__(self, **kwargs):
        declared = self._arguments
        given = {name: kwargs.pop(name) for name in declared if name in kwargs}
        for name in kwargs:
            if name not in KerasArguments.__annotations__:
                names = [*declared, "name", "dtype", "trainable"]
                raise ValueError(
                    f"`{name}` is not an argument of {type(self).__name__}."
                    f"{did_you_mean(name, names)} It takes: {', '.join(names)}."
                )
        super().__init__(**kwargs)
        for name, argument in declared.items():
            value = given.get(name, argument.default)
            setattr(self, name, argument.checked(value))
        self.__post_init__()

    def __init_subclass__(cls, **kwargs):
        super().__init_subclass__(**kwargs)
        declare(cls)
        if "__init__" not in vars(cls):
            cls.__init__ = constructor(cls, BaseLayer.__init__)

    def __post_init__(self):
        """Checks arguments against each other, and sets derived attributes."""

    def __call__(self, *args, **kwargs):
        refuse_other_keras(self, (args, kwargs))
        return super().__call__(*args, **kwargs)

    def compute_output_spec(self, *args, **kwargs):
        """Runs `call` on placeholders in place of symbolic tensors."""

        def dense(x):  # Keras marks 2 * x as sparse.
            if isinstance(x, tf.keras.KerasTensor):
                return tf.keras.KerasTensor(x.shape, x.dtype)
            return x

        args, kwargs = tf.nest.map_structure(dense, (args, kwargs))
        return tf.keras.Operation.compute_output_spec(self, *args, **kwargs)

    def _of_sublayer(self, name):
        """Returns the arguments that a sublayer inherits from this layer."""
        ours = {"trainable": self.trainable, "dtype": self.dtype_policy}
        return {"name": name, **ours}

    def _build_sublayer(self, layer, shape):
        with tf.name_scope(layer.name):  # makes tf_keras' names unique
            layer.build(shape)
        return layer

    def get_config(self):
        config = super().get_config()
        regularizer = self.activity_regularizer
        if regularizer is not None:
            regularizer = tf.keras.regularizers.serialize(regularizer)
            config["activity_regularizer"] = regularizer
        for name, argument in self._arguments.items():
            config[name] = argument.serialized(getattr(self, name))
        return config


def refuse_other_keras(layer, tensors):
    """Raises a ValueError for a symbolic tensor of the other Keras.

    A Keras 3 layer silently accepts a symbolic tensor of tf_keras, but the
    model then does not own the layer's weights.
    """
    ours = tf.keras.layers.Layer.__module__.split(".")[0]
    for tensor in tf.nest.flatten(tensors):
        theirs = type(tensor).__module__.split(".")[0]
        if theirs in ("keras", "tf_keras") and theirs != ours:
            raise ValueError(
                f"Layer {layer.name!r} belongs to {ours}, which is `tf.keras` "
                f"in this process, and cannot take a tensor of {theirs}. Build "
                "the whole model with `tf.keras`. To use tf_keras, set "
                "TF_USE_LEGACY_KERAS=1 before you import TensorFlow."
            )


def not_converted(call):
    """Keeps AutoGraph away from `call`, but shows its signature to tf_keras."""
    wrapper = tf.autograph.experimental.do_not_convert(call)
    wrapper.__signature__ = inspect.signature(call)
    return wrapper
