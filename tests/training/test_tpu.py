"""The strategy for TPUs: how it is set up, and what it would run.

Nothing here runs on a TPU. `fake_tpu` traces the steps of a run under the real
`TPUStrategy`; `benchmarks/tpu/compile.py` compiles them.
"""

import types
from unittest import mock

import pytest
import tensorflow as tf

from benchmarks.tpu.operations import audit
from lambdanet_tf import training
from lambdanet_tf.environment import KERAS_3
from lambdanet_tf.ops import planning_for
from lambdanet_tf.training import devices
from lambdanet_tf.training import loop
from lambdanet_tf.training import steps
from tests.support.arrays import assert_same
from tests.training.fake_tpu import fake_tpu_strategy

pytestmark = pytest.mark.skipif(
    KERAS_3, reason="TPUs are for tf_keras: see create_strategy"
)

CORES = 2


@pytest.fixture(scope="module")
def traced():
    """The parts of a run under the fake strategy."""
    arguments = {"stages": ["CL", "L"], "widths": [8, 8], "strides": [1, 2]}
    changes = {"precision": "mixed_bfloat16", "dropout_rate": 0.1}
    changes |= {"drop_path_rate": 0.2, "global_clipnorm": 1.0}
    changes["model_arguments"] = {**arguments, "se_ratio": 0.25}
    recipe = training.resolve("smoke", changes)
    strategy = fake_tpu_strategy(CORES)
    with planning_for("tpu"):
        pipeline, state = loop.set_up(recipe, training.RunOptions(), strategy)
    return types.SimpleNamespace(
        recipe=recipe, strategy=strategy, pipeline=pipeline, state=state
    )


def test_the_order_of_setting_up(monkeypatch):
    """And what is said where a TPU cannot be reached."""
    asked = mock.Mock()
    places = {
        "TPUClusterResolver": tf.distribute.cluster_resolver,
        "experimental_connect_to_cluster": tf.config,
        "initialize_tpu_system": tf.tpu.experimental,
        "TPUStrategy": tf.distribute,
    }
    for name, place in places.items():
        monkeypatch.setattr(place, name, getattr(asked, name))
    strategy = devices.create_strategy(training.RunOptions(tpu="pod-7"))
    assert strategy is asked.TPUStrategy.return_value
    assert [name for name, *_ in asked.mock_calls] == list(places)
    asked.TPUClusterResolver.assert_called_with(tpu="pod-7")
    refusal = tf.errors.UnavailableError(None, None, "no route to host")
    asked.experimental_connect_to_cluster.side_effect = refusal
    message = r"Cannot use the TPU 'pod-7'.*no route.*tensorflow-tpu"
    with pytest.raises(ValueError, match=message):
        devices.create_strategy(training.RunOptions(tpu="pod-7"))


def test_gradients_and_batch_statistics_are_summed_over_the_cores(traced):
    batch = next(iter(traced.pipeline.training()))
    with traced.strategy.scope():
        step = steps.update_step(traced.state, traced.recipe)

    @tf.function
    def run(*batch):
        return traced.strategy.run(step, args=batch)

    number = tf.TensorSpec([], tf.int64)
    with planning_for("tpu"):
        together = audit(run.get_concrete_function(*batch, number)).counts
    assert isinstance(traced.strategy, tf.distribute.TPUStrategy)
    assert devices.describe(traced.strategy) == "2 TPU cores"
    assert together["TPUReplicateMetadata"] == 1
    model, norm_type = traced.state.model, tf.keras.layers.BatchNormalization
    norms = [m for m in model.submodules if isinstance(m, norm_type)]
    assert len(norms) > 5
    assert all(norm.synchronized for norm in norms)
    # Once forward and once backward for each norm.
    gradients = len(model.trainable_variables)
    assert together["CrossReplicaSum"] == gradients + 2 * len(norms)


def test_nothing_in_a_run_lacks_a_kernel(traced):
    batches = iter(traced.pipeline.training())
    arguments = batches, tf.constant(0, tf.int64), tf.constant(4)
    test = next(iter(traced.pipeline.evaluation(traced.pipeline.images.test)))
    with traced.strategy.scope():
        take_steps = steps.training_step(traced.state, traced.recipe)
        evaluate = steps.evaluation_step(traced.state.model)
    with planning_for("tpu"):
        trained = audit(take_steps.get_concrete_function(*arguments))
        evaluated = audit(evaluate.get_concrete_function(test))
    assert trained.counts["CrossReplicaSum"] > 0
    assert set(trained.without_kernel) <= {"IteratorGetNext"}
    assert evaluated.counts["TPUReplicateMetadata"] == 1
    assert evaluated.without_kernel == ()
    for each in (trained, evaluated):
        assert each.dynamic == each.double == ()


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
