"""The published networks by name, in the manner of `keras.applications`.

Each is a row of a table of `lambdanet_tf.specs`; the arguments are those of
`ResNet` and `MobileNet`, by keyword.
"""

import inspect

from lambdanet_tf import specs
from lambdanet_tf.models.mobilenet import MobileNet
from lambdanet_tf.models.resnet import ResNet


def _with_signature(builder):
    """Shows the common arguments of the builders as those of a named one."""
    parameters = list(inspect.signature(ResNet).parameters.values())[1:]
    builder.__signature__ = inspect.Signature(
        [
            parameter
            if parameter.kind is parameter.VAR_KEYWORD
            else parameter.replace(kind=parameter.KEYWORD_ONLY)
            for parameter in parameters
        ]
    )
    return builder


@_with_signature
def ResNet50(pattern="CCCC", **arguments):
    """ResNet-50 with any stages as lambda stages (Tables 3, 4, 8 to 12)."""
    stages = specs.uniform_stages(pattern, specs.TABLE_19[0].blocks)
    return ResNet(specs.RESNET_50, **{"stages": stages, **arguments})


@_with_signature
def LambdaResNet50(**arguments):
    """LambdaResNet-50: lambda layers in some blocks of c4 and all of c5."""
    return ResNet(specs.RESNETS["LambdaResNet50"], **arguments)


@_with_signature
def LambdaResNet101(**arguments):
    """LambdaResNet-101: lambda layers in some blocks of c4 and all of c5."""
    return ResNet(specs.RESNETS["LambdaResNet101"], **arguments)


@_with_signature
def LambdaResNet152(**arguments):
    """LambdaResNet-152: lambda layers in some blocks of c4 and all of c5."""
    return ResNet(specs.RESNETS["LambdaResNet152"], **arguments)


@_with_signature
def LambdaResNet200(**arguments):
    """LambdaResNet-200: lambda layers in some blocks of c4 and all of c5."""
    return ResNet(specs.RESNETS["LambdaResNet200"], **arguments)


@_with_signature
def LambdaResNet270(**arguments):
    """LambdaResNet-270: lambda layers in some blocks of c4 and all of c5."""
    return ResNet(specs.RESNETS["LambdaResNet270"], **arguments)


@_with_signature
def LambdaResNet350(**arguments):
    """LambdaResNet-350: lambda layers in some blocks of c4 and all of c5."""
    return ResNet(specs.RESNETS["LambdaResNet350"], **arguments)


@_with_signature
def LambdaResNet420(**arguments):
    """LambdaResNet-420: lambda layers in some blocks of c4 and all of c5."""
    return ResNet(specs.RESNETS["LambdaResNet420"], **arguments)


@_with_signature
def LambdaResNet50C4(**arguments):
    """LambdaResNet-50 with lambda layers in every block of c4 and c5."""
    return ResNet(specs.RESNETS["LambdaResNet50C4"], **arguments)


@_with_signature
def LambdaResNet101C4(**arguments):
    """LambdaResNet-101 with lambda layers in every block of c4 and c5."""
    return ResNet(specs.RESNETS["LambdaResNet101C4"], **arguments)


@_with_signature
def LambdaResNet152C4(**arguments):
    """LambdaResNet-152 with lambda layers in every block of c4 and c5."""
    return ResNet(specs.RESNETS["LambdaResNet152C4"], **arguments)


@_with_signature
def LambdaResNet200C4(**arguments):
    """LambdaResNet-200 with lambda layers in every block of c4 and c5."""
    return ResNet(specs.RESNETS["LambdaResNet200C4"], **arguments)


@_with_signature
def LambdaResNet270C4(**arguments):
    """LambdaResNet-270 with lambda layers in every block of c4 and c5."""
    return ResNet(specs.RESNETS["LambdaResNet270C4"], **arguments)


@_with_signature
def LambdaResNet350C4(**arguments):
    """LambdaResNet-350 with lambda layers in every block of c4 and c5."""
    return ResNet(specs.RESNETS["LambdaResNet350C4"], **arguments)


@_with_signature
def LambdaResNet420C4(**arguments):
    """LambdaResNet-420 with lambda layers in every block of c4 and c5."""
    return ResNet(specs.RESNETS["LambdaResNet420C4"], **arguments)


@_with_signature
def ResNetRS50(**arguments):
    """ResNet-RS-50, the baseline; without its SE by `se_ratio=0`."""
    return ResNet(specs.RESNETS["ResNetRS50"], **arguments)


@_with_signature
def ResNetRS101(**arguments):
    """ResNet-RS-101, the baseline; without its SE by `se_ratio=0`."""
    return ResNet(specs.RESNETS["ResNetRS101"], **arguments)


@_with_signature
def ResNetRS152(**arguments):
    """ResNet-RS-152, the baseline; without its SE by `se_ratio=0`."""
    return ResNet(specs.RESNETS["ResNetRS152"], **arguments)


@_with_signature
def ResNetRS200(**arguments):
    """ResNet-RS-200, the baseline; without its SE by `se_ratio=0`."""
    return ResNet(specs.RESNETS["ResNetRS200"], **arguments)


@_with_signature
def ResNetRS270(**arguments):
    """ResNet-RS-270, the baseline; without its SE by `se_ratio=0`."""
    return ResNet(specs.RESNETS["ResNetRS270"], **arguments)


@_with_signature
def ResNetRS350(**arguments):
    """ResNet-RS-350, the baseline; without its SE by `se_ratio=0`."""
    return ResNet(specs.RESNETS["ResNetRS350"], **arguments)


@_with_signature
def ResNetRS420(**arguments):
    """ResNet-RS-420, the baseline; without its SE by `se_ratio=0`."""
    return ResNet(specs.RESNETS["ResNetRS420"], **arguments)


@_with_signature
def MobileNetV2(**arguments):
    """MobileNetV2; any blocks as lambda blocks by `lambda_blocks=(...)`."""
    return MobileNet(specs.MOBILENET_V2, **arguments)


@_with_signature
def LambdaMobileNetV2(**arguments):
    """MobileNetV2 with the 10th and 16th blocks as lambda blocks (Table 17)."""
    return MobileNet(specs.LAMBDA_MOBILENET_V2, **arguments)


@_with_signature
def LambdaResNetSmall(**arguments):
    """A small hybrid for images of 8 to 32 pixels; not the paper's.

    By default for 8x8 grey images of 10 classes, such as handwritten digits.
    """
    defaults = {"input_shape": (8, 8, 1), "classes": 10}
    if arguments.get("input_tensor") is not None:
        del defaults["input_shape"]
    return ResNet(specs.LAMBDA_RESNET_SMALL, **{**defaults, **arguments})
