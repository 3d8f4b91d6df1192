"""Reading images: real files that the tests write, good ones and bad ones."""

import io

import numpy as np
import pytest
import tensorflow as tf

from lambdanet_tf import data
from lambdanet_tf.data import augment
from lambdanet_tf.data.records import count_records
from lambdanet_tf.data.streams import streamed_split
from lambdanet_tf.environment import require

SHAPE = (8, 8, 3)


def png(colour, size=(8, 8)):
    """A PNG file of one colour."""
    pixels = np.broadcast_to(np.uint8(colour), (*size, len(colour)))
    return tf.io.encode_png(pixels).numpy()


def jpeg(colour, size=(8, 8)):
    pixels = np.broadcast_to(np.uint8(colour), (*size, len(colour)))
    return tf.io.encode_jpeg(pixels, quality=100).numpy()


def whole(image):
    return augment.whole_image(image, 8)


def read_once(split, bad=None, **options):
    """All images and labels of a split."""
    batches = data.evaluation_batches(
        split, 4, whole, SHAPE, bad_images=bad, **options
    )
    images, labels, weights = (
        np.concatenate(column) for column in zip(*batches, strict=True)
    )
    return images[weights > 0], labels[weights > 0]


def training_labels(split, number, **options):
    """The labels of the first `number` images of a training stream."""
    batches = data.training_batches(
        split, 1, lambda image, seed: image.whole(), (1, 1, 1), **options
    )
    return [int(labels[0]) for _, labels in batches.take(number)]


@pytest.fixture
def numbers():
    """A split of 11 one-pixel images, each with a label of its own."""
    return data.array_split(np.zeros((11, 1, 1, 1)), np.arange(11))


# The digits.


def test_digits_are_divided_into_equal_shares_of_each_class():
    digits = data.load_digits(holdout=0.1)
    sizes = [digits.train, digits.validation, digits.test]
    assert [part.num_images for part in sizes] == [1295, 143, 359]
    labels = [int(e["label"]) for e in digits.test.once(data.Share())]
    assert np.bincount(labels).tolist() == [
        36,
        36,
        35,
        37,
        36,
        36,
        36,
        36,
        35,
        36,
    ]


def test_digits_fill_the_range_of_pixels():
    digits = data.load_digits()
    images = [e["image"].numpy() for e in digits.test.once(data.Share())]
    assert np.min(images) == 0
    assert np.max(images) == 255


def test_digits_without_holdout():
    digits = data.load_digits(holdout=0.0)
    assert digits.validation is None
    assert digits.train.num_images == 1438


# Order.


def test_every_pass_has_each_image_once_in_an_order_of_its_own(numbers):
    labels = training_labels(numbers, 22, seed=3)
    assert sorted(labels[:11]) == sorted(labels[11:]) == list(range(11))
    assert labels[:11] != labels[11:]


def test_the_order_is_a_function_of_the_seed(numbers):
    first = training_labels(numbers, 22, seed=3)
    assert first == training_labels(numbers, 22, seed=3)
    assert first != training_labels(numbers, 22, seed=4)


@pytest.mark.parametrize("start", [0, 5, 11, 17])
def test_a_stream_can_be_begun_anywhere(numbers, start):
    labels = training_labels(numbers, 30, seed=3)
    rest = training_labels(numbers, 30 - start, seed=3, start=start)
    assert rest == labels[start:]


def test_shares_are_the_stream_dealt_out(numbers):
    labels = training_labels(numbers, 30, seed=3)
    for index in range(3):
        share = data.Share(index, 3)
        assert (
            training_labels(numbers, 10, seed=3, share=share)
            == (labels[index::3])
        )


def test_evaluation_pads_with_weight_zero(numbers):
    batches = list(
        data.evaluation_batches(
            numbers, 4, lambda image: image.whole(), (1, 1, 1)
        )
    )
    assert [w.numpy().tolist() for _, _, w in batches] == [
        [1, 1, 1, 1],
        [1, 1, 1, 1],
        [1, 1, 1, 0],
    ]


def test_evaluation_shares_together_are_everything(numbers):
    labels = []
    for index in range(3):
        batches = data.evaluation_batches(
            numbers,
            2,
            lambda image: image.whole(),
            (1, 1, 1),
            share=data.Share(index, 3),
            num_batches=2,
        )
        for _, some, weights in batches:
            labels += some.numpy()[weights.numpy() > 0].tolist()
    assert sorted(labels) == list(range(11))


# Folders.


