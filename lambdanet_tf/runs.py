"""The folder of a training run: its files, and writing them without loss.

    runs/<YYYYmmdd-HHMMSS>/
        run.json            the model, the recipe, the status, the results
        best.weights.npz    the weights to serve, by name
        metrics.csv         one line for each epoch
        report.md           the results for people
        curves.png          the learning curves
        predictions.png     test images with predictions
        examples.npz        a few test images and labels, to check exports
        checkpoints/        what a stopped run resumes from
        tensorboard/        the figures of metrics.csv for TensorBoard

`RunFolder.claim` makes and locks the folder that a process trains in. Its files
are written whole or not at all (`files.whole_file`).
"""

import contextlib
import csv
import dataclasses
import datetime
import io
import json
import os
import time
import typing
import uuid
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from lambdanet_tf import data
from lambdanet_tf import files
from lambdanet_tf import models
from lambdanet_tf.arguments import UserError

RUN_FILE = "run.json"
WEIGHTS_FILE = models.RUN_WEIGHTS
EXAMPLES_FILE = "examples.npz"
METRICS_FILE = "metrics.csv"
REPORT_FILE = "report.md"
CURVES_FILE = "curves.png"
PREDICTIONS_FILE = "predictions.png"
CHECKPOINTS = "checkpoints"
EVENTS = "tensorboard"

FORMAT = 2
_PARTS = ("train", "validation", "test")
STATUSES = ("running", "finished", "stopped", "failed")
# What JSON has for the type of a field.
_KINDS = {None: str, tuple: list, Mapping: dict}


@dataclasses.dataclass(frozen=True)
class Run:
    """A training run: what run.json holds.

    Attributes:
        status: one of `STATUSES`.
        model: name of the network, see `lambdanet_tf.models.names`.
        arguments: of its builder.
        classes: the names of the classes, in the order of the outputs.
        image: height, width, channels, and minimum and maximum of the pixels.
        parts: how many training, validation and test images there are.
        recipe: the fields of the resolved training recipe.
        options: where and how it ran.
        metrics: the figures that it reached.
        versions: the packages that it ran on.
        command: the command that started it.
        started: when the run began, in UTC; a resumed run keeps it.
        weights: path of the weights to serve; not in the file.
        folder: path of the run folder; not in the file.
    """

    status: str
    model: str
    arguments: Mapping[str, Any]
    classes: tuple[str, ...] = ()
    image: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    parts: Mapping[str, int] = dataclasses.field(default_factory=dict)
    recipe: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    options: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    metrics: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    versions: Mapping[str, str] = dataclasses.field(default_factory=dict)
    command: str = ""
    started: str = ""
    weights: str = ""
    folder: str = ""

    def load_model(self) -> tf.keras.Model:
        """Builds the network and loads its weights.

        Raises:
            ValueError: if there is no such network, it leaves normalizing
                images to its caller, or the weights do not fit.
        """
        if self.arguments.get("include_preprocessing") is False:
            raise UserError(
                "`arguments` must leave normalizing images to the model. "
                "Received: include_preprocessing=False."
            )
        try:
            model = models.build(self.model, **self.arguments)
        except TypeError as error:
            raise UserError(
                f"`arguments` must be those of {self.model}. Received: "
                f"arguments={self.arguments!r}: {error}."
            ) from error
        models.load_weights(model, self.weights)
        return model

    def read_examples(self) -> tuple[np.ndarray, np.ndarray] | None:
        """Returns test images and labels, or None if it kept none.

        Raises:
            ValueError: if their file is damaged.
        """
        if not self.folder:  # weights without a run
            return None
        path = os.path.join(self.folder, EXAMPLES_FILE)
        if not tf.io.gfile.exists(path):
            return None
        try:
            arrays = files.read_arrays(path)
            return arrays["images"].astype(np.float32), arrays["labels"]
        except (KeyError, UserError) as error:
            raise UserError(
                f"{path} is damaged; delete it to export with noise. {error}"
            ) from error

    def to_dict(self) -> dict[str, Any]:
        """Returns what run.json holds."""
        fields = dataclasses.asdict(self)
        del fields["weights"], fields["folder"]
        return {"format": FORMAT, **fields}

    def require_finished(self) -> None:
        """Raises a ValueError unless the run came to its end."""
        if self.status != "finished":
            raise UserError(
                f"`run` must be a finished run. Received {self.folder}, which "
                f"is {self.status!r}. Let it finish or resume it, or export "
                "the best weights that it has so far with `--unfinished`."
            )


