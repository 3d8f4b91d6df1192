"""Residual blocks: bottlenecks with a layer of choice in the middle.

Saved weights rely on the names of layers: `stem_conv{1..}`,
`stage{2..}_block{1..}_{conv1|MIDDLE|conv3|se}`,
`stage{2..}_block{1..}_shortcut`, and `predictions` (in `network.py`). MIDDLE is
a name of `MIDDLES`. The name of a normalization is its layer's name and
`_norm`.
"""

import dataclasses
from collections.abc import Callable
from typing import NamedTuple

import tensorflow as tf

from lambdanet_tf import specs
from lambdanet_tf.layers import LambdaLayer
from lambdanet_tf.layers import RelativeAttention
from lambdanet_tf.layers import RelativePositionEmbedding
from lambdanet_tf.layers import SqueezeExcite
from lambdanet_tf.layers import StochasticDepth
from lambdanet_tf.models.layer_factory import LayerFactory
from lambdanet_tf.models.layer_factory import average_pool

_LEAST_KEY_DIM = 20  # per head: Bello et al. (2019), section 4.1


@dataclasses.dataclass(frozen=True)
class Block:
    """A residual block of a network."""

    name: str  # prefix of the layers' names
    letter: str  # of the middle, a key of `MIDDLES`
    width: int  # channels of the middle, 1 / `spec.expansion` of the block's
    strides: int  # of the middle
    spec: specs.ResNetSpec
    layers: LayerFactory
    use_se: bool = False
    drop_rate: float = 0.0
    embedding: str | RelativePositionEmbedding = "relative"


def bottleneck(x, block):
    """Returns the feature map after a block."""
    layers, name = block.layers, block.name
    filters = block.spec.expansion * block.width
    residual = x
    if block.strides > 1 or x.shape[-1] != filters:
        residual = shortcut(x, filters, block)
    x = layers.conv_norm(x, block.width, 1, f"{name}_conv1")
    middle = MIDDLES[block.letter]
    x = middle.function(x, f"{name}_{middle.layer}", block)
    x = layers.conv_norm(
        x, filters, 1, f"{name}_conv3", activate=False, zero_gamma=True
    )
    if block.use_se:
        x = SqueezeExcite(
            block.spec.se_ratio,
            activation=block.spec.activation,
            kernel_initializer=layers.kernel_initializer(),
            kernel_regularizer=layers.kernel_regularizer,
            name=f"{name}_se",
        )(x)
    if block.drop_rate > 0:
        x = StochasticDepth(block.drop_rate, name=f"{name}_drop")(x)
    x = tf.keras.layers.Add(name=f"{name}_add")([residual, x])
    return layers.activation(x, f"{name}_act")


def shortcut(x, filters, block):
    """Applies a 1x1 convolution to the block's channels and size."""
    name, strides = f"{block.name}_shortcut", block.strides
    if block.spec.shortcut == "pool":
        x, strides = average_pool(x, strides, strides, name), 1
    return block.layers.conv_norm(x, filters, 1, name, strides, activate=False)


def convolution(x, name, block):
    """Applies a 3x3 convolution."""
    return block.layers.conv_norm(x, block.width, 3, name, block.strides)


def lambda_layer(x, name, block):
    """Applies a lambda layer, then average pooling if the block strides."""
    spec = block.spec
    x = LambdaLayer(
        filters=block.width,
        position_embedding=block.embedding,
        name=name,
        **{field: getattr(spec, field) for field in specs.LAMBDA_ARGUMENTS},
        **block.layers.lambda_arguments,
    )(x)
    x = average_pool(x, spec.lambda_pool, block.strides, name)
    return block.layers.norm(x, name)


def global_attention(x, name, block):
    """Applies attention over the map, then pooling if the block strides."""
    x = _attention(x, block.width, name, block)
    return _pool_norm(x, name, block)


def local_attention(x, name, block):
    """Applies attention within a scope (Ramachandran et al., 2019)."""
    scope = block.spec.attention_scope
    x = _attention(x, block.width, name, block, scope=scope)
    return _pool_norm(x, name, block)


def axial_attention(x, name, block):
    """Applies attention along height, then width (Wang et al., 2020)."""
    height = f"{block.name}_height_attention"
    x = _attention(x, block.width, height, block, axis=1)
    x = block.layers.norm(x, height, activate=False)
    x = _attention(x, block.width, name, block, axis=2)
    return _pool_norm(x, name, block)


def parallel_attention(x, name, block):
    """Computes most channels by a convolution, the others by attention.

    This is the attention-augmented convolution of Bello et al. (2019), section
    3.2; a 1x1 convolution mixes its heads.
    """
    spec, layers, width = block.spec, block.layers, block.width
    heads, prefix = spec.attention_heads, f"{block.name}_parallel"
    values = max(int(spec.parallel_values * width) // heads, 1) * heads
    keys = max(int(spec.parallel_keys * width) // heads, _LEAST_KEY_DIM)
    attended = _attention(x, values, name, block, key_dim=keys)
    attended = average_pool(attended, spec.attention_pool, block.strides, name)
    attended = layers.conv(attended, values, 1, f"{prefix}_mix")
    convolved = layers.conv(
        x, width - values, 3, f"{prefix}_conv", block.strides
    )
    x = tf.keras.layers.Concatenate(name=f"{prefix}_concat")(
        [convolved, attended]
    )
    return layers.norm(x, prefix)


def _attention(x, filters, name, block, **arguments):
    arguments.setdefault("key_dim", block.spec.attention_key_dim)
    return RelativeAttention(
        filters=filters,
        num_heads=block.spec.attention_heads,
        kernel_regularizer=block.layers.kernel_regularizer,
        name=name,
        **arguments,
    )(x)


def _pool_norm(x, name, block):
    x = average_pool(x, block.spec.attention_pool, block.strides, name)
    return block.layers.norm(x, name)


class Middle(NamedTuple):
    """The middle layer of a block."""

    layer: str  # the end of its name
    function: Callable  # of a map, the layer's full name and the `Block`


# By the letters of `specs.LETTERS`.
MIDDLES = {
    "C": Middle("conv2", convolution),
    "L": Middle("lambda", lambda_layer),
    "A": Middle("attention", global_attention),
    "S": Middle("local_attention", local_attention),
    "X": Middle("width_attention", axial_attention),
    "P": Middle("parallel_attention", parallel_attention),
}
