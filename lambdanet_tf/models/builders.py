"""The networks by name, in the manner of `keras.applications`.

Each is a value of `lambdanet_tf.specs.PRESETS`. All take the arguments of
`lambdanet_tf.models.Network`, by position or by name, and every attribute of
their spec by keyword, as `inspect.signature` and `help` show them.
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
    """Returns the names of all networks.

    Returns:
        A tuple of texts, the keys of `lambdanet_tf.specs.PRESETS`.

    Examples:
        >>> "LambdaResNet50" in names()
        True
    """
    return tuple(specs.PRESETS)


@users_input()
def build(name: str, **arguments: Any) -> tf.keras.Model:
    """Builds a network by its name.

    Args:
        name: one of `names()`.
        **arguments: of the builder of that name; lists, as JSON has them,
            count as tuples.

    Returns:
        What the builder returns.

    Raises:
        ValueError: if there is no such network, or it has no such argument.

    Examples:
        >>> build("LambdaResNetSmall", classes=3).output_shape
        (None, 3)
    """
    if name not in names():
        raise ValueError(
            f"`name` must be a network of lambdanet_tf.models. Received: "
            f"{name!r}.{did_you_mean(str(name), names())} There are: "
            f"{', '.join(names())}."
        )
    arguments = {
        key: tuple(value) if isinstance(value, list) else value
        for key, value in arguments.items()
    }
    return globals()[name](**arguments)


@named(ResNet)
def LambdaResNet50(**arguments):
    """Builds LambdaResNet-50: 1 lambda block in c4, and all of c5.

    18,963,272 parameters; images of 160 pixels; feature maps "c2" to "c5".

    Arguments, errors and the `Network` returned: see `ResNet`.

    Examples:
        >>> LambdaResNet50(classes=5).output_shape
        (None, 5)
    """
    return ResNet(specs.RESNETS["LambdaResNet50"], **arguments)


@named(ResNet)
def LambdaResNet101(**arguments):
    """Builds LambdaResNet-101: 3 lambda blocks in c4, and all of c5.

    36,866,920 parameters; images of 192 pixels; feature maps "c2" to "c5".

    Arguments, errors and the `Network` returned: see `ResNet`.

    Examples:
        >>> LambdaResNet101(classes=5).output_shape
        (None, 5)
    """
    return ResNet(specs.RESNETS["LambdaResNet101"], **arguments)


@named(ResNet)
def LambdaResNet152(**arguments):
    """Builds LambdaResNet-152: 6 lambda blocks in c4, and all of c5.

    51,404,696 parameters; images of 288 pixels; feature maps "c2" to "c5".

    Arguments, errors and the `Network` returned: see `ResNet`.

    Examples:
        >>> LambdaResNet152(classes=5).output_shape
        (None, 5)
    """
    return ResNet(specs.RESNETS["LambdaResNet152"], **arguments)


@named(ResNet)
def LambdaResNet200(**arguments):
    """Builds LambdaResNet-200: 6 lambda blocks in c4, and all of c5.

    57,993,112 parameters; images of 320 pixels; feature maps "c2" to "c5".

    Arguments, errors and the `Network` returned: see `ResNet`.

    Examples:
        >>> LambdaResNet200(classes=5).output_shape
        (None, 5)
    """
    return ResNet(specs.RESNETS["LambdaResNet200"], **arguments)


@named(ResNet)
def LambdaResNet270(**arguments):
    """Builds LambdaResNet-270: 6 lambda blocks in c4, and all of c5.

    81,366,248 parameters; images of 256 pixels; feature maps "c2" to "c5".

    Arguments, errors and the `Network` returned: see `ResNet`.

    Examples:
        >>> LambdaResNet270(classes=5).output_shape
        (None, 5)
    """
    return ResNet(specs.RESNETS["LambdaResNet270"], **arguments)


@named(ResNet)
def LambdaResNet350(**arguments):
    """Builds LambdaResNet-350: 6 lambda blocks in c4, and all of c5.

    105,475,176 parameters; images of 320 pixels; feature maps "c2" to
    "c5".

    Arguments, errors and the `Network` returned: see `ResNet`.

    Examples:
        >>> LambdaResNet350(classes=5).output_shape
        (None, 5)
    """
    return ResNet(specs.RESNETS["LambdaResNet350"], **arguments)


@named(ResNet)
def LambdaResNet420(**arguments):
    """Builds LambdaResNet-420: 8 lambda blocks in c4, and all of c5.

    124,438,664 parameters; images of 320 pixels; feature maps "c2" to
    "c5".

    Arguments, errors and the `Network` returned: see `ResNet`.

    Examples:
        >>> LambdaResNet420(classes=5).output_shape
        (None, 5)
    """
    return ResNet(specs.RESNETS["LambdaResNet420"], **arguments)


@named(ResNet)
def LambdaResNet50C4(**arguments):
    """Builds LambdaResNet-50-C4: all of c4 and c5 are lambda blocks.

    16,242,072 parameters; images of 160 pixels; feature maps "c2" to "c5".

    Arguments, errors and the `Network` returned: see `ResNet`.

    Examples:
        >>> LambdaResNet50C4(classes=5).output_shape
        (None, 5)
    """
    return ResNet(specs.RESNETS["LambdaResNet50C4"], **arguments)


@named(ResNet)
def LambdaResNet101C4(**arguments):
    """Builds LambdaResNet-101-C4: all of c4 and c5 are lambda blocks.

    25,982,120 parameters; images of 192 pixels; feature maps "c2" to "c5".

    Arguments, errors and the `Network` returned: see `ResNet`.

    Examples:
        >>> LambdaResNet101C4(classes=5).output_shape
        (None, 5)
    """
    return ResNet(specs.RESNETS["LambdaResNet101C4"], **arguments)


@named(ResNet)
def LambdaResNet152C4(**arguments):
    """Builds LambdaResNet-152-C4: all of c4 and c5 are lambda blocks.

    35,077,496 parameters; images of 288 pixels; feature maps "c2" to "c5".

    Arguments, errors and the `Network` returned: see `ResNet`.

    Examples:
        >>> LambdaResNet152C4(classes=5).output_shape
        (None, 5)
    """
    return ResNet(specs.RESNETS["LambdaResNet152C4"], **arguments)


@named(ResNet)
def LambdaResNet200C4(**arguments):
    """Builds LambdaResNet-200-C4: all of c4 and c5 are lambda blocks.

    41,665,912 parameters; images of 320 pixels; feature maps "c2" to "c5".

    Arguments, errors and the `Network` returned: see `ResNet`.

    Examples:
        >>> LambdaResNet200C4(classes=5).output_shape
        (None, 5)
    """
    return ResNet(specs.RESNETS["LambdaResNet200C4"], **arguments)


@named(ResNet)
def LambdaResNet270C4(**arguments):
    """Builds LambdaResNet-270-C4: all of c4 and c5 are lambda blocks.

    55,786,968 parameters; images of 256 pixels; feature maps "c2" to "c5".

    Arguments, errors and the `Network` returned: see `ResNet`.

    Examples:
        >>> LambdaResNet270C4(classes=5).output_shape
        (None, 5)
    """
    return ResNet(specs.RESNETS["LambdaResNet270C4"], **arguments)


@named(ResNet)
def LambdaResNet350C4(**arguments):
    """Builds LambdaResNet-350-C4: all of c4 and c5 are lambda blocks.

    69,555,336 parameters; images of 320 pixels; feature maps "c2" to "c5".

    Arguments, errors and the `Network` returned: see `ResNet`.

    Examples:
        >>> LambdaResNet350C4(classes=5).output_shape
        (None, 5)
    """
    return ResNet(specs.RESNETS["LambdaResNet350C4"], **arguments)


@named(ResNet)
def LambdaResNet420C4(**arguments):
    """Builds LambdaResNet-420-C4: all of c4 and c5 are lambda blocks.

    81,443,704 parameters; images of 320 pixels; feature maps "c2" to "c5".

    Arguments, errors and the `Network` returned: see `ResNet`.

    Examples:
        >>> LambdaResNet420C4(classes=5).output_shape
        (None, 5)
    """
    return ResNet(specs.RESNETS["LambdaResNet420C4"], **arguments)


@named(ResNet)
def ResNetRS50(**arguments):
    """Builds ResNet-RS-50, the convolutional baseline.

    35,691,912 parameters; images of 160 pixels; feature maps "c2" to "c5".

    Arguments, errors and the `Network` returned: see `ResNet`.

    Examples:
        >>> ResNetRS50(classes=5).output_shape
        (None, 5)
    """
    return ResNet(specs.RESNETS["ResNetRS50"], **arguments)


@named(ResNet)
def ResNetRS101(**arguments):
    """Builds ResNet-RS-101, the convolutional baseline.

    63,618,696 parameters; images of 192 pixels; feature maps "c2" to "c5".

    Arguments, errors and the `Network` returned: see `ResNet`.

    Examples:
        >>> ResNetRS101(classes=5).output_shape
        (None, 5)
    """
    return ResNet(specs.RESNETS["ResNetRS101"], **arguments)


@named(ResNet)
def ResNetRS152(**arguments):
    """Builds ResNet-RS-152, the convolutional baseline.

    86,621,576 parameters; images of 288 pixels; feature maps "c2" to "c5".

    Arguments, errors and the `Network` returned: see `ResNet`.

    Examples:
        >>> ResNetRS152(classes=5).output_shape
        (None, 5)
    """
    return ResNet(specs.RESNETS["ResNetRS152"], **arguments)


@named(ResNet)
def ResNetRS200(**arguments):
    """Builds ResNet-RS-200, the convolutional baseline.

    93,209,992 parameters; images of 320 pixels; feature maps "c2" to "c5".

    Arguments, errors and the `Network` returned: see `ResNet`.

    Examples:
        >>> ResNetRS200(classes=5).output_shape
        (None, 5)
    """
    return ResNet(specs.RESNETS["ResNetRS200"], **arguments)


@named(ResNet)
def ResNetRS270(**arguments):
    """Builds ResNet-RS-270, the convolutional baseline.

    129,861,448 parameters; images of 256 pixels; feature maps "c2" to
    "c5".

    Arguments, errors and the `Network` returned: see `ResNet`.

    Examples:
        >>> ResNetRS270(classes=5).output_shape
        (None, 5)
    """
    return ResNet(specs.RESNETS["ResNetRS270"], **arguments)


@named(ResNet)
def ResNetRS350(**arguments):
    """Builds ResNet-RS-350, the convolutional baseline.

    163,956,168 parameters; images of 320 pixels; feature maps "c2" to
    "c5".

    Arguments, errors and the `Network` returned: see `ResNet`.

    Examples:
        >>> ResNetRS350(classes=5).output_shape
        (None, 5)
    """
    return ResNet(specs.RESNETS["ResNetRS350"], **arguments)


@named(ResNet)
def ResNetRS420(**arguments):
    """Builds ResNet-RS-420, the convolutional baseline.

    191,891,656 parameters; images of 320 pixels; feature maps "c2" to
    "c5".

    Arguments, errors and the `Network` returned: see `ResNet`.

    Examples:
        >>> ResNetRS420(classes=5).output_shape
        (None, 5)
    """
    return ResNet(specs.RESNETS["ResNetRS420"], **arguments)


@named(ResNet)
def ResNet50(*, pattern=None, **arguments):
    """Builds ResNet-50, any stage with lambda or attention layers.

    The networks of Tables 3, 4 and 8 to 12. 25,557,032 parameters; images
    of 224 pixels; feature maps "c2" to "c5".

    Args:
        pattern: a letter for each of c2 to c5: C for convolutions, L for
            lambda layers, A, S and X for global, local and axial attention, P
            for convolutions in parallel with global attention. None for
            "CCCC", or for the `stages` among the arguments, a letter per block.
        **arguments: of `lambdanet_tf.models.ResNet`.

    Returns:
        A `Network`, a Keras model.

    Raises:
        ValueError: if both `pattern` and `stages` are given, and as `ResNet`.

    Examples:
        >>> ResNet50(classes=5).output_shape
        (None, 5)
    """
    if pattern is not None and "stages" in arguments:
        raise ValueError(
            "`pattern` and `stages` both say what the blocks are; give one. "
            f"Received: pattern={pattern!r}, stages={arguments['stages']!r}."
        )
    if pattern is not None:
        blocks = specs.TABLE_19[0].blocks
        arguments["stages"] = specs.uniform_stages(pattern, blocks)
    return ResNet(specs.RESNETS["ResNet50"], **arguments)


@named(ResNet)
def LambdaResNetSmall(*, input_shape=_GRAY_8, classes=10, **arguments):
    """Builds a small hybrid for images of 8 to 32 pixels; not the paper's.

    568,154 parameters; gray images of 8 pixels, 10 classes; feature maps
    "c2" to "c4".

    Arguments, errors and the `Network` returned: see `ResNet`.

    Examples:
        >>> LambdaResNetSmall(classes=5).output_shape
        (None, 5)
    """
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
    """Builds a hybrid for images of MNIST's size; not the paper's.

    426,090 parameters; gray images of 28 pixels, 10 classes; feature maps
    "c2" to "c4".

    Arguments, errors and the `Network` returned: see `ResNet`.

    Examples:
        >>> LambdaResNetSmall28(classes=5).output_shape
        (None, 5)
    """
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
    """Builds timm's `lambda_resnet26t`: local lambda layers in c4, c5.

    10,958,272 parameters; published weights; images of 256 pixels; feature
    maps "c2" to "c5".

    Arguments, errors and the `Network` returned: see `ResNet`.

    Examples:
        >>> LambdaResNet26T(classes=5).output_shape
        (None, 5)
    """
    return ResNet(specs.RESNETS["LambdaResNet26T"], **arguments)


@named(ResNet)
def LambdaResNet50TS(**arguments):
    """Builds timm's `lambda_resnet50ts`: local ones in c3 to c5, SiLU.

    21,536,832 parameters; published weights; images of 256 pixels; feature
    maps "c2" to "c5".

    Arguments, errors and the `Network` returned: see `ResNet`.

    Examples:
        >>> LambdaResNet50TS(classes=5).output_shape
        (None, 5)
    """
    return ResNet(specs.RESNETS["LambdaResNet50TS"], **arguments)


@named(ResNet)
def LambdaResNet26RPT256(**arguments):
    """Builds timm's `lambda_resnet26rpt_256`: global ones in c4, c5.

    10,988,688 parameters; published weights; images of 256 pixels; feature
    maps "c2" to "c5".

    Arguments, errors and the `Network` returned: see `ResNet`.

    Examples:
        >>> LambdaResNet26RPT256(classes=5).output_shape
        (None, 5)
    """
    return ResNet(specs.RESNETS["LambdaResNet26RPT256"], **arguments)


@named(MobileNet)
def MobileNetV2(**arguments):
    """Builds MobileNetV2; blocks 1 to 17 can be lambda blocks.

    3,504,872 parameters; images of 224 pixels; feature maps "c1" to "c5"
    and "head".

    Arguments, errors and the `Network` returned: see `MobileNet`.

    Examples:
        >>> MobileNetV2(classes=5).output_shape
        (None, 5)
    """
    return MobileNet(specs.MOBILENETS["MobileNetV2"], **arguments)


@named(MobileNet)
def LambdaMobileNetV2(**arguments):
    """Builds MobileNetV2 with the 10th and 16th blocks as lambda blocks.

    3,236,824 parameters; images of 224 pixels; feature maps "c1" to "c5"
    and "head".

    Arguments, errors and the `Network` returned: see `MobileNet`.

    Examples:
        >>> LambdaMobileNetV2(classes=5).output_shape
        (None, 5)
    """
    return MobileNet(specs.MOBILENETS["LambdaMobileNetV2"], **arguments)
