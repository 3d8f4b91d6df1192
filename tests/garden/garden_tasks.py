"""Tiny tasks of the Model Garden: records, and experiments that read them."""

import numpy as np
from official.core import exp_factory

from benchmarks.studies import detection_scenes
from tests.support import image_sets

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
RATE = {"type": "constant", "constant": {"learning_rate": 0.1}}


def write_scenes(path, rng):
    """Writes scenes of two kinds of objects as COCO TFRecords."""
    pictures = np.zeros((2, 8, 8, 1))
    pictures[0, 1:7, 1:7] = pictures[1, 2:6] = 1
    kinds, examples = np.array([0, 1]), []
    for index in range(4):
        scene = detection_scenes.make_scene(rng, pictures, kinds, 0.3)
        examples.append(detection_scenes.as_example(scene, index))
    image_sets.write_file(path, [x.SerializeToString() for x in examples])


def detector(records):
    """The experiment of COCO, with 64 pixels, tiny heads, 3 classes."""
    tiny = {"num_convs": 1, "num_filters": 8}
    task = {
        "annotation_file": None,
        "model": {
            "min_level": 3,
            "max_level": 5,
            "anchor": {"anchor_size": 3.0},
            "decoder": {"type": "fpn", "fpn": {"num_filters": 8}},
            "rpn_head": {"num_filters": 8},
            "detection_head": {**tiny, "fc_dims": 8},
            "mask_head": tiny,
            "roi_generator": {"num_proposals": 16, "test_num_proposals": 16},
            "roi_sampler": {"num_sampled_rois": 8},
            "mask_sampler": {"num_sampled_masks": 4},
            # Two steps of training may leave every score below 0.05.
            "detection_generator": {
                "max_num_detections": 5, "pre_nms_score_threshold": 0.0
            },
        },
    }  # fmt: skip
    return _experiment(
        "lambda_resnet_maskrcnn_coco",
        task,
        input_path=str(records),
        global_batch_size=2,
        shuffle_buffer_size=4,
        num_examples=4,
        parser={"max_num_instances": 8, "mask_crop_size": 28},
    )


def classifier(records):
    """The experiment of ImageNet, with 64 pixels, 3 classes."""
    return _experiment(
        "lambda_resnet_imagenet",
        {"model": {}},
        input_path=str(records),
        global_batch_size=4,
        shuffle_buffer_size=8,
    )


def _experiment(name, task, **data):
    data["dtype"] = "float32"
    task |= {"train_data": data, "validation_data": data}
    task["model"] |= {
        "num_classes": 3,
        "input_size": [SIZE, SIZE, 3],
        "backbone": BACKBONE,
        "norm_activation": {"use_sync_bn": False},
    }
    steps = {
        "train_steps": 2, "validation_steps": 1, "steps_per_loop": 2,
        "summary_interval": 2, "checkpoint_interval": 2,
        "validation_interval": 2,
    }  # fmt: skip
    # Tracing is what takes long.
    traced = "train_tf_function", "train_tf_while_loop", "eval_tf_function"
    trainer = {**steps, **dict.fromkeys(traced, False)}
    optimizer = {"learning_rate": RATE, "warmup": {"type": None}}
    trainer["optimizer_config"] = optimizer
    runtime = {"mixed_precision_dtype": "float32"}
    runtime["distribution_strategy"] = "one_device"
    params = exp_factory.get_exp_config(name)
    params.override({"runtime": runtime, "task": task, "trainer": trainer})
    return params
