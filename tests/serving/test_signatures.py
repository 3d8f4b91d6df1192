"""Signatures in the session of TF Serving: as Keras, and not to be harmed.

Hostile requests get clean errors in bounded memory, and good ones are served
afterwards.
"""

import re
import resource
import shutil
import struct
import zlib

import numpy as np
import pytest
import tensorflow as tf

from lambdanet_tf.serving import standalone
from lambdanet_tf.serving import verify
from tests.support import serve_check
from tests.support.serving_run import SHAPE


@pytest.fixture(scope="module")
def session(small_export):
    return standalone.Session(tf, small_export)


def test_names_dtypes_and_shapes_are_the_contract(session):
    images = {"images": (tf.float32, [-1, *SHAPE])}
    outputs = dict.fromkeys(
        ("logits", "probabilities", "top_probabilities"), (tf.float32, [-1, 5])
    )
    outputs["classes"] = tf.int64, [-1]
    outputs["top_labels"] = tf.string, [-1, 5]
    wanted = {
        "serving_default": images | outputs,
        "serving_bytes": {"image_bytes": (tf.string, [-1])} | outputs,
        "features": images | {"features": (tf.float32, [-1, 32])},
    }
    found = {
        name: {
            key: (x.dtype, [axis.size for axis in x.tensor_shape.dim])
            for tensors in (signature.inputs, signature.outputs)
            for key, x in tensors.items()
        }
        for name, signature in session.signatures.items()
    }
    assert found == wanted


@pytest.mark.slow
@pytest.mark.once
@pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")
def test_an_export_runs_in_cc_with_xla_off(
    small_run, small_export, pytestconfig, tmp_path, rng
):
    program = serve_check.build(pytestconfig.cache.mkdir("serve_check"))
    images = rng.uniform(0, 255, (3, *SHAPE)).astype(np.float32)

    def outputs(images, signature="serving_default", output="probabilities"):
        return serve_check.run(
            program, small_export, images, tmp_path, signature, "images", output
        )

    wanted = small_run[1].predict(images, verbose=0)
    np.testing.assert_allclose(outputs(images), wanted, rtol=1e-4, atol=1e-7)
    assert outputs(images, "features", "features").shape == (3, 32)
    assert "NaN or infinity" in outputs(images * np.nan)


@pytest.fixture(autouse=True)
def no_more_memory():
    """The test needs less than 200 MB more than this process has had."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    yield
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert after - before < 200 * 1024


PICTURE = (np.arange(3600) // 15).astype(np.uint8).reshape(40, 30, 3)
JPEG = tf.io.encode_jpeg(PICTURE).numpy()
PNG = tf.io.encode_png(PICTURE).numpy()


def error_of(session, signature, tensors):
    """The error that is the answer to a request; good ones are served then."""
    errors = (tf.errors.OpError, KeyError, TypeError, ValueError)
    with pytest.raises(errors) as raised:
        session.run(signature, tensors)
    gray = np.full((1, *SHAPE), 127, np.uint8)
    for name, good in verify.requests_of(gray).items():
        outputs = session.run(name, good)
        assert len(next(iter(outputs.values()))) == 1
    return f"{raised.typename}: {raised.value}"


def files(*contents):
    return "serving_bytes", {"image_bytes": np.array(contents, "O")}


def pixels(signature="serving_default", shape=(3, *SHAPE), second=0.0):
    """A request of zeros but for one pixel of the second image."""
    images = np.zeros(shape, np.float32)
    images[1:2, 2, 3, 0] = second
    return signature, {"images": images}


def png_header(width, height):
    """A PNG whose header promises a size that its data does not have."""
    image = bytearray(PNG)
    image[16:24] = struct.pack(">II", width, height)
    image[29:33] = struct.pack(">I", zlib.crc32(image[12:29]))
    return bytes(image)


BROKEN = {
    "truncated JPEG": JPEG[: len(JPEG) // 2],
    "empty": b"",
    "huge PNG": png_header(20_000, 20_000),  # of 1.2 GB
    "PNG of negative size": png_header(2**32 - 1, 2**32 - 1),
    "damaged PNG": PNG[:60] + b"\xff" * 20 + PNG[80:],
}
NO_IMAGE = "InvalidArgument.*not JPEG or PNG files of at most 33554432 pixels"
NOT_FINITE = r"NaN or infinity, by index.*\[1\]"
EMPTY = "the batch must have at least one image"
HOSTILE = {
    **{
        name: (files(JPEG, broken, PNG), rf"{NO_IMAGE}, by index.*\[1\]")
        for name, broken in BROKEN.items()
    },
    "no files": (files(), EMPTY),
    "no pixels": (pixels(shape=(0, *SHAPE)), EMPTY),
    "another shape": (pixels(shape=(1, 8, 7, 3)), ""),
    "no signature": (("nope", {}), "KeyError: 'nope'"),
    "NaN": (pixels(second=np.nan), NOT_FINITE),
    "infinity": (pixels(second=np.inf), NOT_FINITE),
    "minus infinity": (pixels(second=-np.inf), NOT_FINITE),
    "NaN for features": (pixels("features", second=np.nan), NOT_FINITE),
}


@pytest.mark.once
@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_request_is_an_error(session, name):
    hostile, message = HOSTILE[name]
    assert re.search(f"(?s){message}", error_of(session, *hostile))


@pytest.mark.slow
@pytest.mark.once
def test_two_thousand_random_strings(session, rng):
    beginnings = [b"", b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff\xe0", JPEG[:300]]
    for _ in range(4):
        lengths = rng.integers(0, 200, 500)
        images = [beginnings[n % 4] + rng.bytes(int(n)) for n in lengths]
        assert "by index" in error_of(session, *files(*images))


@pytest.mark.once
def test_pixels_outside_the_range_count_as_its_ends(session):
    def run(*values):
        images = np.array(values, np.float32)[:, None, None, None]
        images = np.broadcast_to(images, (len(values), *SHAPE))
        return session.run("serving_default", {"images": images})["logits"]

    # The place of an example in its batch may change its last bits.
    np.testing.assert_array_equal(run(-1e30, 1e30), run(0.0, 255.0))
