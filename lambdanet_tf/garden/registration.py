"""Makes the backbones and experiments known to the Model Garden."""

import contextlib

from official.core import exp_factory
from official.vision.modeling.backbones import factory

from lambdanet_tf.garden.backbones import build_backbone
from lambdanet_tf.garden.experiments import EXPERIMENTS

BACKBONES = ("lambda_resnet", "lambda_mobilenet")


def register() -> None:
    """Registers all backbones and experiments; again changes nothing."""
    for key in BACKBONES:
        with contextlib.suppress(KeyError):  # Registered before.
            factory.register_backbone_builder(key)(build_backbone)
    for name, config in EXPERIMENTS.items():
        with contextlib.suppress(KeyError):
            exp_factory.register_config_factory(name)(config)
