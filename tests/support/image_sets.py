"""Image files and records, and what a source makes of them."""

import numpy as np
import tensorflow as tf

from lambdanet_tf import data
from lambdanet_tf.data.images import resized
from lambdanet_tf.data.records import RecordSource


def png(color, size=(8, 8)):
    pixels = np.broadcast_to(np.uint8(color), (*size, len(color)))
    return tf.io.encode_png(pixels).numpy()


def jpeg(color, size=(8, 8)):
    pixels = np.broadcast_to(np.uint8(color), (*size, len(color)))
    return tf.io.encode_jpeg(pixels, quality=100).numpy()


def whole(image, label, position):
    return resized(image.decode(), (8, 8)), label


def read_once(source):
    examples = source.examples(source.scan(), whole).as_numpy_iterator()
    return [np.stack(column) for column in zip(*examples, strict=True)]


def element_labels(elements):
    return [int(item["label"]) for _, item in elements]


def sizes(images):
    parts = (images.train, images.validation, images.test)
    return [part.num_images if part else 0 for part in parts]


class Files(RecordSource):
    """Files of unequal size; the label of each image is its number."""

    def __init__(self, *sizes):
        super().__init__([""] * len(sizes), sizes, None, shuffle_buffer=4)
        self._bounds = tf.constant([0, *np.cumsum(sizes)], tf.int64)

    def read_file(self, number):
        first, end = self._bounds[number], self._bounds[number + 1]
        labels = tf.data.Dataset.range(first, end)
        return labels.map(lambda x: {"label": tf.cast(x, tf.int32)})

    def decode(self, item):
        return data.ArrayImage(tf.zeros([1, 1, 1])), item["label"]


def example(encoded, label, key="image/encoded"):
    """A record of an image, with a label."""
    record = tf.train.Example()
    feature = record.features.feature
    feature[key].bytes_list.value.append(encoded)
    feature["image/class/label"].int64_list.value.append(label)
    return record.SerializeToString()


def examples(labels):
    """Records of gray pictures, each of the value of its label."""
    return [example(png([label] * 3), label) for label in labels]


def write_file(path, contents):
    with tf.io.TFRecordWriter(str(path)) as writer:
        for content in contents:
            writer.write(content)


def write_files(folder, contents):
    for name, content in contents.items():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)


def write_folder(path, parts=("",), classes=("a", "b"), number=10):
    """Gray pictures in a folder for each class; returns its path as a text."""
    pictures = {f"{i}.png": png([i] * 3) for i in range(number)}
    for part in parts:
        for name in classes:
            write_files(path / part / name, pictures)
    return str(path)
