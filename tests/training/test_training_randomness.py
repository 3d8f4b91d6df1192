"""Random layers repeat a step's draws; what a caller draws goes on."""

import random

import numpy as np
import tensorflow as tf

from lambdanet_tf.training import devices
from lambdanet_tf.training import steps


def test_every_step_and_every_replica_has_a_seed_of_its_own(two_replicas):
    @tf.function
    def seeds(step):
        return two_replicas.run(lambda: steps._replica_seed(3, step))

    found = [
        tuple(seed.numpy())
        for step in tf.range(3, dtype=tf.int64)
        for seed in two_replicas.experimental_local_results(seeds(step))
    ]
    assert len(set(found)) == 6


def draws():
    """What a caller draws, of all generators that there are."""
    layer = tf.keras.layers.Dense(3)
    layer.build((None, 4))
    dropped = tf.keras.layers.Dropout(0.5)(tf.ones([100]), training=True)
    drawn = [layer.kernel, tf.random.uniform([3]), dropped]
    values = [np.asarray(values).tolist() for values in drawn]
    return [*values, random.random(), np.random.uniform()]  # noqa: NPY002


def test_the_callers_draws_go_on_as_they_would_have():
    """Else each trial of a random search would be the same."""
    found = []
    for is_between in (False, True):
        tf.keras.utils.set_random_seed(3)
        draws()
        if is_between:
            with devices.callers_state_restored():
                tf.keras.utils.set_random_seed(5)
                draws()
        found.append(draws())
    assert found[0] == found[1]
