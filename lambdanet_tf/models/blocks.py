"""The parts of a network: convolution with normalization, stem, block.

Layer names are an address book that saved weights rely on:
`stem_conv{1..}`, `stage{2..}_block{1..}_{conv1|MIDDLE|conv3|se}`,
`stage{2..}_block{1..}_shortcut`, and `predictions` (in `head.py`); a
normalization has its layer's name and `_norm`. MIDDLE is `conv2`, `lambda`, or
one of the names in `LETTER_OF_LAYER`.
"""

import dataclasses

import tensorflow as tf

from lambdanet_tf import ops
from lambdanet_tf.arguments import boolean
from lambdanet_tf.arguments import fraction
from lambdanet_tf.layers import BatchNormalization
from lambdanet_tf.layers import LambdaLayer
from lambdanet_tf.layers import RelativeAttention
from lambdanet_tf.layers import RelativePositionEmbedding
from lambdanet_tf.layers import SqueezeExcite
from lambdanet_tf.layers import StochasticDepth
from lambdanet_tf.layers.grids import check_channels_last
from lambdanet_tf.layers.initializers import Initializers

_LEAST_KEY_DIM = 20  # per head: Bello et al. (2019), section 4.1


@dataclasses.dataclass(frozen=True)
class LayerOptions:
    """What the layers of one network have in common.

    Attributes:
        activation: name of the activation.
        padding: `"same"`, as TensorFlow pads, or `"symmetric"`.
        kernel_initializer: of the convolutions.
        kernel_regularizer: of convolutions, projections and classifier.
        norm_momentum: of every batch normalization.
        norm_epsilon: of the same.
        use_sync_bn: whether replicas share the statistics of a batch.
        implementation: algorithm of the lambda layers.
        initializers: gives each convolution an initializer of its own.
    """

    activation: str = "relu"
    padding: str = "same"
    kernel_initializer: object = "he_normal"
    kernel_regularizer: object = None
    norm_momentum: float = 0.9
    norm_epsilon: float = 1e-3
    use_sync_bn: bool = False
    implementation: str = "auto"
    initializers: Initializers = dataclasses.field(default_factory=Initializers)

    def __post_init__(self):
        fraction("norm_momentum", self.norm_momentum)
        fraction("norm_epsilon", self.norm_epsilon)
        boolean("use_sync_bn", self.use_sync_bn)
        ops.implementation_name(self.implementation)
        tf.keras.activations.get(self.activation)
        check_channels_last((None, None, None, None))


def conv(x, filters, kernel_size, options, name, strides=1, depthwise=False):
    """A convolution without bias; `filters` is ignored if depthwise."""
    padding = "same"
    if options.padding == "symmetric" and strides > 1 and kernel_size > 1:
        margin = kernel_size // 2
        x = tf.keras.layers.ZeroPadding2D(margin, name=f"{name}_pad")(x)
        padding = "valid"
    initializer = options.initializers(options.kernel_initializer)
    arguments = {
        "kernel_size": kernel_size,
        "strides": strides,
        "padding": padding,
        "use_bias": False,
        "name": name,
    }
    if depthwise:
        return tf.keras.layers.DepthwiseConv2D(
            depthwise_initializer=initializer,
            depthwise_regularizer=options.kernel_regularizer,
            **arguments,
        )(x)
    return tf.keras.layers.Conv2D(
        filters,
        kernel_initializer=initializer,
        kernel_regularizer=options.kernel_regularizer,
        **arguments,
    )(x)


def norm(x, options, name, activate=True, zero_gamma=False):
    """Batch normalization, then the activation unless it is switched off."""
    x = BatchNormalization(
        momentum=options.norm_momentum,
        epsilon=options.norm_epsilon,
        synchronized=options.use_sync_bn,
        gamma_initializer="zeros" if zero_gamma else "ones",
        name=f"{name}_norm",
    )(x)
    return activation(x, options, f"{name}_act") if activate else x


def activation(x, options, name):
    """The network's activation."""
    return tf.keras.layers.Activation(options.activation, name=name)(x)


