"""Files of every format, compared with Pillow; what is not read is named."""

import io
import os
import struct
import zlib

import numpy as np
import pytest
import tensorflow as tf

from lambdanet_tf import data
from lambdanet_tf.environment import require
from tests.support.image_sets import png

pytestmark = pytest.mark.once

SIZE = 24


def picture(mode):
    """Clouds and edges of full contrast, in a mode of Pillow."""
    pillow = require("PIL.Image", extra="data")
    rng = np.random.default_rng(7)
    small = rng.integers(0, 256, (4, 5, 3)).astype(np.uint8)
    image = pillow.fromarray(small).resize((SIZE, SIZE + 3), 3)
    image.paste((255, 255, 255), (3, 3, 9, 20))
    image.paste((0, 0, 0), (9, 3, 11, 20))
    if mode == "RGBA":
        image.putalpha(pillow.linear_gradient("L").resize(image.size))
        return image
    if mode == "LA":
        return picture("RGBA").convert("LA")
    if mode == "I;16":
        return pillow.fromarray(np.asarray(image.convert("L"), np.uint16) * 257)
    return image.quantize(16) if mode == "P" else image.convert(mode)


def encode(mode, kind, **options):
    stream = io.BytesIO()
    picture(mode).save(stream, kind, **options)
    return stream.getvalue()


def gamma_png():
    """A PNG with a note on its gamma, which changes no pixel."""
    content = encode("RGB", "PNG")
    chunk = b"gAMA" + struct.pack(">I", 100_000)
    crc = struct.pack(">I", zlib.crc32(chunk))
    return content[:33] + struct.pack(">I", 4) + chunk + crc + content[33:]


def masked_bmp(red, green, blue):
    """A BMP of 32 bits whose channels are where the masks say."""
    image = picture("RGB")
    pixels = np.asarray(image, np.uint32)[::-1]
    shifts = [(m & -m).bit_length() - 1 for m in (red, green, blue)]
    rows = sum(pixels[..., i] << s for i, s in enumerate(shifts))
    rows = rows.astype("<u4").tobytes()
    head = b"BM" + struct.pack("<IHHI", 66 + len(rows), 0, 0, 66)
    size = struct.pack("<Iii", 40, *image.size)
    info = size + struct.pack("<HHIIiiII", 1, 32, 3, len(rows), 0, 0, 0, 0)
    return head + info + struct.pack("<III", red, green, blue) + rows


def tiff(planes, bits, photometric=1, samples=1, planar=1, sample_format=1):
    """An uncompressed little-endian TIFF of SIZE x SIZE pixels."""
    strips = [plane.tobytes() for plane in planes]
    tags = {256: ("H", [SIZE]), 257: ("H", [SIZE]),
            258: ("H", [bits] * samples), 259: ("H", [1]),
            262: ("H", [photometric]), 273: ("I", [0] * len(strips)),
            277: ("H", [samples]), 278: ("H", [SIZE]),
            279: ("I", [len(s) for s in strips]), 284: ("H", [planar]),
            339: ("H", [sample_format] * samples)}  # fmt: skip
    start = 8 + 2 + 12 * len(tags) + 4

    def packed(code, values):
        return struct.pack(f"<{len(values)}{code}", *values)

    lengths = [len(packed(*entry)) for entry in tags.values()]
    pixels = start + sum(length for length in lengths if length > 4)
    offsets = np.cumsum([pixels, *map(len, strips)])[:-1].tolist()
    tags[273] = ("I", offsets)
    entries, far = b"", b""
    for tag, (code, values) in sorted(tags.items()):
        raw, place = packed(code, values), start + len(far)
        if len(raw) > 4:
            far, raw = far + raw, struct.pack("<I", place)
        kind = {"H": 3, "I": 4}[code]
        entries += struct.pack("<HHI", tag, kind, len(values))
        entries += raw.ljust(4, b"\0")
    head = b"II*\0" + struct.pack("<IH", 8, len(tags))
    return head + entries + bytes(4) + far + b"".join(strips)


