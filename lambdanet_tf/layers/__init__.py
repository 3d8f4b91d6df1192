"""Lambda layers, attention, and the small layers that our networks use."""

from lambdanet_tf import environment
from lambdanet_tf.layers.batch_normalization import BatchNormalization
from lambdanet_tf.layers.dropout import Dropout
from lambdanet_tf.layers.dropout import StochasticDepth
from lambdanet_tf.layers.lambda_conv import LambdaConv
from lambdanet_tf.layers.lambda_layer import LambdaLayer
from lambdanet_tf.layers.position_embedding import RelativePositionEmbedding
from lambdanet_tf.layers.relative_attention import RelativeAttention
from lambdanet_tf.layers.squeeze_excite import SqueezeExcite

environment.check_backend()

__all__ = [
    "BatchNormalization",
    "Dropout",
    "LambdaConv",
    "LambdaLayer",
    "RelativeAttention",
    "RelativePositionEmbedding",
    "SqueezeExcite",
    "StochasticDepth",
]
