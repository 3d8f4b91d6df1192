"""Calls of layers: errors for wrong tensors and unknown arguments."""

import functools
import inspect
from typing import TYPE_CHECKING
from typing import Any

import numpy as np
import tensorflow as tf

from lambdanet_tf.environment import KERAS_3
from lambdanet_tf.layers.argument import KerasLayer
from lambdanet_tf.layers.hints import instead_of


class CheckedCall(KerasLayer):
    """A Keras layer with clear errors for wrong tensors and call arguments.

    A Keras 3 layer accepts a symbolic tensor of tf_keras without a word, and
    the model then does not own the layer's weights.
    """

    # What to do with several tensors where the layer takes one.
    _several = "Call it on each of them."

    if TYPE_CHECKING:  # also a base of Keras' own layers

        def __init__(self, *args: Any, **kwargs: Any) -> None: ...

    def __call__(self, *args, **kwargs):
        for tensor in tf.nest.flatten((args, kwargs)):
            _refuse_foreign(tensor, self.name)
        arguments = self._call_arguments(args, kwargs)
        if arguments is None:
            return super().__call__(*args, **kwargs)
        training = arguments.get("training")
        if KERAS_3 and tf.is_tensor(training):
            arguments["training"] = _known(training, self.name)
        inputs = arguments.pop(next(iter(arguments)))
        self._prepare(inputs, arguments)
        self._check_call(inputs, arguments)
        return super().__call__(inputs, **arguments)

    def _prepare(self, inputs, arguments):
        """Checks and changes the arguments of a call, a dictionary."""
        return  # AutoGraph needs more than a docstring.

    def _check_call(self, inputs, arguments):
        # Keras 3 does not run `call` on symbolic tensors.
        if KERAS_3 and tf.keras.backend.is_keras_tensor(inputs):
            self._check_symbolic(inputs, **arguments)

    def _check_symbolic(self, inputs, **arguments):
        """Raises a ValueError for shapes that `call` would refuse."""
        return

    def _call_arguments(self, args, kwargs):
        """The arguments of a call by name, the inputs first; lists as arrays.

        None if a subclass of somebody else's takes any.
        """
        names = _call_names(type(self))
        if names is None:
            return None
        kind, placed = type(self).__name__, _placed(names)
        surplus = [x for x in args[len(placed) :] if hasattr(x, "shape")]
        if surplus or len(args) > len(names):
            raise ValueError(
                f"{kind} takes {' and '.join(placed)} by position. Received: "
                f"{len(args)} arguments. {self._several} By name it takes "
                f"{', '.join(names)}."
            )
        arguments = dict(zip(names, args, strict=False))
        for name in kwargs:
            if name in arguments:
                raise ValueError(f"`{name}` is given twice to {kind}.")
            if name not in (*names, "training", "mask"):
                refuse_argument(type(self), name, of_call=True)
        arguments |= kwargs
        if arguments.get(names[0]) is None:
            raise ValueError(
                f"{kind} must be called on `{names[0]}`. Received: "
                f"{', '.join(arguments) or 'nothing'}."
            )
        ordered = {names[0]: arguments.pop(names[0]), **arguments}
        return {
            name: _array(name, value, kind, self._several)
            for name, value in ordered.items()
        }

    def get_config(self):
        config = super().get_config()
        if self.activity_regularizer is not None:  # tf_keras leaves it out.
            config["activity_regularizer"] = tf.keras.regularizers.serialize(
                self.activity_regularizer
            )
        if not getattr(self, "autocast" if KERAS_3 else "_autocast"):
            config["autocast"] = False  # Both leave it out.
        return config


def not_converted(call):
    """`do_not_convert` that keeps the signature, which tf_keras reads.

    Its wrappers pass on what `call` takes by name: masks, and `training`.
    """
    wrapper = tf.autograph.experimental.do_not_convert(call)
    wrapper.__signature__ = inspect.signature(call)
    return wrapper


@functools.lru_cache
def _call_names(layer_type):
    """The names of the arguments of `call`; None if it takes any."""
    parameters = list(inspect.signature(layer_type.call).parameters.values())
    kinds = {parameter.kind for parameter in parameters}
    if kinds & {parameters[0].VAR_POSITIONAL, parameters[0].VAR_KEYWORD}:
        return None
    return tuple(parameter.name for parameter in parameters[1:])


def _constructor_names(layer_type):
    parameters = inspect.signature(layer_type.__init__).parameters
    names = [n for n in parameters if n not in ("self", "args", "kwargs")]
    return [*names, "name", "dtype", "trainable"]


def refuse_argument(layer_type, name, of_call=False):
    """Raises the `ValueError` for a name that a constructor does not take.

    Args:
        layer_type: class of the layer.
        name: of the argument.
        of_call: bool. Whether it was given to a call.
    """
    kind, names = layer_type.__name__, _constructor_names(layer_type)
    others, there = _call_names(layer_type) or (), "call: layer(inputs, "
    if of_call:
        names, others, there = others, names, f"constructor: {kind}("
    remedy = instead_of(name, kind, names)
    if name in others:
        remedy = f" It belongs in the {there}{name}=...)."
    raise ValueError(
        f"`{name}` is not an argument of {'a call of ' * of_call}{kind}."
        f"{remedy} It has: {', '.join(names)}."
    )


def _placed(names):
    """The tensors of a call that may be given without their names."""
    placed = names[:2] if names[1:2] == ("context",) else names[:1]
    return [f"`{name}`" for name in placed]


def _array(name, value, kind, several):
    """An argument of a call; lists of numbers as an array.

    Raises:
        ValueError: if it holds several tensors, or rows of different lengths.
    """
    spec = getattr(value, "type_spec", None)  # of a Keras tensor
    if isinstance(spec, tf.RaggedTensorSpec) or isinstance(
        value, (tf.RaggedTensor, tf.SparseTensor)
    ):
        raise ValueError(
            f"`{name}` of {kind} must be a dense tensor. Received: a "
            f"{type(value).__name__}. Fill it up with `to_tensor()` or "
            "`tf.sparse.to_dense`, and say what is padding by a mask."
        )
    if not isinstance(value, (list, tuple, dict)):
        return value
    leaves = tf.nest.flatten(value)
    if isinstance(value, dict) or any(hasattr(x, "dtype") for x in leaves):
        raise ValueError(
            f"{kind} takes one tensor as `{name}`. Received: a "
            f"{type(value).__name__} of {len(value)}. {several}"
        )
    try:
        array = np.asarray(value)
    except ValueError:
        array = np.asarray(None)
    if array.dtype.kind not in "biuf":
        raise ValueError(
            f"`{name}` of {kind} must be numbers in rows of equal lengths. "
            f"Received: a {type(value).__name__} of {len(value)}."
        )
    return array.astype("float32") if array.dtype == "float64" else array


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


def _refuse_foreign(tensor, name):
    """Raises a ValueError for a tensor of the other Keras."""
    ours, theirs = (
        kind.__module__.split(".")[0]
        for kind in (tf.keras.layers.Layer, type(tensor))
    )
    if theirs in ("keras", "tf_keras") and theirs != ours:
        raise ValueError(
            f"Layer {name!r} is a layer of {ours} (what `tf.keras` is in this "
            f"process) and cannot take a tensor of {theirs}. Build the whole "
            "model with `tf.keras`; to use tf_keras, set the environment "
            "variable TF_USE_LEGACY_KERAS=1 before TensorFlow is imported."
        )
