"""Every layer of the table through every way that TensorFlow runs and saves it.

All of them stand side by side in one model: what fails is named by its row. A
layer that passes here can be traced, compiled, saved, restored, exported,
distributed and read by the other Keras without changing one output.
"""

import functools
import inspect
import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

from lambdanet_tf import layers
from lambdanet_tf import ops
from lambdanet_tf.environment import KERAS_3
from lambdanet_tf.layers import LambdaConv
from lambdanet_tf.layers import LambdaLayer
from tests.support import cases
from tests.support import checks
from tests.support import networks
from tests.support.arrays import assert_same
from tests.support.cases import CASES
from tests.support.checks import assert_all_close
from tests.support.random_layers import built
from tests.support.random_layers import twin

# Rows whose layers are called on their inputs alone.
ALONE = [case for case in CASES if set(case.shapes) == {"inputs"}]


def random_model(rows=CASES):
    model = cases.joint(rows)
    checks.randomize(model, np.random.default_rng(1))
    return model


@functools.cache
def shared_model(names):
    """To be called, not to be changed: one for each part of the table."""
    return random_model([case for case in CASES if case.name in names])


def model_of(rows):
    return shared_model(tuple(case.name for case in rows))


@pytest.fixture
def model():
    """To be called, not to be changed."""
    return model_of(CASES)


def of_any_batch(data):
    """What stands for these tensors in a graph for batches of any size."""
    return {
        name: tf.TensorSpec([None, *x.shape[1:]], x.dtype, name)
        for name, x in data.items()
    }


def free_batch(model):
    """A function of the model in inference, traced for batches of any size.

    Other graphs of the same model may round differently: which kernels are
    fused depends on the shapes that are known, and on the processor.
    """
    return tf.function(
        lambda inputs: model(inputs, training=False),
        input_signature=[of_any_batch(cases.joint_data())],
    )


def test_every_public_layer_is_in_the_table():
    public = {
        value
        for value in vars(layers).values()
        if isinstance(value, type) and issubclass(value, tf.keras.layers.Layer)
    }
    assert public
    assert public == {case.layer for case in CASES}
    assert {layer.__name__ for layer in public} == set(layers.__all__)
    names = [case.name for case in CASES]
    assert len(set(names)) == len(names)


# What a layer of Keras keeps, and how, is for Keras to say.
@pytest.mark.every_lane
@pytest.mark.parametrize(
    "case", [c for c in CASES if c.has_own_config], ids=lambda case: case.name
)
def test_arguments_attributes_and_config_are_the_same_set(case, model):
    layer = case.make(name=case.name)
    config = layer.get_config()
    parameters = inspect.signature(type(layer).__init__).parameters.values()
    names = {
        parameter.name
        for parameter in parameters
        if parameter.name != "self" and parameter.kind != parameter.VAR_KEYWORD
    }
    assert set(config) == names | {"name", "trainable", "dtype"}
    assert not [name for name in names if not hasattr(layer, name)]
    config = checks.plain(config)
    for name, value in case.arguments.items():
        if isinstance(value, str | int | float | bool | tuple | None):
            assert config[name] == checks.plain(value), name
    for given in (layer.get_config(), config):
        copy = type(layer).from_config(given)
        assert checks.plain(copy.get_config()) == config
    built = model.get_layer(case.name)
    assert checks.plain(built.get_config()) == config, "changed by building"


@pytest.mark.slow
@pytest.mark.every_lane
def test_build_alone_creates_all_weights(model):
    for case in ALONE:
        layer = case.make()
        layer.build((None, *case.inputs))
        shapes, expected = (
            [tuple(weight.shape) for weight in x.weights]
            for x in (layer, model.get_layer(case.name))
        )
        assert shapes == expected, case.name


def shapes_of(outputs):
    return {name: tuple(output.shape) for name, output in outputs.items()}


