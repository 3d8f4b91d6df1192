"""Scenes for detectors: digits pasted on textured canvases, with masks.

The digits of the training scenes are training images, those of the held-out
scenes test images. A search of settings learns from four fifths of the training
images and is judged by the others.
"""

from typing import NamedTuple

import numpy as np
import tensorflow as tf
from official.vision.data import tf_example_builder

from lambdanet_tf import data

SIZE = 128  # pixels, height and width of a scene
# Scenes of each part.
PARTS = {"train": 2000, "heldout": 250, "search": 2000, "validation": 250}
_VALIDATION = 0.2  # of the training images
_SIDES = (28, 64)  # pixels, of a pasted picture
_OBJECTS = (2, 6)  # in a scene; the second is one too many
_VISIBLE = 0.6  # share of a mask that others may not cover
_ATTEMPTS = 20
# The share of full brightness at which a digit begins; what is darker is the
# background it was scanned on.
_THRESHOLD = 0.3


class Scene(NamedTuple):
    image: np.ndarray  # uint8 (height, width, 3)
    masks: np.ndarray  # bool (objects, height, width), what is visible
    labels: np.ndarray  # int (objects,), from 1; 0 is the background
    boxes: np.ndarray  # (objects, 4): pixels of top, left, bottom, right


def make_scenes(part):
    """Yields the scenes of a part, the same ones at every call."""
    is_searched = part in ("search", "validation")
    images = data.load_images("digits", _VALIDATION * is_searched)
    source = {"heldout": images.test, "validation": images.validation}
    pairs = source.get(part, images.train)
    pairs = [pairs.decode(item) for _, item in pairs.scan()]
    pictures = np.array([image.decode() for image, _ in pairs], np.float32)
    labels = np.array([int(label) for _, label in pairs])
    rng = np.random.default_rng(list(PARTS).index(part))
    for _ in range(PARTS[part]):
        yield make_scene(rng, pictures / 255, labels)


def make_scene(rng, pictures, labels, threshold=_THRESHOLD):
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


def write_scenes(folder):
    if (folder / "written").exists():
        return
    folder.mkdir(parents=True, exist_ok=True)
    for part in PARTS:
        with tf.io.TFRecordWriter(str(folder / f"{part}.tfrecord")) as writer:
            for index, scene in enumerate(make_scenes(part)):
                writer.write(as_example(scene, index).SerializeToString())
    (folder / "written").touch()  # the last one


def as_example(scene, index):
    top, left, bottom, right = (scene.boxes / SIZE).T.tolist()
    builder = tf_example_builder.TfExampleBuilder()
    builder.add_image_matrix_feature(
        scene.image, image_source_id=str(index).encode()
    )
    builder.add_boxes_feature(left, right, top, bottom, scene.labels.tolist())
    builder.add_instance_mask_matrices_feature(scene.masks.astype(np.uint8))
    builder.add_ints_feature("image/object/is_crowd", [0] * len(scene.labels))
    return builder.example


def _canvas(rng):
    """Clouds of colors at three scales: float `(SIZE, SIZE, 3)`."""
    canvas = np.zeros((SIZE, SIZE, 3))
    for cells, strength in ((3, 0.6), (12, 0.3), (SIZE, 0.1)):
        noise = rng.uniform(0, 255, (cells, cells, 3)) - 127.5
        canvas += strength * _resized(noise, SIZE)
    return np.clip(canvas + 127.5, 0, 255)


def _place(rng, picture, threshold, masks, areas):
    """A picture somewhere on an empty canvas, `(SIZE, SIZE, 1)`."""
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
