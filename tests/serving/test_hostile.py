"""Hostile requests: clean errors, bounded memory, and service afterwards.

All of them go through the loader and the session that TF Serving uses.
"""

import re
import resource
import struct
import zlib

import numpy as np
import pytest
import tensorflow as tf

from lambdanet_tf import data
from lambdanet_tf.data import EncodedImage
from lambdanet_tf.serving import requests
from lambdanet_tf.serving import signatures
from tests.support.serving_run import SHAPE

pytestmark = pytest.mark.once

GRAY = {"images": np.full((1, *SHAPE), 127, np.uint8)}
CROP = data.EvaluationCrop(SHAPE[:2])


def strings(*values):
    return np.array(values, "O")


def picture(height=40, width=30, channels=3):
    ramp = np.linspace(0, 255, height * width * channels)
    return ramp.reshape(height, width, channels).astype(np.uint8)


def png(pixels):
    return tf.io.encode_png(pixels).numpy()


JPEG = tf.io.encode_jpeg(picture()).numpy()
PNG = png(picture())


def png_header(width, height, kind=2):
    """A PNG whose header promises a size that its data does not have."""

    def chunk(name, content):
        checksum = zlib.crc32(name + content)
        size = struct.pack(">I", len(content))
        return size + name + content + struct.pack(">I", checksum)

    header = struct.pack(">IIBBBBB", width, height, 8, kind, 0, 0, 0)
    data = chunk(b"IDAT", zlib.compress(b"\0" * 100))
    start = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header)
    return start + data + chunk(b"IEND", b"")


def jpeg_header(width, height):
    """The same as a JPEG: its size stands behind the marker FFC0."""
    start = JPEG.index(b"\xff\xc0") + 5
    size = struct.pack(">HH", height, width)
    return JPEG[:start] + size + JPEG[start + 4 :]


def serves(session):
    """Whether good requests of every signature are still answered."""
    for signature, tensors in requests.requests_of(GRAY):
        outputs = session.run(signature, tensors)
        assert len(next(iter(outputs.values()))) == 1


def error_of(session, signature, tensors):
    """The error that is the answer to a request."""
    errors = (tf.errors.OpError, TypeError, ValueError)
    with pytest.raises(errors) as raised:
        session.run(signature, tensors)
    return f"{raised.typename}: {raised.value}"


def rejected(session, *images):
    tensors = {"image_bytes": strings(*images)}
    return error_of(session, "serving_bytes", tensors)


