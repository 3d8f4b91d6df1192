"""Synthetic image sets on the disk, for the benchmark of training."""

import pathlib

import numpy as np
import tensorflow as tf

HEIGHT, WIDTH = 375, 500  # the most frequent size of ImageNet
QUALITY = 95
CLASSES = 4


def natural_image(generator, height=HEIGHT, width=WIDTH):
    """A uint8 image whose detail falls off as that of photographs does."""
    image = np.zeros([height, width, 3], np.float32)
    for octave in range(1, 10):
        cells = 2**octave
        field = generator.normal(size=[cells, cells, 3]).astype(np.float32)
        image += tf.image.resize(field, [height, width]).numpy() / cells**0.35
    image -= image.min()
    return (image * (255 / image.max())).astype(np.uint8)


def write_arrays(path, number, height=HEIGHT, width=WIDTH):
    generator = np.random.default_rng(0)
    images = np.stack(
        [natural_image(generator, height, width) for _ in range(16)]
    )
    images = np.tile(images, [-(-number // 16), 1, 1, 1])[:number]
    labels = np.arange(number) % CLASSES
    np.savez(
        path,
        x_train=images,
        y_train=labels,
        x_test=images[:CLASSES],
        y_test=labels[:CLASSES],
    )


def jpegs(number):
    generator = np.random.default_rng(0)
    for index in range(number):
        if index % 8 == 0:
            image = natural_image(generator)
        shifted = np.roll(image, 50 * (index % 8), axis=1)
        yield tf.io.encode_jpeg(shifted, quality=QUALITY).numpy()


def write_folder(path, files):
    for index, encoded in enumerate(files):
        part = "test" if index < CLASSES else "train"
        folder = pathlib.Path(path) / part / f"class{index % CLASSES}"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{index}.jpeg").write_bytes(encoded)


def write_records(path, files, pieces=8):
    folder = pathlib.Path(path)
    folder.mkdir()
    names = "".join(f"class{i}\n" for i in range(CLASSES))
    (folder / "classes.txt").write_text(names)
    parts = {"validation-00000-of-00001": files[:CLASSES]}
    for i in range(pieces):
        parts[f"train-{i:05d}-of-{pieces:05d}"] = files[i::pieces]
    for name, part in parts.items():
        with tf.io.TFRecordWriter(str(folder / name)) as writer:
            for index, encoded in enumerate(part):
                writer.write(_example(encoded, index % CLASSES))


def _example(encoded, label):
    image = tf.train.Feature(bytes_list=tf.train.BytesList(value=[encoded]))
    number = tf.train.Feature(int64_list=tf.train.Int64List(value=[label]))
    feature = {"image/encoded": image, "image/class/label": number}
    features = tf.train.Features(feature=feature)
    return tf.train.Example(features=features).SerializeToString()