def max_pool(x, options, name):
    """3x3 max pooling of stride 2; padding never wins the maximum."""
    if options.padding == "same":
        return tf.keras.layers.MaxPooling2D(3, 2, "same", name=name)(x)
    # With stride 1 "same" is symmetric: pool densely, then keep every second.
    x = tf.keras.layers.MaxPooling2D(3, 1, "same", name=f"{name}_dense")(x)
    return tf.keras.layers.MaxPooling2D(1, 2, name=name)(x)


def stem(x, spec, options):
    """The convolutions before the first stage."""
    rows = zip(spec.stem_filters, spec.stem_strides, strict=True)
    for i, (filters, strides) in enumerate(rows, start=1):
        name = f"stem_conv{i}"
        x = conv(x, filters, spec.stem_kernel_size, options, name, strides)
        x = norm(x, options, name)
    return max_pool(x, options, "stem_pool") if spec.stem_pool else x


def position_embedding(spec, stage):
    """The embeddings that the lambda layers of a stage share."""
    return RelativePositionEmbedding(
        key_dim=spec.key_dim,
        intra_depth=spec.intra_depth,
        scope=spec.scope,
        name=f"stage{stage}_embedding",
    )


def lambda_layer(x, width, spec, options, name, strides, embedding):
    """A lambda layer, then average pooling where it strides."""
    name = f"{name}_lambda"
    x = LambdaLayer(
        filters=width,
        num_heads=spec.num_heads,
        key_dim=spec.key_dim,
        intra_depth=spec.intra_depth,
        scope=spec.scope,
        use_content=spec.use_content,
        use_position=spec.use_position,
        use_position_bias=spec.use_position_bias,
        key_normalization=spec.key_normalization,
        query_normalization=spec.query_normalization,
        use_batch_norm=spec.use_batch_norm,
        position_embedding=embedding,
        implementation=options.implementation,
        norm_momentum=options.norm_momentum,
        norm_epsilon=options.norm_epsilon,
        use_sync_bn=options.use_sync_bn,
        kernel_regularizer=options.kernel_regularizer,
        name=name,
    )(x)
    x = _pool(x, spec.lambda_pool, strides, name)
    return norm(x, options, name)


def convolution(x, width, spec, options, name, strides, embedding):
    """A 3x3 convolution."""
    del spec, embedding
    x = conv(x, width, 3, options, f"{name}_conv2", strides)
    return norm(x, options, f"{name}_conv2")


def global_attention(x, width, spec, options, name, strides, embedding):
    """Attention over the whole map, then average pooling where it strides."""
    del embedding
    name = f"{name}_attention"
    x = _attention(x, width, spec, options, name)
    x = _pool(x, spec.attention_pool, strides, name)
    return norm(x, options, name)


def local_attention(x, width, spec, options, name, strides, embedding):
    """The same within a scope (Ramachandran et al., 2019)."""
    del embedding
    name = f"{name}_local_attention"
    scope = spec.attention_scope
    x = _attention(x, width, spec, options, name, scope=scope)
    x = _pool(x, spec.attention_pool, strides, name)
    return norm(x, options, name)


def axial_attention(x, width, spec, options, name, strides, embedding):
    """Attention along the height, then along the width (Wang et al., 2020).

    Two attention maps in place of one, each normalized.
    """
    del embedding
    height, name = f"{name}_height_attention", f"{name}_width_attention"
    x = _attention(x, width, spec, options, height, axis=1)
    x = norm(x, options, height, activate=False)
    x = _attention(x, width, spec, options, name, axis=2)
    x = _pool(x, spec.attention_pool, strides, name)
    return norm(x, options, name)


