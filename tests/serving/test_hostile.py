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
from lambdanet_tf.serving import signatures
from lambdanet_tf.serving import verify
from tests.support.serving_run import SHAPE

pytestmark = pytest.mark.once

GRAY = np.full((1, *SHAPE), 127, np.uint8)


def strings(*values):
    return np.array(values, "O")


def picture(height, width, channels):
    ramp = np.linspace(0, 255, height * width * channels)
    return ramp.reshape(height, width, channels).astype(np.uint8)


JPEG = tf.io.encode_jpeg(picture(40, 30, 3)).numpy()
PNG = tf.io.encode_png(picture(40, 30, 3)).numpy()


def png_header(width, height):
    """A PNG whose header promises a size that its data does not have."""
    image = bytearray(PNG)
    image[16:24] = struct.pack(">II", width, height)
    image[29:33] = struct.pack(">I", zlib.crc32(image[12:29]))
    return bytes(image)


def error_of(session, signature, tensors):
    """The error that is the answer to a request; good ones are served then."""
    errors = (tf.errors.OpError, KeyError, TypeError, ValueError)
    with pytest.raises(errors) as raised:
        session.run(signature, tensors)
    for name, good in verify.requests_of(GRAY).items():
        outputs = session.run(name, good)
        assert len(next(iter(outputs.values()))) == 1
    return f"{raised.typename}: {raised.value}"


def rejected(session, *images):
    tensors = {"image_bytes": strings(*images)}
    return error_of(session, "serving_bytes", tensors)


BROKEN = {
    "truncated JPEG": JPEG[: len(JPEG) // 2],
    "empty": b"",
    "huge PNG": png_header(20_000, 20_000),  # of 1.2 GB
    "PNG of negative size": png_header(2**32 - 1, 2**32 - 1),
    "damaged PNG": PNG[:60] + b"\xff" * 20 + PNG[80:],
}


@pytest.fixture
def no_more_memory():
    """The test needs less than 200 MB more than this process has had."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    yield
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert after - before < 200 * 1024


@pytest.mark.usefixtures("no_more_memory")
@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_image_is_an_error_that_names_its_index(session, name):
    error = rejected(session, JPEG, BROKEN[name], PNG)
    reason = r"no JPEG or PNG of at most 33554432 pixels, by index.*\[1\]"
    assert re.search(f"(?s)InvalidArgument.*{reason}", error)


@pytest.mark.slow
@pytest.mark.usefixtures("no_more_memory")
def test_ten_thousand_random_strings(session, rng):
    beginnings = [b"", b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff\xe0", JPEG[:300]]
    for _ in range(20):
        lengths = rng.integers(0, 200, 500)
        images = [beginnings[n % 4] + rng.bytes(int(n)) for n in lengths]
        assert "by index" in rejected(session, *images)


def with_one(value):
    images = np.zeros((3, *SHAPE), np.float32)
    images[1, 2, 3, 0] = value
    return {"images": images}


NAMED = r"(?s)not finite, by index.*\[1\]"
EMPTY = "the batch must hold at least one image"
DEFAULT = "serving_default"
WRONG = [
    (DEFAULT, {"images": np.zeros((0, *SHAPE), np.float32)}, EMPTY),
    ("serving_bytes", {"image_bytes": strings()}, EMPTY),
    (DEFAULT, {"images": np.zeros((1, 8, 7, 3), np.float32)}, ""),
    ("nope", {}, "KeyError: 'nope'"),
    *((DEFAULT, with_one(x), NAMED) for x in (np.nan, np.inf, -np.inf)),
    ("features", with_one(np.nan), NAMED),
]


@pytest.mark.parametrize(("signature", "tensors", "message"), WRONG)
def test_a_wrong_request_is_an_error(session, signature, tensors, message):
    assert re.search(message, error_of(session, signature, tensors))


def test_pixels_outside_the_range_count_as_its_ends(session):
    def run(*pixels):
        images = np.array(pixels, np.float32)[:, None, None, None]
        images = np.broadcast_to(images, (len(pixels), *SHAPE))
        return session.run("serving_default", {"images": images})["logits"]

    # The place of an example in its batch may change its last bits.
    np.testing.assert_array_equal(run(-1e30, 1e30), run(0.0, 255.0))


@pytest.mark.parametrize("channels", [1, 3])
def test_every_kind_of_png_gives_the_same_pixels(channels):
    gray = picture(8, 7, 1)
    color, opaque = gray.repeat(3, -1), np.insert(gray, 1, 255, -1)
    kinds = (color, opaque, gray.astype(np.uint16) * 257)
    encoded = tf.stack([*map(tf.io.encode_png, kinds)])
    crop = data.EvaluationCrop(SHAPE[:2])
    for image in signatures.decode_batch(encoded, crop, channels, 1000):
        wanted = np.repeat(gray, channels, axis=-1)
        np.testing.assert_allclose(image, wanted, atol=1)
