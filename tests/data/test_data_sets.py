"""Image sets by name: records, TensorFlow Datasets, arrays."""

import os

import numpy as np
import pytest

from lambdanet_tf import data
from lambdanet_tf.data.records import RecordSource
from lambdanet_tf.data.records import parse_labelled
from lambdanet_tf.data.records import read_records
from lambdanet_tf.data.sets import require_readable
from lambdanet_tf.data.tfds import read_tfds
from tests.support.image_sets import example
from tests.support.image_sets import examples
from tests.support.image_sets import png
from tests.support.image_sets import read_once
from tests.support.image_sets import sizes
from tests.support.image_sets import write_file

pytestmark = pytest.mark.once


def write_records(path, part, num_files, per_file):
    """ImageNet's layout; the label of each image is its gray value."""
    for i in range(num_files):
        numbers = range(i * per_file, (i + 1) * per_file)
        name = f"{part}-{i:05d}-of-{num_files:05d}"
        write_file(path / name, examples(numbers))


@pytest.fixture
def folder(tmp_path):
    """Four files of five training images, two of three test images."""
    folder = tmp_path / "[a]*?"  # no pattern
    folder.mkdir()
    write_records(folder, "train", 4, 5)
    write_records(folder, "validation", 2, 3)
    names = [f"class {i}\n" for i in range(20)]
    (folder / "classes.txt").write_text("".join(names))
    return folder


@pytest.mark.slow
def test_records(folder):
    images = data.load_images(f"records:{folder}", validation_split=0.25)
    assert sizes(images) == [15, 5, 6]
    assert images.classes[:2] == ("class 0", "class 1")
    assert sorted(read_once(images.validation)[1]) == [*range(15, 20)]
    pixels, labels = read_once(images.test)
    assert sorted(labels.tolist()) == list(range(6))
    np.testing.assert_array_equal(pixels[:, 0, 0, 0], labels)
    write_records(folder, "test", 1, 2)  # Three parts are kept.
    images = read_records(str(folder), validation_split=0.9)
    assert sizes(images) == [20, 6, 2]


@pytest.mark.slow
def test_imagenet_is_known_by_its_files(tmp_path):
    """Its training images are not counted: that would mean reading 140 GB."""
    for part, number in (("train", 1024), ("validation", 128)):
        write_file(tmp_path / part, [example(png([7] * 3), 1000)])
        for i in range(number):
            name = f"{part}-{i:05d}-of-{number:05d}"
            os.link(tmp_path / part, tmp_path / name)
    images = read_records(str(tmp_path), validation_split=0.02)
    assert sizes(images) == [1_256_144, 20, 128]
    assert len(images.classes) == 1000
    assert read_once(images.validation)[1].tolist() == [999] * 20


def test_files_and_classes_that_cannot_be_meant_are_an_error(folder):
    (folder / "classes.txt").unlink()
    with pytest.raises(ValueError, match="classes .* unknown.*classes.txt"):
        data.load_images(f"records:{folder}")
    assert len(data.load_images(f"records:{folder},classes=20").classes) == 20
    (folder / "classes.txt").write_text("a\n" * 20)
    with pytest.raises(ValueError, match="with different names"):
        data.load_images(f"records:{folder}")
    (folder / "classes.txt").unlink()
    write_records(folder, "trainval", 1, 2)
    assert sizes(read_records(str(folder), 0, classes=20)) == [20, 0, 6]
    path = folder / "train-00002-of-00004"
    path.write_bytes(path.read_bytes()[:-5])
    with pytest.raises(ValueError, match="00002-of-00004 is damaged"):
        read_records(str(folder), classes=20)
    path.unlink()
    with pytest.raises(ValueError, match="all 4 files train-.*Received: 3"):
        read_records(str(folder))
    with pytest.raises(ValueError, match=r"TFRecord files train-\*-of-\*"):
        read_records(str(folder / "nothing"))


def test_corrupt_records_are_left_out_and_named(tmp_path):
    """Bytes that are no image, strange labels, and a damaged end of a file."""
    good = [example(png([9] * 3), n) for n in (0, 2**32, -1, 1, 0, 1)]
    good[4] = example(b"no image", 0)
    write_file(tmp_path / "x", good)
    content = (tmp_path / "x").read_bytes()
    (tmp_path / "x").write_bytes(content[:-9] + bytes(9))
    write_file(tmp_path / "y", good[:1])
    files = [f"{tmp_path}/{name}" for name in "xy"]
    # ImageNet's files have one image more or less than the number says.
    for size in (5, 6, 7):
        source = RecordSource(files, [size, 1], parse_labelled(2))
        assert sorted(read_once(source)[1]) == [0, 0, 1]
        reasons = [
            *("the label is not one of the 2",) * 2,
            *(": ", ": corrupted record at "),
        ]
        found = [*source.check()]
        for number, line, why in zip((1, 2, 4, 5), found, reasons, strict=True):
            assert line.startswith(f"{files[0]}: image {number}: ")
            assert why in line


