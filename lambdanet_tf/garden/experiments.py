"""The paper's experiments for the Model Garden.

A `lambda_resnet...` experiment and its baseline `resnet...` differ only in the
network, which the same builder makes. They have other letters in `stages`. At
350 epochs and on COCO, a ResNet-RS also has squeeze-and-excitation in every
stage; `se_ratio: 0` removes it for the first rows of Table 14.
"""

import functools
from collections.abc import Callable
from typing import Any

from official.core import config_definitions as core
from official.core import exp_factory
from official.modeling import optimization
from official.vision.configs import common
from official.vision.configs import image_classification as classification
from official.vision.configs import maskrcnn

from lambdanet_tf import specs
from lambdanet_tf.data.augment import TRANSLATE_CONST
from lambdanet_tf.garden.backbones import Backbone
from lambdanet_tf.garden.backbones import LambdaResNet

_FAMILIES = {"lambda_resnet": "LambdaResNet", "resnet_rs": "ResNetRS"}
_COCO_DEPTHS = (101, 152, 200)
_IMAGENET_BATCH = 4096
_IMAGENET_STEPS = 1_281_167 // _IMAGENET_BATCH  # of an epoch
_COCO_STEPS = 130_000


def backbone(name: str, **changes: Any) -> Backbone:
    """Returns the config of a backbone, with fields of `LambdaResNet`."""
    return Backbone(
        type="lambda_resnet", lambda_resnet=LambdaResNet(name=name, **changes)
    )


def imagenet_90(pattern: str) -> core.ExperimentConfig:
    """Returns the vanilla setting of Tables 3 to 12: ResNet-50, 90 epochs."""
    stages = specs.uniform_stages(pattern, specs.TABLE_19[0].blocks)
    return _imagenet(
        backbone("ResNet50", stages=list(stages)),
        image_size=224,
        epochs=90,
        weight_decay=1e-4,
    )


def imagenet_350(family: str, row: specs.TrainingRow) -> core.ExperimentConfig:
    """Returns the training of a row of Table 20, 350 epochs."""
    augmentation = common.Augmentation(
        type="randaug",
        randaug=common.RandAugment(
            num_layers=2,
            magnitude=row.randaugment_magnitude,
            translate_const=TRANSLATE_CONST,
        ),
    )
    return _imagenet(
        backbone(f"{family}{row.depth}", drop_path_rate=row.drop_path_rate),
        image_size=row.image_size,
        epochs=350,
        weight_decay=4e-5,
        dropout_rate=row.dropout_rate,
        aug_type=augmentation,
    )


def _imagenet(
    network, image_size, epochs, weight_decay, dropout_rate=0.0, aug_type=None
):
    """Returns a classification experiment: Section 4 and Appendix F.

    The data are the Model Garden's TFRecords, with labels from 1 to 1000.
    """
    task = classification.ImageClassificationTask(
        model=classification.ImageClassificationModel(
            num_classes=1001,
            input_size=[image_size, image_size, 3],
            backbone=network,
            dropout_rate=dropout_rate,
            norm_activation=common.NormActivation(
                norm_momentum=0.9999, norm_epsilon=1e-3, use_sync_bn=True
            ),
        ),
        losses=classification.Losses(
            l2_weight_decay=weight_decay, label_smoothing=0.1
        ),
        train_data=_images("train*", is_training=True, aug_type=aug_type),
        validation_data=_images(
            "valid*", is_training=False, drop_remainder=False
        ),
    )
    # Linear warm-up of 5 epochs, then cosine; averages of all weights.
    steps, warmup_steps = epochs * _IMAGENET_STEPS, 5 * _IMAGENET_STEPS
    return _experiment(
        task,
        steps,
        warmup_steps,
        _choice(
            "cosine",
            initial_learning_rate=0.1 * _IMAGENET_BATCH / 256,
            decay_steps=steps - warmup_steps,
            offset=warmup_steps,
        ),
        interval=_IMAGENET_STEPS,
        ema={"average_decay": 0.9999, "trainable_weights_only": False},
    )


def _images(pattern, **fields):
    """Returns the config of ImageNet's files whose names match a pattern."""
    return classification.DataConfig(
        input_path=f"imagenet-2012-tfrecord/{pattern}",
        global_batch_size=_IMAGENET_BATCH,
        dtype="bfloat16",
        **fields,
    )


