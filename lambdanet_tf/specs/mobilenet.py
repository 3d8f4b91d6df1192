"""MobileNetV2 with lambda blocks: configuration."""

import dataclasses

from lambdanet_tf.specs.attributes import check_attributes


@dataclasses.dataclass(frozen=True)
class InvertedRow:
    """Inverted bottlenecks of one shape: Table 2 of MobileNetV2.

    Attributes:
        expansion: inner channels, as a multiple of the input channels.
        filters: output channels.
        blocks: number of blocks.
        strides: strides of the first block.
    """

    expansion: int
    filters: int
    blocks: int
    strides: int

    def __post_init__(self):
        check_attributes(self)


@dataclasses.dataclass(frozen=True)
class MobileNetSpec:
    """A MobileNetV2 with some blocks replaced by lightweight lambda blocks.

    Attributes:
        name: the network's name.
        rows: rows of inverted bottlenecks, in order.
        lambda_blocks: the blocks, numbered from 1 over the whole network, in
            which a lambda convolution replaces the depthwise convolution and
            the expansion.
        image_size: recommended height and width.
        dropout_rate: rate of the dropout before the classifier.
        stem_filters: channels of the first convolution.
        head_filters: channels of the last convolution.
        activation: after every normalization except the last of a block.
        norm_epsilon: as in `ResNetSpec`.
        padding: as in `ResNetSpec`, for strided convolutions.
        num_heads: heads of the lambda convolutions, to which the remaining
            attributes belong, too.
        key_dim: the paper's k.
        intra_depth: the paper's u.
        kernel_size: the paper's r.

    Raises:
        ValueError: if an attribute has a wrong value.

    Reference: [Sandler et al., 2018](https://arxiv.org/abs/1801.04381); the
    lambda blocks: Section 5.3 of the LambdaNetworks paper.

    Examples:
        >>> spec = MOBILENETS["MobileNetV2"]
        >>> replace(spec, {"lambda_blocks": (10, 16)}).lambda_blocks
        (10, 16)
    """

    name: str
    rows: tuple[InvertedRow, ...]
    lambda_blocks: tuple[int, ...] = ()
    image_size: int = 224
    dropout_rate: float = 0.2
    stem_filters: int = 32
    head_filters: int = 1280
    activation: str = "relu6"
    norm_epsilon: float = 1e-3
    padding: str = "same"
    num_heads: int = 4
    key_dim: int = 32
    intra_depth: int = 1
    kernel_size: int = 5

    def __post_init__(self):
        if isinstance(self.rows, (list, tuple)):  # Dictionaries, from JSON.
            rows = tuple(
                InvertedRow(**x) if isinstance(x, dict) else x
                for x in self.rows
            )
            object.__setattr__(self, "rows", rows)
        check_attributes(self)
        blocks = sum(row.blocks for row in self.rows)
        if not all(
            block in range(1, blocks + 1) for block in self.lambda_blocks
        ):
            raise ValueError(
                f"`lambda_blocks` must be numbers of blocks, 1 to {blocks}. "
                f"Received: lambda_blocks={self.lambda_blocks}."
            )

    @property
    def stride(self):
        """The total stride of the last map, in pixels."""
        return list(self.map_strides.values())[-1]

    @property
    def map_strides(self):
        """The total stride of each stage's last map, in pixels."""
        stage, stride, strides = 1, 2, {}  # of the stem
        for row in self.rows:
            stage, stride = stage + (row.strides > 1), stride * row.strides
            strides[f"c{stage}"] = stride
        return strides
