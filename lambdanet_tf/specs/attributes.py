"""What each attribute of a spec may be, and specs with some of them changed."""

import dataclasses
import difflib
import functools
import math

from lambdanet_tf.arguments import check_types
from lambdanet_tf.arguments import fraction
from lambdanet_tf.arguments import one_of
from lambdanet_tf.arguments import positive_int
from lambdanet_tf.arguments import scope_per_axis


def _positive(name, value):
    """Integers, or tuples of them; None where the type permits it."""
    for number in value if isinstance(value, tuple) else (value,):
        if number is not None:
            positive_int(name, number)


def _not_empty(name, value):
    if not value:
        raise ValueError(f"`{name}` must not be empty. Received: {value!r}.")


def color(name, value, above=-math.inf):
    """Returns a float for each of three channels, or raises `ValueError`."""
    try:
        numbers = tuple(float(x) for x in value)
    except (TypeError, ValueError):
        numbers = ()
    if len(numbers) != 3 or not all(above < x < math.inf for x in numbers):
        raise ValueError(
            f"`{name}` must be a{'' if above < 0 else ' positive'} number for "
            f"each of 3 channels. Received: {name}={value!r}."
        )
    return numbers


# By the names of attributes, which mean the same in every spec.
_CHECKS = {
    **dict.fromkeys(("name", "activation", "stages", "rows"), _not_empty),
    **dict.fromkeys(
        ("image_size", "widths", "strides", "expansion", "lambda_pool")
        + ("stem_filters", "stem_strides", "stem_kernel_size", "head_filters")
        + ("num_heads", "key_dim", "intra_depth", "attention_heads")
        + ("attention_key_dim", "attention_pool", "filters", "blocks"),
        _positive,
    ),
    **dict.fromkeys(
        ("dropout_rate", "drop_path_rate", "parallel_keys", "parallel_values"),
        functools.partial(fraction, below_one=True),
    ),
    **dict.fromkeys(
        ("scope", "attention_scope", "kernel_size"), scope_per_axis
    ),
    "norm_epsilon": fraction,
    "image_mean": color,
    "image_std": functools.partial(color, above=0),
}
_CHOICES = {
    "padding": ("same", "symmetric"),
    "shortcut": ("pool", "conv"),
    "drop_path_schedule": ("stage", "block", "constant"),
    "key_normalization": ("softmax", "l2", None),
    "query_normalization": ("softmax", None),
}


def check_attributes(spec):
    """Raises a ValueError for a wrong type, or what no network can have.

    Lists become tuples before, as JSON and Keras give those back.
    """
    for name, value in vars(spec).items():
        if isinstance(value, list):
            object.__setattr__(spec, name, tuple(value))
    check_types(spec)
    for name, value in vars(spec).items():
        if name in _CHECKS:
            _CHECKS[name](name, value)
        if name in _CHOICES:
            one_of(name, value, _CHOICES[name])


# What networks of other libraries call an argument of ours.
_SYNONYMS = {
    "classes": ("num_classes", "n_classes", "nb_classes", "num_labels"),
    "weights": ("pretrained", "checkpoint_path", "checkpoint", "ckpt"),
    "input_shape": ("img_size", "image_shape", "input_size", "shape")
    + ("in_chans", "in_channels", "channels", "num_channels"),
    "pooling": ("global_pool",),
    "endpoints": ("features_only", "out_indices", "return_endpoints"),
    "classifier_activation": ("activation_fn", "head_activation"),
    "include_preprocessing": ("rescale", "include_rescaling", "normalize"),
    "norm_momentum": ("bn_momentum", "momentum"),
    "norm_epsilon": ("bn_eps", "bn_epsilon", "epsilon"),
    "use_sync_bn": ("sync_bn", "synchronized"),
    "dropout_rate": ("drop_rate", "dropout", "dropout_prob"),
    "drop_path_rate": ("drop_connect_rate", "stochastic_depth_rate"),
    "kernel_regularizer": ("weight_decay", "l2_regularizer"),
    "widths": ("filters", "channels_per_stage"),
    "num_heads": ("heads",),
    "activation": ("act_layer",),
}


def replace(spec, changes, others=()):
    """Returns a spec with some attributes changed.

    Args:
        spec: `ResNetSpec` or `MobileNetSpec`.
        changes: dict from attribute to value.
        others: names that the caller takes as well, for "did you mean".

    Returns:
        A spec of the same class.

    Raises:
        ValueError: if the spec has no such attribute, a value is out of range,
            or an attribute changes nothing in the network that results. The
            value that it has is allowed.

    Examples:
        >>> replace(RESNETS["LambdaResNet50"], {"scope": 7}).scope
        7
    """
    _, *fields = [field.name for field in dataclasses.fields(spec)]  # No name.
    for change in changes:
        if change not in fields:
            raise ValueError(
                f"`{change}` is not an argument of {spec.name}. Received: "
                f"{change}={changes[change]!r}."
                f"{_instead_of(change, (*fields, *others))} Besides those of "
                "every builder (include_top, weights, ...): "
                f"{', '.join(fields)}."
            )
    changed = dataclasses.replace(spec, **changes)
    unused = changed.unused()
    vain = [name for name in changed_fields(spec, changed) if name in unused]
    if vain:
        values = ", ".join(f"{name}={changes[name]!r}" for name in vain)
        raise ValueError(
            f"{' and '.join(f'`{name}`' for name in vain)} would change "
            f"nothing in this {spec.name}, which has no {unused[vain[0]]}. "
            f"Received: {values}. Leave out what changes nothing, or give the "
            "network what reads it."
        )
    return changed


def changed_fields(spec, changed):
    """Returns the attributes in which a spec differs from what it was.

    Args:
        spec: `ResNetSpec` or `MobileNetSpec`.
        changed: another one of the same class.

    Returns:
        List of names, in the order of the class.

    Examples:
        >>> spec = RESNETS["LambdaResNet50"]
        >>> changed_fields(spec, replace(spec, {"scope": 7}))
        ['scope']
    """
    names = [field.name for field in dataclasses.fields(spec)]
    return [n for n in names if getattr(spec, n) != getattr(changed, n)]


def _instead_of(name, names):
    """Returns " Did you mean ...?", also for a word of other libraries."""
    meant = {name: name for name in names}
    for argument, synonyms in _SYNONYMS.items():
        if argument in names:
            meant |= dict.fromkeys(synonyms, argument)
    near = difflib.get_close_matches(name, list(meant), n=1, cutoff=0.55)
    return f" Did you mean {meant[near[0]]!r}?" if near else ""
