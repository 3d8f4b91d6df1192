"""Where random layers draw from."""

import contextlib
import threading

import tensorflow as tf

_active = threading.local()


@contextlib.contextmanager
def random_streams(seed):
    """Inside, every draw is a function of `seed` and of its place in the model.

    A training step that is entered with a seed made from its number and its
    replica draws the same numbers whenever it is repeated, so that a run that
    was stopped can continue as if it had not been. The scope counts for the
    Python thread that enters it, while a function is traced.

    Args:
        seed: int tensor `(2,)`.
    """
    outer = getattr(_active, "streams", None)
    _active.streams = [seed, 0]
    try:
        yield
    finally:
        _active.streams = outer


def uniform(shape):
    """Uniform numbers in [0, 1), in float32: a coarser draw changes rates.

    Outside `random_streams` they come from TensorFlow's global generator:
    different for each replica, and the same after
    `tf.keras.utils.set_random_seed`.

    Args:
        shape: of the result; can be a tensor.

    Returns:
        A float32 tensor.
    """
    streams = getattr(_active, "streams", None)
    if streams is None:
        return tf.random.uniform(shape)
    streams[1] += 1
    seed = tf.random.experimental.stateless_fold_in(streams[0], streams[1])
    return tf.random.stateless_uniform(shape, seed)
