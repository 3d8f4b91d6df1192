"""Residual networks of bottleneck blocks: configuration."""

import dataclasses
import math

from lambdanet_tf.specs.attributes import check_attributes

# Mean and standard deviation of ImageNet's channels, for pixels in [0, 255].
IMAGENET_MEAN = (123.675, 116.28, 103.53)
IMAGENET_STD = (58.395, 57.12, 57.375)

# Attributes that lambda layers take under the same names. `garden.LambdaResNet`
# has them as fields, too. If one changes the shape of a table, add it to
# `position_embedding` of models/resnet.py.
LAMBDA_ARGUMENTS = (
    *("num_heads", "key_dim", "intra_depth", "scope"),
    *("use_content", "use_position", "use_position_bias"),
    *("key_normalization", "query_normalization", "use_batch_norm"),
)

# The middle layer of a residual block, which `MIDDLES` of models/blocks.py
# builds.
LETTERS = {
    "C": "3x3 convolution",
    "L": "lambda layer",
    "A": "global attention",
    "S": "local attention",
    "X": "axial attention",
    "P": "convolution and global attention in parallel",
}
_LETTERS_IN_WORDS = ", ".join(f"{x} ({name})" for x, name in LETTERS.items())


@dataclasses.dataclass(frozen=True)
class ResNetSpec:
    """A residual network of bottleneck blocks, convolutional or not.

    Attributes:
        name: the network's name.
        stages: a string per stage, with a letter of `LETTERS` per block.
        image_size: recommended height and width.
        image_mean: mean of each color channel, for pixels in [0, 255].
        image_std: standard deviation of each color channel.
        dropout_rate: rate of the dropout before the classifier.
        drop_path_rate: rate of stochastic depth in the deepest block.
        drop_path_schedule: how this rate grows with depth: `"stage"` (as in
            ResNet-RS, to 2/5, 3/5, 4/5 and 1 of it), `"block"` (linearly from
            0 at the first block) or `"constant"`.
        widths: channels of the middle layers of each stage.
        strides: strides of the first block of each stage.
        expansion: output channels of a block, as a multiple of its width.
        stem_filters: channels of the stem's convolutions.
        stem_strides: strides of the stem's convolutions.
        stem_kernel_size: kernel size of the stem's convolutions.
        stem_pool: whether 3x3 max pooling of stride 2 follows them.
        shortcut: how a strided shortcut works: `"pool"` for 2x2 average
            pooling, then a 1x1 convolution (ResNet-D), or `"conv"` for a
            strided 1x1 convolution.
        lambda_pool: window of the average pooling after a lambda layer in a
            strided block.
        se_ratio: squeeze-and-excitation units, as a fraction of a block's
            output channels; 0 for no squeeze-and-excitation.
        se_stages: the stages that use it, numbered from 2.
        activation: after every normalization except the last of a block.
        norm_epsilon: of every batch normalization, also inside lambda layers.
        padding: of strided convolutions and max pooling: `"same"` as in
            TensorFlow, or `"symmetric"`. The sizes of maps are the same.
        num_heads: heads of the lambda layers, to which the attributes up to
            `share_embeddings` belong, too.
        key_dim: the paper's k.
        intra_depth: the paper's u.
        scope: the paper's r; None for global.
        use_content: whether they have content lambdas.
        use_position: whether they have position lambdas.
        use_position_bias: whether their position lambdas have a bias.
        key_normalization: `"softmax"`, `"l2"` or None, over positions.
        query_normalization: None, or `"softmax"` over `key_dim`.
        use_batch_norm: whether they batch-normalize queries and values.
        share_embeddings: whether the lambda layers of a stage share their
            position embeddings, if their maps have the same size.
        attention_heads: heads of the attention layers: 8 in Ramachandran et al.
            (2019) and Bello et al. (2019).
        attention_key_dim: depth of a head's keys; None for that of its values.
        attention_scope: scope of local attention: 7 in Table 3 and in
            Ramachandran et al. (2019).
        attention_pool: window of the average pooling after attention in a
            strided block: 2 in Ramachandran et al. (2019) and Srinivas et al.
            (2021).
        parallel_keys: for attention in parallel with a convolution, channels
            of all keys as a fraction of the width, at least 20 per head: 0.2
            in Bello et al. (2019).
        parallel_values: output channels of this attention as a fraction of the
            width, rounded down to a multiple of the heads: 0.1 in Bello et al.
            (2019). The convolution has the others.

    Raises:
        ValueError: if an attribute has a wrong value.

    Examples:
        >>> spec = ResNetSpec(
        ...     name="mine",
        ...     stages=("CC", "CL"),
        ...     widths=(32, 64),
        ...     strides=(1, 2),
        ... )
        >>> models.ResNet(spec, input_shape=(32, 32, 3), classes=5).output_shape
        (None, 5)
    """

    name: str
    stages: tuple[str, ...]
    image_size: int = 224
    image_mean: tuple[float, float, float] = IMAGENET_MEAN
    image_std: tuple[float, float, float] = IMAGENET_STD
    dropout_rate: float = 0.0
    drop_path_rate: float = 0.0
    drop_path_schedule: str = "stage"
    widths: tuple[int, ...] = (64, 128, 256, 512)
    strides: tuple[int, ...] = (1, 2, 2, 2)
    expansion: int = 4
    stem_filters: tuple[int, ...] = (64,)
    stem_strides: tuple[int, ...] = (2,)
    stem_kernel_size: int = 7
    stem_pool: bool = True
    shortcut: str = "conv"
    lambda_pool: int = 3
    se_ratio: float = 0.0
    se_stages: tuple[int, ...] = (2, 3, 4, 5)
    activation: str = "relu"
    norm_epsilon: float = 1e-3
    padding: str = "same"
    num_heads: int = 4
    key_dim: int = 16
    intra_depth: int = 1
    scope: int | tuple[int, int] | None = 23
    use_content: bool = True
    use_position: bool = True
    use_position_bias: bool = False
    key_normalization: str | None = "softmax"
    query_normalization: str | None = None
    use_batch_norm: bool = True
    share_embeddings: bool = False
    attention_heads: int = 8
    attention_key_dim: int | None = None
    attention_scope: int | tuple[int, int] = 7
    attention_pool: int = 2
    parallel_keys: float = 0.2
    parallel_values: float = 0.1

    def __post_init__(self):
        check_attributes(self)
        if not self.stages or any(
            not blocks or set(blocks) - set(LETTERS) for blocks in self.stages
        ):
            raise ValueError(
                "`stages` must contain a string per stage, with one letter per "
                f"block: {_LETTERS_IN_WORDS}. Received: "
                f"stages={self.stages!r}."
            )
        for first, second in (
            ("widths", "stages"),
            ("strides", "stages"),
            ("stem_strides", "stem_filters"),
        ):
            if len(getattr(self, first)) != len(getattr(self, second)):
                raise ValueError(
                    f"`{first}` must have as many entries as `{second}`. "
                    f"Received: {first}={getattr(self, first)}, "
                    f"{second}={getattr(self, second)}."
                )

    @property
    def stride(self):
        """The total stride of the last map, in pixels."""
        return list(self.map_strides.values())[-1]

    @property
    def map_strides(self):
        """The total stride of each stage's last map, in pixels."""
        stride = math.prod(self.stem_strides) * (2 if self.stem_pool else 1)
        strides = {}
        for stage, factor in enumerate(self.strides, start=2):
            strides[f"c{stage}"] = stride = stride * factor
        return strides


def uniform_stages(pattern, blocks):
    """Returns the stages of a pattern such as `"CCLL"`.

    Args:
        pattern: str. One letter per stage, for all its blocks.
        blocks: the number of blocks of each stage.

    Raises:
        ValueError: if a letter is unknown, or if there is not one per stage.
    """
    if len(pattern) != len(blocks) or set(pattern) - set(LETTERS):
        raise ValueError(
            f"`pattern` must have {len(blocks)} letters, one per stage: "
            f"{_LETTERS_IN_WORDS}. Received: pattern={pattern!r}."
        )
    return tuple(letter * n for letter, n in zip(pattern, blocks, strict=True))
