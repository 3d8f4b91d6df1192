"""Sources: order, shards, folders, and images that cannot be read."""

import io
import re
import sys

import numpy as np
import pytest
import tensorflow as tf

from lambdanet_tf import cli
from lambdanet_tf import data
from lambdanet_tf.data.arrays import ArraySource
from lambdanet_tf.data.folders import read_folder
from lambdanet_tf.data.images import open_image
from lambdanet_tf.environment import require
from tests.support.image_sets import Files
from tests.support.image_sets import element_labels
from tests.support.image_sets import jpeg
from tests.support.image_sets import png
from tests.support.image_sets import read_once
from tests.support.image_sets import sizes
from tests.support.image_sets import write_files
from tests.support.image_sets import write_folder

pytestmark = pytest.mark.once

# 11 one-pixel images, each with a label of its own.
NUMBERS = ArraySource(np.zeros((11, 1, 1, 1)), np.arange(11))


def test_digits_are_divided_into_equal_shares_of_each_class():
    assert sizes(data.load_digits(validation_split=0.0)) == [1438, 0, 359]
    digits = data.load_digits(validation_split=0.1)
    assert sizes(digits) == [1295, 143, 359]
    assert digits.classes == tuple("0123456789")
    elements = list(digits.test.scan())
    expected = [36, 36, 35, 37, 36, 36, 36, 36, 35, 36]
    assert np.bincount(element_labels(elements)).tolist() == expected
    pixels = [item["image"].numpy() for _, item in elements]
    assert (np.min(pixels), np.max(pixels)) == (0, 255)


# What runs resume on: streams as they were when these were recorded. Seed,
# start, shard, then the labels of `NUMBERS`.
STREAMS = [
    (0, 0, data.Shard(), [0, 9, 1, 8, 4, 10, 3, 6, 7, 2, 5, 1, 10, 5, 4, 3]),
    (3, 17, data.Shard(), [8, 4, 2, 6, 9, 6, 9, 2, 8, 0, 5, 7, 3, 1, 4, 10]),
    (3, 5, data.Shard(1, 3), [5, 7, 3, 0, 4, 9, 2, 5, 1, 2, 3, 10, 6, 5, 7]),
]


def test_streams_are_those_that_were_recorded():
    for seed, start, shard, labels in STREAMS:
        found = NUMBERS.stream(seed, start, shard).take(len(labels))
        assert element_labels(found) == labels
    digits = data.load_digits(validation_split=0.1).train
    elements = list(digits.stream(7, 1300, data.Shard(1, 2)).take(8))
    assert element_labels(elements) == [6, 2, 1, 6, 2, 1, 0, 1]
    sums = [np.sum(item["image"]) * 16 / 255 for _, item in elements]
    expected = [269, 345, 364, 279, 293, 369, 346, 279]
    np.testing.assert_allclose(sums, expected, rtol=1e-5)
    for seed, position, expected in (
        (0, 0, -409271666),
        (~0, 0, -756398386),
        (3, 17, -1947171647),
        (2**31 - 1, 10**10, -477513763),
    ):
        found = data.element_seed(seed, tf.constant(position, tf.int64))
        assert found.numpy().tolist() == [expected, 1]


@pytest.mark.parametrize("count", [1, 3, 5])
def test_shards_of_files_resume_and_divide_the_images(count):
    """By files up to four shards, by elements with five."""
    source = Files(5, 1, 7, 4)
    scanned = []
    for index in range(count):
        shard = data.Shard(index, count)
        scanned += element_labels(source.scan(shard))
        labels = element_labels(source.stream(1, 0, shard).take(36))
        for step in (3, 29) if index in (0, count - 1) else ():
            rest = source.stream(1, step * count, shard).take(36 - step)
            assert element_labels(rest) == labels[step:]
    assert sorted(scanned) == list(range(17))


def encoded(kind, mode="RGB"):
    """A black file, written by Pillow."""
    pillow, stream = require("PIL.Image", extra="data"), io.BytesIO()
    pillow.new(mode, (8, 8)).save(stream, kind)
    return stream.getvalue()


