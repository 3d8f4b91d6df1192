"""Signatures of layers, whose arguments are declared in their classes."""

import griffe

_DECLARATIONS = {"argument", "keras_argument"}
# What a reader passes where the sources say `Any`, by the end of a name.
_PER_AXIS = "int | tuple[int, ...]"
_TYPES = {
    "initializer": "str | Initializer | None",
    "regularizer": "str | Regularizer | None",
    "constraint": "str | Constraint | None",
    "activation": "str | Callable | None",
    "scope": f"{_PER_AXIS} | None",
    "kernel_size": _PER_AXIS,
    "strides": _PER_AXIS,
    "dilation_rate": _PER_AXIS,
    "position_embedding": "str | RelativePositionEmbedding",
    "inputs": "Tensor",
    "prompt": "Tensor",
    "layer": "Layer",
    "position": "tuple[int, ...] | None",
}


class LayerSignatures(griffe.Extension):
    """Gives each class with declared arguments the constructor it will have.

    The package makes it when it is imported, see `layers/argument.py`; the
    site is built without that.
    """

    def on_package(self, *, pkg, **_):
        for function in _functions(pkg):
            for part in function.parameters:
                part.annotation = _shown(part.name, part.annotation)
        classes = [
            cls
            for module in _modules(pkg)
            for cls in module.classes.values()
            if not cls.is_alias and "__init__" not in cls.members
        ]
        found = [(cls, _declared(cls)) for cls in classes]
        for cls, declared in found:
            if declared:
                _add_constructor(cls, declared)


def _modules(module):
    yield module
    for part in module.modules.values():
        if not part.is_alias:
            yield from _modules(part)


def _functions(parent):
    for part in parent.members.values():
        if not part.is_alias and (part.is_module or part.is_class):
            yield from _functions(part)
        elif not part.is_alias and part.is_function:
            yield part


def _shown(name, annotation):
    if str(annotation) != "Any":
        return annotation
    ends = (kind for end, kind in _TYPES.items() if name.endswith(end))
    return next(ends, annotation)


def _declared(cls):
    """The attributes of a class and its parents that are declarations."""
    found = {}
    for parent in [cls, *cls.mro()]:
        for name, member in parent.attributes.items():
            if not member.is_alias and _is_declaration(member.value):
                found.setdefault(name, member)
    return found


def _add_constructor(cls, declared):
    named = {
        name: {
            part.name: part.value
            for part in member.value.arguments
            if isinstance(part, griffe.ExprKeyword)
        }
        for name, member in declared.items()
    }
    kinds = griffe.ParameterKind
    parameters = [
        griffe.Parameter(
            name,
            annotation=_shown(name, declared[name].annotation),
            kind=kinds.keyword_only
            if str(arguments.get("kw_only", True)) == "True"
            else kinds.positional_or_keyword,
            default=arguments.get("default"),
        )
        for name, arguments in named.items()
    ]
    parameters.sort(key=lambda p: p.kind is kinds.keyword_only)
    own = griffe.Parameter("self", kind=kinds.positional_or_keyword)
    others = griffe.Parameter("kwargs", kind=kinds.var_keyword)
    cls.set_member(
        "__init__",
        griffe.Function(
            "__init__",
            parameters=griffe.Parameters(own, *parameters, others),
        ),
    )
    for name in declared:
        if name in cls.members:
            cls.del_member(name)


def _is_declaration(value):
    return (
        isinstance(value, griffe.ExprCall)
        and str(value.function).split(".")[-1] in _DECLARATIONS
    )
