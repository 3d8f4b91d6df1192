"""What is compiled for a TPU: a table, without TensorFlow."""

import dataclasses
import itertools
import random
from collections.abc import Mapping
from typing import Any

GIB = 2**30
POLICY = "mixed_bfloat16"  # Keras', of all that is compiled for a TPU


@dataclasses.dataclass(frozen=True)
class Chip:
    """A kind of TPU.

    Attributes:
        topology: as the compiler names it.
        hbm: bytes of memory of a core. Source: Google's documentation of
            Cloud TPU; a chip of v3 has two cores that share nothing.
        flops: operations per second of a core in bfloat16, by the same.
        bandwidth: bytes per second of a core's memory, by the same.
    """

    topology: str
    hbm: int
    flops: float
    bandwidth: float


CHIPS = {
    "v3": Chip("v3:2x2", 16 * GIB, 61.5e12, 450e9),
    "v4": Chip("v4:2x2x1", 32 * GIB, 275e12, 1228e9),
    "v5e": Chip("v5e:2x2", 16 * GIB, 197e12, 819e9),
    "v5p": Chip("v5p:2x2x1", 95 * GIB, 459e12, 2765e9),
    "v6e": Chip("v6e:2x2", 32 * GIB, 918e12, 1640e9),
}


@dataclasses.dataclass(frozen=True)
class Program:
    """A step of a recipe, or of a single layer, on one core.

    Attributes:
        name: of the network, or the implementation of a layer.
        recipe: row of `RECIPES`; empty for a single layer.
        changes: fields of the recipe to replace, or the layer's arguments.
        image_size: height and width of the images, or of the layer's map.
        batch: images of a core.
        precision: Keras' policy.
        training: whether a layer's gradients are computed too.
    """

    name: str
    recipe: str
    changes: Mapping[str, Any]
    image_size: int
    batch: int
    precision: str = POLICY
    training: bool = True

    @property
    def key(self):
        return f"{self.name}, {self.image_size} px, batch {self.batch}"

    @property
    def case_of_all(self):
        """The case of its compilations, but for the chip."""
        place = {"px": self.image_size, "batch": self.batch}
        return {"name": self.name, **place}

    def case(self, chip):
        """What is recorded as the case of its compilation."""
        return {**self.case_of_all, "chip": chip}


BATCH = 32  # of a core: the paper's 4096 images on 128 cores
TIMED = 128  # of a core, where the paper timed steps: 1024 images on 8 cores


def _hybrid(depth, image_size, implementation="auto", batch=BATCH):
    name = f"LambdaResNet{depth}"
    changes = {"model": name}
    if implementation != "auto":
        changes["model_arguments"] = {"implementation": implementation}
        name += f" {implementation}"
    if depth == 200:  # Not in Table 20; the rates are those of depth 152.
        changes |= {
            "dropout_rate": 0.3,
            "drop_path_rate": 0.1,
            "randaugment_magnitude": 15.0,
        }
    return Program(name, "imagenet_350", changes, image_size, batch)


def _vanilla(pattern, implementation="auto", batch=BATCH):
    name, arguments = f"ResNet50 {pattern}", {"pattern": pattern}
    if implementation != "auto":
        arguments["implementation"] = implementation
        name += f" {implementation}"
    changes = {"model_arguments": arguments}
    return Program(name, "imagenet_90", changes, 224, batch)


def _mobile(name):
    return Program(name, "mobilenet_350", {"model": name}, 224, BATCH)


def _layer(implementation, image_size, filters, batch=BATCH, **changes):
    named = [f"{name}={value}" for name, value in changes.items()]
    return Program(
        ", ".join([f"{implementation}, d={filters}", *named]),
        "",
        {"filters": filters, "scope": 23, "implementation": implementation}
        | changes,
        image_size,
        batch,
    )


# Table 12.
PATTERNS = ("CCCC", "LLLL", "CCCL", "CCLL", "CLLL", "LCCC", "LLCC", "LLLC")

# Sizes of LambdaResNets by depth: Table 20, but for depth 200.
HYBRIDS = tuple(
    (depth, image_size)
    for depth, sizes in {
        50: (128, 160),
        101: (160, 192),
        152: (192, 224, 256, 288),
        200: (320,),
        270: (256,),
        350: (256, 288, 320),
        420: (320,),
    }.items()
    for image_size in sizes
)

# Those that the paper timed with 128 images on a core are compiled with as
# many as well, where that is quick.
NETWORKS = (
    *(_hybrid(*place) for place in HYBRIDS),
    _hybrid(50, 128, batch=TIMED),
    _hybrid(152, 224, batch=TIMED),
    _mobile("MobileNetV2"),
    _mobile("LambdaMobileNetV2"),
    *map(_vanilla, PATTERNS),
    *(_vanilla(pattern, batch=TIMED) for pattern in PATTERNS),
)

# The same with the order of summation of the paper's listing, for
# calibration.
PAPERS_ORDER = tuple(
    program
    for batch in (TIMED, BATCH)
    for program in (
        *(_vanilla(pattern, "einsum", batch) for pattern in PATTERNS[1:]),
        *(_hybrid(*x, "einsum", batch) for x in HYBRIDS if x != (200, 320)),
    )
)

IMPLEMENTATIONS = (
    "auto", "query_first", "lambda_first", "fourier_tpu", "fourier", "conv2d",
    "depthwise", "einsum",
)  # fmt: skip
# What `auto` takes on a TPU, but `conv2d`, which compiles for minutes.
DRAWN_ALGORITHMS = ("query_first", "lambda_first", "fourier_tpu")
# As in c4, in its first block and in c2 of a ResNet-50 for 224 px.
LAYERS = tuple(
    _layer(implementation, image_size, filters)
    for image_size, filters in ((14, 256), (28, 256), (56, 64))
    for implementation in IMPLEMENTATIONS
) + tuple(
    # On larger maps the best algorithm depends on the batch.
    _layer(implementation, image_size, filters, TIMED)
    for image_size, filters in ((28, 256), (56, 64))
    for implementation in ("auto", *DRAWN_ALGORITHMS, "einsum")
)


def _draw(generator):
    """Draws a layer; returns it by each of `DRAWN_ALGORITHMS`."""
    while True:
        side = round(10 * 6.4 ** generator.random())
        heads = generator.choice([4, 8])
        filters = heads * generator.choice([16, 32, 64, 128])
        batch = generator.choice([8, 32, 128])
        changes = {
            "scope": generator.choice([None, 7, 15, 23]),
            "num_heads": heads,
            "key_dim": generator.choice([8, 16, 32]),
            "intra_depth": generator.choice([1, 1, 1, 4]),
        }
        lambdas = filters // heads * changes["key_dim"]
        if batch * side**2 * lambdas <= DRAWN_FLOATS:
            return tuple(
                _layer(implementation, side, filters, batch, **changes)
                for implementation in DRAWN_ALGORITHMS
            )


# For `benchmarks.tpu.choices`.
SEED, NUMBER = 7, 20
DRAWN_FLOATS = 1e8  # of position lambdas in a batch
_generator = random.Random(SEED)
DRAWN = tuple(_draw(_generator) for _ in range(NUMBER))

PROGRAMS = {
    program.key: program
    for program in (
        *NETWORKS,
        *PAPERS_ORDER,
        *LAYERS,
        *itertools.chain.from_iterable(DRAWN),
    )
}
