"""MobileNetV2 with depthwise convolutions or lambda convolutions."""

import tensorflow as tf

from lambdanet_tf.layers import LambdaConv
from lambdanet_tf.models.network import Network
from lambdanet_tf.models.signature import with_spec


@with_spec(Network)
def MobileNet(spec, **arguments):
    """Builds a MobileNetV2 in which any block can be a lambda block.

    A lambda block does not expand its channels, and replaces the depthwise
    convolution by a 5x5 lambda convolution. You can change any attribute of the
    spec by keyword, for example `MobileNetV2(lambda_blocks=(10, 16))`.

    The feature maps are `"c1"` to `"c5"` (strides 2 to 32), and `"head"`, the
    input of the classifier. Height and width can be None.

    Args:
        spec: `MobileNetSpec`, the network.
        **arguments: as in `lambdanet_tf.models.Network`, which also describes
            the result and the errors.

    Reference: [Sandler et al., 2018](https://arxiv.org/abs/1801.04381).
    """
    return Network(spec, feature_maps, **arguments)


def feature_maps(x, spec, layers):
    """Returns the last map of each stride, "c1" to "c5", and "head"."""
    x = layers.conv_norm(x, spec.stem_filters, 3, "stem_conv1", 2)
    stage, number, maps = 1, 0, {}
    for row in spec.rows:
        stage += row.strides > 1
        for i in range(row.blocks):
            number += 1
            x = inverted_bottleneck(
                x,
                row,
                spec,
                layers,
                name=f"stage{stage}_block{number}",
                strides=row.strides if i == 0 else 1,
                is_lambda=number in spec.lambda_blocks,
            )
        maps[f"c{stage}"] = x
    maps["head"] = layers.conv_norm(x, spec.head_filters, 1, "head_conv")
    return maps


def inverted_bottleneck(x, row, spec, layers, name, strides, is_lambda):
    """Applies an inverted bottleneck: expands, convolves, projects."""
    inputs, channels = x, x.shape[-1]
    expansion = 1 if is_lambda else row.expansion
    if is_lambda or expansion > 1:
        x = layers.conv_norm(x, expansion * channels, 1, f"{name}_conv1")
    if is_lambda:
        x = LambdaConv(
            channels,
            spec.kernel_size,
            strides=strides,
            num_heads=spec.num_heads,
            key_dim=spec.key_dim,
            intra_depth=spec.intra_depth,
            name=f"{name}_lambda",
            **layers.lambda_arguments,
        )(x)
        x = layers.norm(x, f"{name}_lambda")
    else:
        x = layers.conv_norm(x, None, 3, f"{name}_conv2", strides)
    x = layers.conv_norm(x, row.filters, 1, f"{name}_conv3", activate=False)
    if strides > 1 or channels != row.filters:
        return x
    return tf.keras.layers.Add(name=f"{name}_add")([inputs, x])
