"""Residual networks: from a spec to feature maps."""

from lambdanet_tf.layers import RelativePositionEmbedding
from lambdanet_tf.models.blocks import Block
from lambdanet_tf.models.blocks import bottleneck
from lambdanet_tf.models.network import Network
from lambdanet_tf.models.signature import with_spec


@with_spec(Network)
def ResNet(spec, **arguments):
    """Builds a residual network of convolution, lambda and attention blocks.

    `lambdanet_tf.specs.RESNETS` has the published networks. You can change any
    attribute of the spec by keyword, for example
    `LambdaResNet50(scope=7, key_dim=8)`, or pass your own `ResNetSpec`.

    The feature maps are `"c2"` and so on, one per stage, with strides 4 to 32
    in the published networks. If `scope` is local and `stages` has none of the
    letters A, X and P, height and width can be None.

    Args:
        spec: `ResNetSpec`, the network.
        **arguments: as in `lambdanet_tf.models.Network`, which also describes
            the result and the errors.
    """
    return Network(spec, feature_maps, **arguments)


def feature_maps(x, spec, layers):
    """Returns the last map of each stage, by name."""
    x = stem(x, spec, layers)
    rates = iter(drop_rates(spec))
    maps = {}
    rows = zip(spec.stages, spec.widths, spec.strides, strict=True)
    for stage, (letters, width, strides) in enumerate(rows, start=2):
        shared = "relative"
        if spec.share_embeddings and spec.use_position:
            shared = position_embedding(spec, stage)
        for number, letter in enumerate(letters, start=1):
            stride = strides if number == 1 else 1
            block = Block(
                name=f"stage{stage}_block{number}",
                letter=letter,
                width=width,
                strides=stride,
                spec=spec,
                layers=layers,
                use_se=spec.se_ratio > 0 and stage in spec.se_stages,
                drop_rate=next(rates),
                # If a block strides, its lambda layer sees a larger map.
                embedding=shared if stride == 1 else "relative",
            )
            x = bottleneck(x, block)
        maps[f"c{stage}"] = x
    return maps


def stem(x, spec, layers):
    """Applies the convolutions before the first stage."""
    rows = zip(spec.stem_filters, spec.stem_strides, strict=True)
    for i, (filters, strides) in enumerate(rows, start=1):
        name = f"stem_conv{i}"
        x = layers.conv_norm(x, filters, spec.stem_kernel_size, name, strides)
    return layers.max_pool(x, "stem_pool") if spec.stem_pool else x


def position_embedding(spec, stage):
    """Returns the embeddings that the lambda layers of a stage share."""
    return RelativePositionEmbedding(
        key_dim=spec.key_dim,
        intra_depth=spec.intra_depth,
        scope=spec.scope,
        name=f"stage{stage}_embedding",
    )


def drop_rates(spec):
    """Returns the drop-path rate of every block, in order."""
    numbers = [len(letters) for letters in spec.stages]
    total = sum(numbers)
    if spec.drop_path_schedule == "constant":
        shares = [1.0] * total
    elif spec.drop_path_schedule == "block":
        shares = [i / max(1, total - 1) for i in range(total)]
    else:
        shares = [
            stage / (len(numbers) + 1)
            for stage, blocks_of_stage in enumerate(numbers, start=2)
            for _ in range(blocks_of_stage)
        ]
    return [spec.drop_path_rate * share for share in shares]
