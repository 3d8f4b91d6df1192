"""Residual networks of bottleneck blocks: configuration."""

import dataclasses
import math

from lambdanet_tf.specs.attributes import check_attributes

# Mean and standard deviation of ImageNet's channels, of pixels in [0, 255].
IMAGENET_MEAN = (123.675, 116.28, 103.53)
IMAGENET_STD = (58.395, 57.12, 57.375)

# Attributes that lambda layers take under the same names. All are fields of
# `garden.LambdaResNet`, too; what shapes a table goes into `position_embedding`
# of models/resnet.py.
LAMBDA_ARGUMENTS = (
    *("num_heads", "key_dim", "intra_depth", "scope"),
    *("use_content", "use_position", "use_position_bias"),
    *("key_normalization", "query_normalization", "use_batch_norm"),
)

# What stands in the middle of a residual block; `MIDDLES` of models/blocks.py
# makes it.
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
        name: of the network.
        stages: a string per stage with a letter of `LETTERS` per block.
        image_size: recommended height and width.
        image_mean: of the pixels in [0, 255], per channel of color images.
        image_std: standard deviation of the same.
        dropout_rate: before the classifier.
        drop_path_rate: of the deepest residual branches.
        drop_path_schedule: how the rate grows with depth: `"stage"` (as in
            ResNet-RS: 2/5, 3/5, 4/5 and 1 of it), `"block"` (linearly from 0
            at the first block) or `"constant"`.
        widths: channels of the middle layer of a stage's blocks.
        strides: of the first block of each stage.
        expansion: block output channels, in widths.
        stem_filters: of the convolutions of the stem.
        stem_strides: of the same.
        stem_kernel_size: of all of them.
        stem_pool: whether 3x3 max pooling of stride 2 follows them.
        shortcut: where it strides: `"pool"`, a 2x2 average pooling, then a
            1x1 convolution (ResNet-D); or `"conv"`, a strided 1x1 convolution.
        lambda_pool: window of the average pooling after a lambda layer that
            strides.
        se_ratio: of squeeze-and-excitation, in the block's output channels;
            0 for none.
        se_stages: the stages that have it, named from 2.
        activation: after every normalization but the last of a block.
        norm_epsilon: of every batch normalization, also of those in the
            lambda layers.
        padding: of strided convolutions and pooling: `"same"`, TensorFlow's,
            or `"symmetric"`, the same on both sides. The sizes agree.
        num_heads: of the lambda layers; so are the remaining attributes.
        key_dim: the paper's k.
        intra_depth: the paper's u.
        scope: the paper's r; None for global.
        use_content: whether they have content lambdas.
        use_position: whether they have position lambdas.
        use_position_bias: whether these have a bias.
        key_normalization: `"softmax"`, `"l2"` or None, over positions.
        query_normalization: None, or `"softmax"` over `key_dim`.
        use_batch_norm: whether queries and values are batch-normalized.
        share_embeddings: whether the lambda layers of a stage that see maps of
            the same size share their position embeddings.
        attention_heads: of the attention layers; so are the remaining
            attributes. 8 in Ramachandran et al. (2019) and Bello et al. (2019).
        attention_key_dim: of a head's keys; None for as many as its values.
        attention_scope: of local attention. 7 in Table 3 and in Ramachandran
            et al. (2019).
        attention_pool: window of the average pooling after attention that
            strides. 2 in Ramachandran et al. (2019) and Srinivas et al. (2021).
        parallel_keys: of attention in parallel with a convolution, channels of
            all heads' keys, in widths; at least 20 per head. 0.2 in Bello et
            al. (2019).
        parallel_values: of the same, channels that attention gives and the
            convolution does not, in widths, rounded down to a multiple of the
            heads. 0.1 in Bello et al. (2019).

    Raises:
        ValueError: if an attribute has a value that is not allowed.

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
                "`stages` must hold a string per stage, for each block one of "
                f"the letters {_LETTERS_IN_WORDS}. Received: "
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
        """Pixels of the image per position of the last map."""
        return list(self.map_strides.values())[-1]

    @property
    def map_strides(self):
        """Pixels of the image per position of each stage's last map."""
        stride = math.prod(self.stem_strides) * (2 if self.stem_pool else 1)
        strides = {}
        for stage, factor in enumerate(self.strides, start=2):
            strides[f"c{stage}"] = stride = stride * factor
        return strides


def uniform_stages(pattern, blocks):
    """Returns the stages of a pattern such as `"CCLL"`, a letter per stage.

    Args:
        pattern: str. A letter of a block for each stage.
        blocks: the number of blocks of each stage.

    Raises:
        ValueError: if the letters are unknown, or not one per stage.
    """
    if len(pattern) != len(blocks) or set(pattern) - set(LETTERS):
        raise ValueError(
            f"`pattern` must hold {len(blocks)} letters, one per stage, of "
            f"the letters {_LETTERS_IN_WORDS}. Received: pattern={pattern!r}."
        )
    return tuple(letter * n for letter, n in zip(pattern, blocks, strict=True))
