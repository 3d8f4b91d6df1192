"""The folder of a run: what it holds, and writing it without ever losing it.

    runs/<YYYYmmdd-HHMMSS>/
        run.json            the model, the recipe, the state, the results
        best.weights.h5     the weights to serve
        metrics.csv         one line for each epoch
        report.md           the results for people
        curves.png          the learning curves
        predictions.png     test images with the network's answers
        examples.npz        a few test images and labels, to check exports
        bad_images.txt      the images that could not be read, if any
        checkpoints/        what a stopped run continues from
        tensorboard/        the figures of metrics.csv for TensorBoard

Every file is written beside its place and renamed into it, so that a reader
never meets half a file and a full disk never destroys the previous one.
"""

import csv
import dataclasses
import io
import json
import os
import platform
import sys
import tempfile
import time
import uuid

import numpy as np
import tensorflow as tf

import lambdanet_tf
from lambdanet_tf.serving.run_folder import RUN_FILE
from lambdanet_tf.serving.run_folder import RUN_FORMAT
from lambdanet_tf.serving.run_folder import WEIGHTS_FILE

METRICS_FILE = "metrics.csv"
_EVENTS = "tensorboard"
_NEEDED_BYTES = 16 * 2**20


class RunFolder:
    """One run's folder.

    Args:
        path: str. The folder; it may be on any file system that
            `tf.io.gfile` knows.
    """

    def __init__(self, path):
        self.path = str(path)
        self._events = None

    @classmethod
    def make(cls, base, now=None):
        """A new folder `<base>/<date>-<time>`, not yet written.

        Args:
            base: str. The folder of all runs.
            now: time.struct_time or None. The time; None for now.

        Returns:
            A `RunFolder`.
        """
        stamp = time.strftime("%Y%m%d-%H%M%S", now or time.localtime())
        path, number = os.path.join(base, stamp), 2
        while tf.io.gfile.exists(path):
            path = os.path.join(base, f"{stamp}-{number}")
            number += 1
        return cls(path)

    def file(self, name):
        """The path of one of the run's files."""
        return os.path.join(self.path, name)

    def exists(self, name):
        """Whether the run has a file of this name."""
        return tf.io.gfile.exists(self.file(name))

    def prove_writable(self):
        """Writes and removes a few megabytes.

        Raises:
            OSError: naming the folder, if that fails.
        """
        probe = self.file(f".probe-{uuid.uuid4().hex[:8]}")
        try:
            tf.io.gfile.makedirs(self.path)
            with tf.io.gfile.GFile(probe, "wb") as stream:
                stream.write(b"\0" * _NEEDED_BYTES)
            tf.io.gfile.remove(probe)
        except (tf.errors.OpError, OSError) as error:
            raise OSError(
                f"Cannot write to the run folder {self.path}: {error}. "
                "Choose another one with --runs, or make room."
            ) from error

    def write_text(self, name, text):
        """Writes a text file, whole or not at all."""
        self.write_bytes(name, text.encode())

    def write_bytes(self, name, content):
        """Writes a file, whole or not at all."""
        temporary = self.file(f".{name}-{uuid.uuid4().hex[:8]}")
        try:
            with tf.io.gfile.GFile(temporary, "wb") as stream:
                stream.write(content)
            tf.io.gfile.rename(temporary, self.file(name), overwrite=True)
        except (tf.errors.OpError, OSError):
            if tf.io.gfile.exists(temporary):
                tf.io.gfile.remove(temporary)
            raise

    def write_arrays(self, name, **arrays):
        """Writes NumPy arrays as an .npz file, whole or not at all."""
        content = io.BytesIO()
        np.savez_compressed(content, **arrays)
        self.write_bytes(name, content.getvalue())

    def write_weights(self, model, name=WEIGHTS_FILE):
        """Writes a model's weights, whole or not at all."""
        with tempfile.TemporaryDirectory() as local:
            path = os.path.join(local, "model.weights.h5")
            model.save_weights(path)
            with open(path, "rb") as stream:
                self.write_bytes(name, stream.read())

    def write_record(self, record):
        """Writes run.json."""
        self.write_text(RUN_FILE, json.dumps(record, indent=2) + "\n")

    def read_record(self):
        """Reads run.json.

        Raises:
            ValueError: if the folder is not a run, or the file cannot be
                understood.
        """
        if not self.exists(RUN_FILE):
            raise ValueError(
                f"{self.path} is not the folder of a run: it has no {RUN_FILE}."
            )
        with tf.io.gfile.GFile(self.file(RUN_FILE), "rb") as stream:
            text = stream.read().decode()
        try:
            record = json.loads(text)
        except json.JSONDecodeError as error:
            raise ValueError(
                f"{self.file(RUN_FILE)} is not a JSON file: {error}."
            ) from error
        if record.get("format") != RUN_FORMAT:
            raise ValueError(
                f"{self.file(RUN_FILE)} has format {record.get('format')}; "
                f"this version of lambdanet_tf reads format {RUN_FORMAT}."
            )
        return record

    def write_metrics(self, rows):
        """Writes metrics.csv from one dictionary for each epoch."""
        columns = list(dict.fromkeys(key for row in rows for key in row))
        text = io.StringIO()
        writer = csv.DictWriter(text, columns, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
        self.write_text(METRICS_FILE, text.getvalue())

    def write_events(self, row):
        """Adds the figures of one epoch to the logs for TensorBoard."""
        if self._events is None:
            self._events = tf.summary.create_file_writer(self.file(_EVENTS))
        with self._events.as_default(step=row["step"]):
            for name, value in row.items():
                tf.summary.scalar(name, value)
        self._events.flush()


def make_record(
    status, recipe, options, images, arguments, metrics, started_by=None
):
    """What run.json holds.

    Args:
        status: str. "running", "finished", "stopped" or "failed".
        recipe: `Recipe`.
        options: `RunOptions`.
        images: `ImageSet`.
        arguments: dict. The keyword arguments of the network's builder.
        metrics: dict.
        started_by: str or None. What started the run; None for the command
            line of this process.

    Returns:
        A dictionary that JSON can hold.
    """
    return {
        "format": RUN_FORMAT,
        "status": status,
        "model": {"builder": recipe.model, "arguments": arguments},
        "recipe": recipe.to_dict(),
        "options": dataclasses.asdict(options),
        "classes": list(images.classes),
        "image": {
            "height": recipe.image_size,
            "width": recipe.image_size,
            "channels": images.channels,
            "minimum": 0,
            "maximum": 255,
        },
        "metrics": metrics,
        "versions": versions(),
        "command": started_by or command(),
    }


def versions():
    """The versions that a result depends on."""
    return {
        "lambdanet_tf": lambdanet_tf.__version__,
        "tensorflow": tf.__version__,
        "keras": keras_version(),
        "python": platform.python_version(),
    }


def keras_version():
    """The name and version of the Keras behind `tf.keras`."""
    if hasattr(tf.keras, "ops"):
        return f"keras {tf.keras.__version__}"
    return f"tf_keras {sys.modules['tf_keras'].__version__}"


def command():
    """The command line of this process, as a person would type it."""
    words = [os.path.basename(sys.argv[0]) or "python", *sys.argv[1:]]
    return " ".join(["python", *words] if words[0].endswith(".py") else words)
