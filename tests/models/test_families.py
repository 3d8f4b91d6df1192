"""The networks of every family: sizes, ends, files, and what is refused."""

import functools

import numpy as np
import pytest
import tensorflow as tf

from lambdanet_tf import layers
from lambdanet_tf import models
from tests.support import checks
from tests.support import timm_golden
from tests.support.networks import ATTENTION
from tests.support.networks import TINY
from tests.support.networks import arrays
from tests.support.networks import assert_trains
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
every_family = pytest.mark.parametrize("family", FAMILIES)


@every_family
@pytest.mark.parametrize(
    "size",  # Every remainder of the strides.
    [(13, 22), pytest.param((16, 11), marks=pytest.mark.thorough)],
)
def test_free_sizes_equal_static_ones(family, size):
    build = FAMILIES[family]
    free = build(input_shape=(None, None, 3))
    fixed = build(input_shape=(*size, 3))
    vary(free)
    models.set_weights(fixed, arrays(free), "free")
    images = some_images(2, *size, 3)
    checks.assert_close(free(images), fixed(images), 1e-4)


@pytest.mark.slow
@every_family
def test_ends(family):
    build = FAMILIES[family]
    images = some_images(2, 16, 16, 3)
    maps = build(input_shape=(16, 16, 3), include_top=False)
    channels = 32 if family == "mobilenet" else 64
    size = 2 if family == "mobilenet" else 4
    assert tuple(maps(images).shape) == (2, size, size, channels)
    for pooling in ("avg", "max"):
        pooled = build(
            input_shape=(16, 16, 3), include_top=False, pooling=pooling
        )
        assert tuple(pooled(images).shape) == (2, channels)


FOUR = {"stages": ("L", "C", "L", "C"), "widths": (8, 8, 8, 8)}
# Networks with all that strides, and the channels of their maps by stride.
STRIDING = {
    # timm's pooling rounds down and its shortcuts up: it has no such maps.
    "timm": (models.ResNet, {"spec": timm_golden.TINY}, [32, 64, 64]),
    "pool": (models.ResNet50, {**FOUR, "shortcut": "pool"}, [32] * 4),
    "conv": (models.ResNet50, {**FOUR, "shortcut": "conv"}, [32] * 4),
    "mobilenet": (
        models.LambdaMobileNetV2,
        {"lambda_blocks": (2, 4, 7, 14)},
        [24, 32, 96, 320],
    ),
    "SAX": (attention, {"stages": "SAX"}, [32, 64, 64]),
    "XPS": (attention, {"stages": "XPS"}, [32, 64, 64]),
    "APP": (attention, {"stages": "APP"}, [32, 64, 64]),
}


