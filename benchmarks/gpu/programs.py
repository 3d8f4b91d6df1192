"""What is timed on a GPU: layers and training steps, without TensorFlow.

A layer is timed whole: projections, normalization, content and position
part. Every algorithm that `auto` may choose is there for every geometry, with
gradients in bfloat16 and forward alone in float32; what other packages compute
is there where it can be computed.
"""

import dataclasses

from benchmarks.tpu.programs import Program


@dataclasses.dataclass(frozen=True)
class Layer:
    """A lambda layer on square maps: 4 heads, 16 key channels."""

    image_size: int
    filters: int
    scope: int | None
    batch: int

    @property
    def name(self):
        scope = self.scope or "global"
        return (
            f"{self.image_size}x{self.image_size}, d={self.filters}, "
            f"scope {scope}, batch {self.batch}"
        )


@dataclasses.dataclass(frozen=True)
class Entry:
    """A program and its place in the tables.

    Attributes:
        group: what it is compared with: programs of a group take turns.
        contestant: algorithm, or `"step"`.
        program: `Program`.
        layer: `Layer`, or None for a network.
        peer: timm's name of the same network, or None.
    """

    group: str
    contestant: str
    program: Program
    layer: Layer | None = None
    peer: str | None = None


LAYERS = (
    Layer(14, 256, 23, 64),
    Layer(56, 64, 23, 32),
    Layer(28, 128, 7, 32),
    Layer(28, 128, 23, 32),
    Layer(14, 256, 7, 64),
    Layer(56, 64, 7, 32),
    Layer(7, 512, None, 128),
    Layer(28, 256, None, 32),
    Layer(14, 512, None, 64),
    Layer(56, 128, 23, 32),
)
ALGORITHMS = ("lambda_first", "query_first")
# Beyond these limits they take gigabytes, or minutes to tune.
EINSUM_LIMIT = 28
CONVOLUTION_LIMIT = 7
PHASES = (("training", "bfloat16"), ("forward", "float32"))
POLICIES = {"bfloat16": "mixed_bfloat16", "float32": "float32"}


def _contestants(layer, phase):
    names = list(ALGORITHMS)
    if phase == "training" and layer.image_size <= EINSUM_LIMIT:
        names.append("einsum")
    if phase == "training" and (layer.scope or 99) <= CONVOLUTION_LIMIT:
        names.append("conv2d")
    return names


def _layer_entries():
    for phase, dtype in PHASES:
        for layer in LAYERS:
            for name in _contestants(layer, phase):
                arguments = {
                    "filters": layer.filters,
                    "scope": layer.scope,
                    "implementation": name,
                }
                program = Program(
                    name,
                    "",
                    arguments,
                    layer.image_size,
                    layer.batch,
                    POLICIES[dtype],
                    phase == "training",
                )
                group = f"{layer.name}, {phase}, {dtype}"
                yield Entry(group, name, program, layer)


def _step(name, recipe, arguments, image_size, peer=None):
    program = Program(name, recipe, arguments, image_size, batch=64)
    group = f"{program.key}, training, bfloat16"
    return Entry(group, "step", program, peer=peer)


def _vanilla(pattern):
    arguments = {"model_arguments": {"pattern": pattern}}
    return _step(f"ResNet50 {pattern}", "imagenet_90", arguments, 224)


def _network(name, image_size, peer=None):
    return _step(name, "imagenet_350", {"model": name}, image_size, peer)


NETWORKS = (
    _vanilla("CCCC"),
    _vanilla("LLLL"),
    _network("LambdaResNet50", 224),
    _network("LambdaResNet26T", 256, "lambda_resnet26t"),
)
ENTRIES = (*_layer_entries(), *NETWORKS)