def hand_made_tiffs():
    """TIFFs that Pillow does not write, of a ramp; None: to be refused."""
    ramp = np.tile(np.linspace(0, 1, SIZE), (SIZE, 1))
    eight, sixteen = (ramp * 255).astype("u1"), (ramp * 65535).astype("<u2")
    signed = ((ramp - 0.5) * 254).astype("i1")
    a, b = np.round(ramp * 4095).astype(int).reshape(-1, 2).T
    twelve = np.stack([a >> 4, (a & 15) << 4 | b >> 8, b & 255], -1)
    planes = [eight, 0 * eight, ((1 - ramp) * 255).astype("u1")]
    deep = [sixteen, 0 * sixteen, ((1 - ramp) * 65535).astype("<u2")]
    gray, color = np.stack([eight] * 3, -1), np.stack(planes, -1)
    return {
        "8": (tiff([eight], 8), gray),
        "8 white is zero": (tiff([eight], 8, 0), 255 - gray),
        "16": (tiff([sixteen], 16), gray),
        "16 white is zero": (tiff([sixteen], 16, 0), 255 - gray),
        "12": (tiff([twelve.astype("u1")], 12), None),
        "signed": (tiff([signed], 8, sample_format=2), None),
        "RGB by plane": (tiff(planes, 8, 2, 3, 2), color),
        "RGB 16": (tiff([np.stack(deep, -1)], 16, 2, 3), color),
        "RGB 16 by plane": (tiff(deep, 16, 2, 3, 2), None),
    }


def table():
    """Files by name: 60 and more of all formats that are read."""
    files = {
        f"{mode} {quality} {sampling}.jpg": encode(
            mode, "JPEG", quality=quality, subsampling=sampling
        )
        for mode in ("RGB", "L", "CMYK")
        for quality in (30, 75, 100)
        for sampling in (0, 2)
    }
    for progressive in ("RGB", "L", "CMYK"):
        content = encode(progressive, "JPEG", progressive=True)
        files[f"progressive {progressive}.jpg"] = content
        files[f"more behind it {progressive}.jpg"] = content + bytes(9)
    for mode in ("1", "L", "LA", "P", "RGB", "RGBA", "I;16"):
        files[f"{mode}.png"] = encode(mode, "PNG")
        if mode not in ("I;16", "LA"):
            files[f"{mode}.gif"] = encode(mode, "GIF")
        if mode not in ("I;16", "LA", "RGBA"):
            files[f"{mode}.bmp"] = encode(mode, "BMP")
        if mode not in ("1", "I;16", "P"):
            files[f"{mode}.webp"] = encode(mode, "WEBP", lossless=True)
        files[f"{mode}.tif"] = encode(mode, "TIFF")
    files["lossy.webp"] = encode("RGB", "WEBP", quality=60)
    files["transparent.png"] = encode("P", "PNG", transparency=3)
    files["transparent.gif"] = encode("P", "GIF", transparency=3)
    files["gamma.png"] = gamma_png()
    more = {"save_all": True, "append_images": [picture("L").convert("RGB")]}
    files["animated.gif"] = encode("RGB", "GIF", **more)
    files["animated.webp"] = encode("RGB", "WEBP", lossless=True, **more)
    files["pages.tif"] = encode("RGB", "TIFF", **more)
    for name, masks in {
        "BGRA": (0xFF0000, 0xFF00, 0xFF),
        "xBGR": (0xFF000000, 0xFF0000, 0xFF00),
    }.items():
        files[f"masks {name}.bmp"] = masked_bmp(*masks)
    for kind in ("tiff_lzw", "packbits", "tiff_deflate"):
        for mode in ("L", "RGB", "CMYK"):
            files[f"{kind} {mode}.tif"] = encode(mode, "TIFF", compression=kind)
    files["group4.tif"] = encode("1", "TIFF", compression="group4")
    files["wrong ending.jpg"] = encode("RGB", "BMP")
    return files


def by_pillow(content, mode):
    pillow = require("PIL.Image", extra="data")
    with pillow.open(io.BytesIO(content)) as image:
        if image.mode.startswith("I;16"):  # Pillow would cut off at 255.
            image = pillow.fromarray((np.asarray(image) >> 8).astype(np.uint8))
        return np.asarray(image.convert(mode), int)


def all_decoded(contents, channels):
    """The pixels in a pipeline, None for a bad image."""
    images = tf.data.Dataset.from_tensor_slices(list(contents)).enumerate()
    images = images.map(
        lambda i, content: (i, data.open_image(content, channels).decode())
    )
    found = dict(images.ignore_errors().as_numpy_iterator())
    return [
        found[i].astype(int) if i in found else None
        for i in range(len(contents))
    ]


def decoded(content, channels):
    return all_decoded([content], channels)[0]