def parallel_attention(x, width, spec, options, name, strides, embedding):
    """A convolution of most channels beside global attention of the others.

    The attention-augmented convolution of Bello et al. (2019), section 3.2,
    whose heads a 1x1 convolution mixes.
    """
    del embedding
    heads, name = spec.attention_heads, f"{name}_parallel"
    values = max(int(spec.parallel_values * width) // heads, 1) * heads
    keys = max(int(spec.parallel_keys * width) // heads, _LEAST_KEY_DIM)
    attended = _attention(
        x, values, spec, options, f"{name}_attention", key_dim=keys
    )
    attended = _pool(
        attended, spec.attention_pool, strides, f"{name}_attention"
    )
    attended = conv(attended, values, 1, options, f"{name}_mix")
    convolved = conv(x, width - values, 3, options, f"{name}_conv", strides)
    x = tf.keras.layers.Concatenate(name=f"{name}_concat")(
        [convolved, attended]
    )
    return norm(x, options, name)


def _attention(x, filters, spec, options, name, **arguments):
    arguments.setdefault("key_dim", spec.attention_key_dim)
    return RelativeAttention(
        filters=filters,
        num_heads=spec.attention_heads,
        kernel_regularizer=options.kernel_regularizer,
        name=name,
        **arguments,
    )(x)


def _pool(x, window, strides, name):
    """Average pooling where a block strides."""
    if strides == 1:
        return x
    return tf.keras.layers.AveragePooling2D(
        window, strides, "same", name=f"{name}_pool"
    )(x)


# The middle of a block by its letter in `specs.LETTERS`: a function of a map,
# its width, `ResNetSpec`, `LayerOptions`, the block's name, strides, and the
# embeddings that its lambda layer shares (`"relative"` for its own).
MIDDLES = {
    "C": convolution,
    "L": lambda_layer,
    "A": global_attention,
    "S": local_attention,
    "X": axial_attention,
    "P": parallel_attention,
}
# The layer that tells the letter of a block, behind the block's name.
LETTER_OF_LAYER = {
    "conv2": "C",
    "lambda": "L",
    "attention": "A",
    "local_attention": "S",
    "width_attention": "X",
    "parallel_attention": "P",
}


def shortcut(x, filters, spec, options, name, strides):
    """A 1x1 convolution to the block's channels and size."""
    if strides > 1 and spec.shortcut == "pool":
        x = tf.keras.layers.AveragePooling2D(
            strides, strides, "same", name=f"{name}_pool"
        )(x)
        strides = 1
    x = conv(x, filters, 1, options, name, strides)
    return norm(x, options, name, activate=False)


def bottleneck(
    x,
    letter,
    width,
    spec,
    options,
    name,
    strides=1,
    use_se=False,
    drop_rate=0.0,
    embedding="relative",
):
    """A residual block with a convolution or something else in its middle.

    Args:
        x: feature map.
        letter: of the middle, a key of `MIDDLES`.
        width: channels of the middle; the block has `spec.expansion` times as
            many.
        spec: `ResNetSpec` of the network.
        options: `LayerOptions` of the network.
        name: prefix of the layers' names.
        strides: of the middle.
        use_se: whether squeeze-and-excitation ends the branch.
        drop_rate: of the branch.
        embedding: of the lambda layer, to share; `"relative"` for its own.

    Returns:
        Feature map, its size divided by `strides` and rounded up.
    """
    filters = spec.expansion * width
    residual = x
    if strides > 1 or x.shape[-1] != filters:
        residual = shortcut(
            x, filters, spec, options, f"{name}_shortcut", strides
        )
    x = conv(x, width, 1, options, f"{name}_conv1")
    x = norm(x, options, f"{name}_conv1")
    x = MIDDLES[letter](x, width, spec, options, name, strides, embedding)
    x = conv(x, filters, 1, options, f"{name}_conv3")
    x = norm(x, options, f"{name}_conv3", activate=False, zero_gamma=True)
    if use_se:
        x = SqueezeExcite(
            spec.se_ratio,
            activation=spec.activation,
            kernel_initializer=options.initializers(options.kernel_initializer),
            kernel_regularizer=options.kernel_regularizer,
            name=f"{name}_se",
        )(x)
    if drop_rate > 0:
        x = StochasticDepth(drop_rate, name=f"{name}_drop")(x)
    x = tf.keras.layers.Add(name=f"{name}_add")([residual, x])
    return activation(x, options, f"{name}_act")
