"""How many threads pipelines use, without a tuner."""

import os

import tensorflow as tf

# Calls of a map at once.
THREADS = os.cpu_count() or 1


def without_tuner(dataset: tf.data.Dataset) -> tf.data.Dataset:
    """Switches off the thread that tunes a dataset and those made of it.

    The thread sleeps ever longer, up to a minute, and an iterator's end waits
    for it: when it is cancelled, TensorFlow (2.15 to 2.21) wakes it before it
    can see that it was, and often it goes back to sleep. Each evaluation and
    each run would end with such a wait, about every other time.

    Args:
        dataset: any. Maps of it must say how many calls they make at once.
    """
    options = tf.data.Options()
    options.autotune.enabled = False
    return dataset.with_options(options)
