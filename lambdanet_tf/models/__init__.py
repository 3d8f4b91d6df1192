"""The networks of the paper, in the manner of `keras.applications`."""

from lambdanet_tf.models.builders import LambdaMobileNetV2
from lambdanet_tf.models.builders import LambdaResNet26RPT256
from lambdanet_tf.models.builders import LambdaResNet26T
from lambdanet_tf.models.builders import LambdaResNet50
from lambdanet_tf.models.builders import LambdaResNet50C4
from lambdanet_tf.models.builders import LambdaResNet50TS
from lambdanet_tf.models.builders import LambdaResNet101
from lambdanet_tf.models.builders import LambdaResNet101C4
from lambdanet_tf.models.builders import LambdaResNet152
from lambdanet_tf.models.builders import LambdaResNet152C4
from lambdanet_tf.models.builders import LambdaResNet200
from lambdanet_tf.models.builders import LambdaResNet200C4
from lambdanet_tf.models.builders import LambdaResNet270
from lambdanet_tf.models.builders import LambdaResNet270C4
from lambdanet_tf.models.builders import LambdaResNet350
from lambdanet_tf.models.builders import LambdaResNet350C4
from lambdanet_tf.models.builders import LambdaResNet420
from lambdanet_tf.models.builders import LambdaResNet420C4
from lambdanet_tf.models.builders import LambdaResNetSmall
from lambdanet_tf.models.builders import LambdaResNetSmall28
from lambdanet_tf.models.builders import MobileNetV2
from lambdanet_tf.models.builders import ResNet50
from lambdanet_tf.models.builders import ResNetRS50
from lambdanet_tf.models.builders import ResNetRS101
from lambdanet_tf.models.builders import ResNetRS152
from lambdanet_tf.models.builders import ResNetRS200
from lambdanet_tf.models.builders import ResNetRS270
from lambdanet_tf.models.builders import ResNetRS350
from lambdanet_tf.models.builders import ResNetRS420
from lambdanet_tf.models.builders import build
from lambdanet_tf.models.builders import names
from lambdanet_tf.models.cloning import check_functional
from lambdanet_tf.models.cloning import clone_network
from lambdanet_tf.models.fine_tuning import freeze
from lambdanet_tf.models.images import decode_predictions
from lambdanet_tf.models.images import preprocess_input
from lambdanet_tf.models.mobilenet import MobileNet
from lambdanet_tf.models.network import Network
from lambdanet_tf.models.replacing import Place
from lambdanet_tf.models.replacing import attention_rule
from lambdanet_tf.models.replacing import convolution_rule
from lambdanet_tf.models.replacing import replace_layers
from lambdanet_tf.models.resnet import ResNet
from lambdanet_tf.models.weight_names import named_weights
from lambdanet_tf.models.weights import RUN_WEIGHTS
from lambdanet_tf.models.weights import load_weights
from lambdanet_tf.models.weights import save_weights
from lambdanet_tf.models.weights import set_weights
from lambdanet_tf.models.weights import weights_as_bytes

__all__ = [
    "RUN_WEIGHTS",
    "LambdaMobileNetV2",
    "MobileNet",
    "MobileNetV2",
    "LambdaResNet50",
    "LambdaResNet101",
    "LambdaResNet152",
    "LambdaResNet200",
    "LambdaResNet270",
    "LambdaResNet350",
    "LambdaResNet420",
    "LambdaResNet50C4",
    "LambdaResNet101C4",
    "LambdaResNet152C4",
    "LambdaResNet200C4",
    "LambdaResNet270C4",
    "LambdaResNet350C4",
    "LambdaResNet420C4",
    "LambdaResNet26T",
    "LambdaResNet26RPT256",
    "LambdaResNet50TS",
    "LambdaResNetSmall",
    "LambdaResNetSmall28",
    "ResNet50",
    "ResNetRS50",
    "ResNetRS101",
    "ResNetRS152",
    "ResNetRS200",
    "ResNetRS270",
    "ResNetRS350",
    "ResNetRS420",
    "Network",
    "Place",
    "ResNet",
    "attention_rule",
    "build",
    "check_functional",
    "clone_network",
    "convolution_rule",
    "decode_predictions",
    "freeze",
    "load_weights",
    "named_weights",
    "names",
    "preprocess_input",
    "replace_layers",
    "save_weights",
    "set_weights",
    "weights_as_bytes",
]
