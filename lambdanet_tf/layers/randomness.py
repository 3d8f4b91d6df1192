"""Random numbers: initial weights, and layers that draw in training."""

import contextlib
import threading
from typing import Any

import numpy as np
import tensorflow as tf

_active = threading.local()


@contextlib.contextmanager
def random_streams(seed):
    """Makes every draw depend on `seed` and on the layer that draws.

    If a training step's seed `(2,)` is its number and its replica, it draws the
    same numbers whenever it is repeated. Layers are numbered by their first
    draw; a layer that is called twice draws the same numbers twice. The scope
    applies to the Python thread that enters it.
    """
    outer = getattr(_active, "streams", None)
    _active.streams = (seed, {})
    try:
        yield
    finally:
        _active.streams = outer


def uniform(shape, layer):
    """Draws uniform numbers in [0, 1), in float32: a coarser draw is biased.

    Outside `random_streams`, TensorFlow's global generator draws them. They
    differ between replicas, and `tf.keras.utils.set_random_seed` repeats them.
    """
    streams = getattr(_active, "streams", None)
    if streams is None:
        return tf.random.uniform(shape)
    seed, numbers = streams
    number = numbers.setdefault(id(layer), len(numbers) + 1)
    seed = tf.random.experimental.stateless_fold_in(seed, number)
    return tf.random.stateless_uniform(shape, seed)


class Initializers:
    """Returns a different initializer for each weight.

    A Keras initializer draws the same numbers at every call. Here each weight
    gets a copy, and each copy but the first gets another seed.
    """

    def __init__(self):
        self._uses: dict[int, int] = {}

    def __call__(self, initializer: Any) -> Any:
        """Returns the initializer for the next weight."""
        initializer = tf.keras.initializers.get(initializer)
        if not isinstance(initializer, tf.keras.initializers.Initializer):
            return initializer
        config = initializer.get_config()
        seed = config.get("seed", "none")
        if isinstance(seed, int):
            uses = self._uses.get(seed, 0)
            self._uses[seed] = uses + 1
            if uses:
                state = np.random.SeedSequence([abs(seed), uses])
                config["seed"] = int(state.generate_state(1)[0] >> 1)
        elif seed is not None:  # It has no seed, or a generator.
            return initializer
        return type(initializer).from_config(config)
