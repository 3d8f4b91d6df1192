"""The strategy for TPUs: how it is set up, and what it would run.

Nothing here runs on a TPU. `fake_tpu` traces the steps of a run under the real
`TPUStrategy`; `benchmarks/tpu/compile.py` compiles them.
"""

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

CORES, BATCH = 2, 64
HOST_OPERATIONS = {"IteratorGetNext"}


class Traced:
    """The parts of a run under the fake strategy."""

    def __init__(self, **arguments):
        self.strategy = fake_tpu_strategy(CORES)
        arguments |= {"stages": ["CL", "L"], "widths": [8, 8]}
        arguments |= {"strides": [1, 2], "se_ratio": 0.25}
        changes = {
            "model_arguments": arguments,
            "batch_size": BATCH,
            "precision": "mixed_bfloat16",
            "dropout_rate": 0.1,
            "drop_path_rate": 0.2,
            "global_clipnorm": 1.0,
        }
        self.recipe = resolve("smoke", changes)
        with planning_for("tpu"):
            self.pipeline, self.state = loop.set_up(
                self.recipe, RunOptions(), self.strategy
            )
        self.model = self.state.model

    def step(self, make):
        """One of the functions that make steps, for these parts."""
        with self.strategy.scope():
            return make(self.state, self.recipe)

    def update(self):
        """One step of the replicas, as a concrete function."""
        step = self.step(steps.update_step)
        batch = next(iter(self.pipeline.training()))

        @tf.function
        def run(images, labels, number):
            return self.strategy.run(step, args=(images, labels, number))

        with planning_for("tpu"):
            number = tf.TensorSpec([], tf.int64)
            return run.get_concrete_function(*batch, number)


@pytest.fixture(scope="module")
def traced():
    return Traced()


@pytest.fixture(scope="module")
def update(traced):
    return traced.update()


# Setting up.


@pytest.fixture
def asked(monkeypatch):
    """Records in which order TensorFlow is asked for what."""
    names = []

    def record(place, name, result=None):
        def call(argument=None, **keywords):
            names.append((name, argument or keywords.get("tpu")))
            return result or f"the result of {name}"

        monkeypatch.setattr(place, name, call)

    record(tf.distribute.cluster_resolver, "TPUClusterResolver", "resolver")
    record(tf.config, "experimental_connect_to_cluster")
    record(tf.tpu.experimental, "initialize_tpu_system")
    record(tf.distribute, "TPUStrategy", "strategy")
    return names


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({"tpu": "pod-7"}, "pod-7"),
        ({"tpu": "local"}, "local"),
        ({"strategy": "tpu"}, "local"),
    ],
)
def test_the_order_of_setting_up(asked, options, name):
    assert devices.create_strategy(RunOptions(**options)) == "strategy"
    assert asked == [
        ("TPUClusterResolver", name),
        ("experimental_connect_to_cluster", "resolver"),
        ("initialize_tpu_system", "resolver"),
        ("TPUStrategy", "resolver"),
    ]


def test_a_tpu_that_cannot_be_reached(monkeypatch):
    def refuse(resolver):
        raise tf.errors.UnavailableError(None, None, "no route to host")

    monkeypatch.setattr(
        tf.distribute.cluster_resolver, "TPUClusterResolver", lambda tpu: tpu
    )
    monkeypatch.setattr(tf.config, "experimental_connect_to_cluster", refuse)
    message = r"Cannot use the TPU 'pod-7'.*no route.*tensorflow-tpu"
    with pytest.raises(ValueError, match=message):
        devices.create_strategy(RunOptions(tpu="pod-7"))


def test_compiling_twice_is_refused():
    with pytest.raises(ValueError, match="`jit_compile` is for one device"):
        devices.create_strategy(RunOptions(tpu="local", jit_compile=True))


# What the cores would run.


def test_it_is_the_real_strategy(traced):
    assert isinstance(traced.strategy, tf.distribute.TPUStrategy)
    assert devices.describe(traced.strategy) == "2 TPU cores"


