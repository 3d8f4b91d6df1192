"""Every network by name: the paper's, its baselines, timm's, small ones.

The numbers of parameters are those of the networks that we build; `make tables`
compares them with the paper's.
"""

import dataclasses

from lambdanet_tf.specs.mobilenet import InvertedRow
from lambdanet_tf.specs.mobilenet import MobileNetSpec
from lambdanet_tf.specs.paper_tables import TABLE_19
from lambdanet_tf.specs.paper_tables import TABLE_20
from lambdanet_tf.specs.resnet import ResNetSpec
from lambdanet_tf.specs.resnet import uniform_stages


@dataclasses.dataclass(frozen=True)
class Preset:
    """A named network: its architecture, its size and its evaluation.

    Attributes:
        spec: the architecture; a builder's keywords change its attributes.
        parameters: trainable parameters, with the builder's defaults.
        evaluation_crop: center-crop fraction for evaluation.
        interpolation: `"bilinear"` or `"bicubic"`, to resize that crop.
    """

    spec: ResNetSpec | MobileNetSpec
    parameters: int
    evaluation_crop: float = 0.875  # the usual crop for ImageNet
    interpolation: str = "bilinear"


# By depth, for LambdaResNet, LambdaResNet-C4 and ResNet-RS.
_PARAMETERS = {
    50: (18_963_272, 16_242_072, 35_691_912),
    101: (36_866_920, 25_982_120, 63_618_696),
    152: (51_404_696, 35_077_496, 86_621_576),
    200: (57_993_112, 41_665_912, 93_209_992),
    270: (81_366_248, 55_786_968, 129_861_448),
    350: (105_475_176, 69_555_336, 163_956_168),
    420: (124_438_664, 81_443_704, 191_891_656),
}


def _recommended(depth):
    """Returns the run of Table 20 at the largest size, for its rates."""
    if depth == 200:  # Not in Table 20: size of Table 15, rates of 152.
        return dataclasses.replace(_recommended(152), image_size=320)
    return [row for row in TABLE_20 if row.depth == depth][-1]


def _hybrid_stages(row):
    """Returns the stages of a LambdaResNet, with lambdas in c4 and c5."""
    c2, c3, c4, c5 = row.blocks
    hybrid = ("L" if i + 1 in row.lambda_blocks_c4 else "C" for i in range(c4))
    return "C" * c2, "C" * c3, "".join(hybrid), "L" * c5


def _resnet_rs(row):
    """Returns a ResNet-RS, on which a LambdaResNet is based.

    The paper does not say that a LambdaResNet has squeeze-and-excitation only
    in c2 and c3, or that the stem's fourth convolution strides. But only then
    do all numbers of parameters agree.
    """
    run = _recommended(row.depth)
    return ResNetSpec(
        name=f"ResNetRS{row.depth}",
        stages=uniform_stages("CCCC", row.blocks),
        image_size=run.image_size,
        dropout_rate=run.dropout_rate,
        drop_path_rate=run.drop_path_rate,
        stem_filters=(32, 32, 64, 64),
        stem_strides=(2, 1, 1, 2),
        stem_kernel_size=3,
        stem_pool=False,
        shortcut="pool",
        se_ratio=0.25,
    )


def _lambda_resnet(row):
    return dataclasses.replace(
        _resnet_rs(row),
        name=f"LambdaResNet{row.depth}",
        stages=_hybrid_stages(row),
        se_stages=(2, 3),
    )


def _lambda_resnet_c4(row):
    return dataclasses.replace(
        _lambda_resnet(row),
        name=f"LambdaResNet{row.depth}C4",
        stages=uniform_stages("CCLL", row.blocks),
    )


# A plain ResNet-50, as in Tables 3, 4 and 8 to 12.
RESNET_50 = ResNetSpec(
    name="ResNet50", stages=uniform_stages("CCCC", TABLE_19[0].blocks)
)

# Our own, for images of 8 to 32 pixels, such as handwritten digits.
LAMBDA_RESNET_SMALL = ResNetSpec(
    name="LambdaResNetSmall",
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
# Our own, for gray images of 28 pixels, such as MNIST.
LAMBDA_RESNET_SMALL_28 = dataclasses.replace(
    LAMBDA_RESNET_SMALL,
    name="LambdaResNetSmall28",
    stages=("CC", "CL", "CL"),
    image_size=28,
    dropout_rate=0.0,
    drop_path_rate=0.0,
    expansion=2,
)

# `lambda_resnet26t`, `lambda_resnet50ts` and `lambda_resnet26rpt_256` of timm
# 1.0.31 (PyTorch Image Models, timm/models/byoanet.py), which has weights.
LAMBDA_RESNET_26T = ResNetSpec(
    name="LambdaResNet26T",
    stages=("CC", "CC", "CL", "LL"),
    image_size=256,
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
    stages=("CCC", "CCCL", "CLCLCL", "CLC"),
    activation="silu",
)
LAMBDA_RESNET_26RPT_256 = dataclasses.replace(
    LAMBDA_RESNET_26T,
    name="LambdaResNet26RPT256",
    scope=None,
    use_position_bias=False,
)

# Sandler et al., arXiv:1801.04381, Table 2.
MOBILENET_V2 = MobileNetSpec(
    name="MobileNetV2",
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
    MOBILENET_V2, name="LambdaMobileNetV2", lambda_blocks=(10, 16)
)


def _presets():
    """Yields every network, in the order of `models.names()`.

    Each has its function in models/builders.py, listed in models/__init__.pyi.
    """
    families = (_lambda_resnet, _lambda_resnet_c4, _resnet_rs)
    for family, spec_of in enumerate(families):
        for row in TABLE_19:
            yield Preset(spec_of(row), _PARAMETERS[row.depth][family])
    yield Preset(RESNET_50, 25_557_032)
    yield Preset(LAMBDA_RESNET_SMALL, 568_154)
    yield Preset(LAMBDA_RESNET_SMALL_28, 426_090, 1.0)
    # Crop and interpolation as in timm's evaluation.
    yield Preset(LAMBDA_RESNET_26T, 10_958_272, 0.94, "bicubic")
    yield Preset(LAMBDA_RESNET_50TS, 21_536_832, 0.95, "bicubic")
    yield Preset(LAMBDA_RESNET_26RPT_256, 10_988_688, 0.94, "bicubic")
    yield Preset(MOBILENET_V2, 3_504_872)
    yield Preset(LAMBDA_MOBILENET_V2, 3_236_824)


PRESETS = {preset.spec.name: preset for preset in _presets()}
RESNETS = {
    name: preset.spec
    for name, preset in PRESETS.items()
    if isinstance(preset.spec, ResNetSpec)
}
MOBILENETS = {
    name: preset.spec
    for name, preset in PRESETS.items()
    if isinstance(preset.spec, MobileNetSpec)
}