@pytest.fixture
def folder(tmp_path):
    """Two classes: a red one, and one with everything that can go wrong."""
    image_module = require("PIL.Image", extra="plot")
    for part in ("train", "val"):
        for name in ("odd", "red"):
            (tmp_path / part / name).mkdir(parents=True)
        for i in range(5):
            file = tmp_path / part / "red" / f"{i}.png"
            file.write_bytes(png([255, 0, 0]))
    odd = tmp_path / "val" / "odd"
    (odd / "alpha.png").write_bytes(png([0, 255, 0, 255]))
    cmyk = io.BytesIO()
    image_module.new("CMYK", (8, 8), (255, 0, 0, 0)).save(cmyk, "JPEG")
    (odd / "cmyk.jpg").write_bytes(cmyk.getvalue())
    (odd / "empty.jpg").write_bytes(b"")
    (odd / "grey.JPG").write_bytes(jpeg([77]))
    (odd / "large.jpg").write_bytes(jpeg([0, 0, 255], size=(40, 24)))
    (odd / "notes.txt").write_text("not an image")
    (odd / "text.png").write_text("not an image")
    (odd / "truncated.jpg").write_bytes(jpeg([1, 2, 3], size=(64, 64))[:-200])
    (tmp_path / "train" / "odd" / "blue.png").write_bytes(png([0, 0, 255]))
    return tmp_path


def test_folder(folder):
    images = data.read_folder(str(folder), holdout=0.0)
    assert images.classes == ("odd", "red")
    assert images.train.num_images == 6
    pixels, labels = read_once(images.train)
    assert sorted(labels.tolist()) == [0, 1, 1, 1, 1, 1]
    np.testing.assert_array_equal(pixels[labels == 0][0, 0, 0], [0, 0, 255])


def test_unreadable_images_are_left_out_counted_and_named(folder, tmp_path):
    bad = data.BadImages(str(tmp_path / "bad.txt"))
    images = data.read_folder(str(folder), holdout=0.0)
    pixels, labels = read_once(images.test, bad)
    assert sorted(labels.tolist()) == [0] * 4 + [1] * 5
    odd = str(folder / "val" / "odd")
    assert bad.names() == [
        f"{odd}/{name}" for name in ("empty.jpg", "text.png", "truncated.jpg")
    ]
    colours = pixels[labels == 0][:, 4, 4].round(-1).tolist()
    # Without transparency; cyan from CMYK; grey; blue from the large one.
    np.testing.assert_allclose(
        colours, [[0, 255, 0], [0, 255, 255], [77] * 3, [0, 0, 255]], atol=9
    )


def test_training_goes_on_without_unreadable_images(folder, tmp_path):
    bad = data.BadImages(str(tmp_path / "bad.txt"))
    images = data.read_folder(str(folder), holdout=0.0)
    batches = data.training_batches(
        images.test,
        3,
        lambda image, seed: augment.random_crop(image, seed, 8),
        SHAPE,
        bad_images=bad,
    )
    labels = np.concatenate([y.numpy() for _, y in batches.take(6)])
    assert labels.tolist().count(1) == 10  # Two passes of nine images.
    assert len(bad.names()) == 3


def test_only_unreadable_images_are_an_error(tmp_path):
    for i in range(2):
        (tmp_path / "a").mkdir(exist_ok=True)
        (tmp_path / "a" / f"{i}.png").write_bytes(b"nothing")
    split = data.read_folder(str(tmp_path), holdout=0.0).train
    bad = data.BadImages(str(tmp_path / "bad.txt"))
    batches = data.training_batches(
        split, 1, lambda image, seed: whole(image), SHAPE, bad_images=bad
    )
    with pytest.raises(
        tf.errors.InvalidArgumentError, match="1000 images in a row"
    ):
        next(iter(batches))


def test_a_folder_without_parts_is_divided(tmp_path):
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        for i in range(10):
            (tmp_path / name / f"{i}.png").write_bytes(png([i, i, i]))
    images = data.read_folder(str(tmp_path), holdout=0.25)
    sizes = [images.train, images.validation, images.test]
    assert [part.num_images for part in sizes] == [12, 4, 4]


def test_folder_errors(tmp_path):
    with pytest.raises(ValueError, match="There is no folder"):
        data.read_folder(str(tmp_path / "nothing"))
    with pytest.raises(ValueError, match="a folder for each class"):
        data.read_folder(str(tmp_path))
    (tmp_path / "train").mkdir()
    with pytest.raises(ValueError, match=r"both train/ and test/"):
        data.read_folder(str(tmp_path))


# TFRecords.


def write_records(path, part, num_files, per_file):
    """ImageNet's layout; the label of each image is its grey value."""
    number = 0
    for i in range(num_files):
        name = f"{part}-{i:05d}-of-{num_files:05d}"
        with tf.io.TFRecordWriter(str(path / name)) as writer:
            for _ in range(per_file):
                number += 1
                writer.write(example(png([number] * 3), number))
    return path


