"""The networks as rows of tables, without TensorFlow."""

from lambdanet_tf.specs.attributes import replace as replace
from lambdanet_tf.specs.mobilenet import InvertedRow as InvertedRow
from lambdanet_tf.specs.mobilenet import MobileNetSpec as MobileNetSpec
from lambdanet_tf.specs.named_networks import MOBILENETS as MOBILENETS
from lambdanet_tf.specs.named_networks import PRESETS as PRESETS
from lambdanet_tf.specs.named_networks import RESNETS as RESNETS
from lambdanet_tf.specs.named_networks import Preset as Preset
from lambdanet_tf.specs.paper_tables import TABLE_19 as TABLE_19
from lambdanet_tf.specs.paper_tables import TABLE_20 as TABLE_20
from lambdanet_tf.specs.paper_tables import TrainingRow as TrainingRow
from lambdanet_tf.specs.pyramid import pyramid_levels as pyramid_levels
from lambdanet_tf.specs.resnet import IMAGENET_MEAN as IMAGENET_MEAN
from lambdanet_tf.specs.resnet import IMAGENET_STD as IMAGENET_STD
from lambdanet_tf.specs.resnet import LAMBDA_ARGUMENTS as LAMBDA_ARGUMENTS
from lambdanet_tf.specs.resnet import LETTERS as LETTERS
from lambdanet_tf.specs.resnet import ResNetSpec as ResNetSpec
from lambdanet_tf.specs.resnet import uniform_stages as uniform_stages
