"""The paper's numbers: every published network as a row of one table.

Source: I. Bello, "LambdaNetworks: Modeling Long-Range Interactions Without
Attention", arXiv:2102.08602. Table 19 gives the blocks of each depth and the
lambda blocks of the hybrids, Table 20 what each was trained with. A number
that is not the paper's carries a comment that says where it is from. The
networks with published weights are those of PyTorch Image Models (timm).
"""

import dataclasses
import difflib

from lambdanet_tf.arguments import check_types
from lambdanet_tf.arguments import fraction
from lambdanet_tf.arguments import one_of
from lambdanet_tf.arguments import positive_int
from lambdanet_tf.arguments import scope_per_axis

# Mean and standard deviation of ImageNet's channels, of pixels in [0, 255].
IMAGENET_MEAN = (123.675, 116.28, 103.53)
IMAGENET_STD = (58.395, 57.12, 57.375)


@dataclasses.dataclass(frozen=True)
class Sizes:
    """Trainable parameters of the networks of one depth, counted here."""

    lambda_resnet: int
    lambda_resnet_c4: int
    resnet_rs: int


@dataclasses.dataclass(frozen=True)
class DepthRow:
    """A row of Table 19.

    Attributes:
        blocks: residual blocks of the stages c2, c3, c4 and c5.
        hybrid_c4: the blocks of c4, from 1, that are lambda blocks in a
            LambdaResNet; those of c5 all are.
        sizes: see `Sizes`.
    """

    depth: int
    blocks: tuple[int, int, int, int]
    hybrid_c4: tuple[int, ...]
    sizes: Sizes


TABLE_19 = (
    DepthRow(
        50,
        (3, 4, 6, 3),
        (3,),
        Sizes(18_963_272, 16_242_072, 35_691_912),
    ),
    DepthRow(
        101,
        (3, 4, 23, 3),
        (6, 12, 18),
        Sizes(36_866_920, 25_982_120, 63_618_696),
    ),
    DepthRow(
        152,
        (3, 8, 36, 3),
        (5, 10, 15, 20, 25, 30),
        Sizes(51_404_696, 35_077_496, 86_621_576),
    ),
    DepthRow(
        200,
        (3, 24, 36, 3),
        (5, 10, 15, 20, 25, 30),
        Sizes(57_993_112, 41_665_912, 93_209_992),
    ),
    DepthRow(
        270,
        (4, 29, 53, 4),
        (8, 16, 24, 32, 40, 48),
        Sizes(81_366_248, 55_786_968, 129_861_448),
    ),
    DepthRow(
        350,
        (4, 36, 72, 4),
        (10, 20, 30, 40, 50, 60),
        Sizes(105_475_176, 69_555_336, 163_956_168),
    ),
    DepthRow(
        420,
        (4, 44, 87, 4),
        (10, 20, 30, 40, 50, 60, 70, 80),
        Sizes(124_438_664, 81_443_704, 191_891_656),
    ),
)


@dataclasses.dataclass(frozen=True)
class TrainingRow:
    """A row of Table 20: a LambdaResNet trained for 350 epochs.

    Attributes:
        step_seconds: 1024 images on 8 TPUv3 cores in bfloat16.
        top1: ImageNet accuracy in per cent; 0 where it is not given.
        top1_pseudo_labels: the same with pseudo-labelled images.
    """

    depth: int
    image_size: int
    randaugment_magnitude: int
    dropout_rate: float
    drop_path_rate: float
    step_seconds: float
    top1: float
    top1_pseudo_labels: float


TABLE_20 = (
    TrainingRow(50, 128, 10, 0.2, 0.0, 0.058, 77.4, 82.1),
    TrainingRow(50, 160, 10, 0.2, 0.0, 0.089, 79.2, 83.4),
    TrainingRow(101, 160, 10, 0.3, 0.0, 0.14, 80.8, 84.7),
    TrainingRow(101, 192, 15, 0.2, 0.0, 0.20, 81.9, 85.4),
    TrainingRow(152, 192, 15, 0.3, 0.0, 0.28, 82.5, 86.1),
    TrainingRow(152, 224, 15, 0.3, 0.1, 0.38, 83.2, 86.5),
    TrainingRow(152, 256, 15, 0.3, 0.1, 0.49, 83.8, 0.0),
    TrainingRow(152, 288, 15, 0.3, 0.1, 0.63, 0.0, 86.7),
    TrainingRow(270, 256, 15, 0.3, 0.1, 0.91, 84.2, 0.0),
    TrainingRow(350, 256, 15, 0.3, 0.2, 1.16, 84.4, 0.0),
    TrainingRow(350, 288, 15, 0.3, 0.2, 1.48, 84.5, 0.0),
    TrainingRow(350, 320, 15, 0.3, 0.2, 1.91, 84.7, 0.0),
    TrainingRow(420, 320, 15, 0.3, 0.2, 2.25, 84.9, 0.0),
)


