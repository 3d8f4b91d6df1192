"""Augmentation of images, alone and inside a pipeline."""

import numpy as np
import pytest
import tensorflow as tf

from lambdanet_tf.data import augment
from lambdanet_tf.data import images
from lambdanet_tf.data.images import ArrayImage
from lambdanet_tf.data.images import EncodedImage

pytestmark = pytest.mark.once

SEED = tf.constant([3, 5])


def ramp(height, width):
    """An image whose red is the row, green the column, blue constant."""
    rows, columns = np.mgrid[:height, :width]
    pixels = np.stack([rows, columns, np.full_like(rows, 7)], axis=-1)
    return tf.constant(pixels.astype(np.uint8))


@pytest.mark.parametrize(
    "function",
    [
        lambda x, seed: augment.pad_and_crop(x, seed, 2),
        lambda x, seed: augment.random_affine(x, seed, 20.0, 2.0, 0.2),
        lambda x, seed: augment.random_crop(ArrayImage(x), seed, 9),
    ],
)
def test_an_augmentation_is_a_function_of_its_seed(function):
    image = ramp(11, 9)
    eager = function(image, SEED).numpy()
    elements = tf.data.Dataset.from_tensors((image, SEED)).map(function)
    (in_pipeline,) = elements.as_numpy_iterator()  # where nothing is eager
    np.testing.assert_array_equal(in_pipeline, eager)
    others = [function(image, tf.constant([3, i])).numpy() for i in range(8)]
    assert any(not np.array_equal(other, eager) for other in others)


def test_pad_and_crop_shifts():
    image = ramp(7, 5)
    padded = np.pad(image, ((2, 2), (2, 2), (0, 0)))
    shifted = [padded[i : i + 7, j : j + 5] for i, j in np.ndindex(5, 5)]
    for seed in range(5):
        moved = augment.pad_and_crop(image, tf.constant([0, seed]), 2).numpy()
        assert any(np.array_equal(moved, x) for x in shifted)


def test_affine_shifts_turns_counter_clockwise_and_zooms(monkeypatch):
    image = ramp(7, 7)

    def moved(*draws, **most):
        def drawn(shape, seed, *bounds):
            assert bounds == (-1.0, 1.0)
            return tf.constant(draws)

        monkeypatch.setattr(tf.random, "stateless_uniform", drawn)
        return augment.random_affine(image, SEED, **most).numpy()

    shifted = moved(0.0, 1.0, 0.5, 0.0, 0.0, shift=2.0)
    np.testing.assert_allclose(shifted[2:, 1:], image[:-2, :-1], atol=1e-4)
    assert np.all(shifted[:2] == 0)
    turned = moved(0.5, 0.0, 0.0, 0.0, 0.0, rotation=180.0)
    np.testing.assert_allclose(turned, np.rot90(image), atol=1e-3)
    zoomed = moved(0.0, 0.0, 0.0, 1.0, 0.0, zoom=1.0)
    rows = (np.arange(7) - 3) / 2 + 3
    np.testing.assert_allclose(zoomed[:, 2, 0], rows, atol=1e-4)
    np.testing.assert_allclose(zoomed[..., 1], image[..., 1], atol=1e-4)


def test_central_crop_is_the_middle_of_the_shorter_side():
    crop = images.EvaluationCrop((15, 15), 0.875)(ArrayImage(ramp(17, 24)))
    np.testing.assert_array_equal(crop[:, 0, 0], np.arange(1, 16))
    np.testing.assert_array_equal(crop[0, :, 1], np.arange(5, 20))


@pytest.mark.parametrize("seed", range(5))
def test_random_crop_is_a_box_of_the_image(seed):
    """Its area and proportions are in their ranges, measured on the ramp."""
    image = ArrayImage(ramp(120, 80))
    crop = augment.random_crop(image, tf.constant([1, seed]), 32, min_area=0.2)
    height = np.ptp(crop[:, 0, 0]) * 32 / 31
    width = np.ptp(crop[0, :, 1]) * 32 / 31
    assert 0.15 < height * width / (120 * 80) <= 1.01
    assert 0.7 < width / height < 1.4


@pytest.mark.parametrize("encode", [tf.io.encode_png, tf.io.encode_jpeg])
def test_a_box_of_a_file_is_the_box_of_its_pixels(encode):
    encoded = encode(ramp(40, 56))
    image = EncodedImage(encoded, channels=3)
    assert image.size().numpy().tolist() == [40, 56]
    whole = image.decode().numpy()
    gray = EncodedImage(encoded, channels=1).decode()[..., 0]
    weighted = whole @ [0.299, 0.587, 0.114]
    np.testing.assert_allclose(gray, weighted, rtol=0, atol=0.501)
    # Colors at the border of a JPEG box are interpolated otherwise.
    atol = 0 if encode is tf.io.encode_png else 3
    box, expected = image.crop([8, 16, 24, 32]).numpy(), whole[8:32, 16:48]
    np.testing.assert_allclose(box.astype(int), expected.astype(int), atol=atol)


@pytest.mark.slow
def test_randaugment_keeps_shape_and_type_with_all_operations():
    image = tf.cast(ramp(64, 64), tf.float32) + 0.4
    pictures = tf.data.Dataset.from_tensors(image).repeat(30)
    pictures = pictures.map(lambda x: augment.randaugment(x, 2, 15))
    assert pictures.element_spec == tf.TensorSpec((64, 64, 3), tf.uint8)
    results = list(pictures.as_numpy_iterator())
    assert len({result.tobytes() for result in results}) > 20
