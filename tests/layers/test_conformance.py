"""Every row of the table through every way that TensorFlow runs and saves it.

A layer that passes here can be traced, compiled, saved, restored, exported,
distributed and read by the other Keras without changing one output.
"""

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
from tests.support import cases
from tests.support import checks
from tests.support import networks
from tests.support.cases import every_case


def make_model(case, **kwargs):
    model = case.model(**kwargs)
    checks.randomize(model, np.random.default_rng(1))
    return model


def tensors(case, batch=2, seed=0):
    data = case.data(batch=batch, seed=seed)
    return {name: tf.constant(value) for name, value in data.items()}


def free_batch(model, case):
    """A function of the model in inference, traced for batches of any size.

    Other graphs of the same model may round differently: which kernels are
    fused depends on the shapes that are known, and on the processor.
    """
    specs = {
        name: tf.TensorSpec([None, *value.shape[1:]], value.dtype)
        for name, value in tensors(case).items()
    }
    return tf.function(
        lambda inputs: model(inputs, training=False), input_signature=[specs]
    )


def test_every_public_layer_is_in_the_table():
    public = {
        value
        for value in vars(layers).values()
        if isinstance(value, type) and issubclass(value, tf.keras.layers.Layer)
    }
    assert public
    assert public == {case.layer for case in cases.CASES}
    assert {layer.__name__ for layer in public} == set(layers.__all__)
    names = [case.name for case in cases.CASES]
    assert len(set(names)) == len(names)


@every_case
def test_graph_equals_eager_and_is_traced_once(case):
    model = make_model(case)
    traces = []

    def call(inputs):
        traces.append(1)
        return model(inputs)

    graph = tf.function(call)
    for seed in (0, 1):
        data = tensors(case, seed=seed)
        checks.assert_close(graph(data), model(data), 1e-6)
    assert len(traces) == 1


@pytest.mark.one_in(8)
@pytest.mark.once
@every_case
def test_xla(case):
    model = make_model(case)
    data = tensors(case)

    @tf.function(jit_compile=True)
    def compiled(inputs):
        with tf.GradientTape() as tape:
            tape.watch(inputs["inputs"])
            output = model(inputs)
            loss = tf.reduce_sum(output**2)
        return output, tape.gradient(loss, inputs["inputs"])

    with tf.GradientTape() as tape:
        tape.watch(data["inputs"])
        expected = model(data)
        loss = tf.reduce_sum(expected**2)
    gradient = tape.gradient(loss, data["inputs"])
    output, compiled_gradient = compiled(data)
    checks.assert_close(output, expected, 1e-5)
    if gradient is not None:
        checks.assert_close(compiled_gradient, gradient, 1e-5)


def free_rank(function, tensors):
    """A function traced for tensors of which nothing but the type is known."""
    specs = {name: tf.TensorSpec(None, x.dtype) for name, x in tensors.items()}
    return tf.function(function, input_signature=[specs])


@pytest.mark.one_in(8)
@every_case
def test_what_is_known_since_build_counts(case):
    layer = case.make()
    data = tensors(case)
    if case.attention_mask is not None:
        data["attention_mask"] = tf.constant(case.attention_mask)
    expected = layer(**data, training=False)

    def call(data):
        for name in ("inputs", "context"):
            if name in data:  # Keras' own layers refuse unknown ranks.
                assert data[name].shape.rank is None
        return layer(**data, training=False)

    unknown = free_rank(call, data)
    checks.assert_close(unknown(data), expected, 1e-5)
    if case.any_size:  # What can change is not held fast.
        cut = {
            name: x[:, 1:] if name in ("inputs", "context_mask") else x
            for name, x in data.items()
        }
        expected = layer(**cut, training=False)
        checks.assert_close(unknown(cut), expected, 1e-5)


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
@pytest.mark.parametrize(
    "arguments",
    [
        {"causal": True},
        {"implementation": "lambda_first"},
        {"implementation": "query_first"},
    ],
    ids=str,
)
def test_second_derivatives_compiled_by_xla(arguments, rng):
    x = tf.constant(rng.normal(size=[2, 21, 3]), tf.float32)
    layer = layers.LambdaLayer(4, num_heads=2, key_dim=2, scope=5, **arguments)
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