def maskrcnn_coco(name: str) -> core.ExperimentConfig:
    """Returns Mask R-CNN on COCO: Appendix F.3, Table 14.

    It trains from scratch at 1024 px, for 130,000 steps of 256 images with
    scales from 0.1 to 2, without stochastic depth. The paper does not describe
    heads, normalization and evaluation: we use those of the Model Garden's
    `maskrcnn_resnetfpn_coco`.
    """
    task = maskrcnn.MaskRCNNTask(
        annotation_file="coco/instances_val2017.json",
        model=maskrcnn.MaskRCNN(
            num_classes=91,
            input_size=[1024, 1024, 3],
            include_mask=True,
            backbone=backbone(name, drop_path_rate=0.0),
        ),
        losses=maskrcnn.Losses(l2_weight_decay=4e-5),
        train_data=maskrcnn.DataConfig(
            input_path="coco/train*",
            is_training=True,
            global_batch_size=256,
            parser=maskrcnn.Parser(
                aug_rand_hflip=True, aug_scale_min=0.1, aug_scale_max=2.0
            ),
        ),
        validation_data=maskrcnn.DataConfig(
            input_path="coco/val*",
            is_training=False,
            global_batch_size=8,
            drop_remainder=False,
        ),
    )
    # 0.32 after 1000 steps, divided by 10 at 90, 95 and 97.5 percent.
    shares, rate = (0.9, 0.95, 0.975), 0.32
    return _experiment(
        task,
        _COCO_STEPS,
        1000,
        _choice(
            "stepwise",
            boundaries=[round(share * _COCO_STEPS) for share in shares],
            values=[rate, rate / 10, rate / 100, rate / 1000],
        ),
        interval=500,
        validation_steps=5000 // 8,
    )


def _experiment(
    task,
    train_steps,
    warmup_steps,
    learning_rate,
    interval,
    validation_steps=-1,
    **optimization_fields,
):
    """Returns an experiment in bfloat16, with momentum 0.9 and a warm-up.

    `interval` is the number of steps between summaries, checkpoints and so on.
    """
    optimizer_config = optimization.OptimizationConfig(
        {
            "optimizer": _choice("sgd", momentum=0.9),
            "learning_rate": learning_rate,
            "warmup": _choice(
                "linear", warmup_steps=warmup_steps, warmup_learning_rate=0.0
            ),
            **optimization_fields,
        }
    )
    return core.ExperimentConfig(
        runtime=core.RuntimeConfig(mixed_precision_dtype="bfloat16"),
        task=task,
        trainer=core.TrainerConfig(
            train_steps=train_steps,
            validation_steps=validation_steps,
            optimizer_config=optimizer_config,
            validation_interval=interval,
            steps_per_loop=interval,
            summary_interval=interval,
            checkpoint_interval=interval,
        ),
    )


def _choice(kind, **fields):
    """Returns a choice of one kind, in the Model Garden's form."""
    return {"type": kind, kind: fields}


def _register():
    """Registers all experiments, and short names for the smallest ones."""
    found: dict[str, Callable[[], core.ExperimentConfig]] = {
        "lambda_resnet_imagenet_90": functools.partial(imagenet_90, "LLLL"),
        "resnet_imagenet_90": functools.partial(imagenet_90, "CCCC"),
    }
    for prefix, family in _FAMILIES.items():
        for row in specs.TABLE_20:
            name = f"{prefix}{row.depth}_imagenet_{row.image_size}"
            found[name] = functools.partial(imagenet_350, family, row)
        for depth in _COCO_DEPTHS:
            name = f"{prefix}{depth}_maskrcnn_coco"
            found[name] = functools.partial(maskrcnn_coco, f"{family}{depth}")
    found["lambda_resnet_imagenet"] = found["lambda_resnet50_imagenet_128"]
    smallest = found["lambda_resnet101_maskrcnn_coco"]
    found["lambda_resnet_maskrcnn_coco"] = smallest
    for name, config in found.items():
        exp_factory.register_config_factory(name)(config)
    return tuple(found)


EXPERIMENTS = _register()  # The names.
