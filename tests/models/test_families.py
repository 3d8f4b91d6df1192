"""What the networks of every family have in common: sizes, ends, files."""

import functools

import numpy as np
import pytest
import tensorflow as tf

from lambdanet_tf import models
from tests.support import checks
from tests.support.networks import ATTENTION
from tests.support.networks import arrays
from tests.support.networks import some_images
from tests.support.networks import tiny
from tests.support.networks import tiny_mobilenet
from tests.support.networks import vary


def attention(**arguments):
    stages = ("S", "SC", "S")
    return models.ResNet(ATTENTION, stages=stages, classes=5, **arguments)


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


@pytest.mark.thorough
def test_shared_tables_are_saved_and_restored(tmp_path):
    """Of the families, `tests/project/test_as_a_user.py` shows it."""
    model = tiny(stages=("C", "LL", "C"), share_embeddings=True, se_ratio=0.5)
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