def example(encoded, label):
    def feature(**kind):
        return tf.train.Feature(**kind)

    return tf.train.Example(
        features=tf.train.Features(
            feature={
                "image/encoded": feature(
                    bytes_list=tf.train.BytesList(value=[encoded])
                ),
                "image/class/label": feature(
                    int64_list=tf.train.Int64List(value=[label])
                ),
            }
        )
    ).SerializeToString()


@pytest.fixture
def records(tmp_path):
    write_records(tmp_path, "train", 4, 5)
    return write_records(tmp_path, "validation", 2, 3)


def test_records(records):
    images = data.read_records(str(records), holdout=0.25)
    sizes = [images.train, images.validation, images.test]
    assert [part.num_images for part in sizes] == [15, 5, 6]
    pixels, labels = read_once(images.test)
    assert sorted(labels.tolist()) == list(range(6))
    np.testing.assert_array_equal(pixels[:, 0, 0, 0], labels + 1)


def training_stream(split, number, **options):
    batches = data.training_batches(
        split, 1, lambda image, seed: whole(image), SHAPE, **options
    )
    return [int(labels[0]) for _, labels in batches.take(number)]


def test_records_are_shuffled_and_resumed(records):
    split = data.read_records(str(records), holdout=0.0, shuffle_buffer=7).train
    labels = training_stream(split, 40, seed=1)
    assert sorted(labels[:20]) == sorted(labels[20:]) == list(range(20))
    assert labels[:20] != labels[20:]
    for start in (0, 6, 20, 33):
        rest = training_stream(split, 40 - start, seed=1, start=start)
        assert rest == labels[start:]


@pytest.mark.parametrize("count", [2, 3, 5])
def test_record_shares_have_nothing_in_common(records, count):
    split = data.read_records(str(records), holdout=0.0).train
    found = []
    for index in range(count):
        _, labels = read_once(
            split, share=data.Share(index, count), num_batches=3
        )
        found += labels.tolist()
    assert sorted(found) == list(range(20))


def test_a_corrupt_image_in_a_record_is_named(tmp_path):
    write_records(tmp_path, "validation", 1, 1)
    path = tmp_path / "train-00000-of-00001"
    with tf.io.TFRecordWriter(str(path)) as writer:
        for label in (1, 2, 3):
            encoded = b"broken" if label == 2 else png([label] * 3)
            writer.write(example(encoded, label))
    bad = data.BadImages(str(tmp_path / "bad.txt"))
    images = data.read_records(str(tmp_path), holdout=0.0)
    _, labels = read_once(images.train, bad)
    assert labels.tolist() == [0, 2]
    assert bad.names() == [f"{path}: record 1"]


def test_a_corrupt_record_is_named_with_what_is_lost(records):
    path = records / "train-00002-of-00004"
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0xFF
    path.write_bytes(bytes(content))
    bad = data.BadImages(str(records / "bad.txt"))
    split = data.read_records(str(records), holdout=0.0).train
    _, labels = read_once(split, bad)
    assert sorted(labels.tolist()) == [*range(12), *range(15, 20)]
    assert bad.names() == [f"{path}: damaged, nothing read from record 2"]


def test_a_truncated_file_is_an_error_before_training(records):
    path = records / "train-00002-of-00004"
    path.write_bytes(path.read_bytes()[:-5])
    with pytest.raises(ValueError, match="00002-of-00004 is damaged"):
        data.read_records(str(records))


def test_missing_record_files_are_an_error(records):
    (records / "train-00002-of-00004").unlink()
    with pytest.raises(ValueError, match="all 4 files train-.*Received: 3"):
        data.read_records(str(records))
    with pytest.raises(ValueError, match=r"TFRecord files train-\*-of-\*"):
        data.read_records(str(records / "nothing"))


def test_count_records(records):
    assert count_records(str(records / "train-00002-of-00004")) == 5


def test_streams_with_one_piece_share_by_element():
    def piece(index):
        numbers = tf.data.Dataset.range(10)
        return numbers.map(lambda i: {"name": "x", "label": i})

    split = streamed_split(10, 1, piece, None, 4)
    labels = [int(e["label"]) for e in split.once(data.Share(1, 3))]
    assert labels == [1, 4, 7]


# TensorFlow Datasets.


