"""The strategy for TPUs: how it is set up, and what it would run.

Nothing here runs on a TPU. `fake_tpu` traces the steps of a run under the real
`TPUStrategy`; `benchmarks/tpu/compile.py` compiles them.
"""

import types
from unittest import mock

import pytest
import tensorflow as tf

from benchmarks.tpu.operations import audit
from lambdanet_tf.environment import KERAS_3
from lambdanet_tf.ops import planning_for
from lambdanet_tf.training import RunOptions
from lambdanet_tf.training import devices
from lambdanet_tf.training import loop
from lambdanet_tf.training import resolve
from lambdanet_tf.training import steps
from tests.support.arrays import assert_same
from tests.support.fake_tpu import fake_tpu_strategy

pytestmark = pytest.mark.skipif(
    KERAS_3, reason="TPUs are for tf_keras: see create_strategy"
)

CORES = 2


@pytest.fixture(scope="module")
def traced():
    """The parts of a run under the fake strategy."""
    arguments = {"stages": ["CL", "L"], "widths": [8, 8], "strides": [1, 2]}
    changes = {
        "model_arguments": {**arguments, "se_ratio": 0.25},
        "precision": "mixed_bfloat16",
        "dropout_rate": 0.1,
        "drop_path_rate": 0.2,
        "global_clipnorm": 1.0,
    }
    recipe, strategy = resolve("smoke", changes), fake_tpu_strategy(CORES)
    with planning_for("tpu"):
        pipeline, state = loop.set_up(recipe, RunOptions(), strategy)
    return types.SimpleNamespace(
        recipe=recipe, strategy=strategy, pipeline=pipeline, state=state
    )


@pytest.fixture(scope="module")
def update(traced):
    """One step of the replicas, as a concrete function."""
    with traced.strategy.scope():
        step = steps.update_step(traced.state, traced.recipe)
    batch = next(iter(traced.pipeline.training()))

    @tf.function
    def run(images, labels, number):
        return traced.strategy.run(step, args=(images, labels, number))

    with planning_for("tpu"):
        number = tf.TensorSpec([], tf.int64)
        return run.get_concrete_function(*batch, number)


# Setting up.


def test_the_order_of_setting_up(monkeypatch):
    """And what is said where a TPU cannot be reached."""
    asked = mock.Mock()
    for place, name in (
        (tf.distribute.cluster_resolver, "TPUClusterResolver"),
        (tf.config, "experimental_connect_to_cluster"),
        (tf.tpu.experimental, "initialize_tpu_system"),
        (tf.distribute, "TPUStrategy"),
    ):
        monkeypatch.setattr(place, name, getattr(asked, name))
    strategy = devices.create_strategy(RunOptions(tpu="pod-7"))
    assert strategy is asked.TPUStrategy.return_value
    resolver = asked.TPUClusterResolver.return_value
    assert asked.mock_calls == [
        mock.call.TPUClusterResolver(tpu="pod-7"),
        mock.call.experimental_connect_to_cluster(resolver),
        mock.call.initialize_tpu_system(resolver),
        mock.call.TPUStrategy(resolver),
    ]
    refusal = tf.errors.UnavailableError(None, None, "no route to host")
    asked.experimental_connect_to_cluster.side_effect = refusal
    message = r"Cannot use the TPU 'pod-7'.*no route.*tensorflow-tpu"
    with pytest.raises(ValueError, match=message):
        devices.create_strategy(RunOptions(tpu="pod-7"))


# What the cores would run.


def test_gradients_and_batch_statistics_are_summed_over_the_cores(
    traced, update
):
    assert isinstance(traced.strategy, tf.distribute.TPUStrategy)
    assert devices.describe(traced.strategy) == "2 TPU cores"
    together = audit(update).counts
    assert together["TPUReplicateMetadata"] == 1
    model, norm_type = traced.state.model, tf.keras.layers.BatchNormalization
    norms = [m for m in model.submodules if isinstance(m, norm_type)]
    assert len(norms) > 5
    assert all(norm.synchronized for norm in norms)
    # Once forward and once backward for each norm.
    gradients = len(model.trainable_variables)
    assert together["CrossReplicaSum"] == gradients + 2 * len(norms)


def test_nothing_in_a_run_lacks_a_kernel(traced):
    batches = iter(traced.pipeline.training(count_bad=True))
    arguments = batches, tf.constant(0, tf.int64), tf.constant(4)
    test = next(iter(traced.pipeline.evaluation(traced.pipeline.images.test)))
    with traced.strategy.scope():
        take_steps = steps.training_step(traced.state, traced.recipe)
        evaluate = steps.evaluation_step(traced.state.model)
    with planning_for("tpu"):
        training = audit(take_steps.get_concrete_function(*arguments))
        evaluation = audit(evaluate.get_concrete_function(test))
    assert training.counts["CrossReplicaSum"] > 0
    assert set(training.without_kernel) <= {"IteratorGetNext"}
    assert training.dynamic == training.double == ()
    assert evaluation.counts["TPUReplicateMetadata"] == 1
    assert evaluation.without_kernel == ()
    assert evaluation.dynamic == evaluation.double == ()


def test_averages_are_swapped_on_every_core(traced):
    """Nothing has run: the averages equal the weights."""
    weights = traced.state.model.weights

    def values():
        assert all(len(weight.values) == CORES for weight in weights)
        return [core.numpy() for weight in weights for core in weight.values]

    averages = values()
    for weight in weights:
        weight.assign_add(tf.ones_like(weight))
    moved = values()
    traced.state.averages.swap()
    assert_same(values(), averages)
    traced.state.averages.swap()
    assert_same(values(), moved)