class RunFolder:
    """The folder of one run.

    Args:
        path: on any file system that `tf.io.gfile` knows.

    Examples:
        >>> folder = RunFolder.new("runs")
        >>> folder.write_text("note.txt", "A run that is not begun.")
        >>> folder.exists("note.txt"), folder.exists()
        (True, False)
    """

    def __init__(self, path: str | os.PathLike):
        self.path = os.fspath(path)
        self._started = ""
        self._made_above: list[str] = []
        self._events = None

    @classmethod
    def new(
        cls, base: str | os.PathLike, now: time.struct_time | None = None
    ) -> "RunFolder":
        """Makes a folder `<base>/<date>-<time>` that no other process has.

        On a file system that is not local, where two processes can make the
        same folder, a random number in its name tells them apart.

        Args:
            base: the folder of all runs.
            now: None for the local time.

        Returns:
            A `RunFolder`, empty.

        Raises:
            OSError: if the folder cannot be made.
        """
        stamp = time.strftime("%Y%m%d-%H%M%S", now or time.localtime())
        first = path = os.path.join(base, stamp)
        above = files.missing_folders(os.fspath(base))
        if "://" in path:
            return cls(f"{path}-{uuid.uuid4().hex[:8]}")
        for number in range(2, 10_000):
            try:
                os.makedirs(path)
                break
            except FileExistsError:
                path = f"{first}-{number}"
            except OSError as error:
                raise files.FileError(
                    f"Cannot make a folder in --runs-dir {base}: "
                    f"{files.reason(error)}."
                ) from error
        folder = cls(path)
        folder._made_above = above
        return folder

    @contextlib.contextmanager
    def claim(self) -> Iterator[None]:
        """Keeps other processes from training in the folder, while it lasts.

        See `files.claim_folder`.

        Raises:
            ValueError: if another process trains in the folder, or it holds
                files, but no run.
            OSError: if it cannot be written.
        """
        names = []
        if tf.io.gfile.isdir(self.path):
            names = sorted(map(os.fspath, tf.io.gfile.listdir(self.path)))
        names = [name for name in names if not name.startswith(".")]
        if names and not self.exists():
            raise UserError(
                f"{self.path} is not the folder of a run: it has no "
                f"{RUN_FILE}, but {', '.join(names[:3])}. Choose a new or an "
                "empty folder."
            )
        with files.claim_folder(self.path, self._made_above):
            yield

    def file(self, name: str) -> str:
        """Returns the path of one of the run's files.

        Args:
            name: such as `WEIGHTS_FILE`.

        Returns:
            A path.
        """
        return os.path.join(self.path, name)

    def exists(self, name: str = RUN_FILE) -> bool:
        """Returns whether the run has a file of this name.

        Args:
            name: such as `WEIGHTS_FILE`.

        Returns:
            A bool.
        """
        return tf.io.gfile.exists(self.file(name))

    def read(self) -> Run:
        """Reads run.json.

        Returns:
            A `Run`.

        Raises:
            ValueError: if the folder is not a run, or the file cannot be
                understood.
        """
        if not self.exists():
            raise UserError(
                f"{self.path} is not the folder of a run: it has no {RUN_FILE}."
            )
        path = self.file(RUN_FILE)
        try:
            with tf.io.gfile.GFile(path, "rb") as stream:
                fields = json.loads(stream.read().decode())
        except (OSError, ValueError, tf.errors.OpError) as error:
            raise UserError(f"{path} is not a JSON file: {error}.") from error
        version = fields.get("format") if isinstance(fields, dict) else None
        if version != FORMAT:
            raise UserError(
                f"{path} has format {version}; this version of lambdanet_tf "
                f"reads format {FORMAT}."
            )
        return self._parsed(path, fields)

    def _parsed(self, path, fields):
        kinds = {
            f.name: _KINDS[typing.get_origin(f.type)]
            for f in dataclasses.fields(Run)
        }
        known = {name: fields[name] for name in kinds if name in fields}
        for name, value in known.items():
            if not isinstance(value, kinds[name]):
                raise UserError(
                    f"{path} must have a {kinds[name].__name__} as `{name}`. "
                    f"Received: {value!r}."
                )
        try:
            known["arguments"] = dict(fields["arguments"])
            known["classes"] = tuple(fields["classes"])
            run = Run(
                **known, weights=self.file(WEIGHTS_FILE), folder=self.path
            )
        except (KeyError, TypeError) as error:
            raise UserError(
                f"{path} must describe a model, its arguments and its classes; "
                f"{error} is missing or malformed."
            ) from error
        if run.status not in STATUSES:
            raise UserError(
                f"`status` must be one of {STATUSES}. Received {run.status!r} "
                f"from {path}."
            )
        return run

    def write(self, run: Run) -> None:
        """Writes run.json, with the time at which the run began.

        Args:
            run: what it holds.
        """
        if not self._started:
            began = self.read().started if self.exists() else ""
            now = datetime.datetime.now(datetime.timezone.utc)
            self._started = run.started or began or now.isoformat()
        run = dataclasses.replace(run, started=self._started)
        self.write_text(RUN_FILE, json.dumps(run.to_dict(), indent=2) + "\n")

    def write_text(self, name: str, text: str) -> None:
        """Writes a text file, whole or not at all.

        Args:
            name: such as `REPORT_FILE`.
            text: written in UTF-8.
        """
        self.write_bytes(name, text.encode())

    def write_bytes(self, name: str, content: bytes) -> None:
        """Writes a file, whole or not at all.

        Args:
            name: such as `WEIGHTS_FILE`.
            content: the whole file.
        """
        tf.io.gfile.makedirs(self.path)
        files.write_whole(self.file(name), content)

    def write_examples(self, images: np.ndarray, labels: np.ndarray) -> None:
        """Writes test images and labels, whole or not at all.

        Args:
            images: array `(images, height, width, channels)`.
            labels: array `(images,)`.
        """
        content = io.BytesIO()
        np.savez_compressed(content, images=images, labels=labels)
        self.write_bytes(EXAMPLES_FILE, content.getvalue())

    def write_weights(self, model: tf.keras.Model) -> None:
        """Writes the weights to serve, whole or not at all.

        Args:
            model: built.
        """
        self.write_bytes(WEIGHTS_FILE, models.weights_as_bytes(model))

    def write_metrics(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Writes metrics.csv from one dictionary for each epoch.

        Args:
            rows: of all epochs; a column for each key.
        """
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

        Args:
            row: from name to figure, `epoch` among them.
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


def part_sizes(images: data.ImageSet) -> dict[str, int]:
    """Returns how many training, validation and test images there are."""
    parts = {name: getattr(images, name) for name in _PARTS}
    return {k: part.num_images if part else 0 for k, part in parts.items()}


def changed_images(run: Run, images: data.ImageSet) -> str:
    """Returns what differs of images and those that a run was begun with.

    Args:
        run: with its classes and the sizes of its parts.
        images: as they are now.

    Returns:
        What differs, as part of a sentence; "" if nothing does.
    """
    before, now, sizes = run.classes, tuple(images.classes), part_sizes(images)
    if before != now:
        gone = [name for name in before if name not in now]
        new = [name for name in now if name not in before]
        changes = f"gone: {gone}; new: {new}" if gone or new else "their order"
        return f"classes ({changes})"
    if run.parts and run.parts != sizes:
        return f"sizes of the parts: {dict(run.parts)}, not {sizes}"
    return ""


def newest_run(
    runs: str | os.PathLike = "runs", unfinished: bool = False
) -> Run:
    """Returns the finished run below the folder `runs` that began last.

    Args:
        runs: the folder in which the runs have theirs.
        unfinished: whether a run that has not finished counts as well.

    Raises:
        ValueError: if there is none; the message says what there is.
    """
    found, others = [], []
    for path in files.matching(os.fspath(runs), "*"):
        folder = RunFolder(path)
        if not folder.exists():
            continue
        try:
            run = folder.read()
        except ValueError as error:
            others.append(f"{os.path.basename(path)}: {error}")
            continue
        if unfinished or run.status == "finished":
            found.append(run)
        else:
            others.append(f"{os.path.basename(path)}: {run.status}")
    if not found:
        raise UserError(
            f"`runs` must hold a finished run. Received {runs}, which holds "
            f"{'; '.join(others) or 'no run at all'}. Train one with `python "
            "train.py`, or name a run folder."
        )
    # Versions before 0.4 did not record when; the names of their folders say.
    return max(found, key=lambda run: (run.started, run.folder))
