"""Where and how a recipe runs: nothing that changes what it computes."""

import dataclasses

STRATEGIES = ("auto", "default", "mirrored", "multiworker", "tpu")


@dataclasses.dataclass(frozen=True)
class RunOptions:
    """Where and how a recipe runs.

    Attributes:
        runs: str. The folder in which every run gets a folder of its own.
        run: str. The folder of this run, instead; if it holds a run that is
            not finished, that run is continued.
        resume: bool. Whether the run must already exist.
        data_dir: str. Where TensorFlow Datasets keeps its sets ("": default).
        strategy: str. One of `STRATEGIES`.
        tpu: str. Name or address of a TPU, or `"local"`.
        replicas: int. How many parts of a CPU to use as devices of a mirrored
            strategy, to try it out (0: GPUs).
        steps_per_execution: int. Steps of one call to the device.
        jit_compile: bool. Whether XLA compiles the step (one device only).
        deterministic: bool. Whether equal runs give equal bits; slower.
        checkpoint_steps: int. Steps between checkpoints (0: only by epochs).
        checkpoint_epochs: int. Epochs between checkpoints.
    """

    runs: str = "runs"
    run: str = ""
    resume: bool = False
    data_dir: str = ""
    strategy: str = "auto"
    tpu: str = ""
    replicas: int = 0
    steps_per_execution: int = 1
    jit_compile: bool = False
    deterministic: bool = False
    checkpoint_steps: int = 0
    checkpoint_epochs: int = 1

    def __post_init__(self):
        if self.strategy not in STRATEGIES:
            raise ValueError(
                f"`strategy` must be one of {', '.join(STRATEGIES)}. Received: "
                f"{self.strategy!r}."
            )
        for name, least in (
            ("replicas", 0),
            ("steps_per_execution", 1),
            ("checkpoint_steps", 0),
            ("checkpoint_epochs", 1),
        ):
            if getattr(self, name) < least:
                raise ValueError(
                    f"`{name}` must be at least {least}. Received: "
                    f"{getattr(self, name)}."
                )
        if self.resume and not self.run:
            raise ValueError("`resume` needs the folder of a run.")