@pytest.mark.one_in(8)
@pytest.mark.once
@every_case
def test_a_batch_without_examples_changes_nothing(case):
    layer = case.make()
    data = case.data(3)
    call = {name: tf.constant(value) for name, value in data.items()}
    case.call(layer, call)
    checks.randomize(layer, np.random.default_rng(0))
    before = layer.get_weights()
    variables = [checks.raw(w) for w in layer.trainable_weights]

    def step(empty):
        with tf.GradientTape() as tape:
            output = case.call(layer, empty, training=True)
            loss = tf.reduce_sum(output)
        return output, tape.gradient(loss, variables)

    empty = {name: value[:0] for name, value in call.items()}
    for function in (step, tf.function(step)):
        for tensor in tf.nest.flatten(function(empty)):
            assert tensor is None or np.isfinite(tensor).all()
    for kept, now in zip(before, layer.get_weights(), strict=True):
        np.testing.assert_array_equal(now, kept)


@every_case
def test_keras_file_is_bit_equal(case, tmp_path):
    model = make_model(case)
    data = tensors(case)
    expected = model(data).numpy()
    model.save(tmp_path / "model.keras")
    restored = tf.keras.models.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(restored(data), expected)
    assert restored.count_params() == model.count_params()
    layer, copy = (
        next(x for x in m.layers if isinstance(x, case.layer))
        for m in (model, restored)
    )
    assert checks.plain(copy.get_config()) == checks.plain(layer.get_config())


@every_case
def test_weights_file_is_bit_equal(case, tmp_path):
    model = make_model(case)
    data = tensors(case)
    expected = model(data).numpy()
    model.save_weights(tmp_path / "model.weights.h5")
    restored = case.model()
    if model.weights:
        checks.assert_far(restored(data), expected, 1e-3)
    restored.load_weights(tmp_path / "model.weights.h5")
    np.testing.assert_array_equal(restored(data), expected)


@pytest.mark.once
@pytest.mark.slow
@every_case
def test_saved_model_is_bit_equal(case, tmp_path):
    model = make_model(case)
    module = tf.Module()
    module.weights = [checks.raw(weight) for weight in model.weights]
    module.serve = free_batch(model, case)
    tf.saved_model.save(module, str(tmp_path / "saved"))
    restored = tf.saved_model.load(str(tmp_path / "saved"))
    for batch in (1, 3):
        data = tensors(case, batch)
        expected = module.serve(data).numpy()
        np.testing.assert_array_equal(restored.serve(data), expected)
        checks.assert_close(model(data), expected, 1e-6)


@pytest.mark.slow
@every_case
def test_model_export(case, tmp_path):
    model = make_model(case)
    export = {"verbose": False} if KERAS_3 else {}
    model.export(str(tmp_path / "exported"), **export)
    restored = tf.saved_model.load(str(tmp_path / "exported"))
    serve = restored.signatures["serving_default"]
    names = serve.structured_input_signature[1]
    reference = free_batch(model, case)
    for batch in (1, 3):
        data = tensors(case, batch)
        expected = reference(data).numpy()
        checks.assert_close(model(data), expected, 1e-6)
        if len(data) == 1:  # each Keras names a single input in its own way
            data = dict(zip(names, data.values(), strict=True))
        (output,) = serve(**data).values()
        np.testing.assert_array_equal(output, expected)


@pytest.mark.one_in(8)
@every_case
@pytest.mark.parametrize("policy", ["mixed_float16", "mixed_bfloat16"])
def test_half_precision_is_close_to_single(case, policy):
    model = make_model(case)
    half = case.model(dtype=policy)
    half.set_weights(model.get_weights())
    data = tensors(case)
    output = half(data)
    assert output.dtype == policy.removeprefix("mixed_")
    assert all(weight.dtype == "float32" for weight in half.weights)
    # Rounding of a few hundred terms; a float16 softmax alone passes this,
    # large logits are tried in test_traps.py.
    tolerance = 2e-2 if policy == "mixed_float16" else 1e-1
    checks.assert_close(tf.cast(output, tf.float32), model(data), tolerance)