@pytest.mark.slow
@pytest.mark.every_lane
def test_symbolic_eager_and_computed_shapes_agree(model):
    symbolic = shapes_of(model.output)
    for batch in (1, 3):
        expected = dict(symbolic)
        for case in CASES:
            if case.batched:
                expected[case.name] = (batch, *symbolic[case.name][1:])
        assert shapes_of(model(cases.joint_data(batch))) == expected
        for case in ALONE:
            shape = case.make().compute_output_shape((batch, *case.inputs))
            assert tuple(shape) == expected[case.name], case.name


@pytest.mark.slow
@pytest.mark.every_lane
def test_sizes_may_be_unknown(rng):
    any_size = [case for case in CASES if case.any_size]
    free = cases.joint(any_size, free=True)
    for case in any_size:
        unknown = (None,) * len(case.inputs)
        shape = tuple(free.output[case.name].shape)
        assert shape[:-1] == unknown
        given = (*unknown, case.inputs[-1])
        assert tuple(case.make().compute_output_shape(given)) == shape
    for grow in (0, 1, 2):
        data, expected = {}, {}
        for case in any_size:
            larger = (2, *(n + grow for n in case.inputs[:-1]), case.inputs[-1])
            data[f"{case.name}_inputs"] = rng.normal(size=larger)
            computed = case.make().compute_output_shape(larger)
            expected[case.name] = tuple(computed)
        assert shapes_of(free(data)) == expected


@pytest.mark.every_lane
def test_every_trainable_weight_has_a_gradient(rng):
    model, weights = random_model(), {}
    for case in CASES:
        trained = model.get_layer(case.name).trainable_weights
        assert len(trained) == case.trainable, case.name
        weights |= {(case.name, w.name, i): w for i, w in enumerate(trained)}
    with tf.GradientTape() as tape:
        outputs = model(cases.joint_data(3), training=True)
        loss = sum(
            tf.reduce_sum(output * rng.normal(size=output.shape))
            for output in outputs.values()
        )
    gradients = tape.gradient(
        loss, {name: checks.raw(weight) for name, weight in weights.items()}
    )
    for name, gradient in gradients.items():
        assert gradient is not None, name
        gradient = tf.convert_to_tensor(gradient).numpy()
        assert np.all(np.isfinite(gradient)), name
        assert np.any(gradient != 0), name


@cases.in_parts
def test_graph_equals_eager_and_is_traced_once(rows):
    model, traces = model_of(rows), []

    def call(inputs):
        traces.append(1)
        return model(inputs)

    graph = tf.function(call)
    for seed in (0, 1):
        data = cases.joint_data(seed=seed, rows=rows)
        assert_all_close(graph(data), model(data), 1e-6)
    assert len(traces) == 1


@pytest.mark.slow
@pytest.mark.once
@cases.in_parts
def test_xla(rows):
    model, data = model_of(rows), cases.joint_data(rows=rows)
    images = {n: x for n, x in data.items() if n.endswith("_inputs")}

    def outputs_and_gradients(data, images):
        with tf.GradientTape() as tape:
            tape.watch(images)
            outputs = model({**data, **images})
            loss = sum(tf.reduce_sum(x**2) for x in outputs.values())
        gradients = tape.gradient(loss, images)
        return outputs, {k: g for k, g in gradients.items() if g is not None}

    compiled = tf.function(outputs_and_gradients, jit_compile=True)
    for found, expected in zip(
        compiled(data, images), outputs_and_gradients(data, images), strict=True
    ):
        assert_all_close(found, expected, 1e-5)


