"""The folder of a training run: its files, and how to write them safely.

    runs/<YYYYmmdd-HHMMSS-microseconds>/
        run.json            the model, the recipe, the status, the results
        best.weights.npz    the weights to serve, by name
        metrics.csv         one line for each epoch
        report.md           the results for people
        curves.png          the learning curves
        predictions.png     test images with predictions
        confusion.png       the confusion matrix of the test images
        wrong_images.csv    test images with a wrong prediction
        examples.npz        a few test images and labels, to check exports
        checkpoints/        from which a stopped run resumes
        tensorboard/        the figures of metrics.csv for TensorBoard

Writes are atomic (`files.whole_file`), except in the last two folders.
"""

import contextlib
import csv
import dataclasses
import datetime
import io
import json
import os
import time
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from lambdanet_tf import files
from lambdanet_tf import models
from lambdanet_tf.arguments import UserError
from lambdanet_tf.arguments import check_types

RUN_FILE = "run.json"
WEIGHTS_FILE = models.RUN_WEIGHTS
EXAMPLES_FILE = "examples.npz"
CHECKPOINTS = "checkpoints"
_EVENTS = "tensorboard/events.out.tfevents.{step:012d}"


@dataclasses.dataclass(frozen=True)
class Run:
    """A training run: the content of run.json.

    Attributes:
        status: "running", "finished", "stopped" or "failed".
        model: name of the network, see `lambdanet_tf.models.names`.
        arguments: arguments of its builder.
        classes: the names of the classes, in the order of the outputs.
        image: channels, and significant bits in files with 16 bits.
        splits: number of training, validation and test images.
        recipe: the fields of the training recipe.
        options: the options that say where and how it ran.
        metrics: the results.
        versions: the versions of packages.
        command: the command that started it.
        started: when the run began, in UTC; a resumed run keeps it.
        weights: path of the weights to serve; not in the file.
        folder: path of the run folder; not in the file.

    Raises:
        ValueError: if a field has a wrong type.
    """

    status: str
    model: str
    arguments: Mapping[str, Any]
    classes: tuple[str, ...] = ()
    image: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    splits: Mapping[str, int] = dataclasses.field(default_factory=dict)
    recipe: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    options: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    metrics: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    versions: Mapping[str, str] = dataclasses.field(default_factory=dict)
    command: str = ""
    started: str = ""
    weights: str = ""
    folder: str = ""

    def __post_init__(self):
        check_types(self)

    def load_model(self) -> tf.keras.Model:
        """Builds the network and loads its weights.

        Raises:
            ValueError: if there is no such network, or if the weights do not
                fit.
        """
        model = models.build(self.model, **self.arguments)
        models.load_weights(model, self.weights)
        return model

    def read_examples(self) -> tuple[np.ndarray, np.ndarray] | None:
        """Returns test images and labels, or None if the run kept none.

        Raises:
            ValueError: if their file is damaged.
        """
        path = os.path.join(self.folder, EXAMPLES_FILE)
        if not tf.io.gfile.exists(path):
            return None
        arrays = files.read_arrays(path)
        return arrays["images"].astype(np.float32), arrays["labels"]

    def require_finished(self) -> None:
        """Raises a ValueError unless the run has finished."""
        if self.status != "finished":
            raise UserError(
                f"`run` must be a finished run. Received: {self.folder}, which "
                f"is {self.status!r}. Wait for it, or resume it. To export its "
                "best weights so far, pass `--unfinished`."
            )


