"""The networks by name, in the manner of `keras.applications`.

Each builds a network of `lambdanet_tf.specs.PRESETS`. All take the arguments of
`lambdanet_tf.models.Network`, by position or by name, and every attribute of
their spec by keyword; `help` lists them.
"""

from typing import Any

import tensorflow as tf

from lambdanet_tf import specs
from lambdanet_tf.arguments import did_you_mean
from lambdanet_tf.arguments import users_input
from lambdanet_tf.models.mobilenet import MobileNet
from lambdanet_tf.models.resnet import ResNet
from lambdanet_tf.models.signature import named

_GRAY_8 = (8, 8, 1)
_GRAY_28 = (28, 28, 1)


def names() -> tuple[str, ...]:
    """Returns the names of all networks."""
    return tuple(specs.PRESETS)


@users_input()
def build(name: str, **arguments: Any) -> tf.keras.Model:
    """Builds a network by its name.

    Args:
        name: one of `names()`.
        **arguments: arguments of that builder. A list, as in JSON, counts as
            a tuple.

    Raises:
        ValueError: if there is no such network or argument.
    """
    if name not in names():
        raise ValueError(
            f"`name` must be a network of lambdanet_tf.models. Received: "
            f"{name!r}.{did_you_mean(str(name), names())} The networks are: "
            f"{', '.join(names())}."
        )
    arguments = {
        key: tuple(value) if isinstance(value, list) else value
        for key, value in arguments.items()
    }
    return globals()[name](**arguments)


@named(ResNet)
def LambdaResNet50(**arguments):
    """Builds LambdaResNet-50 (Table 19): 18,963,272 parameters; 160 px."""
    return ResNet(specs.RESNETS["LambdaResNet50"], **arguments)


@named(ResNet)
def LambdaResNet101(**arguments):
    """Builds LambdaResNet-101 (Table 19): 36,866,920 parameters; 192 px."""
    return ResNet(specs.RESNETS["LambdaResNet101"], **arguments)


@named(ResNet)
def LambdaResNet152(**arguments):
    """Builds LambdaResNet-152 (Table 19): 51,404,696 parameters; 288 px."""
    return ResNet(specs.RESNETS["LambdaResNet152"], **arguments)


@named(ResNet)
def LambdaResNet200(**arguments):
    """Builds LambdaResNet-200 (Table 19): 57,993,112 parameters; 320 px."""
    return ResNet(specs.RESNETS["LambdaResNet200"], **arguments)


@named(ResNet)
def LambdaResNet270(**arguments):
    """Builds LambdaResNet-270 (Table 19): 81,366,248 parameters; 256 px."""
    return ResNet(specs.RESNETS["LambdaResNet270"], **arguments)


@named(ResNet)
def LambdaResNet350(**arguments):
    """Builds LambdaResNet-350 (Table 19): 105,475,176 parameters; 320 px."""
    return ResNet(specs.RESNETS["LambdaResNet350"], **arguments)


@named(ResNet)
def LambdaResNet420(**arguments):
    """Builds LambdaResNet-420 (Table 19): 124,438,664 parameters; 320 px."""
    return ResNet(specs.RESNETS["LambdaResNet420"], **arguments)


@named(ResNet)
def LambdaResNet50C4(**arguments):
    """Builds LambdaResNet-50-C4 (Table 19): 16,242,072 parameters; 160 px."""
    return ResNet(specs.RESNETS["LambdaResNet50C4"], **arguments)


@named(ResNet)
def LambdaResNet101C4(**arguments):
    """Builds LambdaResNet-101-C4 (Table 19): 25,982,120 parameters; 192 px."""
    return ResNet(specs.RESNETS["LambdaResNet101C4"], **arguments)


@named(ResNet)
def LambdaResNet152C4(**arguments):
    """Builds LambdaResNet-152-C4 (Table 19): 35,077,496 parameters; 288 px."""
    return ResNet(specs.RESNETS["LambdaResNet152C4"], **arguments)


@named(ResNet)
def LambdaResNet200C4(**arguments):
    """Builds LambdaResNet-200-C4 (Table 19): 41,665,912 parameters; 320 px."""
    return ResNet(specs.RESNETS["LambdaResNet200C4"], **arguments)


@named(ResNet)
def LambdaResNet270C4(**arguments):
    """Builds LambdaResNet-270-C4 (Table 19): 55,786,968 parameters; 256 px."""
    return ResNet(specs.RESNETS["LambdaResNet270C4"], **arguments)


@named(ResNet)
def LambdaResNet350C4(**arguments):
    """Builds LambdaResNet-350-C4 (Table 19): 69,555,336 parameters; 320 px."""
    return ResNet(specs.RESNETS["LambdaResNet350C4"], **arguments)


@named(ResNet)
def LambdaResNet420C4(**arguments):
    """Builds LambdaResNet-420-C4 (Table 19): 81,443,704 parameters; 320 px."""
    return ResNet(specs.RESNETS["LambdaResNet420C4"], **arguments)


