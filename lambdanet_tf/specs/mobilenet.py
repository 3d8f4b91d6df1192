"""MobileNetV2 with lambda blocks: configuration."""

import dataclasses

from lambdanet_tf.specs.attributes import check_attributes


@dataclasses.dataclass(frozen=True)
class InvertedRow:
    """Inverted bottlenecks of one shape: Table 2 of MobileNetV2.

    Attributes:
        expansion: channels inside the block, in its input channels.
        filters: output channels.
        blocks: how many in a row.
        strides: of the first of them.
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
        name: of the network.
        rows: of inverted bottlenecks, in order.
        lambda_blocks: numbers, from 1 over the whole network, of the blocks
            whose depthwise convolution is a lambda convolution instead, at
            the block's input channels.
        image_size: recommended height and width.
        dropout_rate: before the classifier.
        stem_filters: of the first convolution.
        head_filters: of the last convolution.
        activation: after every normalization but the last of a block.
        norm_epsilon: as in `ResNetSpec`.
        padding: of strided convolutions, as in `ResNetSpec`.
        num_heads: of the lambda convolutions; so are the remaining ones.
        key_dim: the paper's k.
        intra_depth: the paper's u.
        kernel_size: the paper's r.

    Raises:
        ValueError: if an attribute has a value that is not allowed.

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
                f"`lambda_blocks` must be numbers from 1 to {blocks}. Received:"
                f" lambda_blocks={self.lambda_blocks}."
            )

    @property
    def stride(self):
        """Pixels of the image per position of the last map."""
        return list(self.map_strides.values())[-1]

    @property
    def map_strides(self):
        """Pixels of the image per position of each stage's last map."""
        stage, stride, strides = 1, 2, {}  # those of the stem
        for row in self.rows:
            stage, stride = stage + (row.strides > 1), stride * row.strides
            strides[f"c{stage}"] = stride
        return strides