@pytest.mark.representatives(3)
@pytest.mark.once
@pytest.mark.parametrize("implementation", ops.implementations())
@pytest.mark.parametrize(
    ("layer_type", "arguments", "inputs"),
    [
        (layers.LambdaLayer, {"scope": 3, "intra_depth": 2}, (5, 6, 7)),
        (layers.LambdaLayer, {}, (5, 7)),
        (layers.LambdaConv, {"kernel_size": 3, "strides": 2}, (5, 6, 7)),
    ],
    ids=["scope", "global", "convolution"],
)
def test_every_implementation_compiles_in_every_precision(
    layer_type, arguments, inputs, implementation, rng
):
    arguments = {**arguments, "filters": 6, "num_heads": 2, "key_dim": 3}
    x = tf.constant(rng.normal(size=[2, *inputs]), tf.float32)
    layer = layer_type(**arguments, implementation=implementation)
    layer(x)
    checks.randomize(layer, rng)
    expected = checks.oracle_output(layer, {"inputs": x})
    compiled = tf.function(layer, jit_compile=True)
    checks.assert_close(compiled(x), expected, 1e-5)
    for policy, tolerance in (
        ("mixed_float16", 2e-2),
        ("mixed_bfloat16", 1e-1),
    ):
        half = layer_type(
            **arguments, implementation=implementation, dtype=policy
        )
        half(x)
        half.set_weights(layer.get_weights())
        output = tf.cast(half(x), tf.float32)
        checks.assert_close(output, expected, tolerance)


@pytest.mark.once
@pytest.mark.parametrize("implementation", ops.implementations(2))
@pytest.mark.parametrize("layer_type", [layers.LambdaLayer, layers.LambdaConv])
def test_unknown_sizes_are_computed_or_refused(layer_type, implementation, rng):
    size = "scope" if layer_type is layers.LambdaLayer else "kernel_size"
    arguments = {"filters": 6, "num_heads": 2, "key_dim": 3, size: (3, 5)}
    inputs = tf.keras.Input([None, None, 7])
    layer = layer_type(**arguments, implementation=implementation)
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
        output = model(data, training=False)
        loss = tf.reduce_sum(output**2)
    weights = [checks.raw(weight) for weight in model.trainable_weights]
    context = tf.distribute.get_replica_context()
    for weight, gradient in zip(
        weights, tape.gradient(loss, weights), strict=True
    ):
        total = context.all_reduce("sum", tf.convert_to_tensor(gradient))
        weight.assign_sub(learning_rate * total)
    return output


@pytest.mark.one_in(8)
@every_case
def test_two_replicas_equal_one_device(case, two_replicas):
    data = tensors(case, batch=4)
    single = make_model(case)
    weights = single.get_weights()
    expected = step(single, data)
    with two_replicas.scope():
        model = case.model()
        model.set_weights(weights)

    def part(context):
        rows = slice(
            2 * context.replica_id_in_sync_group,
            2 * context.replica_id_in_sync_group + 2,
        )
        return {name: value[rows] for name, value in data.items()}

    parts = two_replicas.experimental_distribute_values_from_function(part)
    run = tf.function(lambda inputs: two_replicas.run(step, (model, inputs)))
    outputs = two_replicas.experimental_local_results(run(parts))
    if not case.batched:  # the same on both replicas, and counted twice
        checks.assert_close(outputs[0], expected, 1e-6)
        checks.assert_close(outputs[1], expected, 1e-6)
        return
    checks.assert_close(tf.concat(outputs, 0), expected, 1e-6)
    for mirrored, weight in zip(model.weights, single.weights, strict=True):
        copies = two_replicas.experimental_local_results(checks.raw(mirrored))
        for copy in copies:
            checks.assert_close(copy, weight, 1e-5)


@pytest.fixture(scope="session")
def written_by_the_other_keras(tmp_path_factory):
    """Weights, inputs and outputs of all cases, from a fresh process."""
    folder = tmp_path_factory.mktemp("other_keras")
    root = pathlib.Path(__file__).parents[2]
    environment = dict(os.environ)
    environment.pop("TF_USE_LEGACY_KERAS", None)
    if KERAS_3:
        environment["TF_USE_LEGACY_KERAS"] = "1"
    subprocess.run(
        [sys.executable, "-m", "tests.support.cases", str(folder)],
        cwd=root,
        env=environment,
        check=True,
    )
    return folder


@pytest.mark.thorough
@every_case
def test_weights_of_the_other_keras(case, written_by_the_other_keras):
    stem = written_by_the_other_keras / case.name
    model = case.model()
    model.load_weights(f"{stem}.weights.h5")
    with np.load(f"{stem}.npz") as file:
        data = {name: tf.constant(file[name]) for name in case.shapes}
        expected = file["output"]
    checks.assert_close(model(data), expected, 1e-6)
