"""In which precision sums over positions run: float32 or wider.

Matrix units add up numbers of half precision in float32; so does `tf.matmul` on
a CPU. TensorFlow's other operations there add up in the dtype that they are
given: in bfloat16 a sum of ones ends at 256, or not far above.
"""

import tensorflow as tf

from lambdanet_tf.ops.devices import target_device


def accumulation_dtype(dtype):
    """Returns in what sums over positions are kept: float32, or float64."""
    return tf.float64 if dtype == tf.float64 else tf.float32


def factor_dtype(dtype, narrow=(tf.bfloat16, tf.float16)):
    """Returns to what factors of sums over positions are cast.

    That is a half precision itself on devices whose matrix units know it and
    add up in float32, if it is among `narrow`: one sum over all positions can
    be larger than any float16, and the share of one among thousands smaller.
    """
    known = {"tpu": (tf.bfloat16,), "gpu": (tf.bfloat16, tf.float16)}
    if dtype in narrow and dtype in known.get(target_device(), ()):
        return dtype
    return accumulation_dtype(dtype)