@pytest.mark.slow
@cases.in_parts
def test_what_is_known_since_build_counts(rows):
    model, data = model_of(rows), cases.joint_data(rows=rows)
    specs = {name: tf.TensorSpec(None, x.dtype) for name, x in data.items()}

    @tf.function(input_signature=[specs])
    def unknown(data):
        """Traced for tensors of which nothing but the type is known."""
        outputs = {}
        for case in rows:
            own = case.own(data)
            for name in ("inputs", "context"):
                if name in own:  # Keras' own layers refuse unknown ranks.
                    assert own[name].shape.rank is None
            layer = model.get_layer(case.name)
            outputs[case.name] = case.call(layer, own, training=False)
        return outputs

    assert_all_close(unknown(data), model(data), 1e-5)
    cut = dict(data)  # What can change is not held fast.
    for case in rows:
        if case.any_size:
            cut[f"{case.name}_inputs"] = data[f"{case.name}_inputs"][:, 1:]
    expected = {
        case.name: case.call(model.get_layer(case.name), case.own(cut))
        for case in rows
    }
    assert_all_close(unknown(cut), expected, 1e-5)


@pytest.mark.thorough
def test_batches_of_a_generator_have_no_static_sizes(rng):
    model = networks.every_layer(units=1)
    model.compile("sgd", "mse", jit_compile=False)
    x = rng.normal(size=[4, 6, 5, 8]).astype("float32")
    y = np.zeros([4, 1], "float32")

    def batches():
        while True:
            yield x, y

    specs = tuple(tf.TensorSpec([None] * a.ndim, a.dtype) for a in (x, y))
    data = tf.data.Dataset.from_generator(batches, output_signature=specs)
    expected = model.evaluate(x, y, verbose=0)
    predicted = model.predict(x, verbose=0)
    for source in (batches, lambda: data):
        found = model.evaluate(source(), steps=1, verbose=0)
        checks.assert_close(found, expected, 1e-5)
        found = model.predict(source(), steps=1, verbose=0)
        checks.assert_close(found, predicted, 1e-5)
    for source in (batches, lambda: data):
        shuffle = {"shuffle": False} if KERAS_3 else {}
        history = model.fit(source(), steps_per_epoch=2, verbose=0, **shuffle)
        assert np.isfinite(history.history["loss"][0])


@pytest.mark.thorough
@pytest.mark.once
@pytest.mark.parametrize("form", ["causal", "lambda_first", "query_first"])
def test_second_derivatives_compiled_by_xla(form, rng):
    x = tf.constant(rng.normal(size=[2, 21, 3]), tf.float32)
    causal = form == "causal"
    arguments = {"causal": True} if causal else {"implementation": form}
    layer = LambdaLayer(4, num_heads=2, key_dim=2, scope=5, **arguments)
    layer(x)

    def penalty(x):
        with tf.GradientTape() as outer:
            outer.watch(x)
            with tf.GradientTape() as inner:
                inner.watch(x)
                loss = tf.reduce_sum(layer(x, training=True) ** 2)
            penalty = tf.reduce_sum(inner.gradient(loss, x) ** 2)
        return outer.gradient(penalty, x)

    compiled = tf.function(penalty, jit_compile=True)
    checks.assert_close(compiled(x), penalty(x), 1e-5)


@pytest.mark.slow
@pytest.mark.once
@cases.in_parts
def test_a_batch_without_examples_changes_nothing(rows):
    """Also where what is not written shows what memory held before."""
    model, data = random_model(rows), cases.joint_data(rows=rows)
    empty = {name: x[:0] for name, x in data.items()}
    before = model.get_weights()
    variables = [checks.raw(w) for w in model.trainable_weights]

    def step(empty):
        with tf.GradientTape() as tape:
            outputs = model(empty, training=True)
            loss = sum(
                tf.reduce_sum(outputs[x.name]) for x in rows if x.batched
            )
        return outputs, tape.gradient(loss, variables)

    traced = tf.function(step, input_signature=[of_any_batch(data)])
    for function in (step, tf.function(step), traced):
        for count in 20 * [2**power for power in range(4, 12)]:
            tf.fill([count], 1e30)
        outputs, gradients = function(empty)
        assert all(np.isfinite(tensor).all() for tensor in outputs.values())
        for variable, gradient in zip(variables, gradients, strict=True):
            assert gradient is None or not np.any(gradient), variable.name
    assert_same(model.get_weights(), before)


