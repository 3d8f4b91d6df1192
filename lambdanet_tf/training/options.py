"""Where and how a recipe runs, and how it may end: not what it computes.

Nothing here imports TensorFlow.
"""

import dataclasses
import json
import os

from lambdanet_tf import config
from lambdanet_tf.arguments import UserError
from lambdanet_tf.arguments import users_input
from lambdanet_tf.config import field


class Stopped(Exception):
    """The run was asked to stop; it can be resumed."""

    exit_code = 75  # "Temporary failure, try again" in sysexits.h.


class NotFinite(Exception):
    """The loss or a weight is NaN or infinite."""

    exit_code = 3


ON_TF_KERAS = ("multiworker", "tpu")
STRATEGIES = ("auto", "default", "mirrored", *ON_TF_KERAS)


@dataclasses.dataclass(frozen=True)
class RunOptions:
    """Where and how a recipe runs. Each field is a flag, with this help.

    Raises:
        ValueError: if a field has a value that is not allowed.
    """

    runs_dir: str = field(
        "runs", "the folder in which every run gets its own", metavar="FOLDER"
    )
    run_dir: str = field(
        "", "the folder of this run; resumed if it is there", metavar="FOLDER"
    )
    resume: bool = field(
        False, "refuse to begin a new run: --run-dir must exist"
    )
    data_dir: str = field(
        "", "where TensorFlow Datasets keeps its sets", metavar="FOLDER"
    )
    strategy: str = field(
        "auto",
        f"the devices: {', '.join(STRATEGIES)}",
        choices=STRATEGIES,
        metavar="KIND",
    )
    tpu: str = field("", "name or address of a TPU, or local", metavar="NAME")
    steps_per_execution: int = field(
        1, "steps of one call to the device", low=1
    )
    jit_compile: bool = field(False, "compile the step with XLA (one device)")
    deterministic: bool = field(
        False, "bitwise reproducible (enable_op_determinism); slower"
    )
    checkpoint_steps: int = field(
        0, "steps between checkpoints, besides one an epoch (0: none)", low=0
    )

    def __post_init__(self):
        config.check(self)
        if self.resume and not self.run_dir:
            raise UserError("`resume` needs the folder of a run: --run-dir.")


@dataclasses.dataclass(frozen=True)
class LabelOptions:
    """Which pseudo-labels are kept. Each field is a flag, with this help.

    Raises:
        ValueError: if a field has a value that is not allowed.
    """

    threshold: float = field(
        0.5, "least probability of an image's class", low=0, high=1
    )
    images_per_class: int = field(
        0,
        "images of each class: the most certain, or all of them and some again "
        "where there are fewer (0: as many as there are)",
        low=0,
    )
    batch_size: int = field(128, "images of a prediction", low=1)
    data_dir: str = field(
        "", "where TensorFlow Datasets keeps its sets", metavar="FOLDER"
    )

    def __post_init__(self):
        config.check(self)


def strategy_kind(options: RunOptions) -> str:
    """Returns the strategy; `auto` where the number of GPUs decides."""
    if options.strategy != "auto":
        return options.strategy
    if options.tpu:
        return "tpu"
    return "multiworker" if number_of_workers() > 1 else "auto"


@users_input()
def number_of_workers() -> int:
    """Returns how many processes train together, by the variable TF_CONFIG."""
    cluster = json.loads(os.environ.get("TF_CONFIG") or "{}").get("cluster", {})
    return sum(len(cluster.get(kind, ())) for kind in ("chief", "worker"))
