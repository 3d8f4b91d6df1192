"""The published networks by name, in the manner of `keras.applications`.

Each is a row of a table of `lambdanet_tf.specs`.
"""

import inspect
import re

from lambdanet_tf import specs
from lambdanet_tf.arguments import checked_arguments
from lambdanet_tf.models.mobilenet import MobileNet
from lambdanet_tf.models.resnet import ResNet

_HEADING = re.compile(r"\n(?:Args|Own arguments):\n")
_ENTRY = re.compile(r"^    (\*{0,2}\w+): ", re.MULTILINE)


def _documented(builder, common, spec, **defaults):
    """Shows the arguments that a builder passes on, and checks them.

    Args:
        builder: of the network; arguments in its docstring replace those of
            the common ones.
        common: `ResNet` or `MobileNet`, which the builder calls.
        spec: of the network.
        **defaults: where they differ from those of `common`.
    """
    own = [
        parameter
        for parameter in inspect.signature(builder).parameters.values()
        if parameter.kind is parameter.KEYWORD_ONLY
    ]
    _, *passed_on, changes = inspect.signature(common).parameters.values()
    passed_on = [
        p.replace(default=defaults.get(p.name, p.default)) for p in passed_on
    ]
    builder.__signature__ = inspect.Signature([*passed_on, *own, changes])
    arguments = _arguments(ResNet) | _arguments(common) | _arguments(builder)
    del arguments["spec"]
    changes = arguments.pop("**changes")
    summary = inspect.cleandoc(builder.__doc__)
    summary = _HEADING.split(summary)[0].rstrip()
    returned = inspect.cleandoc(ResNet.__doc__).partition("\n\nReturns:")[2]
    builder.__doc__ = (
        f"{summary}\n\nSize: {spec.parameters:,} trainable parameters with the "
        f"defaults. Recommended image size: {spec.image_size}.\n\nArgs:\n"
        f"{''.join(arguments.values())}{changes}\nReturns:{returned}"
    )
    return checked_arguments(builder)


def _arguments(builder):
    """The entries of a docstring's arguments, by name."""
    text = _HEADING.split(inspect.cleandoc(builder.__doc__))[-1]
    text = text.partition("\n\n")[0]
    starts = [match.start() for match in _ENTRY.finditer(text)]
    ends = [*starts[1:], len(text)][: len(starts)]
    entries = [text[i:j].rstrip() for i, j in zip(starts, ends, strict=True)]
    return {_ENTRY.match(x)[1]: f"{x}\n" for x in entries}


def _builder(spec, summary):
    """Makes the builder of a row of the table."""
    common = ResNet if isinstance(spec, specs.ResNetSpec) else MobileNet

    def build(*args, **kwargs):
        return common(spec, *args, **kwargs)

    build.__name__ = build.__qualname__ = spec.name
    build.__module__ = __name__
    build.__doc__ = summary
    return _documented(build, common, spec)


def _lambda_resnet(depth):
    return _builder(
        specs.RESNETS[f"LambdaResNet{depth}"],
        f"Builds LambdaResNet-{depth}: lambda layers in some blocks of c4 and "
        "all of c5.",
    )


def _lambda_resnet_c4(depth):
    return _builder(
        specs.RESNETS[f"LambdaResNet{depth}C4"],
        f"Builds LambdaResNet-{depth} with lambda layers in every block of c4 "
        "and c5.",
    )


def _resnet_rs(depth):
    return _builder(
        specs.RESNETS[f"ResNetRS{depth}"],
        f"Builds ResNet-RS-{depth}, the baseline; without its "
        "squeeze-and-excitation by `se_ratio=0`.",
    )


