"""The folder of a training run: its files, and writing them without loss.

    runs/<YYYYmmdd-HHMMSS>/
        run.json            the model, the recipe, the status, the results
        best.weights.npz    the weights to serve, by name
        metrics.csv         one line for each epoch
        report.md           the results for people
        curves.png          the learning curves
        predictions.png     test images with predictions
        examples.npz        a few test images and labels, to check exports
        bad_images.txt      the images that could not be read, if any
        checkpoints/        what a stopped run resumes from
        tensorboard/        the figures of metrics.csv for TensorBoard

Every file is written beside its destination and renamed into it, so that a
reader never meets half a file and a full disk never destroys the previous one.
"""

import csv
import dataclasses
import io
import json
import os
import time
import uuid
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from lambdanet_tf import models

RUN_FILE = "run.json"
WEIGHTS_FILE = models.RUN_WEIGHTS
EXAMPLES_FILE = "examples.npz"
METRICS_FILE = "metrics.csv"
REPORT_FILE = "report.md"
CURVES_FILE = "curves.png"
PREDICTIONS_FILE = "predictions.png"
BAD_IMAGES_FILE = "bad_images.txt"
CHECKPOINTS = "checkpoints"
EVENTS = "tensorboard"

FORMAT = 2
STATUSES = ("running", "finished", "stopped", "failed")
_NEEDED_BYTES = 16 * 2**20


@dataclasses.dataclass(frozen=True)
class Run:
    """A training run: what run.json holds.

    Attributes:
        status: one of `STATUSES`.
        model: name of the network, see `lambdanet_tf.models.names`.
        arguments: of its builder.
        classes: the names of the classes, in the order of the outputs.
        image: height, width, channels, and minimum and maximum of the pixels.
        recipe: the fields of the resolved training recipe.
        options: where and how it ran.
        metrics: the figures that it reached.
        versions: the packages that it ran on.
        command: the command that started it.
        weights: path of the weights to serve; not in the file.
        folder: path of the run folder; not in the file.
    """

    status: str
    model: str
    arguments: Mapping[str, Any]
    classes: tuple[str, ...] = ()
    image: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    recipe: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    options: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    metrics: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    versions: Mapping[str, str] = dataclasses.field(default_factory=dict)
    command: str = ""
    weights: str = ""
    folder: str = ""

    def load_model(self) -> tf.keras.Model:
        """Builds the network and loads its weights.

        Raises:
            ValueError: if there is no such network, it leaves normalizing
                images to its caller, or the weights do not fit.
        """
        if self.arguments.get("include_preprocessing") is False:
            raise ValueError(
                "`arguments` must leave normalizing images to the model. "
                "Received: include_preprocessing=False."
            )
        model = models.build(self.model, **self.arguments)
        models.load_weights(model, self.weights)
        return model

    def read_examples(self) -> tuple[np.ndarray, np.ndarray] | None:
        """Returns test images and labels, or None if it kept none."""
        if not self.folder:  # weights without a run
            return None
        path = os.path.join(self.folder, EXAMPLES_FILE)
        if not tf.io.gfile.exists(path):
            return None
        with tf.io.gfile.GFile(path, "rb") as file:
            arrays = np.load(io.BytesIO(file.read()))
        return arrays["images"].astype(np.float32), arrays["labels"]

    def to_dict(self) -> dict[str, Any]:
        """Returns what run.json holds."""
        fields = dataclasses.asdict(self)
        del fields["weights"], fields["folder"]
        return {"format": FORMAT, **fields}

    def require_finished(self) -> None:
        """Raises a ValueError unless the run came to its end."""
        if self.status != "finished":
            raise ValueError(
                f"`run` must be a finished run. Received {self.folder}, which "
                f"is {self.status!r}. Let it finish or resume it, or export "
                "the best weights that it has so far with `--unfinished`."
            )


