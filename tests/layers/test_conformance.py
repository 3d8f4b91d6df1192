"""Every layer of the table through every way that TensorFlow runs it."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from lambdanet_tf import layers
from lambdanet_tf import ops
from tests.support import cases
from tests.support import checks
from tests.support.cases import CASES

_SMALL = {"filters": 6, "num_heads": 2, "key_dim": 3}
# Rows whose layers are called on their inputs alone.
ALONE = [case for case in CASES if set(case.shapes) == {"inputs"}]


def random_model(rows=CASES):
    model = cases.joint(rows)
    checks.randomize(model, np.random.default_rng(1))
    return model


def test_every_public_layer_is_in_the_table():
    assert {case.layer.__name__ for case in CASES} == {*layers.__all__}
    assert len({case.name for case in CASES}) == len(CASES)


def shapes_of(outputs):
    return {name: tuple(output.shape) for name, output in outputs.items()}


@pytest.mark.slow
@pytest.mark.every_lane
def test_symbolic_eager_built_and_computed_shapes_agree():
    model = random_model()
    symbolic = shapes_of(model.output)
    for batch in (1, 3):
        batched = [case.name for case in CASES if case.batched]
        sized = {name: (batch, *symbolic[name][1:]) for name in batched}
        expected = symbolic | sized
        assert shapes_of(model(cases.joint_data(batch))) == expected
        for case in ALONE:
            shape = batch, *case.inputs
            computed = case.make().compute_output_shape(shape)
            assert tuple(computed) == expected[case.name], case.name
            layer = case.make()
            layer.build(shape)  # creates all weights
            built = model.get_layer(case.name)
            for ours, weight in zip(layer.weights, built.weights, strict=True):
                assert tuple(ours.shape) == tuple(weight.shape), case.name


@pytest.mark.slow
@pytest.mark.every_lane
def test_unknown_sizes_are_computed_or_refused(rng):
    any_size = [case for case in CASES if case.any_size]
    model, specs = cases.joint(any_size, free=True), {}
    checks.randomize(model, rng)
    for case in any_size:
        shape = [*(None for _ in case.inputs), case.inputs[-1]]
        specs[f"{case.name}_inputs"] = tf.TensorSpec(shape)
    traced = tf.function(
        lambda data: model(data, training=False), input_signature=[specs]
    )
    for grow in (0, 1, 2):
        data, expected = {}, {}
        for case in any_size:
            larger = (2, *(n + grow for n in case.inputs[:-1]), case.inputs[-1])
            x = tf.constant(rng.normal(size=larger), tf.float32)
            data[f"{case.name}_inputs"] = x
            expected[case.name] = model.get_layer(case.name)(x)
            computed = case.make().compute_output_shape(larger)
            assert tuple(computed) == tuple(expected[case.name].shape)
        checks.assert_all_close(traced(data), expected, 1e-5)
    for name in {*ops.implementations(2)} - {"auto", "conv2d", "depthwise"}:
        layer = layers.LambdaLayer(**_SMALL, scope=3, implementation=name)
        with pytest.raises(ValueError, match="needs static"):
            layer(tf.keras.Input([None, None, 7]))


def test_constants_in_a_functional_model():
    """Masks, contexts and embeddings that are no inputs of the model."""
    for case in CASES:
        fixed = {name: tf.constant(x) for name, x in case.data(1).items()}
        x = fixed.pop("inputs")
        if (mask := case.attention_mask) is not None:
            case = dataclasses.replace(case, attention_mask=tf.constant(mask))
        elif not fixed:
            continue
        layer, inputs = case.make(), tf.keras.Input(x.shape[1:], batch_size=1)
        outputs = case.call(layer, {"inputs": inputs, **fixed})
        expected = case.call(layer, {"inputs": x, **fixed})
        found = tf.keras.Model(inputs, outputs)(x)
        checks.assert_close(found, expected, 1e-6, case.name)


@pytest.mark.every_lane
def test_every_trainable_weight_has_a_gradient(rng):
    model, weights = random_model(), {}
    for case in CASES:
        trained = model.get_layer(case.name).trainable_weights
        assert len(trained) == case.trainable, case.name
        variables = enumerate(map(checks.raw, trained))
        weights |= {(case.name, v.name, i): v for i, v in variables}
    with tf.GradientTape() as tape:
        outputs = model(cases.joint_data(3), training=True)
        terms = [x * rng.normal(size=x.shape) for x in outputs.values()]
        loss = sum(map(tf.reduce_sum, terms))
    for name, gradient in tape.gradient(loss, weights).items():
        assert gradient is not None, name
        gradient = tf.convert_to_tensor(gradient).numpy()
        assert np.all(np.isfinite(gradient)), name
        assert np.any(gradient != 0), name


@pytest.mark.every_lane
def test_a_batch_of_no_examples_is_none_and_moves_nothing():
    for case in (*CASES, *cases.ALGORITHMS):
        layer, data = case.make(), case.data(1)
        expected = case.call(layer, data)
        before, weights = layer.get_weights(), layer.trainable_weights
        none = {name: tf.constant(x[:0]) for name, x in data.items()}
        # A gradient that is not written would show what memory held before.
        _ = [tf.fill(weight.shape, 1e30) for weight in weights]
        with tf.GradientTape() as tape:
            output = case.call(layer, {**none, "training": True})
            loss = tf.reduce_sum(output)
        shape = expected.shape[1:] if case.batched else expected.shape
        assert output.shape == (*[0] * case.batched, *shape), case.name
        checks.assert_each_close(layer.get_weights(), before, 0)
        for gradient in tape.gradient(loss, list(map(checks.raw, weights))):
            assert not case.batched or not np.any(gradient), case.name


@pytest.mark.slow
@pytest.mark.once
@pytest.mark.parametrize("rows", [*cases.PARTS, cases.ALGORITHMS])
def test_xla(rows):
    model, data = random_model(rows), cases.joint_data(rows=rows)
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
        checks.assert_all_close(found, expected, 1e-5)


@pytest.mark.slow
@pytest.mark.once
def test_xla_compiles_causal_layers_for_any_length(rng):
    words = tf.keras.Input((None, 8))
    layer = layers.LambdaLayer(num_heads=2, scope=7, causal=True)
    model = tf.keras.Model(words, layer(words))
    spec = tf.TensorSpec([None, None, 8])
    compiled = tf.function(model, [spec], jit_compile=True)
    x = checks.normal(rng, 2, 99, 8) * 9
    checks.assert_close(compiled(x), model(x), 1e-5)


@pytest.mark.slow
@pytest.mark.every_lane
@pytest.mark.parametrize("rows", cases.PARTS)
def test_files_are_bit_equal(rows, tmp_path):
    model, data = random_model(rows), cases.joint_data(rows=rows)
    restored = checks.COPIES["keras_file"](model, tmp_path)
    checks.assert_all_close(restored(data), model(data), 0)
    assert restored.count_params() == model.count_params()