@pytest.mark.slow
@pytest.mark.parametrize(("channels", "mode"), [(3, "RGB"), (1, "L")])
def test_pixels_are_those_that_pillow_gives(channels, mode):
    files = table()
    assert len(files) >= 60
    off = {}
    pixels = all_decoded(files.values(), channels)
    for (name, content), found in zip(files.items(), pixels, strict=True):
        right = by_pillow(content, mode).reshape(SIZE + 3, SIZE, channels)
        difference = 999 if found is None else abs(found - right).mean()
        if difference > 1:
            off[name] = difference
    assert not off
    # Pillow does not know these.
    assert decoded(masked_bmp(0xFF, 0xFF00, 0xFF0000), channels) is None


@pytest.mark.slow
def test_tiffs_are_read_right_or_refused():
    for name, (content, expected) in hand_made_tiffs().items():
        found = decoded(content, 3)
        if expected is None:
            assert found is None, name
        else:
            np.testing.assert_allclose(found, expected, atol=1, err_msg=name)


def test_black_and_white_stay_so_in_a_jpeg():
    """The fast transform of TensorFlow's default flips some of them."""
    pillow = require("PIL.Image", extra="data")
    noise = np.random.default_rng(0).integers(0, 2, (64, 64)) * 255
    stream = io.BytesIO()
    pillow.fromarray(noise.astype(np.uint8)).save(stream, "JPEG", quality=95)
    right = by_pillow(stream.getvalue(), "L")
    found = decoded(stream.getvalue(), 1)[..., 0]
    np.testing.assert_array_equal(found, right)


@pytest.mark.slow
def test_a_turned_tiff_is_refused_where_a_turned_jpeg_is_not_turned():
    pillow = require("PIL.Image", extra="data")
    exif = pillow.Exif()
    exif[0x112] = 6
    for kind, shape in (("JPEG", (27, 24, 3)), ("PNG", (27, 24, 3)),
                        ("WEBP", (27, 24, 3)), ("TIFF", None)):  # fmt: skip
        options = {"exif": exif}
        if kind == "TIFF":
            options = {"tiffinfo": {274: 6}}
        found = decoded(encode("RGB", kind, **options), 3)
        assert (None if found is None else found.shape) == shape


@pytest.mark.slow
def test_pillow_opens_no_other_format():
    """An EPS file would start Ghostscript."""
    for kind in ("EPS", "PPM", "TGA", "PCX"):
        assert decoded(encode("RGB", kind), 3) is None


def test_a_cut_jpeg_is_bad_whatever_the_crop():
    content = encode("RGB", "JPEG", quality=100)
    for share in (0.5, 0.9, 0.99):
        cut = content[: int(share * len(content))]
        for top in (0, 20):
            image = data.EncodedImage(tf.constant(cut), 3)
            with pytest.raises(tf.errors.InvalidArgumentError):
                image.crop(top, 0, 4, 4)
    assert decoded(content[:-9], 3) is None


def test_a_header_that_promises_too_much_is_a_bad_image():
    content = bytearray(png([1, 2, 3]))
    content[16:24] = struct.pack(">II", 40_000, 40_000)
    with pytest.raises(tf.errors.InvalidArgumentError):
        data.EncodedImage(tf.constant(bytes(content)), 3)


def test_links_in_a_loop_and_hidden_folders_give_each_image_once(tmp_path):
    (tmp_path / "a" / ".ipynb_checkpoints").mkdir(parents=True)
    (tmp_path / "a" / "0.png").write_bytes(png([1, 2, 3]))
    (tmp_path / "a" / ".ipynb_checkpoints" / "0.png").write_bytes(b"")
    os.symlink(tmp_path, tmp_path / "a" / "loop")
    found = data.folders.find_images(str(tmp_path))
    assert found == [str(tmp_path / "a" / "0.png")]


def test_names_that_are_not_utf8_are_named(tmp_path):
    for name in (b"a", b"b"):
        os.mkdir(os.path.join(os.fsencode(tmp_path), name))
    path = os.path.join(os.fsencode(tmp_path), b"a", b"caf\xe9.png")
    with open(path, "wb") as stream:
        stream.write(png([1, 2, 3]))
    with pytest.raises(ValueError, match=r"/a must be UTF-8.*caf"):
        data.read_folder(str(tmp_path))


def test_names_with_spaces_at_their_ends_are_read(tmp_path):
    for name in ("cat ", "dog"):
        (tmp_path / name).mkdir()
        for i in range(10):
            (tmp_path / name / f"{i}.png ").write_bytes(png([i, i, i]))
    images = data.read_folder(str(tmp_path), 0.0)
    assert images.classes == ("cat", "dog")
    assert images.train.num_images + images.test.num_images == 20
    assert list(data.check_images(images)) == []