def test_every_core_is_fed_its_share_of_the_batch(traced):
    images, labels = traced.pipeline.training().element_spec
    for spec in images._component_specs:
        assert spec == tf.TensorSpec([BATCH // CORES, 8, 8, 1], tf.bfloat16)
    for spec in labels._component_specs:
        assert spec == tf.TensorSpec([BATCH // CORES, 10], tf.float32)


def test_the_batches_differ_between_the_cores(traced):
    images, _ = next(iter(traced.pipeline.training()))
    first, second = traced.strategy.experimental_local_results(images)
    assert tf.reduce_any(first != second)


def test_the_step_is_replicated(update):
    counts = audit(update).counts
    assert counts["TPUReplicateMetadata"] == 1
    replicas = [
        operation.get_attr("num_replicas")
        for operation in update.graph.get_operations()
        if operation.type == "TPUReplicateMetadata"
    ]
    assert replicas == [CORES]


def norms_of(model):
    norm_type = tf.keras.layers.BatchNormalization
    return [m for m in model.submodules if isinstance(m, norm_type)]


def test_gradients_and_batch_statistics_are_summed_over_the_cores(
    traced, update
):
    alone = audit(Traced(use_sync_bn=False).update()).counts
    together = audit(update).counts
    norms = len(norms_of(traced.model))
    assert norms > 5
    # Once forward and once backward for each norm. Without, the averages of
    # weights reduce the moving mean and variance of each.
    gradients = len(traced.model.trainable_variables)
    assert together["CrossReplicaSum"] == gradients + 2 * norms
    assert alone["CrossReplicaSum"] == gradients + 2 * norms
    assert all(norm.synchronized for norm in norms_of(traced.model))


def test_all_shapes_are_static(update):
    for operation in update.graph.get_operations():
        for tensor in operation.outputs:
            if tensor.dtype not in (tf.resource, tf.string):
                assert tensor.shape.is_fully_defined(), operation.name


def test_products_are_bfloat16_and_weights_float32(traced, update):
    products = [
        operation
        for operation in update.graph.get_operations()
        if operation.type.startswith(("Conv2D", "BatchMatMul"))
    ]
    assert len(products) > 20
    for operation in products:
        assert operation.get_attr("T") == tf.bfloat16, operation.name
    for weight in traced.model.trainable_variables:
        assert weight.values[0].dtype == tf.float32


def test_nothing_in_many_steps_lacks_a_kernel(traced):
    batches = iter(traced.pipeline.training(count_bad=True))
    arguments = batches, tf.constant(0, tf.int64), tf.constant(4)
    take_steps = traced.step(steps.training_step)
    with planning_for("tpu"):
        found = audit(take_steps.get_concrete_function(*arguments))
    assert found.counts["CrossReplicaSum"] > 0
    assert set(found.without_kernel) <= HOST_OPERATIONS
    assert found.dynamic == ()
    assert found.double == ()


@pytest.mark.parametrize("make", [steps.evaluation_step, steps.prediction_step])
def test_evaluation_and_prediction(traced, make):
    test = traced.pipeline.images.test
    batch = next(iter(traced.pipeline.evaluation(test)))
    inputs = batch if make is steps.evaluation_step else batch[0]
    with traced.strategy.scope():
        step = make(traced.model)
    with planning_for("tpu"):
        found = audit(step.get_concrete_function(inputs))
    assert found.counts["TPUReplicateMetadata"] == 1
    assert found.without_kernel == found.dynamic == found.double == ()


def test_averages_are_swapped_on_every_core(traced):
    """Nothing has run: the averages equal the weights."""
    weights = traced.model.weights
    averages = _values_on_cores(weights)
    for weight in weights:
        weight.assign_add(tf.ones_like(weight))
    moved = _values_on_cores(weights)
    traced.state.averages.swap()
    assert_same(_values_on_cores(weights), averages)
    traced.state.averages.swap()
    assert_same(_values_on_cores(weights), moved)


def _values_on_cores(weights):
    assert all(len(weight.values) == CORES for weight in weights)
    return [core.numpy() for weight in weights for core in weight.values]
