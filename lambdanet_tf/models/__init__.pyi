from lambdanet_tf.models.builders import LambdaMobileNetV2 as LambdaMobileNetV2
from lambdanet_tf.models.builders import (
    LambdaResNet26RPT256 as LambdaResNet26RPT256,
)
from lambdanet_tf.models.builders import LambdaResNet26T as LambdaResNet26T
from lambdanet_tf.models.builders import LambdaResNet50 as LambdaResNet50
from lambdanet_tf.models.builders import LambdaResNet50C4 as LambdaResNet50C4
from lambdanet_tf.models.builders import LambdaResNet50TS as LambdaResNet50TS
from lambdanet_tf.models.builders import LambdaResNet101 as LambdaResNet101
from lambdanet_tf.models.builders import LambdaResNet101C4 as LambdaResNet101C4
from lambdanet_tf.models.builders import LambdaResNet152 as LambdaResNet152
from lambdanet_tf.models.builders import LambdaResNet152C4 as LambdaResNet152C4
from lambdanet_tf.models.builders import LambdaResNet200 as LambdaResNet200
from lambdanet_tf.models.builders import LambdaResNet200C4 as LambdaResNet200C4
from lambdanet_tf.models.builders import LambdaResNet270 as LambdaResNet270
from lambdanet_tf.models.builders import LambdaResNet270C4 as LambdaResNet270C4
from lambdanet_tf.models.builders import LambdaResNet350 as LambdaResNet350
from lambdanet_tf.models.builders import LambdaResNet350C4 as LambdaResNet350C4
from lambdanet_tf.models.builders import LambdaResNet420 as LambdaResNet420
from lambdanet_tf.models.builders import LambdaResNet420C4 as LambdaResNet420C4
from lambdanet_tf.models.builders import LambdaResNetSmall as LambdaResNetSmall
from lambdanet_tf.models.builders import (
    LambdaResNetSmall28 as LambdaResNetSmall28,
)
from lambdanet_tf.models.builders import MobileNetV2 as MobileNetV2
from lambdanet_tf.models.builders import ResNet50 as ResNet50
from lambdanet_tf.models.builders import ResNetRS50 as ResNetRS50
from lambdanet_tf.models.builders import ResNetRS101 as ResNetRS101
from lambdanet_tf.models.builders import ResNetRS152 as ResNetRS152
from lambdanet_tf.models.builders import ResNetRS200 as ResNetRS200
from lambdanet_tf.models.builders import ResNetRS270 as ResNetRS270
from lambdanet_tf.models.builders import ResNetRS350 as ResNetRS350
from lambdanet_tf.models.builders import ResNetRS420 as ResNetRS420
from lambdanet_tf.models.builders import build as build
from lambdanet_tf.models.builders import names as names
from lambdanet_tf.models.cloning import check_functional as check_functional
from lambdanet_tf.models.cloning import clone_network as clone_network
from lambdanet_tf.models.fine_tuning import freeze as freeze
from lambdanet_tf.models.images import decode_predictions as decode_predictions
from lambdanet_tf.models.images import preprocess_input as preprocess_input
from lambdanet_tf.models.mobilenet import MobileNet as MobileNet
from lambdanet_tf.models.network import Network as Network
from lambdanet_tf.models.replacing import Place as Place
from lambdanet_tf.models.replacing import attention_rule as attention_rule
from lambdanet_tf.models.replacing import convolution_rule as convolution_rule
from lambdanet_tf.models.replacing import replace_layers as replace_layers
from lambdanet_tf.models.resnet import ResNet as ResNet
from lambdanet_tf.models.weight_names import named_weights as named_weights
from lambdanet_tf.models.weights import RUN_WEIGHTS as RUN_WEIGHTS
from lambdanet_tf.models.weights import load_weights as load_weights
from lambdanet_tf.models.weights import save_weights as save_weights
from lambdanet_tf.models.weights import set_weights as set_weights
from lambdanet_tf.models.weights import weights_as_bytes as weights_as_bytes
