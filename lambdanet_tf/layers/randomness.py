"""Where random layers draw from."""

import contextlib
import threading

import tensorflow as tf

_active = threading.local()


@contextlib.contextmanager
def random_streams(seed):
    """Inside, every draw is a function of `seed` and of the layer that draws.

    A training step that is entered with a seed made from its number and its
    replica draws the same numbers whenever it is repeated: a run that was
    stopped continues as if it had not been, and `tf.recompute_grad` sees what
    the forward pass saw. Layers are told apart by the order of their first
    draw; one that is called twice draws the same numbers twice. The scope
    counts for the Python thread that enters it, while a function is traced.

    Args:
        seed: int tensor `(2,)`.
    """
    outer = getattr(_active, "streams", None)
    _active.streams = (seed, {})
    try:
        yield
    finally:
        _active.streams = outer


def uniform(shape, layer):
    """Draws uniform numbers in [0, 1), in float32: a coarser draw is biased.

    Outside `random_streams` they come from TensorFlow's global generator:
    different for each replica, and the same after
    `tf.keras.utils.set_random_seed`.

    Args:
        shape: of the result; can be a tensor.
        layer: the object that draws.

    Returns:
        A float32 tensor.
    """
    streams = getattr(_active, "streams", None)
    if streams is None:
        return tf.random.uniform(shape)
    seed, numbers = streams
    number = numbers.setdefault(id(layer), len(numbers) + 1)
    seed = tf.random.experimental.stateless_fold_in(seed, number)
    return tf.random.stateless_uniform(shape, seed)
