"""MobileNetV2 with depthwise convolutions or lambda convolutions."""

import tensorflow as tf

from lambdanet_tf import specs
from lambdanet_tf.arguments import boolean
from lambdanet_tf.arguments import checked_arguments
from lambdanet_tf.layers import LambdaConv
from lambdanet_tf.models import blocks
from lambdanet_tf.models.head import finish
from lambdanet_tf.models.images import image_input
from lambdanet_tf.models.images import preprocessing


@checked_arguments
def MobileNet(
    spec,
    include_top=True,
    weights=None,
    input_tensor=None,
    input_shape=None,
    pooling=None,
    classes=1000,
    classifier_activation="softmax",
    name=None,
    include_preprocessing=True,
    endpoints=None,
    implementation="auto",
    kernel_initializer="he_normal",
    kernel_regularizer=None,
    norm_momentum=0.9,
    use_sync_bn=False,
    **changes,
):
    """Builds a MobileNetV2 with any inverted bottlenecks as lambda blocks.

    A lambda block keeps its input's channels inside and has a 5x5 lambda
    convolution in place of the depthwise one.

    The arguments are those of `ResNet`, except as follows; any attribute of
    the row can be changed by keyword, for instance
    `MobileNetV2(lambda_blocks=(10, 16))`.

    Own arguments:
        spec: `MobileNetSpec`, the network.
        weights: None, or the path of an `.npz` file or a run folder as
            `load_weights` takes it.
        input_shape: (height, width, channels); None for the recommended size
            and 3 channels. Height and width can be None, and the network takes
            images of any size.
        endpoints: None, or names among `"c1"` to `"c5"` (strides 2 to 32), and
            `"head"`, which the classifier sees. The model then returns a
            dictionary of these feature maps, and neither head nor pooling.

    Returns:
        A `tf.keras.Model`, as `ResNet` does.

    Raises:
        ValueError: as `ResNet` does.

    Reference: [Sandler et al., 2018](https://arxiv.org/abs/1801.04381).
    """
    specs.check_kind(spec, specs.MobileNetSpec)
    boolean("include_preprocessing", include_preprocessing)
    spec = specs.changed(spec, changes)
    options = blocks.LayerOptions(
        activation=spec.activation,
        padding=spec.padding,
        kernel_initializer=kernel_initializer,
        kernel_regularizer=kernel_regularizer,
        norm_momentum=norm_momentum,
        norm_epsilon=spec.norm_epsilon,
        use_sync_bn=use_sync_bn,
        implementation=implementation,
    )
    inputs, images = image_input(
        input_tensor, input_shape, spec.image_size, spec.stride
    )
    x = preprocessing(images) if include_preprocessing else images
    maps = feature_maps(x, spec, options)
    x = list(maps.values())[-1]
    x = blocks.conv(x, spec.head_filters, 1, options, "head_conv")
    maps["head"] = blocks.norm(x, options, "head_conv")
    return finish(
        inputs,
        images,
        maps,
        maps["head"],
        name or spec.name,
        spec,
        include_top=include_top,
        weights=weights,
        pooling=pooling,
        classes=classes,
        classifier_activation=classifier_activation,
        endpoints=endpoints,
        kernel_regularizer=kernel_regularizer,
    )


def feature_maps(x, spec, options):
    """The last map of each stride from 2 on, `"c1"` to `"c5"`."""
    x = blocks.conv(x, spec.stem_filters, 3, options, "stem_conv1", 2)
    x = blocks.norm(x, options, "stem_conv1")
    stage, block, maps = 1, 0, {}
    for row in spec.rows:
        stage += row.strides > 1
        for i in range(row.blocks):
            block += 1
            middle = lambda_block if block in spec.lambda_blocks else conv_block
            x = middle(
                x,
                row,
                spec,
                options,
                name=f"stage{stage}_block{block}",
                strides=row.strides if i == 0 else 1,
            )
        maps[f"c{stage}"] = x
    return maps


def conv_block(x, row, spec, options, name, strides):
    """An inverted bottleneck: expand, depthwise 3x3, project."""
    del spec
    inputs, channels = x, x.shape[-1]
    if row.expansion > 1:
        filters = row.expansion * channels
        x = blocks.conv(x, filters, 1, options, f"{name}_conv1")
        x = blocks.norm(x, options, f"{name}_conv1")
    middle = f"{name}_conv2"
    x = blocks.conv(x, None, 3, options, middle, strides, depthwise=True)
    x = blocks.norm(x, options, middle)
    return _project(inputs, x, row.filters, options, name, strides)


def lambda_block(x, row, spec, options, name, strides):
    """The same without expansion: 1x1, lambda convolution, project."""
    inputs, channels = x, x.shape[-1]
    x = blocks.conv(x, channels, 1, options, f"{name}_conv1")
    x = blocks.norm(x, options, f"{name}_conv1")
    middle = f"{name}_lambda"
    x = LambdaConv(
        channels,
        spec.kernel_size,
        strides=strides,
        num_heads=spec.num_heads,
        key_dim=spec.key_dim,
        intra_depth=spec.intra_depth,
        implementation=options.implementation,
        norm_momentum=options.norm_momentum,
        norm_epsilon=options.norm_epsilon,
        use_sync_bn=options.use_sync_bn,
        kernel_regularizer=options.kernel_regularizer,
        name=middle,
    )(x)
    x = blocks.norm(x, options, middle)
    return _project(inputs, x, row.filters, options, name, strides)


def _project(inputs, x, filters, options, name, strides):
    """A linear 1x1 convolution, added to the block's inputs if they fit."""
    x = blocks.conv(x, filters, 1, options, f"{name}_conv3")
    x = blocks.norm(x, options, f"{name}_conv3", activate=False)
    if strides > 1 or inputs.shape[-1] != filters:
        return x
    return tf.keras.layers.Add(name=f"{name}_add")([inputs, x])