BROKEN = {
    "truncated JPEG": JPEG[: len(JPEG) // 2],
    "truncated PNG": PNG[: len(PNG) // 2],
    "header alone": JPEG[:20],
    "empty": b"",
    "text": b"<html>",
    "GIF": b"GIF89a\x01\x00\x01\x00\x00\x00\x00;",
    "BMP": b"BM" + b"\0" * 52,
    "huge PNG": png_header(20_000, 20_000),
    "huge JPEG": jpeg_header(20_000, 20_000),
    "PNG without width": png_header(0, 5),
    "PNG of negative size": png_header(2**32 - 1, 2**32 - 1),
    "PNG that promises more than it has": png_header(5_000, 5_000),
    "damaged PNG": PNG[:60] + b"\xff" * 20 + PNG[80:],
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_image_is_an_error_that_names_its_index(session, name):
    error = rejected(session, JPEG, BROKEN[name], PNG)
    assert "InvalidArgument" in error
    assert "no JPEG or PNG of at most 33554432 pixels, by index" in error
    assert "[1]" in error
    example = requests.encoded_example(BROKEN[name])
    good = requests.encoded_example(PNG)
    tensors = {"inputs": strings(good, good, example)}
    assert "[2]" in error_of(session, "classify", tensors)
    serves(session)


def test_several_broken_images_are_all_named(session):
    assert "[0 2 3]" in rejected(session, b"a", JPEG, b"b", b"c")


def memory():
    """The most that this process has had, in kilobytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def test_the_promised_size_costs_no_memory(session):
    before = memory()
    rejected(session, *[png_header(20_000, 20_000)] * 20)
    rejected(session, *[png_header(65_000, 65_000)] * 20)
    assert memory() - before < 200 * 1024  # one image would be 1.2 GB


def test_the_largest_image_is_decoded_and_one_more_row_is_not():
    decode = tf.function(lambda image: EncodedImage(image, 1, 1200).decode())
    exact, more = (tf.constant(png(picture(n, 30, 1))) for n in (40, 41))
    assert decode(exact).shape == (40, 30, 1)
    with pytest.raises(tf.errors.InvalidArgumentError):
        decode(more)


@pytest.mark.thorough
def test_ten_thousand_random_strings(session, rng):
    beginnings = [b"", b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff\xe0", JPEG[:300]]
    images = [
        beginnings[i % 4] + rng.bytes(int(rng.integers(0, 200)))
        for i in range(10_000)
    ]
    before = memory()
    for batch in range(0, 10_000, 500):
        error = rejected(session, *images[batch : batch + 500])
        assert "by index" in error
    assert memory() - before < 200 * 1024
    serves(session)


def pixels(*shape):
    return {"images": np.zeros(shape, np.float32)}


def examples(*values):
    good = requests.encoded_example(PNG)
    return {"inputs": strings(good, *values)}


EMPTY = "the batch must hold at least one image"
DEFAULT = "serving_default"
WRONG = [
    ("classify", examples(b"\xff\xff"), r"\[1\]"),
    ("classify", examples(b""), r"\[1\]"),
    (DEFAULT, pixels(0, *SHAPE), EMPTY),
    ("features", pixels(0, *SHAPE), EMPTY),
    ("serving_bytes", {"image_bytes": strings()}, EMPTY),
    ("classify", {"inputs": strings()}, EMPTY),
    (DEFAULT, pixels(*SHAPE), ""),
    (DEFAULT, pixels(1, 9, 7, 1), ""),
    (DEFAULT, pixels(1, 8, 7, 3), ""),
    (DEFAULT, {"images": strings("text")}, ""),
    (DEFAULT, {"pictures": np.zeros((1, *SHAPE), np.float32)}, ""),
    (DEFAULT, {}, ""),
    ("nope", {}, "signature key 'nope' not found"),
]


@pytest.mark.parametrize(("signature", "tensors", "message"), WRONG)
def test_a_wrong_request_is_an_error(session, signature, tensors, message):
    assert re.search(message, error_of(session, signature, tensors))
    serves(session)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("signature", ["serving_default", "features"])
def test_an_image_that_is_not_finite_is_named(session, signature, value):
    images = np.zeros((3, *SHAPE), np.float32)
    images[1, 2, 3, 0] = value
    error = error_of(session, signature, {"images": images})
    assert "not finite, by index" in error
    assert "[1]" in error
    serves(session)


def test_pixels_outside_the_range_count_as_its_ends(session):
    def run(*pixels):
        images = np.array(pixels, np.float32)[:, None, None, None]
        images = np.broadcast_to(images, (len(pixels), *SHAPE))
        return session.run("serving_default", {"images": images})["logits"]

    # The place of an example in its batch may change its last bits.
    np.testing.assert_array_equal(run(-1e30, 1e30), run(0.0, 255.0))


GRAY_PIXELS = picture(8, 7, 1)
COLOR = np.repeat(GRAY_PIXELS, 3, axis=-1)
OPAQUE = np.full((8, 7, 1), 255, np.uint8)
# Encodings of one picture that a lossless decoder must agree on.
ENCODINGS = {
    "gray": png(GRAY_PIXELS),
    "color": png(COLOR),
    "alpha": png(np.concatenate([COLOR, OPAQUE], axis=-1)),
    "gray and alpha": png(np.concatenate([GRAY_PIXELS, OPAQUE], axis=-1)),
    "16 bit": png(GRAY_PIXELS.astype(np.uint16) * 257),
}


@pytest.mark.parametrize("kind", ENCODINGS)
@pytest.mark.parametrize("channels", [1, 3])
def test_every_kind_of_png_gives_the_same_pixels(kind, channels):
    encoded = tf.constant([ENCODINGS[kind]])
    images = signatures.decode_batch(encoded, CROP, channels, 1000)
    wanted = np.repeat(GRAY_PIXELS, channels, axis=-1)
    np.testing.assert_allclose(images[0], wanted, atol=1)