@pytest.mark.slow
@pytest.mark.parametrize("padding", ["same", "symmetric"])
@pytest.mark.parametrize("name", STRIDING)
def test_sizes_are_rounded_up(name, padding):
    build, arguments, channels = STRIDING[name]
    sizes = (32, 32), (33, 47), (35, 32), (47, 32)
    stride, shape = 4, (None, None, 3)
    if build is attention:  # Some is global; nothing pads but for the stem.
        sizes, stride, shape = [(17, 18)], 2, (17, 18, 3)
        arguments = {**arguments, "stem_strides": (2,)}
    ends = {f"c{i}": count for i, count in enumerate(channels, start=2)}
    arguments = {**arguments, "padding": padding, "endpoints": [*ends]}
    model = build(input_shape=shape, **arguments)
    for size in sizes:
        found = model(some_images(1, *size, 3))
        for i, (end, count) in enumerate(ends.items()):
            side = [-(-n // (stride * 2**i)) for n in size]
            assert tuple(found[end].shape) == (1, *side, count)
            assert np.all(np.isfinite(found[end]))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("policy", "spec", "layer"),
    [
        ("mixed_bfloat16", TINY, "lambda"),
        ("mixed_float16", TINY, "lambda"),
        ("mixed_bfloat16", ATTENTION, "attention"),
    ],
)
def test_mixed_precision_ends_in_float32(policy, spec, layer):
    tf.keras.mixed_precision.set_global_policy(policy)
    model = models.ResNet(
        spec, input_shape=(16, 16, 3), classes=5, classifier_activation=None
    )
    images = some_images(2, 16, 16, 3)
    assert model(images).dtype == tf.float32
    half = model.get_layer(f"stage3_block1_{layer}").output.dtype
    assert tf.as_dtype(half) == tf.as_dtype(policy.removeprefix("mixed_"))
    assert {tf.as_dtype(w.dtype) for w in model.weights} == {tf.float32}
    compiled = tf.function(model, jit_compile=True)
    assert np.all(np.isfinite(compiled(images)))
    assert_trains_in_half(model)


@pytest.mark.thorough
def test_shared_tables_are_exported(tmp_path):
    """That they are saved, `tests/layers/test_layer_weights.py` shows."""
    model = tiny(stages=("C", "LL", "C"), share_embeddings=True, se_ratio=0.5)
    vary(model)
    images = some_images(2, 16, 16, 3)
    tf.saved_model.save(model, str(tmp_path))
    serve = tf.saved_model.load(str(tmp_path)).signatures["serving_default"]
    (output,) = serve(tf.constant(images)).values()
    np.testing.assert_allclose(output, model(images), rtol=1e-5, atol=1e-6)


@pytest.mark.slow
def test_the_two_lambda_blocks_of_the_paper():
    model = models.LambdaMobileNetV2(input_shape=(32, 32, 3))
    lambdas = {
        layer.name: (layer.filters, layer.kernel_size, layer.key_dim)
        for layer in model.layers
        if isinstance(layer, layers.LambdaConv)
    }
    assert lambdas == {
        "stage4_block10_lambda": (64, 5, 32),
        "stage5_block16_lambda": (160, 5, 32),
    }


@pytest.mark.slow
@pytest.mark.representatives(2)
@pytest.mark.parametrize("blocks", [(), (1,), (2, 4), (1, 2, 3, 4)])
def test_any_blocks_can_be_lambda_blocks(blocks):
    key_dim = {"key_dim": 4} if blocks else {}
    model = tiny_mobilenet(lambda_blocks=blocks, **key_dim)
    lambdas = [x for x in model.layers if isinstance(x, layers.LambdaConv)]
    numbers = [int(x.name.split("block")[1].split("_")[0]) for x in lambdas]
    assert tuple(sorted(numbers)) == blocks
    assert_trains(model, some_images(8, 16, 16, 3), classes=5)


@pytest.mark.slow
def test_pyramid_outputs_are_the_last_maps_of_each_stride():
    pyramid = models.MobileNetV2(input_shape=(64, 64, 3)).pyramid_outputs
    assert {k: tuple(x.shape[1:]) for k, x in pyramid.items()} == {
        "P1": (32, 32, 16),
        "P2": (16, 16, 24),
        "P3": (8, 8, 32),
        "P4": (4, 4, 96),
        "P5": (2, 2, 320),
    }


SCORES = np.array([[0.1, 0.6, 0.3], [0.5, 0.1, 0.4]])
decode = functools.partial(models.decode_predictions, SCORES)
preprocess = functools.partial(models.preprocess_input, SCORES)
mobilenet, build = models.MobileNetV2, models.build
convolution, heads = models.convolution_rule, models.attention_rule


@functools.cache
def built():
    return tiny()


def freeze(up_to):
    models.freeze(built(), up_to)


def slow_down(decay, **arguments):
    optimizer = tf.keras.optimizers.SGD(**arguments)
    models.rates_by_depth(optimizer, built(), decay)


def resize(input_shape):
    models.resize_embeddings(built(), input_shape)


def resize_two_inputs():
    pair = [tf.keras.Input((6, 6, 3)) for _ in range(2)]
    inner = tf.keras.Model(pair, tf.keras.layers.Add()(pair), name="two")
    inputs = tf.keras.Input((6, 6, 3))
    outer = tf.keras.Model(inputs, inner([inputs, inputs]))
    models.resize_embeddings(outer, (8, 8, 3))


REFUSED = [
    (tiny, {"input_shape": (3, 16, 3)}, "at least 4x4 pixels"),
    (tiny, {"input_shape": (16, 16)}, "`input_shape` must be"),
    (tiny, {"input_shape": (16, 16, None)}, "`input_shape` must be"),
    (tiny, {"input_tensor": SCORES}, "`input_tensor` must be"),
    (tiny, {"scope": None, "input_shape": (None, None, 3)}, "static"),
    (tiny, {"pooling": "mean", "include_top": False}, "`pooling` must be"),
    (tiny, {"endpoints": ("c2", "c6")}, "`endpoints` must be"),
    (tiny, {"endpoints": ()}, "`endpoints` must be"),
    (tiny, {"scopes": 7}, "Did you mean 'scope'"),
    (tiny, {"scope": 4}, "must be odd"),
    (tiny, {"num_heads": 3}, "divisible by `num_heads`"),
    (tiny, {"key_normalization": "l1"}, "`key_normalization` must be one of"),
    (tiny, {"implementation": "fastest"}, "`implementation` must be one of"),
    (tiny, {"weights": "nowhere.npz"}, "No such file: nowhere.npz"),
    (tiny, {"weights": "imagenet"}, "`weights='imagenet'` is there for"),
    (tiny, {"classes": 0}, "`classes` must be"),
    (tiny, {"include_top": "LLLL"}, "`include_top`.*'LLLL'.*by keyword"),
    (tiny, {"dropout_rate": -0.1}, "`dropout_rate`.*-0.1"),
    (tiny, {"drop_path_rate": 1.0}, "`drop_path_rate`.*1.0"),
    (tiny, {"norm_momentum": 2.0}, "`norm_momentum`.*2.0"),
    (attention, {"stages": "AAA", "input_shape": (None, None, 3)}, "static"),
    (mobilenet, {"input_shape": (31, 64, 3)}, "at least 32x32 pixels"),
    (build, {"name": "LambdaResnet50"}, "Did you mean 'LambdaResNet50'"),
    (build, {"name": "LambdaResNetSmall", "scopes": 3}, "Did you mean 'scope'"),
    (freeze, {"up_to": "stage9"}, "`up_to` must be one of.*'stage3'"),
    (freeze, {"up_to": "stage_2"}, "Did you mean 'stage2'"),
    (slow_down, {"decay": 1.5}, "`decay` must be"),
    (slow_down, {"decay": 0.5, "use_ema": True}, "use_ema=True"),
    (resize, {"input_shape": (8, 8)}, r"Received: \(8, 8\)"),
    (resize, {"input_shape": (8, 8, 1)}, r"Received: \(8, 8, 1\)"),
    (resize, {"input_shape": (8,)}, r"Received: \(8,\)"),
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