LambdaResNet50 = _lambda_resnet(50)
LambdaResNet101 = _lambda_resnet(101)
LambdaResNet152 = _lambda_resnet(152)
LambdaResNet200 = _lambda_resnet(200)
LambdaResNet270 = _lambda_resnet(270)
LambdaResNet350 = _lambda_resnet(350)
LambdaResNet420 = _lambda_resnet(420)
LambdaResNet50C4 = _lambda_resnet_c4(50)
LambdaResNet101C4 = _lambda_resnet_c4(101)
LambdaResNet152C4 = _lambda_resnet_c4(152)
LambdaResNet200C4 = _lambda_resnet_c4(200)
LambdaResNet270C4 = _lambda_resnet_c4(270)
LambdaResNet350C4 = _lambda_resnet_c4(350)
LambdaResNet420C4 = _lambda_resnet_c4(420)
ResNetRS50 = _resnet_rs(50)
ResNetRS101 = _resnet_rs(101)
ResNetRS152 = _resnet_rs(152)
ResNetRS200 = _resnet_rs(200)
ResNetRS270 = _resnet_rs(270)
ResNetRS350 = _resnet_rs(350)
ResNetRS420 = _resnet_rs(420)
LambdaResNet26T = _builder(
    specs.LAMBDA_RESNET_26T,
    "Builds timm's `lambda_resnet26t`, with weights: 26 layers, local lambda "
    "layers in c4 and c5.",
)
LambdaResNet50TS = _builder(
    specs.LAMBDA_RESNET_50TS,
    "Builds timm's `lambda_resnet50ts`, with weights: 50 layers, local lambda "
    "layers in c3 to c5, SiLU.",
)
LambdaResNet26RPT256 = _builder(
    specs.LAMBDA_RESNET_26RPT_256,
    "Builds timm's `lambda_resnet26rpt_256`, with weights: 26 layers, global "
    "lambda layers in c4 and c5.",
)
LambdaMobileNetV2 = _builder(
    specs.LAMBDA_MOBILENET_V2,
    "Builds MobileNetV2 with the 10th and 16th blocks as lambda blocks (Table "
    "17).",
)


def _resnet50(*args, pattern=None, **changes):
    """Builds ResNet-50 with any stages as lambda or attention stages.

    The networks of Tables 3, 4 and 8 to 12.

    Own arguments:
        pattern: a letter for each of c2 to c5: C for convolutions, L for
            lambda layers, A, S and X for global, local and axial attention, P
            for convolutions beside global attention. None for "CCCC", or for
            the `stages` among the changes, a letter per block.
    """
    if pattern is not None and "stages" in changes:
        raise ValueError(
            "`pattern` and `stages` both say what the blocks are; give one. "
            f"Received: pattern={pattern!r}, stages={changes['stages']!r}."
        )
    stages = specs.uniform_stages(pattern or "CCCC", specs.TABLE_19[0].blocks)
    return ResNet(specs.RESNET_50, *args, **{"stages": stages, **changes})


def _mobilenet_v2(*args, lambda_blocks=(), **changes):
    """Builds MobileNetV2 with any blocks as lambda blocks.

    Own arguments:
        lambda_blocks: their numbers, from 1 to 17.
    """
    changes["lambda_blocks"] = lambda_blocks
    return MobileNet(specs.MOBILENET_V2, *args, **changes)


def _lambda_resnet_small(*args, **changes):
    """Builds a small hybrid for images of 8 to 32 pixels; not the paper's.

    By default for 8x8 gray images of 10 classes, such as handwritten digits.

    Own arguments:
        input_shape: (height, width, channels). Height and width can be None
            while `scope` is a number, and the network takes images of any
            size.
    """
    spec = specs.LAMBDA_RESNET_SMALL
    given = inspect.signature(ResNet).bind_partial(spec, *args, **changes)
    if not {"input_shape", "input_tensor"} & given.arguments.keys():
        changes["input_shape"] = (8, 8, 1)
    if "classes" not in given.arguments:
        changes["classes"] = 10
    return ResNet(spec, *args, **changes)


def _named(name, function, common, spec, **defaults):
    function.__name__ = function.__qualname__ = name
    return _documented(function, common, spec, **defaults)


ResNet50 = _named("ResNet50", _resnet50, ResNet, specs.RESNET_50)
MobileNetV2 = _named(
    "MobileNetV2", _mobilenet_v2, MobileNet, specs.MOBILENET_V2
)
LambdaResNetSmall = _named(
    "LambdaResNetSmall",
    _lambda_resnet_small,
    ResNet,
    specs.LAMBDA_RESNET_SMALL,
    input_shape=(8, 8, 1),
    classes=10,
)
