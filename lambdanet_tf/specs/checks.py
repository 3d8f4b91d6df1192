"""What each attribute of a spec may be."""

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


def _color(name, value, above=-math.inf):
    """A number for each of three channels."""
    if len(value) != 3 or not all(above < x < math.inf for x in value):
        raise ValueError(
            f"`{name}` must be three numbers, one per color"
            f"{'' if above < 0 else ', above 0'}. Received: {name}={value}."
        )


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
    "image_mean": _color,
    "image_std": functools.partial(_color, above=0),
}
_CHOICES = {
    "padding": ("same", "symmetric"),
    "shortcut": ("pool", "conv"),
    "drop_path_schedule": ("stage", "block", "constant"),
    "key_normalization": ("softmax", "l2", None),
    "query_normalization": ("softmax", None),
}


def check_attributes(spec):
    """Raises a ValueError for a wrong type, or what no network can have."""
    check_types(spec)
    for name, value in vars(spec).items():
        if name in _CHECKS:
            _CHECKS[name](name, value)
        if name in _CHOICES:
            one_of(name, value, _CHOICES[name])