@named(ResNet)
def ResNetRS50(**arguments):
    """Builds ResNet-RS-50, a baseline: 35,691,912 parameters; 160 px."""
    return ResNet(specs.RESNETS["ResNetRS50"], **arguments)


@named(ResNet)
def ResNetRS101(**arguments):
    """Builds ResNet-RS-101, a baseline: 63,618,696 parameters; 192 px."""
    return ResNet(specs.RESNETS["ResNetRS101"], **arguments)


@named(ResNet)
def ResNetRS152(**arguments):
    """Builds ResNet-RS-152, a baseline: 86,621,576 parameters; 288 px."""
    return ResNet(specs.RESNETS["ResNetRS152"], **arguments)


@named(ResNet)
def ResNetRS200(**arguments):
    """Builds ResNet-RS-200, a baseline: 93,209,992 parameters; 320 px."""
    return ResNet(specs.RESNETS["ResNetRS200"], **arguments)


@named(ResNet)
def ResNetRS270(**arguments):
    """Builds ResNet-RS-270, a baseline: 129,861,448 parameters; 256 px."""
    return ResNet(specs.RESNETS["ResNetRS270"], **arguments)


@named(ResNet)
def ResNetRS350(**arguments):
    """Builds ResNet-RS-350, a baseline: 163,956,168 parameters; 320 px."""
    return ResNet(specs.RESNETS["ResNetRS350"], **arguments)


@named(ResNet)
def ResNetRS420(**arguments):
    """Builds ResNet-RS-420, a baseline: 191,891,656 parameters; 320 px."""
    return ResNet(specs.RESNETS["ResNetRS420"], **arguments)


@named(ResNet)
def ResNet50(*, pattern=None, **arguments):
    """Builds ResNet-50, with lambda or attention layers in any stage.

    It builds the networks of Tables 3, 4 and 8 to 12: 25,557,032 parameters;
    images of 224 pixels; feature maps "c2" to "c5".

    Args:
        pattern: a letter for each of c2 to c5: C for convolutions, L for
            lambda layers, A, S and X for global, local and axial attention, P
            for convolutions in parallel with global attention. None for
            "CCCC", or if you pass `stages` with one letter per block.
        **arguments: as in `lambdanet_tf.models.ResNet`.

    Raises:
        ValueError: as in `ResNet`, and if both `pattern` and `stages` are set.
    """
    if pattern is not None and "stages" in arguments:
        raise ValueError(
            "Pass only one of `pattern` and `stages`: both define the blocks. "
            f"Received: pattern={pattern!r}, stages={arguments['stages']!r}."
        )
    if pattern is not None:
        blocks = specs.TABLE_19[0].blocks
        arguments["stages"] = specs.uniform_stages(pattern, blocks)
    return ResNet(specs.RESNETS["ResNet50"], **arguments)


@named(ResNet)
def LambdaResNetSmall(*, input_shape=_GRAY_8, classes=10, **arguments):
    """Builds a hybrid for small images: 568,154 parameters; 8 px."""
    if input_shape is _GRAY_8 and arguments.get("input_tensor") is not None:
        input_shape = None
    return ResNet(
        specs.RESNETS["LambdaResNetSmall"],
        input_shape=input_shape,
        classes=classes,
        **arguments,
    )


@named(ResNet)
def LambdaResNetSmall28(*, input_shape=_GRAY_28, classes=10, **arguments):
    """Builds a hybrid for MNIST images: 426,090 parameters; 28 px."""
    if input_shape is _GRAY_28 and arguments.get("input_tensor") is not None:
        input_shape = None
    return ResNet(
        specs.RESNETS["LambdaResNetSmall28"],
        input_shape=input_shape,
        classes=classes,
        **arguments,
    )


@named(ResNet)
def LambdaResNet26T(**arguments):
    """Builds timm's `lambda_resnet26t`: 10,958,272 parameters; 256 px."""
    return ResNet(specs.RESNETS["LambdaResNet26T"], **arguments)


@named(ResNet)
def LambdaResNet50TS(**arguments):
    """Builds timm's `lambda_resnet50ts`: 21,536,832 parameters; 256 px."""
    return ResNet(specs.RESNETS["LambdaResNet50TS"], **arguments)


@named(ResNet)
def LambdaResNet26RPT256(**arguments):
    """Builds timm's `lambda_resnet26rpt_256`: 10,988,688 parameters; 256 px."""
    return ResNet(specs.RESNETS["LambdaResNet26RPT256"], **arguments)


@named(MobileNet)
def MobileNetV2(**arguments):
    """Builds MobileNetV2: 3,504,872 parameters; 224 px."""
    return MobileNet(specs.MOBILENETS["MobileNetV2"], **arguments)


@named(MobileNet)
def LambdaMobileNetV2(**arguments):
    """Builds MobileNetV2 of Table 17: 3,236,824 parameters; 224 px."""
    return MobileNet(specs.MOBILENETS["LambdaMobileNetV2"], **arguments)
