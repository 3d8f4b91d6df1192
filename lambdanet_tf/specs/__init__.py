"""The networks as rows of tables, without TensorFlow."""

from lambdanet_tf.specs.attributes import replace
from lambdanet_tf.specs.mobilenet import InvertedRow
from lambdanet_tf.specs.mobilenet import MobileNetSpec
from lambdanet_tf.specs.named_networks import MOBILENETS
from lambdanet_tf.specs.named_networks import PRESETS
from lambdanet_tf.specs.named_networks import RESNETS
from lambdanet_tf.specs.named_networks import Preset
from lambdanet_tf.specs.paper_tables import TABLE_19
from lambdanet_tf.specs.paper_tables import TABLE_20
from lambdanet_tf.specs.paper_tables import TrainingRow
from lambdanet_tf.specs.pyramid import pyramid_levels
from lambdanet_tf.specs.resnet import IMAGENET_MEAN
from lambdanet_tf.specs.resnet import IMAGENET_STD
from lambdanet_tf.specs.resnet import LAMBDA_ARGUMENTS
from lambdanet_tf.specs.resnet import LETTERS
from lambdanet_tf.specs.resnet import ResNetSpec
from lambdanet_tf.specs.resnet import uniform_stages

__all__ = [
    "IMAGENET_MEAN",
    "IMAGENET_STD",
    "LAMBDA_ARGUMENTS",
    "LETTERS",
    "MOBILENETS",
    "PRESETS",
    "RESNETS",
    "TABLE_19",
    "TABLE_20",
    "InvertedRow",
    "MobileNetSpec",
    "Preset",
    "ResNetSpec",
    "TrainingRow",
    "pyramid_levels",
    "replace",
    "uniform_stages",
]
