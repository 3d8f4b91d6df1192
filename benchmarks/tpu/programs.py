"""What is compiled for a TPU, and what results say, without TensorFlow."""

import collections
import dataclasses
import math
import re
from collections.abc import Mapping
from typing import Any

from lambdanet_tf.specs import TABLE_20

GIB = 2**30
POLICY = "mixed_bfloat16"  # Keras', of all that is compiled for a TPU

# What the compiler calls it, and bytes of a core's memory: see Google's pages
# of Cloud TPU. The two cores of a chip of v3 share nothing.
Chip = collections.namedtuple("Chip", "topology hbm")
CHIPS = {
    "v3": Chip("v3:2x2", 16 * GIB),
    "v4": Chip("v4:2x2x1", 32 * GIB),
    "v5e": Chip("v5e:2x2", 16 * GIB),
    "v5p": Chip("v5p:2x2x1", 95 * GIB),
    "v6e": Chip("v6e:2x2", 32 * GIB),
}


@dataclasses.dataclass(frozen=True)
class Program:
    """A step of a recipe on one core."""

    name: str  # of the network
    recipe: str  # row of `RECIPES`
    changes: Mapping[str, Any]  # of the recipe
    image_size: int  # height and width
    batch: int  # images of a core

    @property
    def key(self):
        return f"{self.name}, {self.image_size} px, batch {self.batch}"

    def case(self, **chip):
        place = {"px": self.image_size, "batch": self.batch}
        return {"name": self.name, **place, **chip}


BATCH = 32  # of a core: the paper's 4096 images on 128 cores
TIMED = 128  # of a core, where the paper timed steps: 1024 images on 8 cores


def hybrid(model, image_size, rates=None, batch=BATCH, **arguments):
    """A step of a LambdaResNet."""
    named = [f"{name}={value}" for name, value in arguments.items()]
    changes = {"model": model, "model_arguments": arguments, **(rates or {})}
    name = ", ".join([model, *named])
    return Program(name, "imagenet_350", changes, image_size, batch)


def mobile(model):
    return Program(model, "mobilenet_350", {"model": model}, 224, BATCH)


def vanilla(pattern, **arguments):
    """A step of a ResNet-50 of Table 12."""
    changes = {"model_arguments": {"pattern": pattern, **arguments}}
    name = " ".join(["ResNet50", pattern, *arguments.values()])
    return Program(name, "imagenet_90", changes, 224, TIMED)


# Table 12 of the paper: images per second of training on 8 cores.
PATTERNS = {"CCCC": 7240, "LLLL": 1160, "CCCL": 7160, "CCLL": 4980}
PATTERNS |= {"CLLL": 2200, "LCCC": 1880, "LLCC": 1280, "LLLC": 1160}

# Table 13: the same of networks for a larger size, with lambda layers in some
# blocks of c4, or in all.
TABLE_13 = {
    ("LambdaResNet101", 224): 4040,
    ("LambdaResNet101C4", 224): 2560,
    ("LambdaResNet152", 256): 2400,
    ("LambdaResNet152C4", 256): 1480,
}

# Of Table 20's LambdaResNet-152; of networks that this table lacks.
RATES = {"dropout_rate": 0.3, "drop_path_rate": 0.1}
RATES |= {"randaugment_magnitude": 15.0}

NETWORKS = (
    *(hybrid(f"LambdaResNet{x.depth}", x.image_size) for x in TABLE_20),
    # Tables 13, 15 and 16.
    hybrid("LambdaResNet101", 224, RATES),
    hybrid("LambdaResNet101C4", 224, RATES),
    hybrid("LambdaResNet152C4", 256, RATES),
    hybrid("LambdaResNet152C4", 320, RATES),
    hybrid("LambdaResNet200C4", 320, RATES),
    hybrid("LambdaResNet270C4", 256, RATES, scope=7),
    mobile("MobileNetV2"),
    mobile("LambdaMobileNetV2"),
    *map(vanilla, PATTERNS),
)

# The same in the order of summation of the paper's listing, for calibration.
PAPERS_ORDER = {
    x: vanilla(x, implementation="einsum") for x in PATTERNS if "L" in x
}


def steps_timed():
    """Yields steps that the paper timed: table, program, seconds."""
    for pattern, throughput in PATTERNS.items():
        program = PAPERS_ORDER.get(pattern, vanilla(pattern))
        yield "12", program, 1024 / throughput
    for row in TABLE_20:
        program = hybrid(f"LambdaResNet{row.depth}", row.image_size)
        yield "20", program, row.step_seconds
    for place, throughput in TABLE_13.items():
        yield "13", hybrid(*place), 1024 / throughput


PROGRAMS = {x.key: x for x in (*NETWORKS, *PAPERS_ORDER.values())}


def memory(result):
    parts = ("arguments", "outputs", "temporaries", "code_bytes")
    return sum(result[x] for x in parts) - result["aliases"]


def estimate(result):
    return result["optimal_seconds"] - math.floor(result["optimal_seconds"])


def refusal(message):
    if "CompileTimeHbmOom" not in message:
        return {"status": "failed", "message": message[:600]}
    pattern = r"\(([\d.]+\w)\) exceeds available HBM \(([\d.]+\w)\)"
    sizes = re.search(pattern, message)
    used = " of ".join(sizes.groups()) if sizes else ""
    return {"status": "out of memory", "message": message[:600], "used": used}


def shortfall(result):
    if result["status"] == "timed out":
        return f"not finished after {result['limit_seconds']} s"
    return f"{result['status']}: {result.get('used') or result['message']}"


def faults(result):
    """What is wrong with a program although it compiles, as a list of texts."""
    missing, double = (result.get(x, ()) for x in ("without_kernel", "double"))
    found = [f"no kernel for {name}" for name in missing]
    return found + [f"float64: {name}" for name in double]