@pytest.fixture(scope="module")
def tiny_set(tmp_path_factory):
    """The folder of a small set, written by TensorFlow Datasets itself."""
    tfds = pytest.importorskip("tensorflow_datasets")

    class TinyPictures(tfds.core.GeneratorBasedBuilder):
        """The label of each image is its grey value."""

        VERSION = tfds.core.Version("1.0.0")

        def _info(self):
            features = tfds.features.FeaturesDict(
                {
                    "image": tfds.features.Image(shape=(8, 8, 3)),
                    "label": tfds.features.ClassLabel(num_classes=40),
                }
            )
            return tfds.core.DatasetInfo(builder=self, features=features)

        def _split_generators(self, dl_manager):
            return {"train": self._pictures(40), "test": self._pictures(10)}

        def _generate_examples(self):
            raise NotImplementedError

        def _pictures(self, number):
            for i in range(number):
                pixels = np.full((8, 8, 3), i, np.uint8)
                yield i, {"image": pixels, "label": i}

    class ImagenetTiny(TinyPictures):
        """Its labels are hidden in the test images, as ImageNet's are."""

        def _split_generators(self, dl_manager):
            names = ("train", "validation", "test")
            return {name: self._pictures(10) for name in names}

    folder = str(tmp_path_factory.mktemp("tfds"))
    config = tfds.download.DownloadConfig(num_shards=4)
    for builder in (TinyPictures, ImagenetTiny):
        builder(data_dir=folder).download_and_prepare(download_config=config)
    return folder


def test_tfds(tiny_set):
    images = data.read_tfds("tiny_pictures", 0.1, tiny_set)
    assert len(images.classes) == 40
    sizes = [images.train, images.validation, images.test]
    assert [part.num_images for part in sizes] == [36, 4, 10]
    pixels, labels = read_once(images.test)
    assert sorted(labels.tolist()) == list(range(10))
    np.testing.assert_array_equal(pixels[:, 0, 0, 0], labels)


def test_tfds_is_shuffled_and_resumed(tiny_set):
    split = data.read_tfds("tiny_pictures", 0.0, tiny_set, 5).train
    labels = training_stream(split, 80, seed=1)
    assert sorted(labels[:40]) == sorted(labels[40:]) == list(range(40))
    assert labels[:40] != labels[40:]
    for start in (6, 53):
        rest = training_stream(split, 80 - start, seed=1, start=start)
        assert rest == labels[start:]


def test_imagenet_is_tested_on_its_validation_images(tiny_set):
    images = data.read_tfds("imagenet_tiny", 0.0, tiny_set)
    names = [e["name"].numpy() for e in images.test.once(data.Share())]
    assert all(name.startswith(b"imagenet_tiny-validation") for name in names)


def test_a_set_without_labels_is_refused():
    pytest.importorskip("tensorflow_datasets")
    with pytest.raises(ValueError, match="an `image` and a `label`"):
        data.read_tfds("coco/2017")


# Arrays and names.


def test_arrays_from_a_file(tmp_path, rng):
    path = str(tmp_path / "set.npz")
    labels = np.arange(20) % 4
    images = rng.integers(0, 256, (20, 8, 8, 3), np.uint8)
    np.savez(path, x_train=images, y_train=labels[:, None], x_test=images[:5],
             y_test=labels[:5])  # fmt: skip
    images = data.load_images(f"arrays:{path}", holdout=0.2)
    sizes = [images.train, images.validation, images.test]
    assert [part.num_images for part in sizes] == [16, 4, 5]
    assert images.classes == ("0", "1", "2", "3")


@pytest.mark.parametrize(
    ("images", "labels", "message"),
    [
        (np.zeros((3, 8)), np.zeros(3, int), r"\(number, height, width, chan"),
        (np.zeros((3, 8, 8)), np.zeros(4, int), r"shape \(4,\) for images"),
        (np.zeros((3, 8, 8)), np.zeros(3), "whole numbers from 0.*float64"),
        (np.zeros((3, 8, 8)), np.array([0, -1, 2]), "minimum -1"),
        (np.zeros((0, 8, 8)), np.zeros(0, int), "at least one image"),
    ],
)
def test_bad_arrays(images, labels, message):
    with pytest.raises(ValueError, match=message):
        data.array_split(images, labels)


def test_names_for_too_few_classes():
    arrays = (np.zeros((6, 8, 8)), np.arange(6))
    with pytest.raises(ValueError, match="2 names, labels up to 5"):
        data.array_set(arrays, arrays, classes=["a", "b"])


@pytest.mark.parametrize("name", ["digit", "tfds:", "folder", "http://x"])
def test_unknown_sets(name):
    with pytest.raises(ValueError, match="`data` must be one of digits"):
        data.load_images(name)


def test_a_missing_extra_is_named():
    with pytest.raises(
        ImportError, match=r'pip install "lambdanet-tf\[tfds\]"'
    ):
        require("no_such_module", extra="tfds")
