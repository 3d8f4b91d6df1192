"""Lambda networks in the TensorFlow Model Garden (extra `garden`).

Importing this package registers the backbones `lambda_resnet` and
`lambda_mobilenet` and the experiments of `lambdanet_tf.garden.experiments`.
"""

import contextlib

import tensorflow as tf

from lambdanet_tf.environment import KERAS_3
from lambdanet_tf.environment import require

_TENSORFLOW = "2.20"


def _check_environment():
    """Raises an ImportError that says what the Model Garden lacks here."""
    require("official.vision", "garden")
    if not tf.__version__.startswith(f"{_TENSORFLOW}."):
        raise ImportError(
            f"lambdanet_tf.garden needs TensorFlow {_TENSORFLOW}, for which "
            f"its Model Garden is made. Received: {tf.__version__}. The extra "
            '`garden` installs it: pip install "lambdanet-tf[garden]".'
        )
    if KERAS_3:
        raise ImportError(
            "lambdanet_tf.garden needs `tf.keras` to be tf_keras, which the "
            "Model Garden is made of. Set the environment variable "
            "TF_USE_LEGACY_KERAS=1 before TensorFlow is imported."
        )


# The imports below fail, or mix two Kerases, where this raises.
_check_environment()

from official.core import exp_factory  # noqa: E402
from official.vision.modeling.backbones import factory  # noqa: E402

from lambdanet_tf.garden.backbones import Backbone  # noqa: E402
from lambdanet_tf.garden.backbones import LambdaMobileNet  # noqa: E402
from lambdanet_tf.garden.backbones import LambdaResNet  # noqa: E402
from lambdanet_tf.garden.backbones import NetworkBackbone  # noqa: E402
from lambdanet_tf.garden.backbones import build_backbone  # noqa: E402
from lambdanet_tf.garden.experiments import EXPERIMENTS  # noqa: E402

__all__ = [
    "Backbone",
    "LambdaMobileNet",
    "LambdaResNet",
    "NetworkBackbone",
    "register",
]


def register() -> None:
    """Registers all backbones and experiments; again changes nothing."""
    for key in ("lambda_resnet", "lambda_mobilenet"):
        with contextlib.suppress(KeyError):  # Registered before.
            factory.register_backbone_builder(key)(build_backbone)
    for name, config in EXPERIMENTS.items():
        with contextlib.suppress(KeyError):
            exp_factory.register_config_factory(name)(config)


register()