@pytest.mark.slow
def test_images_that_cannot_be_read_or_are_in_two_splits_are_named(
    tmp_path, capsys
):
    """Two classes: a red one, and one with everything that can go wrong."""
    red = {f"red/{i}.png": png([255, 0, 0]) for i in range(5)}
    no_image = "ValueError: Not a JPEG, PNG, BMP, GIF, TIFF, WEBP file."
    bits = "ValueError: Channels of 32 bits have no known range."
    cut = jpeg([1, 2, 3], size=(64, 64))[:-200]
    odd = {
        "empty.jpg": (b"", no_image),
        "floats.tif": (encoded("TIFF", "F"), bits),
        "text.png": (b"not an image", no_image),
        "truncated.jpg": (cut, "Invalid JPEG data"),
    }
    write_files(tmp_path / "train", {"odd/blue.png": png([0, 0, 255]), **red})
    write_files(tmp_path / "val", {"odd/gray.JPG": jpeg([77]), **red})
    write_files(tmp_path / "val/odd", {n: x for n, (x, _) in odd.items()})
    images = read_folder(str(tmp_path), validation_split=0.0)
    assert images.classes == ("odd", "red")
    assert sizes(images) == [6, 0, 10]
    pixels, labels = read_once(images.train)
    assert sorted(labels.tolist()) == [0, 1, 1, 1, 1, 1]
    np.testing.assert_array_equal(pixels[labels == 0][0, 0, 0], [0, 0, 255])
    assert sorted(read_once(images.test)[1].tolist()) == [0] + [1] * 5
    first = f"the test image is also {tmp_path}/train/red/0.png in train"
    texts = {f"odd/{name}": text for name, (_, text) in odd.items()}
    texts |= dict.fromkeys(red, first)
    assert cli.main(["check", f"folder:{tmp_path}"]) == 1
    said = capsys.readouterr().out.splitlines()[-1]
    assert said.endswith("of 16 images cannot be read, or are in two splits.")
    bad = dict(line.split(": ", 1) for line in data.check_images(images))
    assert [*bad] == [f"{tmp_path}/val/{name}" for name in texts]
    for found, wanted in zip(bad.values(), texts.values(), strict=True):
        assert found.startswith(wanted)


def test_a_folder_without_parts_is_divided(tmp_path):
    path = write_folder(tmp_path, [""])
    images = data.load_images(f"folder:{path},channels=1", 0.25)
    assert sizes(images) == [12, 4, 4]
    assert images.channels == 1
    assert element_labels(images.train.scan())[0] == 0
    with pytest.raises(ValueError, match="`channels` must be one of"):
        data.load_images(f"folder:{path},channels=2")
    with pytest.raises(ValueError, match="No such folder: .*/nothing"):
        data.unlabelled_images(f"{path}/nothing")


def test_parts_and_classes_have_names(tmp_path):
    for parts, expected in (
        ("train val test", [20, 20, 20]),
        ("train dev test", [20, 20, 20]),
        ("Train Test", [18, 2, 20]),
        ("train", [14, 2, 4]),
    ):
        path = write_folder(tmp_path / parts, parts.split())
        assert sizes(read_folder(path, 0.1)) == expected
    # A Mac writes accents as signs of their own.
    for part, name in (("train", "cafe\u0301"), ("test", "caf\u00e9")):
        path = write_folder(tmp_path / "mac", [part], classes=(name, "b"))
    assert read_folder(path).classes == ("b", "caf\u00e9")


def test_what_is_left_out_of_a_folder_is_said(tmp_path, monkeypatch):
    """Of runs nothing: `lambdanet train --data folder:.` writes them there."""
    path = write_folder(tmp_path / "one", [""])
    (tmp_path / "one" / "c").mkdir()
    files = (
        *("a/.DS_Store", "a/x.HEIC", "a/y.heic", "a/notes", "beside.png"),
        *("mine/run.json", "mine/curves.png", "runs/x/run.json"),
        *("runs/x/0.png", "d/0.png", "d/1.png"),
    )
    write_files(tmp_path / "one", dict.fromkeys(files, b""))
    monkeypatch.chdir(path)
    text = "ignored files: .heic: 2, .png: 1, without an extension: 1."
    with pytest.warns(UserWarning, match=re.escape(text)):
        images = data.load_images("folder:.")
    assert images.description.endswith(text)
    assert images.classes == ("a", "b", "d")
    path = write_folder(tmp_path / "two", ["train", "test", "tset"], number=3)
    write_files(tmp_path / "two", {"exported/1/saved_model.pb": b""})
    with pytest.warns(UserWarning, match="files: exported/: 1, tset/: 6"):
        read_folder(path)


