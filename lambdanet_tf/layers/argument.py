"""Arguments of layers, each declared once: default, check, configuration.

    class Dropout(BaseLayer):
        rate: float = argument(check=fraction, kw_only=False)

These lines define the constructor, its signature and errors, and the
configuration. Static checkers read them as the fields of a dataclass.
"""

import functools
import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING
from typing import Any

import tensorflow as tf

from lambdanet_tf.arguments import one_of

if TYPE_CHECKING:
    from typing import TypeVar

    from typing_extensions import Self
    from typing_extensions import dataclass_transform

    _Layer = TypeVar("_Layer")

_REQUIRED = inspect.Parameter.empty


class Argument:
    """A declared argument; each layer keeps its value as an attribute."""

    name: str

    def __init__(self, default, check, kw_only):
        self.default, self._check, self._kw_only = default, check, kw_only

    def checked(self, value):
        if value is None and self.default is None or self._check is None:
            return value
        return self._check(self.name, value)

    def serialized(self, value):
        return value

    @property
    def parameter(self):
        kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
        kind = inspect.Parameter.KEYWORD_ONLY if self._kw_only else kind
        return inspect.Parameter(self.name, kind, default=self.default)


class KerasArgument(Argument):
    """An argument that Keras turns into an object of the kind it ends in."""

    def checked(self, value):
        return self._module().get(value)

    def serialized(self, value):
        return self._module().serialize(value)

    def _module(self):
        return getattr(tf.keras, self.name.split("_")[-1] + "s")


def argument(
    *,
    default: Any = _REQUIRED,
    check: Callable[[str, Any], Any] | None = None,
    choices: tuple[str | None, ...] = (),
    kw_only: bool = True,
) -> Any:
    """Declares an argument of a layer, in the body of its class.

    Args:
        default: the default value; if it is None, None is valid, too.
        check: function of name and value that returns the attribute.
        choices: all valid values; use it instead of `check`.
        kw_only: bool. Whether callers must pass it by name.
    """
    if choices:
        check = functools.partial(one_of, allowed=choices)
    return Argument(default, check, kw_only)


def keras_argument(*, default: Any) -> Any:
    """Declares an initializer, regularizer, constraint or activation."""
    return KerasArgument(default, None, kw_only=True)


def declare(layer_type):
    """Collects the arguments that a new class and its parents declare.

    It removes them from the class, because tf_keras does not track a sublayer
    whose name is also an attribute of the class.
    """
    own, found = {}, {}
    for name, declared in list(vars(layer_type).items()):
        if isinstance(declared, Argument):
            declared.name = name
            own[name] = declared
            delattr(layer_type, name)
    layer_type._own_arguments = own
    for parent in layer_type.__mro__:
        own = vars(parent).get("_own_arguments", {})
        found.update({n: x for n, x in own.items() if n not in found})
    layer_type._arguments = found


def constructor(layer_type, init):
    """Returns a constructor that passes the declared arguments to `init`."""

    def __init__(self, *args, **kwargs):  # noqa: N807
        try:
            given = shown.bind(self, *args, **kwargs).arguments
        except TypeError as error:
            text = f"{error}. By position: {first or 'none'}. By name: others."
            raise TypeError(f"{layer_type.__name__}: {text}") from None
        others = given.pop("kwargs", {})
        init(**given, **others)

    signature = inspect.signature(__init__)
    own, _, rest = signature.parameters.values()
    parameters = [a.parameter for a in layer_type._arguments.values()]
    parameters.sort(key=lambda p: p.kind)  # Positional ones first.
    first = ", ".join(p.name for p in parameters if p.kind < p.KEYWORD_ONLY)
    shown = signature.replace(parameters=[own, *parameters, rest])
    setattr(__init__, "__signature__", shown)  # noqa: B010
    __init__.__qualname__ = f"{layer_type.__qualname__}.__init__"
    __init__.__module__ = layer_type.__module__
    return __init__


if TYPE_CHECKING:

    @dataclass_transform(
        kw_only_default=True, field_specifiers=(argument, keras_argument)
    )
    class _Declared: ...
else:
    _Declared = object


class KerasArguments(_Declared):
    """The arguments that either Keras accepts for any layer."""

    activity_regularizer: Any = None
    batch_input_shape: Any = None
    batch_size: int | None = None
    dtype: Any = None
    input_shape: Any = None
    name: str | None = None
    trainable: bool = True
    weights: Any = None


if TYPE_CHECKING:

    class KerasLayer(KerasArguments):
        """A layer of either Keras, as static checkers see it."""

        def __call__(self, *args: Any, **kwargs: Any) -> Any: ...

        def __getattr__(self, name: str) -> Any: ...

        def build(self, *args: Any, **kwargs: Any) -> None: ...

        def compute_output_spec(self, *args: Any, **kwargs: Any) -> Any: ...

        def get_config(self) -> dict: ...

        @classmethod
        def from_config(cls, config: dict) -> Self: ...

    def serializable(layer_type: type[_Layer]) -> type[_Layer]:
        """Registers a class with Keras, for its files."""
        ...
else:
    KerasLayer = tf.keras.layers.Layer
    serializable = tf.keras.utils.register_keras_serializable(
        package="lambdanet_tf"
    )
