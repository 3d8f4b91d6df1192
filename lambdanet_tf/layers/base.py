"""Base layers: errors for unknown arguments and foreign tensors."""

import functools
import inspect
import json
from typing import TYPE_CHECKING
from typing import Any
from typing import TypedDict

import numpy as np
import tensorflow as tf

from lambdanet_tf.arguments import checked_arguments
from lambdanet_tf.environment import KERAS_3
from lambdanet_tf.layers.hints import instead_of

if TYPE_CHECKING:
    from typing_extensions import Unpack


class KerasArguments(TypedDict, total=False):
    """What either Keras takes for any layer, and `sublayers`."""

    activity_regularizer: Any
    autocast: bool
    batch_input_shape: Any
    batch_shape: Any
    batch_size: int
    dtype: Any
    dynamic: bool
    input_dim: int
    input_dtype: Any
    input_shape: Any
    name: str | None
    sublayers: dict | None
    trainable: bool
    weights: Any


class CheckedCall(tf.keras.layers.Layer):
    """A Keras layer with clear errors for wrong tensors and call arguments.

    A Keras 3 layer accepts a symbolic tensor of tf_keras without a word, and
    the model then does not own the layer's weights.
    """

    # What to do with several tensors where the layer takes one.
    _several = "Call it on each of them."

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
        return super().__call__(inputs, **arguments)

    def _prepare(self, inputs, arguments):
        """Checks and changes the arguments of a call, a dictionary."""

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
                _refuse_call_argument(type(self), name, names)
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


class BaseLayer(CheckedCall):
    """A Keras layer whose sublayers follow it, with clear errors.

    Sublayers are attributes. They are frozen with the layer, whenever it was
    frozen, and compute in its precision. What was set for one of them alone
    stands in the configuration.

    Args:
        **kwargs: of any Keras layer; and `sublayers`, None or by attribute what
            is set for a sublayer alone, as in the configuration: "trainable",
            "dtype".
    """

    def __init__(self, **kwargs: "Unpack[KerasArguments]"):
        sublayers = kwargs.pop("sublayers", None)
        for name in kwargs:
            if name not in KerasArguments.__annotations__:
                _refuse_argument(type(self), name)
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
        for name in _argument_names(type(self)):
            config[name] = _serialized(name, getattr(self, name))
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


def with_arguments_of(parent, before="kwargs"):
    """Decorates a constructor whose `kwargs` go on to that of a parent.

    `inspect.signature`, `help` and errors show what the parent takes by name
    as well. Static checkers read the same names from a `TypedDict`.

    Args:
        parent: the class.
        before: the argument in front of which those of the parent are shown.
    """

    def decorate(init):
        shown = []
        own = inspect.signature(init).parameters
        for name, parameter in own.items():
            if name == before:
                theirs = inspect.signature(parent.__init__).parameters
                shown += [
                    p
                    for p in theirs.values()
                    if p.kind is p.KEYWORD_ONLY and p.name not in own
                ]
            shown.append(parameter)
        init.__signature__ = inspect.Signature(shown)
        return checked_arguments(init)

    return decorate


def _argument_names(layer_type):
    """Names of the arguments of the nearest constructor of this package."""
    for parent in layer_type.__mro__:
        # Set by `checked_arguments`.
        signature = getattr(vars(parent).get("__init__"), "__signature__", None)
        if signature is not None:
            _, *names = signature.parameters
            return [name for name in names if name != "kwargs"]
    return []


def _serialized(name, value):
    """The value of an argument for a configuration."""
    kinds = ("activation", "constraint", "initializer", "regularizer")
    for kind in kinds:
        if name == kind or name.endswith(f"_{kind}"):
            return getattr(tf.keras, f"{kind}s").serialize(value)
    return value


def _constructor_names(layer_type):
    parameters = inspect.signature(layer_type.__init__).parameters
    names = [n for n in parameters if n not in ("self", "args", "kwargs")]
    return [*names, "name", "dtype", "trainable"]


def _refuse_argument(layer_type, name):
    names, kind = _constructor_names(layer_type), layer_type.__name__
    remedy = instead_of(name, kind, names)
    if name in (_call_names(layer_type) or ()):
        remedy = f" It belongs in the call: layer(inputs, {name}=...)."
    raise ValueError(
        f"`{name}` is not an argument of {kind}.{remedy} It has: "
        f"{', '.join(names)}."
    )


def _refuse_call_argument(layer_type, name, names):
    kind = layer_type.__name__
    remedy = instead_of(name, kind, names)
    if name in _constructor_names(layer_type):
        remedy = f" It belongs in the constructor: {kind}({name}=...)."
    raise ValueError(
        f"`{name}` is not an argument of a call of {kind}.{remedy} It has: "
        f"{', '.join(names)}."
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
    if isinstance(value, (tf.RaggedTensor, tf.SparseTensor)):
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
