"""Scenes for detectors: pictures pasted on textured canvases, with masks.

The pictures of the training scenes are training images of their set, those of
the held-out scenes its test images: no picture is in both.
"""

import dataclasses
import os

import numpy as np
import tensorflow as tf
from official.vision.data import tf_example_builder
from official.vision.dataloaders import tf_example_decoder

from lambdanet_tf import data

SIZE = 128  # pixels, height and width of a scene
PARTS = {"train": 2000, "heldout": 250}  # scenes
CLASS_FILE = "classes.txt"
_SIDES = (28, 64)  # pixels, of a pasted picture
_OBJECTS = (2, 6)  # in a scene; the second is one too many
_VISIBLE = 0.6  # share of a mask that others may not cover
_ATTEMPTS = 20
# The share of full brightness at which a picture begins; what is darker is the
# background it was scanned on. Clothes are dark in places.
_THRESHOLDS = {"digits": 0.3}
_THRESHOLD = 0.08


@dataclasses.dataclass(frozen=True)
class Scene:
    """An image and what is in it.

    Attributes:
        image: uint8 `(height, width, 3)`.
        masks: bool `(objects, height, width)`, the visible part of each.
        labels: int `(objects,)`, from 1; 0 is the background.
        boxes: pixels of top, left, bottom, right: `(objects, 4)`.
    """

    image: np.ndarray
    masks: np.ndarray
    labels: np.ndarray
    boxes: np.ndarray


def write_scenes(folder: str, images: str) -> None:
    """Writes COCO TFRecords with instance masks, unless they are there.

    Args:
        folder: to write `train.tfrecord`, `heldout.tfrecord` and the names of
            the classes into.
        images: an image set, as `lambdanet_tf.data.load_images` takes it.
    """
    names = os.path.join(folder, CLASS_FILE)
    if os.path.exists(names):  # Written last.
        return
    os.makedirs(folder, exist_ok=True)
    image_set = data.load_images(images, 0.0)
    threshold = _THRESHOLDS.get(images, _THRESHOLD)
    sources = {"train": image_set.train, "heldout": image_set.test}
    for number, (part, count) in enumerate(PARTS.items()):
        rng = np.random.default_rng(number)
        pictures = _pictures(sources[part])
        path = os.path.join(folder, f"{part}.tfrecord")
        with tf.io.TFRecordWriter(path) as writer:
            for index in range(count):
                example = as_example(
                    make_scene(rng, *pictures, threshold), index
                )
                writer.write(example.SerializeToString())
    with open(names, "w", encoding="utf-8") as file:
        file.write("\n".join(image_set.classes))


def make_scene(
    rng: np.random.Generator,
    pictures: np.ndarray,
    labels: np.ndarray,
    threshold: float,
) -> Scene:
    """Draws a scene.

    Args:
        rng: decides everything.
        pictures: float `(number, height, width, 1)` in [0, 1].
        labels: int `(number,)`, from 0.
        threshold: brightness above which a picture covers the canvas.
    """
    image = _canvas(rng)
    masks, areas, found = [], [], []
    for _ in range(rng.integers(*_OBJECTS)):
        index = rng.integers(len(pictures))
        picture = _place(rng, pictures[index], threshold, masks, areas)
        if picture is None:
            continue
        mask = picture[..., 0] > threshold
        masks = [earlier & ~mask for earlier in masks] + [mask]
        areas.append(mask.sum())
        found.append(labels[index] + 1)
        alpha = np.clip(picture / threshold - 0.5, 0, 1)
        color = rng.uniform(0, 255, 3) * (0.3 + 0.7 * picture)
        image = image * (1 - alpha) + color * alpha
    image = np.clip(image, 0, 255).astype(np.uint8)
    boxes = np.array([_box(mask) for mask in masks])
    return Scene(image, np.array(masks), np.array(found), boxes)


def as_example(scene: Scene, index: int) -> tf.train.Example:
    """Returns a scene as the Model Garden's decoder reads it."""
    top, left, bottom, right = (scene.boxes / SIZE).T.tolist()
    builder = tf_example_builder.TfExampleBuilder()
    builder.add_image_matrix_feature(
        scene.image, image_source_id=str(index).encode()
    )
    builder.add_boxes_feature(left, right, top, bottom, scene.labels.tolist())
    builder.add_instance_mask_matrices_feature(scene.masks.astype(np.uint8))
    builder.add_ints_feature("image/object/is_crowd", [0] * len(scene.labels))
    return builder.example


def read_scenes(path: str, number: int) -> list[Scene]:
    """Reads the first scenes of a file of `write_scenes`."""
    decoder = tf_example_decoder.TfExampleDecoder(include_mask=True)
    scenes = []
    for record in tf.data.TFRecordDataset(path).take(number):
        found = {k: v.numpy() for k, v in decoder.decode(record).items()}
        scenes.append(
            Scene(
                found["image"],
                found["groundtruth_instance_masks"] > 0,
                found["groundtruth_classes"],
                found["groundtruth_boxes"] * SIZE,
            )
        )
    return scenes


def _pictures(source):
    """All pictures of a source, in [0, 1], and their labels."""
    pairs = [source.decode(item) for _, item in source.scan()]
    pictures = np.array([image.decode() for image, _ in pairs], np.float32)
    return pictures / 255, np.array([int(label) for _, label in pairs])


def _canvas(rng):
    """Clouds of colors at three scales: float `(SIZE, SIZE, 3)`."""
    canvas = np.zeros((SIZE, SIZE, 3))
    for cells, strength in ((3, 0.6), (12, 0.3), (SIZE, 0.1)):
        noise = rng.uniform(0, 255, (cells, cells, 3)) - 127.5
        canvas += strength * _resized(noise, SIZE)
    return np.clip(canvas + 127.5, 0, 255)


def _place(rng, picture, threshold, masks, areas):
    """A picture somewhere on an empty canvas, `(SIZE, SIZE, 1)`.

    Every object below keeps enough of its area in sight; None if no place was
    found where that is so.
    """
    for _ in range(_ATTEMPTS):
        side = rng.integers(*_SIDES)
        top, left = rng.integers(0, SIZE - side + 1, 2)
        placed = np.zeros((SIZE, SIZE, 1))
        patch = np.clip(_resized(picture, side), 0, 1)
        placed[top : top + side, left : left + side] = patch
        free = placed[..., 0] <= threshold
        pairs = zip(masks, areas, strict=True)
        if all((mask & free).sum() >= _VISIBLE * area for mask, area in pairs):
            return placed
    return None


def _resized(image, side):
    return tf.image.resize(image, [side, side], "bicubic").numpy()


def _box(mask):
    rows, columns = np.flatnonzero(mask.any(1)), np.flatnonzero(mask.any(0))
    return rows[0], columns[0], rows[-1] + 1, columns[-1] + 1