FOLDERS = "must contain a folder of images .* Received: no images"


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ("train/cat.0 train/dog.0 test/a/0", f"/train {FOLDERS}"),
        ("train/cat/0 train/dog/0 test/0", f"/test {FOLDERS}"),
        ("train/a/0 train/b/0 test/a/0 test/c/0", ": c, which the train"),
        ("a/0 b/0", "must contain training and test images.* 0 test"),
        ("", f"/ {FOLDERS}"),
    ],
)
def test_folders_that_cannot_be_meant_are_refused(tmp_path, files, message):
    """Kaggle's sets come so; their parts must not become two classes."""
    names = [f"{name}.png" for name in files.split()]
    write_files(tmp_path, dict.fromkeys(names, png([0])))
    with pytest.raises(ValueError, match=message):
        read_folder(str(tmp_path))


def test_webp_without_pillow_is_an_error_that_says_so(tmp_path, monkeypatch):
    write_folder(tmp_path, ["train", "test"], number=1)
    write_files(tmp_path / "test/a", {"x.webp": encoded("WEBP")})
    monkeypatch.setitem(sys.modules, "PIL.Image", None)
    message = r"`PIL.Image` could not be .*lambdanet-tf\[data\]"
    with pytest.raises(ImportError, match=message):
        read_folder(str(tmp_path), 0.0)


DEEP = np.arange(0, 65536, 1111, np.uint16)[:56].reshape(7, 8)


def deep(values, kind="TIFF", mode="I;16"):
    """A file of 16 bits."""
    pillow = require("PIL.Image", extra="data")
    stored = values.astype(">u2" if mode == "I;16B" else "<u2").tobytes()
    stream = io.BytesIO()
    pillow.frombytes(mode, values.shape[::-1], stored).save(stream, kind)
    return stream.getvalue()


@pytest.mark.parametrize(
    ("kind", "mode"), [("TIFF", "I;16"), ("TIFF", "I;16B"), ("PNG", "I;16")]
)
def test_16_bits_become_the_higher_8_of_those_that_are_used(kind, mode):
    file = tf.constant(deep(DEEP, kind, mode))
    pixels = open_image(file, channels=1).decode()
    np.testing.assert_array_equal(pixels[..., 0], DEEP >> 8)
    pixels = open_image(file, channels=1, bits=12).decode()
    np.testing.assert_array_equal(pixels[..., 0], np.minimum(DEEP >> 4, 255))


def test_images_of_12_bits_in_16_are_noticed_and_scaled(tmp_path):
    """Microscopes write them; without the option they are nearly black."""
    path = write_folder(tmp_path, [""])
    dim = np.maximum(DEEP // 16, 9)
    write_files(tmp_path, {f"a/{i}.tif": deep(dim - i) for i in range(9)})
    text = "are nearly black; add `,bits=12` to the path"
    with pytest.warns(UserWarning, match=text):
        data.load_images(f"folder:{path}")
    images = data.load_images(f"folder:{path},bits=12")
    assert images.bits == 12
    for source in images.splits.values():
        for position, item in source.scan():
            number = int(source.name(position).split("/")[-1].split(".")[0])
            expected = number  # of 8 bits
            if source.name(position).endswith(".tif"):
                expected = (dim - number).max() >> 4
            image = source.decode(item)[0]
            written = tf.io.decode_image(image.encoded())  # pseudo-labels
            for values in (image.decode(), written):
                assert values.numpy().max() == expected


@pytest.mark.parametrize(
    ("counts", "expected"),
    [
        ([6] * 20, [90, 10, 20]),
        ([3] * 50, [90, 10, 50]),
        ([100, 4], [75, 8, 21]),
        ([2, 2, 1], [3, 1, 1]),
    ],
)
def test_small_classes_give_images_to_each_split(counts, expected):
    labels = np.repeat(np.arange(len(counts)), counts)
    images = data.array_set((np.zeros((len(labels), 1, 1)), labels))
    assert sizes(images) == expected
    assert len(set(images.train.columns["label"])) == len(counts)
