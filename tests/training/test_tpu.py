"""The strategy for TPUs: how it is set up, and what it would run.

Nothing here runs on a TPU: the steps of a run are traced under the real
`TPUStrategy`. `benchmarks/tpu/compile.py` compiles them.
"""

import collections
from unittest import mock

import numpy as np
import pytest
import tensorflow as tf

from benchmarks.tpu.operations import audit
from lambdanet_tf import training
from lambdanet_tf.environment import KERAS_3
from lambdanet_tf.ops import planning_for
from lambdanet_tf.training import devices
from lambdanet_tf.training import loop
from lambdanet_tf.training import report
from lambdanet_tf.training import steps
from tests.support.arrays import assert_same

pytestmark = pytest.mark.skipif(
    KERAS_3, reason="TPUs are for tf_keras: see create_strategy"
)

CORES = 2
PLACE = "/job:localhost/replica:0/task:0/device:"


def fake_tpu_strategy():
    """A `TPUStrategy` of cores that are not there, then of logical CPUs.

    The private attributes are those of TensorFlow 2.20 and 2.21.
    """
    device = collections.namedtuple("device", "name device_type")
    places = [device(f"{PLACE}CPU:0", "CPU")]
    places += [device(f"{PLACE}TPU:{i}", "TPU") for i in range(CORES)]
    system = tf.tpu.experimental.TPUSystemMetadata
    answers = {
        "get_tpu_system_metadata": system(CORES, 1, CORES, None, places),
        "master": "",
        "cluster_spec": tf.train.ClusterSpec({}),
        "get_job_name": "localhost",
    }
    resolver = mock.Mock()
    for name, answer in answers.items():
        getattr(resolver, name).return_value = answer
    strategy = tf.distribute.TPUStrategy(resolver)
    cores = [f"{PLACE}CPU:{i}" for i in range(CORES)]
    host, ordered = cores[0], collections.OrderedDict
    extended = strategy.extended
    extended._tpu_devices = np.array([[core] for core in cores], dtype=object)
    extended._host_device = host
    extended._device_input_worker_devices = ordered({host: cores})
    extended._host_input_worker_devices = ordered({host: [host] * CORES})
    return strategy


def test_a_tpu_that_cannot_be_reached_is_named(monkeypatch):
    refusal = tf.errors.UnavailableError(None, None, "no route to host")
    connect = mock.Mock(side_effect=refusal)
    resolvers = tf.distribute.cluster_resolver
    monkeypatch.setattr(resolvers, "TPUClusterResolver", connect)
    message = r"Cannot use the TPU 'pod-7'.*no route.*tensorflow-tpu"
    with pytest.raises(ValueError, match=message):
        devices.create_strategy(training.RunOptions(tpu="pod-7"))
    connect.assert_called_with(tpu="pod-7")


def test_a_run_sums_over_the_cores_and_nothing_in_it_lacks_a_kernel():
    """Sums of gradients, and of the statistics of a batch."""
    arguments = {"stages": ["CL", "L"], "widths": [8, 8], "strides": [1, 2]}
    changes = {"precision": "mixed_bfloat16", "dropout_rate": 0.1}
    changes |= {"drop_path_rate": 0.2, "global_clipnorm": 1.0}
    changes["model_arguments"] = {**arguments, "se_ratio": 0.25}
    recipe = training.resolve("smoke", changes)
    strategy = fake_tpu_strategy()
    with planning_for("tpu"):
        pipeline, state = loop.set_up(recipe, training.RunOptions(), strategy)
    batches, number = iter(pipeline.training()), tf.constant(0, tf.int64)
    test = next(iter(pipeline.evaluation(pipeline.images.test)))
    with strategy.scope():
        step = steps.update_step(state, recipe)
        take_steps = steps.training_step(state, recipe)
        evaluate = steps.evaluation_step(state.model)

    @tf.function
    def take_step(*batch):
        return strategy.run(step, args=batch)

    with planning_for("tpu"):
        together, trained, evaluated = (
            audit(function.get_concrete_function(*arguments))
            for function, arguments in (
                (take_step, (*next(batches), number)),
                (take_steps, (batches, number, tf.constant(4))),
                (evaluate, (test,)),
            )
        )
    assert isinstance(strategy, tf.distribute.TPUStrategy)
    assert report.describe(strategy) == "2 TPU cores"
    assert together.counts["TPUReplicateMetadata"] == 1
    norm_type = tf.keras.layers.BatchNormalization
    norms = [m for m in state.model.submodules if isinstance(m, norm_type)]
    assert len(norms) > 5
    assert all(norm.synchronized for norm in norms)
    # Once forward and once backward for each norm.
    gradients = len(state.model.trainable_variables)
    sums = gradients + 2 * len(norms)
    assert together.counts["CrossReplicaSum"] == sums
    assert trained.counts["CrossReplicaSum"] > 0
    assert set(trained.without_kernel) <= {"IteratorGetNext"}
    assert evaluated.counts["TPUReplicateMetadata"] == 1
    assert evaluated.without_kernel == ()
    for each in (trained, evaluated):
        assert each.dynamic == each.double == ()

    # Nothing has run: the averages equal the weights.
    weights = state.model.weights

    def values():
        assert all(len(weight.values) == CORES for weight in weights)
        return [core.numpy() for weight in weights for core in weight.values]

    averages = values()
    for weight in weights:
        weight.assign_add(tf.ones_like(weight))
    moved = values()
    state.averages.swap()
    assert_same(values(), averages)
    state.averages.swap()
    assert_same(values(), moved)
