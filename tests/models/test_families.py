"""What the networks of every family have in common: sizes, ends, files."""

import functools

import numpy as np
import pytest
import tensorflow as tf

from lambdanet_tf import models
from tests.support import checks
from tests.support.networks import ATTENTION
from tests.support.networks import assert_trains
from tests.support.networks import some_images
from tests.support.networks import tiny
from tests.support.networks import tiny_mobilenet
from tests.support.networks import vary


def attention(stages=("S", "SC", "S"), **arguments):
    return models.ResNet(ATTENTION, stages=stages, classes=5, **arguments)


# A builder for images of any size, and what it takes for a lasting network.
FAMILIES = {
    "resnet": (
        tiny,
        {"stages": ("C", "LL", "C"), "share_embeddings": True, "se_ratio": 0.5},
    ),
    "mobilenet": (
        functools.partial(tiny_mobilenet, lambda_blocks=(2, 3)),
        {},
    ),
    "attention": (attention, {"stages": ("S", "AX", "P")}),
}
every_family = pytest.mark.parametrize("family", FAMILIES)


@every_family
@pytest.mark.parametrize(
    "size",
    [
        (13, 22),
        pytest.param((16, 16), marks=pytest.mark.thorough),
        pytest.param((9, 11), marks=pytest.mark.thorough),
    ],
)
def test_free_sizes_equal_static_ones(family, size):
    build, _ = FAMILIES[family]
    free = build(input_shape=(None, None, 3))
    fixed = build(input_shape=(*size, 3))
    vary(free)
    for key, weight in models.named_weights(fixed).items():
        weight.assign(models.named_weights(free)[key])
    images = some_images(2, *size, 3)
    checks.assert_close(free(images), fixed(images), 1e-4)


@every_family
def test_ends(family):
    build, _ = FAMILIES[family]
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


@every_family
def test_networks_train(family):
    build, arguments = FAMILIES[family]
    model = build(input_shape=(16, 16, 3), **arguments)
    assert_trains(model, some_images(4, 16, 16, 3), classes=5)


@pytest.mark.thorough
@every_family
def test_saved_and_restored_whole(family, tmp_path):
    build, arguments = FAMILIES[family]
    model = build(input_shape=(16, 16, 3), **arguments)
    vary(model)
    images = some_images(2, 16, 16, 3)
    model.save(tmp_path / "model.keras")
    restored = tf.keras.models.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(restored(images), model(images))
    assert len(restored.weights) == len(model.weights)
    exported = str(tmp_path / "saved")
    tf.saved_model.save(model, exported)
    serve = tf.saved_model.load(exported).signatures["serving_default"]
    (output,) = serve(tf.constant(images)).values()
    np.testing.assert_allclose(output, model(images), rtol=1e-5, atol=1e-6)
