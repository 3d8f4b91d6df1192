"""Options that say where and how a recipe runs, and how it may end.

This module does not import TensorFlow.
"""

import contextlib
import dataclasses
import importlib.util
import json
import os
import signal
from collections.abc import Callable
from typing import Any

from lambdanet_tf import config
from lambdanet_tf.arguments import UserError
from lambdanet_tf.arguments import users_input
from lambdanet_tf.config import field

PrintFn = Callable[[str], Any]


class Stopped(BaseException):
    """A signal stopped the run; you can resume it.

    Like `KeyboardInterrupt`, it is not an `Exception`, which other code may
    swallow.
    """

    exit_code = 75  # "temporary failure, try again" in sysexits.h


class NotFinite(Exception):
    """The loss or a weight is NaN or infinite."""

    exit_code = 3


ON_TF_KERAS = ("multiworker", "tpu")
STRATEGIES = ("auto", "default", "mirrored", *ON_TF_KERAS)


@dataclasses.dataclass(frozen=True)
class RunOptions:
    """Where and how a recipe runs. Each field is a flag, with this help."""

    runs_dir: str = field(
        "runs", "folder that contains the folders of all runs", metavar="FOLDER"
    )
    run_dir: str = field(
        "", "folder of this run; if it exists, resume the run", metavar="FOLDER"
    )
    strategy: str = field(
        "auto",
        f"devices to use: {', '.join(STRATEGIES)}",
        choices=STRATEGIES,
        metavar="KIND",
    )
    tpu: str = field("", "name or address of a TPU, or local", metavar="NAME")
    steps_per_execution: int = field(
        1, "training steps per call to the device", low=1
    )
    jit_compile: bool = field(False, "compile the step with XLA (one device)")
    deterministic: bool = field(
        False, "make runs bitwise reproducible, but slower"
    )
    checkpoint_steps: int = field(
        0, "steps between checkpoints (0: only one per epoch)", low=0
    )

    def __post_init__(self):
        config.check(self)


@dataclasses.dataclass(frozen=True)
class LabelOptions:
    """Which pseudo-labels to keep. Each field is a flag, with this help."""

    threshold: float = field(
        0.5, "smallest probability of an image to keep", low=0, high=1
    )
    images_per_class: int = field(
        0, "keep at most so many images per class (0: all)", low=0
    )
    batch_size: int = field(128, "images per prediction", low=1)

    def __post_init__(self):
        config.check(self)


def strategy_kind(options: RunOptions) -> str:
    """Returns the strategy, or `auto` if the number of GPUs decides."""
    if options.strategy != "auto":
        return options.strategy
    if options.tpu:
        return "tpu"
    return "multiworker" if number_of_workers() > 1 else "auto"


def choose_keras(options: RunOptions) -> None:
    """Chooses tf_keras where Keras 3 fails: on TPUs and several machines.

    We must choose it before we import TensorFlow.
    """
    kind = strategy_kind(options)
    chosen = os.environ.get("TF_USE_LEGACY_KERAS") in ("1", "true", "True")
    if kind in ON_TF_KERAS and not chosen:
        if importlib.util.find_spec("tf_keras") is None:
            raise UserError(
                f"The strategy {kind} needs tf_keras, which is not installed: "
                'pip install "lambdanet-tf[cluster]".'
            )
        os.environ["TF_USE_LEGACY_KERAS"] = "1"
        print(f"Using tf_keras, which the strategy {kind} needs, not Keras 3.")


@users_input()
def number_of_workers() -> int:
    """Returns how many processes train together (by TF_CONFIG)."""
    cluster = json.loads(os.environ.get("TF_CONFIG") or "{}").get("cluster", {})
    return sum(len(cluster.get(kind, ())) for kind in ("chief", "worker"))


class StopRequest:
    """Handles the signals that ask a run to stop: SIGTERM and SIGINT.

    It is a context manager for the main thread; a second signal has its former
    effect. `received` is whether a signal has arrived. If `at_once` is set, a
    signal immediately raises `Stopped`, because there is nothing to save.
    """

    def __init__(self):
        self.received = False
        self.at_once = True
        self._former = {}

    def __enter__(self) -> "StopRequest":
        with contextlib.suppress(ValueError):  # in another thread
            for number in (signal.SIGTERM, signal.SIGINT):
                self._former[number] = signal.signal(number, self._note)
        return self

    def __exit__(self, *error: Any) -> None:
        while self._former:
            signal.signal(*self._former.popitem())

    def listen_again(self) -> None:
        """Takes SIGTERM back from a strategy of several workers."""
        for number in self._former:
            signal.signal(number, self._note)

    def check(self) -> None:
        """Raises `Stopped` if a signal has arrived.

        Several processes stop together, at the next checkpoint.
        """
        if self.received and (self.at_once or number_of_workers() < 2):
            raise Stopped("Stopped by a signal")

    def _note(self, number, frame):
        self.received = True
        self.__exit__()
        if self.at_once:
            self.check()