# What stands in the middle of a residual block.
LETTERS = {
    "C": "3x3 convolution",
    "L": "lambda layer",
    "A": "global attention",
    "S": "local attention",
    "X": "axial attention",
    "P": "convolution and global attention in parallel",
}


# Attributes that say something about a network and are not in it.
_DESCRIPTION = ("name", "parameters", "evaluation_crop", "interpolation")
# What networks of other libraries call an argument of every builder.
_SYNONYMS = {
    "classes": ("num_classes", "n_classes", "nb_classes", "num_labels"),
    "weights": ("pretrained", "checkpoint_path", "checkpoint", "ckpt"),
    "input_shape": ("img_size", "image_shape", "input_size", "shape")
    + ("in_chans", "in_channels", "channels", "num_channels"),
    "pooling": ("global_pool",),
    "endpoints": ("features_only", "out_indices", "return_endpoints"),
    "classifier_activation": ("activation_fn", "head_activation"),
    "include_preprocessing": ("rescale", "include_rescaling", "normalize"),
    "norm_momentum": ("bn_momentum", "momentum"),
    "norm_epsilon": ("bn_eps", "bn_epsilon", "epsilon"),
    "use_sync_bn": ("sync_bn", "synchronized"),
    "dropout_rate": ("drop_rate", "dropout", "dropout_prob"),
    "drop_path_rate": ("drop_connect_rate", "stochastic_depth_rate"),
    "kernel_regularizer": ("weight_decay", "l2_regularizer"),
    "widths": ("filters", "channels_per_stage"),
    "num_heads": ("heads",),
    "activation": ("act_layer",),
}
_OF_EVERY_BUILDER = (
    *("include_top", "weights", "input_tensor", "input_shape", "pooling"),
    *("classes", "classifier_activation", "name", "include_preprocessing"),
    *("endpoints", "implementation", "kernel_initializer"),
    *("kernel_regularizer", "norm_momentum", "use_sync_bn"),
)


@dataclasses.dataclass(frozen=True)
class ResNetSpec:
    """A residual network of bottleneck blocks, convolutional or not.

    Attributes:
        name: of the network.
        stages: a string per stage with a letter of `LETTERS` per block.
        parameters: trainable ones, with the builder's defaults; 0 if not
            known.
        image_size: recommended height and width.
        image_mean: of the pixels in [0, 255], per channel of color images.
        image_std: likewise, their standard deviation.
        evaluation_crop: side of the central square of an image that is
            evaluated, as a share of the shorter side.
        interpolation: `"bilinear"` or `"bicubic"`, to resize that square.
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
        parallel_keys: beside a convolution, channels of all heads' keys, in
            widths; at least 20 per head. 0.2 in Bello et al. (2019).
        parallel_values: beside a convolution, channels that attention gives
            and the convolution does not, in widths, rounded down to a multiple
            of the heads. 0.1 in Bello et al. (2019).
    """

    name: str
    stages: tuple[str, ...]
    parameters: int = 0
    image_size: int = 224
    image_mean: tuple[float, ...] = IMAGENET_MEAN
    image_std: tuple[float, ...] = IMAGENET_STD
    evaluation_crop: float = 0.875  # The common ImageNet evaluation.
    interpolation: str = "bilinear"
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
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if isinstance(value, list):  # As JSON and Keras give tuples back.
                object.__setattr__(self, field.name, tuple(value))
        _check_spec(self)

    @property
    def stride(self):
        """Pixels of the image per position of the last map."""
        stride = 2 if self.stem_pool else 1
        for factor in self.stem_strides + self.strides:
            stride *= factor
        return stride


