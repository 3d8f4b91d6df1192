"""Files of every format, compared with Pillow; what is not read is named."""

import io
import itertools
import struct

import numpy as np
import pytest
import tensorflow as tf

from lambdanet_tf import data
from lambdanet_tf.data.images import open_image
from lambdanet_tf.environment import require
from tests.support.image_sets import png

pytestmark = pytest.mark.once


def encode(mode, kind, **options):
    """A file with clouds and edges of full contrast, in a mode of Pillow."""
    pillow = require("PIL.Image", extra="data")
    small = np.random.default_rng(7).integers(0, 256, (4, 5, 3), np.uint8)
    image = pillow.fromarray(small).resize((24, 27), 3)
    image.paste((255, 255, 255), (3, 3, 9, 20))
    stream = io.BytesIO()
    image.convert(mode).save(stream, kind, **options)
    return stream.getvalue()


def decoded(content, channels):
    """The pixels, or None for a bad image."""
    try:
        pixels = open_image(tf.constant(content), channels).decode()
    except (ValueError, tf.errors.InvalidArgumentError):
        return None
    return pixels.numpy().astype(int)


@pytest.mark.slow
def test_pixels_are_those_that_pillow_gives():
    pillow, off = require("PIL.Image", extra="data"), {}
    kinds = ("JPEG", "PNG", "GIF", "BMP", "WEBP", "TIFF")
    modes = ("1", "L", "P", "RGB", "RGBA", "CMYK")
    for kind, mode in itertools.product(kinds, modes):
        try:
            content = encode(mode, kind)
        except (OSError, ValueError):  # Pillow writes no such file.
            continue
        for channels, wanted in ((3, "RGB"), (1, "L")):
            image = pillow.open(io.BytesIO(content)).convert(wanted)
            right = np.asarray(image, int).reshape(27, 24, channels)
            found = decoded(content, channels)
            error = 999 if found is None else abs(found - right).mean()
            off[kind, mode, channels] = error
    assert len(off) > 40
    assert {name: error for name, error in off.items() if error > 1} == {}
    # Pillow opens no other format: an EPS file would start Ghostscript.
    assert decoded(encode("RGB", "EPS"), 3) is None


def test_a_cut_jpeg_and_a_header_that_promises_too_much_are_bad():
    content = encode("RGB", "JPEG", quality=100)
    for size in (len(content) // 2, len(content) - 9):
        image = data.EncodedImage(tf.constant(content[:size]), 3)
        for top in (0, 20):
            with pytest.raises(tf.errors.InvalidArgumentError):
                image.crop([top, 0, 4, 4])
        assert decoded(content[:size], 3) is None
    sides = struct.pack(">II", 40_000, 40_000)
    content = png([1, 2, 3])
    assert decoded(content[:16] + sides + content[24:], 3) is None
