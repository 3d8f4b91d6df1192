"""Random numbers: of weights that start, and of layers that draw."""

import contextlib
import threading
from typing import Any

import numpy as np
import tensorflow as tf

_active = threading.local()


@contextlib.contextmanager
def random_streams(seed):
    """Inside, every draw is a function of `seed` and of the layer that draws.

    A training step with a seed `(2,)` of its number and its replica draws the
    same numbers whenever it is repeated. Layers are told apart by the order of
    their first draw; one that is called twice draws the same numbers twice. The
    scope counts for the Python thread that enters it.
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
    """
    streams = getattr(_active, "streams", None)
    if streams is None:
        return tf.random.uniform(shape)
    seed, numbers = streams
    number = numbers.setdefault(id(layer), len(numbers) + 1)
    seed = tf.random.experimental.stateless_fold_in(seed, number)
    return tf.random.stateless_uniform(shape, seed)


class Initializers:
    """Gives out initializers, each with numbers of its own.

    An instance of Keras draws the same numbers whenever it is called. Here each
    weight gets a copy, with a seed of its own from the second on.
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
        elif seed is not None:  # No seed, or a generator, which moves on.
            return initializer
        return type(initializer).from_config(config)
