"""What is timed on a GPU: layers and training steps, without TensorFlow.

A layer is timed whole: projections, normalization, content and position
part. Every algorithm that `auto` may choose is there for every geometry, with
gradients in bfloat16 and forward alone in float32; what other packages compute
is there where it can be computed.
"""

import dataclasses

from benchmarks.tpu.programs import Program


@dataclasses.dataclass(frozen=True)
class Entry:
    """A program and its place in the tables."""

    group: str  # what it is compared with: programs of a group take turns
    contestant: str  # algorithm, or "step"
    program: Program
    peer: str | None = None  # timm's name of the same network


# Map side, channels, scope and batch; with 4 heads and 16 key channels.
LAYERS = (
    (14, 256, 23, 64),
    (56, 64, 23, 32),
    (28, 128, 7, 32),
    (28, 128, 23, 32),
    (14, 256, 7, 64),
    (56, 64, 7, 32),
    (7, 512, None, 128),
    (28, 256, None, 32),
    (14, 512, None, 64),
    (56, 128, 23, 32),
)
# Beyond these limits they take gigabytes, or minutes to tune.
EINSUM_LIMIT = 28
CONVOLUTION_LIMIT = 7


def _contestants(side, scope, training):
    names = ["lambda_first", "query_first"]
    if training and side <= EINSUM_LIMIT:
        names.append("einsum")
    if training and scope and scope <= CONVOLUTION_LIMIT:
        names.append("conv2d")
    return names


def _layers(training, kind, precision):
    for side, filters, scope, batch in LAYERS:
        group = (
            f"{side}x{side}, d={filters}, scope {scope or 'global'}, "
            f"batch {batch}, {kind}"
        )
        for name in _contestants(side, scope, training):
            changes = {"filters": filters, "scope": scope}
            changes["implementation"] = name
            place = side, batch, precision, training
            yield Entry(group, name, Program(name, "", changes, *place))


def _step(name, recipe, changes, image_size=224, peer=None):
    program = Program(name, recipe, changes, image_size, batch=64)
    return Entry(f"{program.key}, training, bfloat16", "step", program, peer)


NETWORKS = (
    *(
        _step(
            f"ResNet50 {x}", "imagenet_90", {"model_arguments": {"pattern": x}}
        )
        for x in ("CCCC", "LLLL")
    ),
    _step("LambdaResNet50", "imagenet_350", {"model": "LambdaResNet50"}),
    _step(
        "LambdaResNet26T",
        "imagenet_350",
        {"model": "LambdaResNet26T"},
        256,
        "lambda_resnet26t",
    ),
)
ENTRIES = (
    *_layers(True, "training, bfloat16", "mixed_bfloat16"),
    *_layers(False, "forward, float32", "float32"),
    *NETWORKS,
)