@pytest.mark.slow
@pytest.mark.every_lane
@cases.in_parts
def test_keras_file_is_bit_equal(rows, tmp_path):
    model, data = model_of(rows), cases.joint_data(rows=rows)
    model.save(tmp_path / "model.keras")
    restored = tf.keras.models.load_model(tmp_path / "model.keras")
    assert_all_close(restored(data), model(data), 0)
    assert restored.count_params() == model.count_params()
    for case in rows:
        layer, copy = (m.get_layer(case.name) for m in (model, restored))
        assert type(copy) is case.layer
        configs = [checks.plain(x.get_config()) for x in (layer, copy)]
        assert configs[0] == configs[1], case.name


@cases.in_parts
def test_weights_file_is_bit_equal(rows, tmp_path):
    model, data = model_of(rows), cases.joint_data(rows=rows)
    model.save_weights(tmp_path / "model.weights.h5")
    restored, expected = cases.joint(rows), model(data)
    fresh = restored(data)
    for case in rows:
        if model.get_layer(case.name).weights:
            checks.assert_far(fresh[case.name], expected[case.name], 1e-3)
    restored.load_weights(tmp_path / "model.weights.h5")
    assert_all_close(restored(data), expected, 0)


@pytest.mark.thorough
def test_model_export(model, tmp_path):
    export = {"verbose": False} if KERAS_3 else {}
    model.export(str(tmp_path / "exported"), **export)
    restored = tf.saved_model.load(str(tmp_path / "exported"))
    serve = restored.signatures["serving_default"]
    reference = free_batch(model)
    for batch in (1, 3):
        data = cases.joint_data(batch)
        expected = reference(data)
        assert_all_close(model(data), expected, 1e-6)
        assert_all_close(serve(**data), expected, 0)
        if KERAS_3:  # tf_keras gives the function another signature.
            assert_all_close(restored.serve(data), expected, 0)


# Rounding of a few hundred terms; a float16 softmax alone passes this, large
# logits are tried in test_traps.py.
HALF = {"float16": 2e-2, "bfloat16": 1e-1}


@pytest.mark.slow
@cases.in_parts
def test_half_precision_is_close_to_single(rows):
    model, data = model_of(rows), cases.joint_data(rows=rows)
    for dtype, tolerance in HALF.items():
        half = cases.joint(rows, dtype=f"mixed_{dtype}")
        half.set_weights(model.get_weights())
        assert all(weight.dtype == "float32" for weight in half.weights)
        outputs = half(data)
        for name, output in outputs.items():
            assert output.dtype == dtype, name
        outputs = {name: tf.cast(x, tf.float32) for name, x in outputs.items()}
        assert_all_close(outputs, model(data), tolerance)


_SMALL = {"filters": 6, "num_heads": 2, "key_dim": 3}
_WIDE = {"scope": 3, "intra_depth": 2}


# Each algorithm on a map, the one for sequences on a sequence; a global layer
# and strides by the algorithm that is chosen.
@pytest.mark.slow
@pytest.mark.representatives(3)
@pytest.mark.once
@pytest.mark.parametrize(
    ("layer_type", "arguments", "inputs"),
    [
        *(
            (LambdaLayer, {**_WIDE, "implementation": name}, (5, 6, 7))
            for name in ops.implementations(2)
        ),
        (LambdaLayer, {"implementation": "fft"}, (5, 7)),
        (LambdaLayer, {}, (5, 7)),
        (LambdaConv, {"kernel_size": 3, "strides": 2}, (5, 6, 7)),
    ],
)
def test_every_implementation_compiles_in_every_precision(
    layer_type, arguments, inputs, rng
):
    x = tf.constant(rng.normal(size=[2, *inputs]), tf.float32)
    layer = built(x, layer_type, **_SMALL, **arguments)
    expected = checks.oracle_output(layer, {"inputs": x})
    compiled = tf.function(layer, jit_compile=True)
    checks.assert_close(compiled(x), expected, 1e-5)
    for dtype, tolerance in HALF.items():
        half = twin(layer, x, dtype=f"mixed_{dtype}")
        checks.assert_close(tf.cast(half(x), tf.float32), expected, tolerance)


