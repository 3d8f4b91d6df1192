"""The progress of a run: what a checkpoint records beside the variables."""

import dataclasses
import json
from typing import Any


@dataclasses.dataclass
class RunState:
    """How far a run is, and what it has reached.

    Attributes:
        step: training steps taken.
        sums: over the images of the epoch so far: loss, top-1 accuracy,
            number of images, number of unreadable ones that were left out.
        rows: the lines of metrics.csv, one for each epoch.
        best: epoch, score and validation metrics of the best epoch; None
            before the first.
        seconds: time used, evaluation and saving included.
        training_seconds: time used for training steps alone.
    """

    step: int = 0
    sums: list[float] = dataclasses.field(default_factory=lambda: [0.0] * 4)
    rows: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    best: dict[str, Any] | None = None
    seconds: float = 0.0
    training_seconds: float = 0.0

    def add(self, sums: Any) -> None:
        """Adds the sums of some training steps."""
        self.sums = [
            total + float(more)
            for total, more in zip(self.sums, sums, strict=True)
        ]

    def training_metrics(self) -> dict[str, float]:
        """Returns mean loss and accuracy of the epoch so far."""
        loss, right, count, _ = self.sums
        count = max(count, 1.0)
        return {"loss": loss / count, "accuracy": right / count}

    def end_epoch(self, row: dict[str, Any]) -> None:
        """Adds the line of an epoch, and begins the next one."""
        self.rows.append(row)
        self.sums = [0.0] * 4

    def is_best(self, metrics: dict[str, float]) -> bool:
        """Returns whether the weights are the best so far.

        Of equally good epochs the latest is the best: its averages reach
        further. Without validation images each epoch is.
        """
        score = metrics.get("validation_accuracy", 0.0)
        return self.best is None or score >= self.best["score"]

    def to_json(self) -> str:
        """Returns everything as text."""
        return json.dumps(dataclasses.asdict(self))

    @classmethod
    def from_json(cls, text: str) -> "RunState":
        """Returns the state that `to_json` wrote."""
        return cls(**json.loads(text))
