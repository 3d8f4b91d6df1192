"""Random layers repeat a step's draws; what a caller draws goes on."""

import random

import numpy as np
import pytest
import tensorflow as tf

from lambdanet_tf import layers
from lambdanet_tf.environment import KERAS_3
from lambdanet_tf.layers.randomness import random_streams
from lambdanet_tf.training import devices
from lambdanet_tf.training import steps
from tests.support.arrays import assert_same

LAYERS = [
    lambda: layers.Dropout(0.5),
    lambda: layers.StochasticDepth(0.5),
]


@pytest.fixture(params=LAYERS, ids=["dropout", "stochastic_depth"])
def draw(request):
    """A compiled function from a seed to the draws of two equal layers."""
    first, second = request.param(), request.param()
    ones = tf.ones([64, 3])

    @tf.function
    def draws(seed):
        with random_streams(seed):
            return first(ones, training=True), second(ones, training=True)

    return lambda *seed: [x.numpy() for x in draws(tf.constant(seed))]


@pytest.mark.slow
def test_equal_seeds_give_equal_draws_and_others_others(draw):
    first, second = draw(3, 5)
    assert_same(draw(3, 5), (first, second))
    assert not np.array_equal(first, second)
    assert not np.array_equal(first, draw(3, 6)[0])


def test_outside_the_scope_draws_follow_the_global_generator():
    layer, ones = layers.Dropout(0.5), tf.ones([64, 3])
    with random_streams(tf.constant([3, 5])):
        inside = layer(ones, training=True)
    assert not np.array_equal(inside, layer(ones, training=True))
    assert not np.array_equal(
        layer(ones, training=True), layer(ones, training=True)
    )


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
    layer, ones = tf.keras.layers.Dense(3), tf.ones([100])
    layer.build((None, 4))
    numbers = tf.data.Dataset.range(100).shuffle(100)
    dropped = tf.keras.layers.Dropout(0.5)(ones, training=True)
    drawn = [layer.kernel, tf.random.uniform([3]), dropped]
    if KERAS_3:
        drawn.append(tf.keras.random.uniform([3]))
    values = [np.asarray(values).tolist() for values in drawn]
    random_numbers = random.random(), np.random.uniform()  # noqa: NPY002
    return [*values, [*numbers.as_numpy_iterator()], random_numbers]


@pytest.mark.parametrize("seed", [3, None])
def test_the_callers_draws_go_on_as_they_would_have(seed):
    """Else each trial of a random search would be the same."""
    found = []
    for is_between in (False, True, True):
        tf.keras.utils.set_random_seed(3)
        if seed is None:
            tf.random.set_seed(None)
        draws()
        if is_between:
            with devices.callers_state_restored():
                tf.keras.utils.set_random_seed(5)
                draws()
        found.append(draws())
    if seed is None:  # TensorFlow draws by chance; Keras as it was told.
        tensors = [np.concatenate([d[1], d[2], d[-2]]) for d in found]
        assert not np.array_equal(tensors[0], tensors[1])
        assert not np.array_equal(tensors[1], tensors[2])
    else:
        assert found[1:] == found[:1] * 2
