"""Initializers that draw different numbers for each weight."""

from typing import Any

import numpy as np
import tensorflow as tf


class Initializers:
    """Gives out initializers, each with numbers of its own.

    An instance of Keras draws the same numbers whenever it is called, so
    that several weights of one shape would start equal. Here each weight
    gets a copy; where a seed comes again, the copy has one derived from it,
    and from how many weights had it before. The first keeps it.
    """

    def __init__(self):
        self._uses: dict[int, int] = {}

    def __call__(self, initializer: Any) -> Any:
        """Returns the initializer for the next weight.

        Args:
            initializer: whatever Keras takes.
        """
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