def _check_spec(spec):
    """Raises a ValueError for a spec that is no network."""
    if spec.attention_scope is None:
        raise ValueError(
            "`attention_scope` must be odd; global attention has the letter A. "
            "Received: attention_scope=None."
        )
    check_types(spec)
    _check_images(spec)
    if not spec.stages or any(
        not s or set(s) - set(LETTERS) for s in spec.stages
    ):
        raise ValueError(
            "`stages` must hold a string per stage, a letter per block of "
            f"{_letters()}. Received: stages={spec.stages!r}."
        )
    for first, second in (
        ("widths", "stages"),
        ("strides", "stages"),
        ("stem_strides", "stem_filters"),
    ):
        if len(getattr(spec, first)) != len(getattr(spec, second)):
            raise ValueError(
                f"`{first}` must have as many entries as `{second}`. Received: "
                f"{first}={getattr(spec, first)}, "
                f"{second}={getattr(spec, second)}."
            )
    for field in (
        "dropout_rate",
        "drop_path_rate",
        "parallel_keys",
        "parallel_values",
    ):
        fraction(field, getattr(spec, field), below_one=True)
    if spec.se_ratio < 0:
        raise ValueError(
            f"`se_ratio` must not be negative. Received: {spec.se_ratio}."
        )
    _check_positive(
        spec,
        ("widths", "strides", "expansion", "stem_filters", "stem_strides")
        + ("stem_kernel_size", "lambda_pool", "num_heads", "key_dim")
        + ("intra_depth", "attention_heads", "attention_pool"),
    )
    if not (spec.use_content or spec.use_position):
        raise ValueError(
            "`use_content` and `use_position` cannot both be False: lambda "
            "layers would compute nothing."
        )
    if any(stage < 2 for stage in spec.se_stages):
        raise ValueError(
            "`se_stages` must be numbers of stages, which begin with 2. "
            f"Received: se_stages={spec.se_stages}."
        )
    if spec.attention_key_dim is not None:
        positive_int("attention_key_dim", spec.attention_key_dim)
    scope_per_axis("attention_scope", spec.attention_scope)
    scope_per_axis("scope", spec.scope)
    for field, choices in (
        ("shortcut", ("pool", "conv")),
        ("padding", ("same", "symmetric")),
        ("drop_path_schedule", ("stage", "block", "constant")),
        ("interpolation", ("bilinear", "bicubic")),
        ("key_normalization", ("softmax", "l2", None)),
        ("query_normalization", ("softmax", None)),
    ):
        one_of(field, getattr(spec, field), choices)


def _check_images(spec):
    """Raises a ValueError for images that no network takes, of any spec."""
    _check_positive(spec, ("image_size",))
    if spec.parameters < 0:
        raise ValueError(
            "`parameters` must be how many there are, or 0. Received: "
            f"parameters={spec.parameters}."
        )
    fraction("norm_epsilon", spec.norm_epsilon)
    if not isinstance(spec, ResNetSpec):
        return
    if fraction("evaluation_crop", spec.evaluation_crop) == 0:
        raise ValueError(
            "`evaluation_crop` must be above 0. Received: evaluation_crop=0."
        )
    for field in ("image_mean", "image_std"):
        value = getattr(spec, field)
        if len(value) != 3 or (field == "image_std" and min(value) <= 0):
            raise ValueError(
                f"`{field}` must be three numbers, one per color"
                f"{', above 0' if field == 'image_std' else ''}. Received: "
                f"{field}={value}."
            )


def _letters():
    return ", ".join(f"{letter} ({what})" for letter, what in LETTERS.items())


def _check_positive(spec, fields):
    """Raises a ValueError unless integers, or tuples of them, are positive."""
    for field in fields:
        value = getattr(spec, field)
        for number in value if isinstance(value, tuple) else (value,):
            positive_int(field, number)


def changed(spec, changes):
    """A spec with some attributes changed; unknown ones are an error.

    Args:
        spec: `ResNetSpec` or `MobileNetSpec`.
        changes: dict from attribute to value.
    """
    fields = [field.name for field in dataclasses.fields(spec)]
    fields = [field for field in fields if field not in _DESCRIPTION]
    for change in changes:
        if change in _DESCRIPTION:
            raise ValueError(
                f"`{change}` describes {spec.name} and changes nothing in a "
                f"network. Received: {change}={changes[change]!r}. It belongs "
                "in a row of your own, as in `dataclasses.replace`."
            )
        if change not in fields:
            raise ValueError(
                f"`{change}` is not an argument of {spec.name}."
                f"{_instead_of(change, fields)} Besides those of every "
                f"builder (include_top, weights, ...): {', '.join(fields)}."
            )
    return dataclasses.replace(spec, **changes)


