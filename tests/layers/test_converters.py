"""Models that users convert by themselves: TFLite and ONNX beside Keras."""

import itertools

import numpy as np
import pytest
import tensorflow as tf

from lambdanet_tf import layers
from lambdanet_tf import ops
from lambdanet_tf.layers import LambdaLayer
from lambdanet_tf.layers import RelativeAttention
from tests.support.checks import randomize

# Operations of TensorFlow alone are converted.
pytestmark = pytest.mark.once

_SMALL = {"filters": 4, "num_heads": 2, "key_dim": 3}


def side_by_side(shape, *branches):
    inputs = tf.keras.Input(shape, name="x")
    outputs = [layer(inputs) for layer in branches]
    return tf.keras.Model(inputs, tf.keras.layers.Concatenate()(outputs))


def images_of_any_size():
    """Layers side by side, and one behind them that cuts the size."""
    local = {**_SMALL, "scope": 3}
    deep = {**local, "intra_depth": 2}
    model = side_by_side(
        (None, None, 3),
        LambdaLayer(**deep, implementation="conv2d"),
        LambdaLayer(**deep, implementation="depthwise", multi_head=True),
        LambdaLayer(**local, use_position_bias=True),
        LambdaLayer(**_SMALL, use_position=False),
        RelativeAttention(**local),
        RelativeAttention(**local, axis=2, position_embedding="joint"),
        layers.SqueezeExcite(1.0),
    )
    [inputs], [outputs] = model.inputs, model.outputs
    outputs = layers.LambdaConv(**_SMALL, kernel_size=3, strides=2)(outputs)
    return tf.keras.Model(inputs, outputs), [(2, 7, 6, 3), (1, 4, 9, 3)]


def volumes_of_any_size():
    model = side_by_side(
        (None, None, None, 3),
        LambdaLayer(**_SMALL, scope=3),
        RelativeAttention(**_SMALL, scope=(1, 3, 3)),
    )
    return model, [(2, 2, 5, 3, 3)]


def every_algorithm():
    """Sizes are fixed; the batch is free, as Keras leaves it."""
    names = [name for name in ops.implementations(2) if name != "fourier_tpu"]
    branches = [
        LambdaLayer(**_SMALL, scope=3, implementation=name) for name in names
    ]
    return side_by_side((9, 6, 3), *branches), [(2, 9, 6, 3)]


def sequences():
    past = {**_SMALL, "causal": True}
    model = side_by_side(
        (37, 5),
        LambdaLayer(**past, scope=5, intra_depth=2, use_batch_norm=True),
        LambdaLayer(**past, key_normalization="l2"),
        RelativeAttention(**past, scope=5),
    )
    return model, [(2, 37, 5)]


def long_sequences():
    """Of a length for which CPUs take transforms, which no file has."""
    inputs = tf.keras.Input((512, 5), name="x")
    outputs = LambdaLayer(**_SMALL)(inputs)
    with ops.planning_for("cpu"):
        layer = LambdaLayer(**_SMALL)
        layer.build((None, 512, 5))
        assert layer.inference_plan.algorithm == "fft"
    return tf.keras.Model(inputs, outputs), [(2, 512, 5)]


def sequences_of_any_length():
    inputs = tf.keras.Input((None, 5), name="x")
    outputs = layers.LambdaConv(
        **_SMALL, kernel_size=3, padding="causal", dilation_rate=2
    )(inputs)
    return tf.keras.Model(inputs, outputs), [(2, 37, 5), (1, 3, 5)]


def interpreted(converter):
    """The function of a file of TFLite, made by `converter`."""
    interpreter = tf.lite.Interpreter(model_content=converter.convert())
    run = interpreter.get_signature_runner()
    [name] = run.get_input_details()

    def outputs(x):
        [result] = run(**{name: x}).values()
        return result

    return outputs


def by_tflite(model, _):
    return interpreted(tf.lite.TFLiteConverter.from_keras_model(model))