@pytest.mark.slow
@pytest.mark.once
@pytest.mark.parametrize(
    ("layer_type", "implementation"),
    [
        *((LambdaLayer, name) for name in ops.implementations(2)),
        (LambdaConv, "auto"),
        (LambdaConv, "einsum"),
    ],
)
def test_unknown_sizes_are_computed_or_refused(layer_type, implementation, rng):
    size = "scope" if layer_type is LambdaLayer else "kernel_size"
    arguments = {**_SMALL, size: (3, 5), "implementation": implementation}
    layer, inputs = layer_type(**arguments), tf.keras.Input([None, None, 7])
    try:
        model = tf.keras.Model(inputs, layer(inputs))
    except ValueError as error:
        assert implementation not in ("auto", "conv2d", "depthwise")  # noqa: PT017
        assert "static" in str(error)  # noqa: PT017
        return
    checks.randomize(model, rng)
    call = tf.function(model)
    for grid in ((5, 6), (1, 2), (9, 3)):
        x = tf.constant(rng.normal(size=[2, *grid, 7]), tf.float32)
        expected = checks.oracle_output(layer, {"inputs": x})
        checks.assert_close(call(x), expected, 1e-5)


def step(model, data, learning_rate=0.01):
    """One step of gradient descent, with the averages of batch norm."""
    with tf.GradientTape() as tape:
        outputs = model(data, training=False)
        loss = sum(tf.reduce_sum(output**2) for output in outputs.values())
    weights = [checks.raw(weight) for weight in model.trainable_weights]
    context = tf.distribute.get_replica_context()
    for weight, gradient in zip(
        weights, tape.gradient(loss, weights), strict=True
    ):
        total = context.all_reduce("sum", tf.convert_to_tensor(gradient))
        weight.assign_sub(learning_rate * total)
    return outputs


@pytest.mark.slow
@cases.in_parts
def test_two_replicas_equal_one_device(rows, two_replicas):
    data = cases.joint_data(batch=4, rows=rows)
    single = random_model(rows)
    weights = single.get_weights()
    expected = step(single, data)
    with two_replicas.scope():
        model = cases.joint(rows)
        model.set_weights(weights)

    def part(context):
        first = 2 * context.replica_id_in_sync_group
        return {name: value[first : first + 2] for name, value in data.items()}

    parts = two_replicas.experimental_distribute_values_from_function(part)
    run = tf.function(lambda inputs: two_replicas.run(step, (model, inputs)))
    local = two_replicas.experimental_local_results
    for name, outputs in run(parts).items():
        outputs = local(outputs)
        case = next(case for case in CASES if case.name == name)
        if not case.batched:  # the same on both replicas, and counted twice
            for output in outputs:
                checks.assert_close(output, expected[name], 1e-6)
            continue
        checks.assert_close(tf.concat(outputs, 0), expected[name], 1e-6)
        pairs = (m.get_layer(name).weights for m in (model, single))
        for mirrored, weight in zip(*pairs, strict=True):
            for copy in local(checks.raw(mirrored)):
                checks.assert_close(copy, weight, 1e-5)


@pytest.mark.thorough
def test_weights_of_the_other_keras(tmp_path):
    other = {"TF_USE_LEGACY_KERAS": "1" if KERAS_3 else "0"}
    subprocess.run(
        [sys.executable, "-m", "tests.support.cases", str(tmp_path)],
        cwd=pathlib.Path(__file__).parents[2],
        env={**os.environ, **other},
        check=True,
    )
    model = cases.joint()
    model.load_weights(tmp_path / "layers.weights.h5")
    with np.load(tmp_path / "layers.npz") as file:
        data = {name: tf.constant(file[name]) for name in cases.joint_data()}
        expected = {case.name: file[case.name] for case in CASES}
    assert_all_close(model(data), expected, 1e-6)
