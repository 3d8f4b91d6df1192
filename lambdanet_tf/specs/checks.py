"""Checks of what every spec has."""

from lambdanet_tf.arguments import check_types
from lambdanet_tf.arguments import fraction
from lambdanet_tf.arguments import one_of
from lambdanet_tf.arguments import positive_int


def check_common(spec):
    """Raises a ValueError for a wrong type, or what no network can have."""
    check_types(spec)
    check_positive(spec, ("image_size", "num_heads", "key_dim", "intra_depth"))
    one_of("padding", spec.padding, ("same", "symmetric"))
    fraction("norm_epsilon", spec.norm_epsilon)
    fraction("dropout_rate", spec.dropout_rate, below_one=True)
    for field in ("name", "activation"):
        if not getattr(spec, field):
            raise ValueError(f"`{field}` must not be empty. Received: ''.")


def check_positive(spec, fields):
    """Raises a ValueError unless integers, or tuples of them, are positive."""
    for field in fields:
        value = getattr(spec, field)
        for number in value if isinstance(value, tuple) else (value,):
            positive_int(field, number)
