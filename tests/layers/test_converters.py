"""Models that users convert by themselves: TFLite and ONNX beside Keras."""

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
    """A model of layers side by side, and a convolution behind them."""
    inputs = tf.keras.Input(shape, name="x")
    x = tf.keras.layers.Concatenate()([layer(inputs) for layer in branches])
    last = layers.LambdaConv(**_SMALL, kernel_size=3, strides=2)
    return tf.keras.Model(inputs, last(x))


def images_of_any_size():
    local = {**_SMALL, "scope": 3}
    deep = {**local, "intra_depth": 2}
    model = side_by_side(
        (None, None, 3),
        LambdaLayer(**deep, implementation="conv2d"),
        LambdaLayer(**deep, implementation="depthwise"),
        LambdaLayer(**local, use_position_bias=True),
        LambdaLayer(**_SMALL, use_position=False),
        RelativeAttention(**local),
        RelativeAttention(**local, axis=2, position_embedding="joint"),
        layers.SqueezeExcite(1.0),
    )
    return model, [(2, 7, 6, 3), (1, 4, 9, 3)]


def sequences():
    past = {**_SMALL, "causal": True}
    model = side_by_side(
        (37, 5),
        LambdaLayer(**past, scope=5, intra_depth=2, use_batch_norm=True),
        LambdaLayer(**past, key_normalization="l2"),
        RelativeAttention(**past, scope=5),
    )
    return model, [(2, 37, 5)]


def by_tflite(model):
    converter = tf.lite.TFLiteConverter.from_keras_model(model)
    interpreter = tf.lite.Interpreter(model_content=converter.convert())
    run = interpreter.get_signature_runner()
    [name] = run.get_input_details()
    return lambda x: next(iter(run(**{name: x}).values()))


def by_onnx(model):
    convert = pytest.importorskip("tf2onnx").convert
    runtime = pytest.importorskip("onnxruntime")
    specs = [tf.TensorSpec(model.inputs[0].shape, tf.float32, name="x")]
    function = tf.function(
        lambda x: model(x, training=False), input_signature=specs
    )
    proto, _ = convert.from_function(function, input_signature=specs, opset=17)
    session = runtime.InferenceSession(proto.SerializeToString())
    [name] = [given.name for given in session.get_inputs()]
    return lambda x: session.run(None, {name: x})[0]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # converters' own
@pytest.mark.parametrize("convert", [by_tflite, by_onnx])
@pytest.mark.parametrize("build", [sequences, images_of_any_size])
def test_converted_models_compute_what_keras_computes(build, convert, rng):
    model, shapes = build()
    randomize(model, np.random.default_rng(1))
    with ops.planning_for("portable"):
        converted = convert(model)
    for shape in shapes:
        x = rng.normal(size=shape).astype(np.float32)
        wanted = model(x, training=False).numpy()
        rounding = 1e-4 + 1e-6 * np.abs(wanted).max()
        np.testing.assert_allclose(converted(x), wanted, 1e-4, rounding)
