"""Tiny tasks of the Model Garden: records, and experiments that read them."""

import numpy as np
import tensorflow as tf
from official.core import exp_factory
from official.vision.data import tf_example_builder

from benchmarks.studies import detection_scenes
from benchmarks.studies import detection_tfrecords

SIZE = 64
BACKBONE = {
    "type": "lambda_resnet",
    "lambda_resnet": {
        "name": "LambdaResNet50",
        "stages": ["C", "C", "CL", "L"],
        "widths": [8, 8, 8, 8],
        "stem_filters": [8, 8, 8, 8],
        "scope": 7,
        "key_dim": 4,
    },
}
# Every step moves the weights visibly.
OPTIMIZER = {
    "learning_rate": {"type": "constant", "constant": {"learning_rate": 0.1}},
    "warmup": {"type": None},
}
RUNTIME = {
    "mixed_precision_dtype": "float32",
    "distribution_strategy": "one_device",
}


def write_scenes(path, rng, number=4):
    """Writes scenes of two kinds of objects as COCO TFRecords."""
    pictures = np.zeros((2, 8, 8, 1))
    pictures[0, 1:7, 1:7] = pictures[1, 2:6] = 1
    with tf.io.TFRecordWriter(str(path)) as writer:
        for index in range(number):
            scene = detection_scenes.make_scene(
                rng, pictures, np.array([0, 1]), 0.3
            )
            example = detection_tfrecords.as_example(scene, index)
            writer.write(example.SerializeToString())


def write_labelled(path, rng, number=8):
    """Writes labelled images, as ImageNet's TFRecords have them."""
    with tf.io.TFRecordWriter(str(path)) as writer:
        for index in range(number):
            image = rng.integers(0, 256, (SIZE, SIZE, 3), np.uint8)
            builder = tf_example_builder.TfExampleBuilder()
            builder.add_image_matrix_feature(
                image, "JPEG", str(index).encode(), label=index % 3
            )
            writer.write(builder.example.SerializeToString())


def detector(records, **overrides):
    """The experiment of COCO, with 64 pixels, tiny heads, 3 classes."""
    data = {
        "input_path": str(records),
        "global_batch_size": 2,
        "dtype": "float32",
        "shuffle_buffer_size": 4,
        "num_examples": 4,
        "parser": {"max_num_instances": 8, "mask_crop_size": 28},
    }
    return _experiment(
        "lambda_resnet_maskrcnn_coco",
        {
            "annotation_file": None,
            "model": {
                "num_classes": 3,
                "input_size": [SIZE, SIZE, 3],
                "min_level": 3,
                "max_level": 5,
                "anchor": {"anchor_size": 3.0},
                "backbone": BACKBONE,
                "decoder": {"type": "fpn", "fpn": {"num_filters": 8}},
                "rpn_head": {"num_filters": 8},
                "detection_head": {
                    "num_convs": 1, "num_filters": 8, "fc_dims": 8
                },
                "mask_head": {"num_convs": 1, "num_filters": 8},
                "roi_generator": {
                    "num_proposals": 16, "test_num_proposals": 16
                },
                "roi_sampler": {"num_sampled_rois": 8},
                "mask_sampler": {"num_sampled_masks": 4},
                # Two steps of training may leave every score below 0.05.
                "detection_generator": {
                    "max_num_detections": 5, "pre_nms_score_threshold": 0.0
                },
                "norm_activation": {"use_sync_bn": False},
            },
            "train_data": data,
            "validation_data": data,
        },
        overrides,
    )  # fmt: skip


def classifier(records, **overrides):
    """The experiment of ImageNet, with 64 pixels, 3 classes."""
    data = {
        "input_path": str(records),
        "global_batch_size": 4,
        "dtype": "float32",
        "shuffle_buffer_size": 8,
    }
    return _experiment(
        "lambda_resnet_imagenet",
        {
            "model": {
                "num_classes": 3,
                "input_size": [SIZE, SIZE, 3],
                "backbone": BACKBONE,
                "norm_activation": {"use_sync_bn": False},
            },
            "train_data": data,
            "validation_data": data,
        },
        overrides,
    )


def _experiment(name, task, overrides):
    params = exp_factory.get_exp_config(name)
    steps = {
        "train_steps": 2, "validation_steps": 1, "steps_per_loop": 2,
        "summary_interval": 2, "checkpoint_interval": 2,
        "validation_interval": 2,
    }  # fmt: skip
    params.override(
        {
            "runtime": RUNTIME,
            "task": task,
            "trainer": {
                **steps,
                # Tracing is what takes long.
                "train_tf_function": False,
                "train_tf_while_loop": False,
                "eval_tf_function": False,
                "optimizer_config": OPTIMIZER,
            },
        }
    )
    params.override(overrides)
    return params
