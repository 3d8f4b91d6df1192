"""The networks of every family: free sizes, precision, and what is refused."""

import functools

import numpy as np
import pytest
import tensorflow as tf

from lambdanet_tf import layers
from lambdanet_tf import models
from tests.support import checks
from tests.support.networks import ATTENTION
from tests.support.networks import arrays
from tests.support.networks import assert_trains_in_half
from tests.support.networks import some_images
from tests.support.networks import tiny
from tests.support.networks import tiny_mobilenet
from tests.support.networks import vary


def attention(stages=("S", "SC", "S"), **arguments):
    return models.ResNet(ATTENTION, stages=(*stages,), classes=5, **arguments)


# Builders of networks for images of any size.
FAMILIES = {
    "resnet": tiny,
    "mobilenet": functools.partial(tiny_mobilenet, lambda_blocks=(2, 3)),
    "attention": attention,
}


@pytest.mark.parametrize("family", FAMILIES)
def test_free_sizes_equal_static_ones(family):
    build, size = FAMILIES[family], (13, 22)
    free = build(input_shape=(None, None, 3))
    fixed = build(input_shape=(*size, 3))
    vary(free)
    models.set_weights(fixed, arrays(free), "free")
    images = some_images(2, *size, 3)
    checks.assert_close(free(images), fixed(images), 1e-4)


@pytest.mark.slow
def test_mixed_precision_ends_in_float32():
    tf.keras.mixed_precision.set_global_policy("mixed_float16")
    model = tiny(classifier_activation=None)
    images = some_images(2, 16, 16, 3)
    assert model(images).dtype == tf.float32
    half = model.get_layer("stage3_block1_lambda").output.dtype
    assert tf.as_dtype(half) == tf.float16
    assert {tf.as_dtype(w.dtype) for w in model.weights} == {tf.float32}
    compiled = tf.function(model, jit_compile=True)
    assert np.all(np.isfinite(compiled(images)))
    assert_trains_in_half(model)


SCORES = np.array([[0.1, 0.6, 0.3], [0.5, 0.1, 0.4]])
decode = functools.partial(models.decode_predictions, SCORES)
preprocess = functools.partial(models.preprocess_input, SCORES)
convolution, heads = models.convolution_rule, models.attention_rule


@functools.cache
def built():
    return tiny()


def freeze(up_to):
    models.freeze(built(), up_to)


def slow_down(decay, **arguments):
    optimizer = tf.keras.optimizers.SGD(**arguments)
    models.rates_by_depth(optimizer, built(), decay)


def resize_two_inputs():
    pair = [tf.keras.Input((6, 6, 3)) for _ in range(2)]
    inner = tf.keras.Model(pair, tf.keras.layers.Add()(pair), name="two")
    inputs = tf.keras.Input((6, 6, 3))
    outer = tf.keras.Model(inputs, inner([inputs, inputs]))
    models.resize_embeddings(outer, (8, 8, 3))


REFUSED = [
    (tiny, {"input_shape": (3, 16, 3)}, "at least 4x4 pixels"),
    (tiny, {"input_tensor": SCORES}, "`input_tensor` must be"),
    (tiny, {"pooling": "mean", "include_top": False}, "`pooling` must be"),
    (tiny, {"implementation": "fastest"}, "`implementation` must be one of"),
    (tiny, {"weights": "imagenet"}, "`weights='imagenet'` is there for"),
    (tiny, {"classes": 0}, "`classes` must be"),
    (tiny, {"include_top": "LLLL"}, "`include_top`.*'LLLL'.*by keyword"),
    (tiny, {"norm_momentum": 2.0}, "`norm_momentum`.*2.0"),
    (attention, {"stages": "AAA", "input_shape": (None, None, 3)}, "static"),
    (models.build, {"name": "LambdaResNet50", "scopes": 3}, "mean 'scope'"),
    (freeze, {"up_to": "stage9"}, "`up_to` must be one of.*'stage3'"),
    (slow_down, {"decay": 1.5}, "`decay` must be"),
    (slow_down, {"decay": 0.5, "use_ema": True}, "use_ema=True"),
    (resize_two_inputs, {}, "'two' with 2 inputs"),
    (models.resize_embeddings, {"model": layers.LambdaLayer(),
     "input_shape": (8, 8, 3)}, "a layer that is built"),
    (decode, {"class_names": ["ant", "bee"]}, "must hold 3 names"),
    (decode, {}, "only for the 1000 classes"),
    (models.decode_predictions, {"predictions": SCORES[0]},
     r"must be \(batch, classes\)"),
    (preprocess, {"data_format": "channels_first"},
     "`data_format`.*'channels_last'"),
    (convolution, {"scope": 4}, "`scope` must be odd"),
    (convolution, {"grouped": "skip"}, "`grouped`"),
    (convolution, {"max_size": 0}, "`max_size`"),
    (heads, {"scope": 2}, "`scope` must be odd"),
]  # fmt: skip


@pytest.mark.representatives(len(REFUSED), everywhere=True)
@pytest.mark.parametrize(("call", "arguments", "message"), REFUSED)
def test_what_is_refused(call, arguments, message):
    with pytest.raises(ValueError, match=message):
        call(**arguments)