def check_kind(spec, kind):
    """Raises a ValueError unless a spec is of the kind that a builder takes."""
    if not isinstance(spec, kind):
        raise ValueError(
            f"`spec` must be a {kind.__name__}; networks by name are those of "
            f"`lambdanet_tf.models.build`. Received: {spec!r}."
        )


def _instead_of(name, fields):
    """Returns " Did you mean ...?", also for a word of other libraries."""
    ours = {name: name for name in (*fields, *_OF_EVERY_BUILDER)}
    for argument, synonyms in _SYNONYMS.items():
        ours |= dict.fromkeys(synonyms, argument)
    near = difflib.get_close_matches(name, list(ours), n=1, cutoff=0.55)
    return f" Did you mean {ours[near[0]]!r}?" if near else ""


def hybrid_stages(row):
    """The stages of a LambdaResNet: some blocks of c4, all of c5."""
    c2, c3, c4, c5 = row.blocks
    hybrid = ("L" if i + 1 in row.hybrid_c4 else "C" for i in range(c4))
    return "C" * c2, "C" * c3, "".join(hybrid), "L" * c5


def uniform_stages(pattern, blocks):
    """The stages of a pattern such as `"CCLL"`, a letter per stage."""
    if len(pattern) != len(blocks) or set(pattern) - set(LETTERS):
        raise ValueError(
            f"`pattern` must hold {len(blocks)} letters, one per stage, of "
            f"{_letters()}. Received: pattern={pattern!r}."
        )
    return tuple(letter * n for letter, n in zip(pattern, blocks, strict=True))


def _recommended(depth):
    """Size, dropout and drop-path of the largest run of Table 20."""
    if depth == 200:  # Not in Table 20: Table 15's size, the rates of 152.
        return {
            "image_size": 320,
            "dropout_rate": 0.3,
            "drop_path_rate": 0.1,
        }
    row = [row for row in TABLE_20 if row.depth == depth][-1]
    return {
        "image_size": row.image_size,
        "dropout_rate": row.dropout_rate,
        "drop_path_rate": row.drop_path_rate,
    }


# The setting of Tables 3, 4 and 8 to 12: a plain ResNet-50.
RESNET_50 = ResNetSpec(
    name="ResNet50",
    parameters=25_557_032,
    stages=uniform_stages("CCCC", TABLE_19[0].blocks),
)

# What LambdaResNets and ResNet-RS have over it. The paper does not say that
# squeeze-and-excitation is in c2 and c3 of a LambdaResNet alone, nor that the
# fourth convolution of the stem strides: only so do all its counts come out.
_RESNET_RS = {
    "stem_filters": (32, 32, 64, 64),
    "stem_strides": (2, 1, 1, 2),
    "stem_kernel_size": 3,
    "stem_pool": False,
    "shortcut": "pool",
    "se_ratio": 0.25,
}


def _lambda_resnet(row):
    return ResNetSpec(
        name=f"LambdaResNet{row.depth}",
        parameters=row.sizes.lambda_resnet,
        stages=hybrid_stages(row),
        se_stages=(2, 3),
        **_RESNET_RS,
        **_recommended(row.depth),
    )


def _lambda_resnet_c4(row):
    return dataclasses.replace(
        _lambda_resnet(row),
        name=f"LambdaResNet{row.depth}C4",
        parameters=row.sizes.lambda_resnet_c4,
        stages=uniform_stages("CCLL", row.blocks),
    )


def _resnet_rs(row):
    return ResNetSpec(
        name=f"ResNetRS{row.depth}",
        parameters=row.sizes.resnet_rs,
        stages=uniform_stages("CCCC", row.blocks),
        **_RESNET_RS,
        **_recommended(row.depth),
    )


# Not the paper's: for images of 8 to 32 pixels, such as handwritten digits.
LAMBDA_RESNET_SMALL = ResNetSpec(
    name="LambdaResNetSmall",
    parameters=568_154,
    stages=("CL", "CL", "LL"),
    image_size=8,
    dropout_rate=0.3,
    drop_path_rate=0.1,
    widths=(32, 64, 128),
    strides=(1, 2, 2),
    stem_filters=(32,),
    stem_strides=(1,),
    stem_kernel_size=3,
    stem_pool=False,
    shortcut="pool",
    scope=7,
)