def by_tflite_from_saved_model(model, folder):
    model.export(folder / "model", verbose=False)
    return interpreted(
        tf.lite.TFLiteConverter.from_saved_model(str(folder / "model"))
    )


def onnx_session(function, *specs):
    convert = pytest.importorskip("tf2onnx").convert
    runtime = pytest.importorskip("onnxruntime")
    function = tf.function(function, input_signature=specs)
    proto, _ = convert.from_function(function, input_signature=specs, opset=17)
    return runtime.InferenceSession(proto.SerializeToString())


def run(session, *values):
    names = [given.name for given in session.get_inputs()]
    return session.run(None, dict(zip(names, values, strict=True)))


def by_onnx(model, _):
    spec = tf.TensorSpec(model.inputs[0].shape, tf.float32, name="x")
    session = onnx_session(lambda x: model(x, training=False), spec)
    return lambda x: run(session, x)[0]


def by_onnx_from_keras(model, folder):
    runtime = pytest.importorskip("onnxruntime")
    model(tf.zeros([1, *(size or 4 for size in model.inputs[0].shape[1:])]))
    file = str(folder / "model.onnx")
    model.export(file, format="onnx", verbose=False)
    session = runtime.InferenceSession(file)
    return lambda x: run(session, x)[0]


MODELS = [
    sequences,
    images_of_any_size,
    volumes_of_any_size,
    every_algorithm,
    long_sequences,
    sequences_of_any_length,
]
EXPORTS = by_tflite_from_saved_model, by_onnx_from_keras


@pytest.mark.slow
@pytest.mark.representatives(1)
@pytest.mark.filterwarnings("ignore")  # converters' own
@pytest.mark.parametrize(
    ("build", "convert"),
    [
        *itertools.product(MODELS, (by_tflite, by_onnx)),
        *itertools.product((long_sequences, images_of_any_size), EXPORTS),
    ],
)
def test_converted_models_compute_what_keras_computes(
    build, convert, rng, tmp_path
):
    model, shapes = build()
    randomize(model, np.random.default_rng(1))
    with ops.planning_for("portable"):
        converted = convert(model, tmp_path)
    for shape in shapes:
        x = rng.normal(size=shape).astype(np.float32)
        wanted = model(x, training=False).numpy()
        rounding = 1e-4 + 1e-6 * np.abs(wanted).max()
        np.testing.assert_allclose(
            converted(x), wanted, rtol=1e-4, atol=rounding
        )


@pytest.mark.thorough
@pytest.mark.filterwarnings("ignore")
def test_a_converted_step_streams(rng):
    """Three positions, one after the other, in onnxruntime."""
    layer = LambdaLayer(**_SMALL, causal=True, scope=5)
    layer.build((None, 37, 5))
    start = layer.initial_state(2)
    state = tf.nest.flatten(start)
    inputs = rng.normal(size=(2, 3, 5)).astype(np.float32)

    def step(x, *state):
        state = tf.nest.pack_sequence_as(start, list(state))
        outputs, state = layer.step(x, state)
        return [outputs, *tf.nest.flatten(state)]

    specs = [tf.TensorSpec(x.shape, x.dtype) for x in state]
    session = onnx_session(step, tf.TensorSpec([2, 1, 5]), *specs)
    state = [x.numpy() for x in state]
    whole = layer(inputs)
    for now in range(3):
        outputs, *state = run(session, inputs[:, now : now + 1], *state)
        np.testing.assert_allclose(
            outputs, whole[:, now : now + 1], rtol=1e-4, atol=1e-5
        )


def test_transforms_are_refused_with_the_way_out():
    layer = LambdaLayer(**_SMALL, implementation="fft")
    with (
        ops.planning_for("portable"),
        pytest.raises(ValueError, match=r"'portable' has not\. Use 'auto'"),
    ):
        layer(tf.zeros([1, 100, 5]))