class RunFolder:
    """The folder of one run.

    Args:
        path: on any file system that `tf.io.gfile` knows.
    """

    def __init__(self, path: str | os.PathLike):
        self.path = os.fspath(path)
        self._events = None

    @classmethod
    def new(
        cls, base: str | os.PathLike, now: time.struct_time | None = None
    ) -> "RunFolder":
        """Names a folder `<base>/<date>-<time>` that is not there yet.

        Args:
            base: the folder of all runs.
            now: None for the local time.
        """
        stamp = time.strftime("%Y%m%d-%H%M%S", now or time.localtime())
        path, number = os.path.join(base, stamp), 2
        while tf.io.gfile.exists(path):
            path = os.path.join(base, f"{stamp}-{number}")
            number += 1
        return cls(path)

    def file(self, name: str) -> str:
        """Returns the path of one of the run's files."""
        return os.path.join(self.path, name)

    def exists(self, name: str = RUN_FILE) -> bool:
        """Returns whether the run has a file of this name."""
        return tf.io.gfile.exists(self.file(name))

    def check_writable(self) -> None:
        """Writes and removes a few megabytes; leaves no new folder behind.

        Raises:
            OSError: naming the folder, if that fails.
        """
        new = _missing_folders(self.path)
        probe = self.file(f".probe-{uuid.uuid4().hex[:8]}")
        try:
            tf.io.gfile.makedirs(self.path)
            with tf.io.gfile.GFile(probe, "wb") as stream:
                stream.write(b"\0" * _NEEDED_BYTES)
            tf.io.gfile.remove(probe)
            for folder in new:
                if not tf.io.gfile.listdir(folder):
                    tf.io.gfile.rmtree(folder)
        except (tf.errors.OpError, OSError) as error:
            raise OSError(
                f"Cannot write to the run folder {self.path}: {error}. "
                "Choose another one with --runs, or make room."
            ) from error

    def read(self) -> Run:
        """Reads run.json.

        Raises:
            ValueError: if the folder is not a run, or the file cannot be
                understood.
        """
        if not self.exists():
            raise ValueError(
                f"{self.path} is not the folder of a run: it has no {RUN_FILE}."
            )
        path = self.file(RUN_FILE)
        try:
            with tf.io.gfile.GFile(path, "rb") as stream:
                fields = json.loads(stream.read().decode())
        except (OSError, ValueError, tf.errors.OpError) as error:
            raise ValueError(f"{path} is not a JSON file: {error}.") from error
        version = fields.get("format") if isinstance(fields, dict) else None
        if version != FORMAT:
            raise ValueError(
                f"{path} has format {version}; this version of lambdanet_tf "
                f"reads format {FORMAT}."
            )
        return self._parsed(path, fields)

    def _parsed(self, path, fields):
        names = [field.name for field in dataclasses.fields(Run)]
        try:
            known = {name: fields[name] for name in names if name in fields}
            known["arguments"] = dict(fields["arguments"])
            known["classes"] = tuple(fields["classes"])
            run = Run(
                **known, weights=self.file(WEIGHTS_FILE), folder=self.path
            )
        except (KeyError, TypeError) as error:
            raise ValueError(
                f"{path} must describe a model, its arguments and its classes; "
                f"{error} is missing or malformed."
            ) from error
        if run.status not in STATUSES:
            raise ValueError(
                f"`status` must be one of {STATUSES}. Received {run.status!r} "
                f"from {path}."
            )
        return run

    def write(self, run: Run) -> None:
        """Writes run.json."""
        self.write_text(RUN_FILE, json.dumps(run.to_dict(), indent=2) + "\n")

    def write_text(self, name: str, text: str) -> None:
        """Writes a text file, whole or not at all."""
        self.write_bytes(name, text.encode())

    def write_bytes(self, name: str, content: bytes) -> None:
        """Writes a file, whole or not at all."""
        temporary = self.file(f".{name}-{uuid.uuid4().hex[:8]}")
        tf.io.gfile.makedirs(self.path)
        try:
            with tf.io.gfile.GFile(temporary, "wb") as stream:
                stream.write(content)
            tf.io.gfile.rename(temporary, self.file(name), overwrite=True)
        except (tf.errors.OpError, OSError):
            if tf.io.gfile.exists(temporary):
                tf.io.gfile.remove(temporary)
            raise

    def write_examples(self, images: np.ndarray, labels: np.ndarray) -> None:
        """Writes test images and labels, whole or not at all."""
        content = io.BytesIO()
        np.savez_compressed(content, images=images, labels=labels)
        self.write_bytes(EXAMPLES_FILE, content.getvalue())

    def write_weights(self, model: tf.keras.Model) -> None:
        """Writes the weights to serve, whole or not at all."""
        self.write_bytes(WEIGHTS_FILE, models.weights_as_bytes(model))

    def write_metrics(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Writes metrics.csv from one dictionary for each epoch."""
        columns = list(dict.fromkeys(key for row in rows for key in row))
        text = io.StringIO()
        writer = csv.DictWriter(text, columns, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
        self.write_text(METRICS_FILE, text.getvalue())

    def write_events(self, row: Mapping[str, float]) -> None:
        """Adds the figures of one epoch to the logs for TensorBoard.

        `tf.summary.scalar` needs the package tensorboard, which TensorFlow
        does not always bring.
        """
        if self._events is None:
            self._events = tf.summary.create_file_writer(self.file(EVENTS))
        metadata = tf.compat.v1.SummaryMetadata(
            plugin_data={"plugin_name": "scalars"}
        )
        with self._events.as_default(step=row["step"]):
            for name, value in row.items():
                number = tf.constant(value, tf.float32)
                tf.summary.write(name, number, metadata=metadata)
        self._events.flush()


def _missing_folders(path):
    """The folders that `makedirs` would make, the innermost first."""
    missing = []
    while path and not tf.io.gfile.exists(path):
        missing.append(path)
        path = os.path.dirname(path.rstrip("/"))
    return missing


def newest_finished_run(runs: str | os.PathLike = "runs") -> Run:
    """Returns the newest finished run below the folder `runs`.

    Raises:
        ValueError: if there is none; the message says what there is.
    """
    pattern = os.path.join(os.fspath(runs), "*", RUN_FILE)
    folders = sorted(map(os.path.dirname, tf.io.gfile.glob(pattern)))
    passed_over = []
    for folder in reversed(folders):
        name = os.path.basename(folder)
        try:
            run = RunFolder(folder).read()
        except ValueError as error:
            passed_over.append(f"{name}: {error}")
            continue
        if run.status == "finished":
            return run
        passed_over.append(f"{name}: {run.status}")
    found = "; ".join(passed_over) or "no run at all"
    raise ValueError(
        f"`runs` must hold a finished run. Received {runs}, which holds "
        f"{found}. Train one with `python train.py`, or name a run folder."
    )
