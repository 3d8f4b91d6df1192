"""The state of a sequence: what a layer keeps between two steps."""

import tensorflow as tf

from lambdanet_tf.ops.devices import accumulation_dtype
from lambdanet_tf.ops.keys import MASKED_LOGIT


def content_state_spec(
    key_dim,
    value_dim,
    intra_depth=1,
    normalization: str | None = "softmax",
    dtype=tf.float32,
):
    """Returns the shapes and dtypes of the state of a content lambda.

    Returns:
        Dictionary of `tf.TensorSpec`, float32 or wider. "content", `(batch,
        key_dim, intra_depth, value_dim)`: the sum of keys times values.
        "key_sum", `(batch, key_dim, intra_depth)`: the sum of exponentials
        (softmax) or squares (l2). "key_maximum", same shape, softmax only: the
        exponents in the sums are relative to it.
    """
    dtype = accumulation_dtype(tf.as_dtype(dtype))
    channels = [key_dim, intra_depth]
    shapes = {"content": [None, *channels, value_dim]}
    if normalization is not None:
        shapes["key_sum"] = [None, *channels]
    if normalization == "softmax":
        shapes["key_maximum"] = [None, *channels]
    return {x: tf.TensorSpec(shapes[x], dtype, x) for x in shapes}


def initial_state(spec, batch_size):
    """Returns the state of a batch of sequences before their first position.

    All but "key_maximum" starts at zero.
    """
    state = {}
    for name, part in spec.items():
        first = MASKED_LOGIT if name == "key_maximum" else 0.0
        first = tf.cast(first, part.dtype)
        state[name] = tf.fill([batch_size, *part.shape[1:]], first)
    return state