# timm's networks, for which there are weights: models/byoanet.py of timm
# 1.0.31, `lambda_resnet26t`, `lambda_resnet50ts` and `lambda_resnet26rpt_256`.
# The image sizes, crops and interpolation are those of timm's evaluation.
LAMBDA_RESNET_26T = ResNetSpec(
    name="LambdaResNet26T",
    parameters=10_958_272,
    stages=("CC", "CC", "CL", "LL"),
    image_size=256,
    evaluation_crop=0.94,
    interpolation="bicubic",
    stem_filters=(24, 32, 64),
    stem_strides=(2, 1, 1),
    stem_kernel_size=3,
    lambda_pool=2,
    norm_epsilon=1e-5,
    padding="symmetric",
    scope=9,
    use_position_bias=True,
)
LAMBDA_RESNET_50TS = dataclasses.replace(
    LAMBDA_RESNET_26T,
    name="LambdaResNet50TS",
    parameters=21_536_832,
    stages=("CCC", "CCCL", "CLCLCL", "CLC"),
    evaluation_crop=0.95,
    activation="silu",
)
LAMBDA_RESNET_26RPT_256 = dataclasses.replace(
    LAMBDA_RESNET_26T,
    name="LambdaResNet26RPT256",
    parameters=10_988_688,
    scope=None,
    use_position_bias=False,
)

RESNETS = {
    spec.name: spec
    for spec in (
        *map(_lambda_resnet, TABLE_19),
        *map(_lambda_resnet_c4, TABLE_19),
        *map(_resnet_rs, TABLE_19),
        RESNET_50,
        LAMBDA_RESNET_SMALL,
        LAMBDA_RESNET_26T,
        LAMBDA_RESNET_50TS,
        LAMBDA_RESNET_26RPT_256,
    )
}


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
        _check_positive(
            self, [field.name for field in dataclasses.fields(self)]
        )


@dataclasses.dataclass(frozen=True)
class MobileNetSpec:
    """A MobileNetV2 with some blocks replaced by lightweight lambda blocks.

    Attributes:
        name: of the network.
        rows: of inverted bottlenecks, in order.
        parameters: trainable ones, with the builder's defaults.
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
    """

    name: str
    rows: tuple[InvertedRow, ...]
    parameters: int = 0
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
        for field in ("rows", "lambda_blocks"):  # Lists and dicts: from JSON.
            value = getattr(self, field)
            if isinstance(value, (list, tuple)):
                object.__setattr__(self, field, tuple(map(_as_row, value)))
        check_types(self)
        _check_images(self)
        one_of("padding", self.padding, ("same", "symmetric"))
        _check_positive(
            self,
            ("stem_filters", "head_filters", "num_heads", "key_dim")
            + ("intra_depth",),
        )
        scope_per_axis("kernel_size", self.kernel_size)
        if not self.rows:
            raise ValueError("`rows` must not be empty. Received: ().")
        blocks = sum(row.blocks for row in self.rows)
        fraction("dropout_rate", self.dropout_rate, below_one=True)
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
        stride = 2  # The stem's.
        for row in self.rows:
            stride *= row.strides
        return stride


def _as_row(value):
    """An `InvertedRow` of a dict of its fields; anything else as it is."""
    if not isinstance(value, dict):
        return value
    fields = [field.name for field in dataclasses.fields(InvertedRow)]
    if sorted(value) != sorted(fields):
        raise ValueError(
            f"`rows` must hold dictionaries of {', '.join(fields)}. Received: "
            f"{value}."
        )
    return InvertedRow(**value)


# Sandler et al., arXiv:1801.04381, Table 2.
MOBILENET_V2 = MobileNetSpec(
    name="MobileNetV2",
    parameters=3_504_872,
    rows=(
        InvertedRow(1, 16, 1, 1),
        InvertedRow(6, 24, 2, 2),
        InvertedRow(6, 32, 3, 2),
        InvertedRow(6, 64, 4, 2),
        InvertedRow(6, 96, 3, 1),
        InvertedRow(6, 160, 3, 2),
        InvertedRow(6, 320, 1, 1),
    ),
)

# Table 17 of the paper.
LAMBDA_MOBILENET_V2 = dataclasses.replace(
    MOBILENET_V2,
    name="LambdaMobileNetV2",
    lambda_blocks=(10, 16),
    parameters=3_236_824,
)

MOBILENETS = {spec.name: spec for spec in (MOBILENET_V2, LAMBDA_MOBILENET_V2)}