class RunFolder:
    """The folder of one run.

    Args:
        path: a path on any file system that `tf.io.gfile` supports.

    Raises:
        ValueError: if it does not support the file system.
    """

    def __init__(self, path: str | os.PathLike):
        self.path = os.fspath(path)
        files.check_file_system(self.path)

    @classmethod
    def new(cls, base: str | os.PathLike) -> "RunFolder":
        """Returns a folder in `base` that is named by the current time."""
        now = datetime.datetime.now()
        return cls(os.path.join(base, f"{now:%Y%m%d-%H%M%S-%f}"))

    @contextlib.contextmanager
    def claim(self) -> Iterator[None]:
        """Creates the folder, and locks out other processes meanwhile.

        Raises:
            ValueError: if another process trains in the folder, or if it
                contains files, but no run.
            OSError: if it cannot be created.
        """
        with files.writing(self.path):
            tf.io.gfile.makedirs(self.path)
            paths = files.matching(self.path, "[!.]*")
        names = [os.path.basename(path) for path in paths[:3]]
        if names and not self.exists():
            raise UserError(
                f"{self.path} is not a run folder: it contains "
                f"{', '.join(names)}, but no {RUN_FILE}. Choose a new or "
                "empty folder."
            )
        with files.locked(self.path):
            yield

    def file(self, name: str) -> str:
        """Returns the path of a file, such as `WEIGHTS_FILE`."""
        return os.path.join(self.path, name)

    def exists(self, name: str = RUN_FILE) -> bool:
        """Returns whether the run has a file, such as `WEIGHTS_FILE`."""
        return tf.io.gfile.exists(self.file(name))

    def read(self) -> Run:
        """Reads run.json.

        Raises:
            ValueError: if the folder is not a run, or if the file is invalid.
        """
        path = self.file(RUN_FILE)
        if not self.exists():
            raise UserError(
                f"{self.path} is not a run folder: it contains no {RUN_FILE}."
            )
        text = files.read_text(path)
        try:
            fields = json.loads(text)
            fields["classes"] = tuple(fields["classes"])
            places = {"weights": self.file(WEIGHTS_FILE), "folder": self.path}
            return Run(**fields, **places)
        except (KeyError, TypeError, ValueError) as error:
            raise UserError(
                f"{path} is not a valid description of a run: {error}."
            ) from error

    def write(self, run: Run) -> None:
        """Writes run.json, with the time at which the run began."""
        fields = dataclasses.asdict(run)
        del fields["weights"], fields["folder"]
        if not run.started:
            now = datetime.datetime.now(datetime.timezone.utc).isoformat()
            fields["started"] = self.read().started if self.exists() else now
        self.write_text(RUN_FILE, json.dumps(fields, indent=2) + "\n")

    def write_text(self, name: str, text: str) -> None:
        """Writes a text file in UTF-8, whole or not at all."""
        self.write_bytes(name, text.encode())

    def write_bytes(self, name: str, content: bytes) -> None:
        """Writes a file, whole or not at all."""
        tf.io.gfile.makedirs(self.path)
        files.write_whole(self.file(name), content)

    def write_examples(self, images: np.ndarray, labels: np.ndarray) -> None:
        """Writes test images and labels, whole or not at all."""
        content = io.BytesIO()
        np.savez_compressed(content, images=images, labels=labels)
        self.write_bytes(EXAMPLES_FILE, content.getvalue())

    def write_metrics(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Writes metrics.csv, and the last row for TensorBoard.

        Each epoch has its own log file, which a resumed run overwrites.
        """
        columns = list(dict.fromkeys(key for row in rows for key in row))
        text = io.StringIO()
        writer = csv.DictWriter(text, columns, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
        self.write_text("metrics.csv", text.getvalue())
        event = tf.compat.v1.Event(step=rows[-1]["step"], wall_time=time.time())
        for name, value in rows[-1].items():
            event.summary.value.add(tag=name, simple_value=value)
        path = self.file(_EVENTS.format(**rows[-1]))
        tf.io.gfile.makedirs(os.path.dirname(path))
        with files.writing(path), tf.io.TFRecordWriter(path) as writer:
            writer.write(event.SerializeToString())


def newest_run(
    runs: str | os.PathLike = "runs", unfinished: bool = False
) -> Run:
    """Returns the newest finished run in the folder `runs`.

    Raises:
        ValueError: if there is none; the message lists the others.
    """
    folders = map(RunFolder, files.matching(os.fspath(runs), "*"))
    found = [folder.read() for folder in folders if folder.exists()]
    counted = [run for run in found if unfinished or run.status == "finished"]
    if not counted:
        there = (f"{os.path.basename(x.folder)}: {x.status}" for x in found)
        raise UserError(
            f"No finished runs in {os.fspath(runs)!r}. Unfinished runs: "
            f"{'; '.join(there) or 'none'}. Train one with `lambdanet train`,"
            " or choose a run: `--run-dir FOLDER`."
        )
    return max(counted, key=lambda run: run.started)
