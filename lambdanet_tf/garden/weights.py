r"""Writes the weights of a Model Garden checkpoint to a weight file.

    python -m lambdanet_tf.garden.weights --experiment=NAME \
        --config_file=RUN/params.yaml --checkpoint_path=RUN --output=FILE.npz

The other way needs no command: the field `weights` of a backbone takes a file.
"""

import argparse
import os
from typing import Any

import tensorflow as tf
import tf_keras
from official.core import config_definitions
from official.core import train_utils
from official.vision.configs import image_classification
from official.vision.modeling import factory
from official.vision.modeling.backbones import factory as backbone_factory

from lambdanet_tf import models
from lambdanet_tf.garden.backbones import NetworkBackbone


def save_checkpoint_weights(
    params: config_definitions.ExperimentConfig,
    checkpoint_path: str | os.PathLike,
    path: str | os.PathLike,
) -> dict[str, Any]:
    """Writes the backbone of a checkpoint, and its classifier if it has one.

    Args:
        params: of the experiment that wrote the checkpoint.
        checkpoint_path: of a checkpoint, or a folder whose latest is taken.
            Averaged weights are in the folder `ema_checkpoints` of a run.
        path: of the file to write; ends in `.npz`.

    Returns:
        The arguments with which `lambdanet_tf.models.build` makes the network,
        under either Keras; the file is one of them, as `weights`.

    Raises:
        ValueError: if the folder has no checkpoint, or the backbone is not of
            this package.
        AssertionError: from TensorFlow, if the checkpoint lacks weights.
    """
    model, backbone = _build(params.task)
    items = {"backbone": backbone} if model is None else {"model": model}
    checkpoint_file = _latest(os.fspath(checkpoint_path))
    status = tf.train.Checkpoint(**items).read(checkpoint_file)
    status.expect_partial().assert_existing_objects_matched()
    weights = models.named_weights(backbone)
    config = backbone.get_config()
    arguments = {
        "name": config["network"],
        **config["changes"],
        "norm_epsilon": config["norm_epsilon"],
        "input_shape": config["image_shape"],
    }
    if model is None:
        arguments["include_top"] = False
    else:
        kernel, bias = model.layers[-1].weights
        weights |= {"predictions/kernel": kernel, "predictions/bias": bias}
        arguments["classes"] = bias.shape[0]
    network = models.build(**arguments)
    arrays = {key: weight.numpy() for key, weight in weights.items()}
    models.set_weights(network, arrays, checkpoint_file)
    models.save_weights(network, path)
    return {**arguments, "weights": os.fspath(path)}


def _build(task):
    """The classifier of a task, or None, and its backbone."""
    config = task.model
    input_specs = tf_keras.layers.InputSpec(shape=[None, *config.input_size])
    if isinstance(task, image_classification.ImageClassificationTask):
        model = factory.build_classification_model(input_specs, config)
        backbone = model.backbone
    else:
        model = None
        backbone = backbone_factory.build_backbone(
            input_specs, config.backbone, config.norm_activation
        )
    if not isinstance(backbone, NetworkBackbone):
        raise ValueError(
            "`task.model.backbone.type` must be a backbone of lambdanet_tf. "
            f"Received: {config.backbone.type!r}."
        )
    return model, backbone


def _latest(path):
    """The checkpoint that a path names; of a folder, the latest."""
    found = (
        tf.train.latest_checkpoint(path) if tf.io.gfile.isdir(path) else path
    )
    if not found or not tf.io.gfile.glob(f"{found}.index"):
        raise ValueError(
            "`checkpoint_path` must be a checkpoint or a folder that has one. "
            f"Received: {path}."
        )
    return found


def main(arguments: list[str] | None = None) -> None:
    """Runs the command."""
    parser = argparse.ArgumentParser(
        description="Writes the weights of a checkpoint to a weight file."
    )
    parser.add_argument("--experiment", required=True)
    parser.add_argument("--config_file", action="append", default=[])
    parser.add_argument("--params_override", default="")
    parser.add_argument("--checkpoint_path", required=True)
    parser.add_argument("--output", required=True, help="file, ends in .npz")
    options = parser.parse_args(arguments)
    params = train_utils.parse_configuration(
        train_utils.ParseConfigOptions(
            experiment=options.experiment,
            config_file=options.config_file,
            params_override=options.params_override,
        ),
        print_return=False,
    )
    built = save_checkpoint_weights(
        params, options.checkpoint_path, options.output
    )
    call = ", ".join(f"{key}={value!r}" for key, value in built.items())
    print(f"lambdanet_tf.models.build({call})")


if __name__ == "__main__":
    main()