def test_records_without_images_or_to_hold_out_are_an_error(tmp_path):
    contents = [example(png([9] * 3), 1, key="image")] * 3
    for part in ("train", "test"):
        write_file(tmp_path / f"{part}.tfrecord", contents)
    images = read_records(str(tmp_path), 0, classes=2)
    assert sizes(images) == [3, 0, 3]
    with pytest.raises(ValueError, match="Feature: image/encoded"):
        require_readable(images)
    with pytest.raises(ValueError, match="0 training, 3 validation and 3 test"):
        read_records(str(tmp_path), 0.1, classes=2)


@pytest.mark.slow
def test_tfds(tmp_path):
    """Sets that TensorFlow Datasets itself has written."""
    tfds = pytest.importorskip("tensorflow_datasets")

    class TinyPictures(tfds.core.GeneratorBasedBuilder):
        """The label of each image is its gray value."""

        VERSION = tfds.core.Version("1.0.0")
        sizes = {"train": 40, "test": 10}

        def _info(self):
            images = {"image": tfds.features.Image(shape=(8, 8, 3))}
            labels = {"label": tfds.features.ClassLabel(num_classes=40)}
            features = tfds.features.FeaturesDict({**images, **labels})
            return tfds.core.DatasetInfo(builder=self, features=features)

        def _split_generators(self, dl_manager):
            return {
                x: self._generate_examples(n) for x, n in self.sizes.items()
            }

        def _generate_examples(self, number):
            for i in range(number):
                yield i, {"image": np.full((8, 8, 3), i, np.uint8), "label": i}

    class ImagenetTiny(TinyPictures):
        """Its labels are hidden in the test images, as ImageNet's are."""

        sizes = {"train": 10, "validation": 8, "test": 10}

    folder = str(tmp_path)
    config = tfds.download.DownloadConfig(num_shards=4)
    for builder in (TinyPictures, ImagenetTiny):
        builder(data_dir=folder).download_and_prepare(download_config=config)
    images = read_tfds("tiny_pictures", 0.1, folder)
    assert len(images.classes) == 40
    assert sizes(images) == [36, 4, 10]
    both = [*read_once(images.train)[1], *read_once(images.validation)[1]]
    assert sorted(both) == list(range(40))
    pixels, labels = read_once(images.test)
    assert sorted(labels.tolist()) == list(range(10))
    np.testing.assert_array_equal(pixels[:, 0, 0, 0], labels)

    images = read_tfds("imagenet_tiny", 0.0, folder)
    assert sizes(images) == [10, 0, 8]
    assert images.test.decode(next(iter(images.test.scan()))[1])


PIXELS = np.arange(20 * 16).reshape(20, 4, 4) % 256


def write_arrays(folder, **changes):
    arrays = {"x_train": PIXELS, "x_test": PIXELS}
    arrays |= dict.fromkeys(("y_train", "y_test"), np.arange(20) % 2)
    np.savez(folder / "x.npz", **{**arrays, **changes})
    return f"arrays:{folder / 'x.npz'}"


def test_arrays_from_a_file(tmp_path):
    labels = np.arange(20) % 4
    shown = {"y_train": labels[:, None], "y_test": labels[:5]}
    name = write_arrays(tmp_path, **shown, x_test=PIXELS[:5])
    images = data.load_images(name, validation_split=0.2)
    assert sizes(images) == [16, 4, 5]
    text = "16 training, 4 validation and 5 test images, 4 classes; split by"
    assert images.description == f"{name}: {text} class with seed 2102."


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"x_train": PIXELS / 255}, "from 0.0 to 1.0. Scale them"),
        ({"x_train": PIXELS * 257}, "from 0 to 65535"),
        ({"x_train": np.full((20, 4, 4), np.nan)}, "from nan to nan"),
        ({"x_train": np.zeros((20, 8))}, r"\(number, height, width, chan"),
        ({"y_train": np.arange(19)}, r"shape \(number,\). Received: .*\(19,\)"),
        ({"y_train": np.arange(20) % 6, "classes": ["a", "b"]}, "0 to 5"),
        ({"y_train": np.arange(20) % 2 - 1}, "Received: -1 to "),
        ({"y_train": np.array(["a", "b"] * 10)}, "invalid literal for int"),
        ({"y_train": np.array([0, 1] * 10, object)}, "Object arrays"),
        ({"classes": np.array(["a", "a"])}, "different names.*'a', 'a'"),
        ({"x_test": PIXELS[:0], "y_test": []}, "not empty"),
        ({"y_train": np.zeros(20), "y_test": np.zeros(20)}, "two or more"),
    ],
)
def test_arrays_that_cannot_be_meant_are_refused(tmp_path, changes, message):
    with pytest.raises(ValueError, match=message):
        data.load_images(write_arrays(tmp_path, **changes))
