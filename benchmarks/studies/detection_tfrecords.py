"""Scenes as TFRecords, as the Model Garden reads them."""

import os

import numpy as np
import tensorflow as tf
from official.vision.data import tf_example_builder

from benchmarks.studies.detection_scenes import PARTS
from benchmarks.studies.detection_scenes import SIZE
from benchmarks.studies.detection_scenes import make_scenes
from lambdanet_tf import data

CLASS_FILE = "classes.txt"


def write_scenes(folder, images):
    """Writes COCO TFRecords with instance masks, unless they are there."""
    names = os.path.join(folder, CLASS_FILE)
    if os.path.exists(names):  # Written last.
        return
    os.makedirs(folder, exist_ok=True)
    for part in PARTS:
        path = os.path.join(folder, f"{part}.tfrecord")
        with tf.io.TFRecordWriter(path) as writer:
            for index, scene in enumerate(make_scenes(part, images)):
                writer.write(as_example(scene, index).SerializeToString())
    classes = data.load_images(images, 0.0).classes
    with open(names, "w", encoding="utf-8") as file:
        file.write("\n".join(classes))


def as_example(scene, index):
    """A scene as the Model Garden's decoder reads it."""
    top, left, bottom, right = (scene.boxes / SIZE).T.tolist()
    builder = tf_example_builder.TfExampleBuilder()
    builder.add_image_matrix_feature(
        scene.image, image_source_id=str(index).encode()
    )
    builder.add_boxes_feature(left, right, top, bottom, scene.labels.tolist())
    builder.add_instance_mask_matrices_feature(scene.masks.astype(np.uint8))
    builder.add_ints_feature("image/object/is_crowd", [0] * len(scene.labels))
    return builder.example
