"""The output of a run: its first lines, its progress, and its report."""

import csv
import io
import shutil
import sys
import time
from collections.abc import Callable
from collections.abc import Sequence
from typing import Any
from typing import TextIO

import numpy as np
import tensorflow as tf

from lambdanet_tf import markdown
from lambdanet_tf import runs
from lambdanet_tf.analysis import trainable_parameters
from lambdanet_tf.analysis.pictures import figure_of
from lambdanet_tf.data import ImageSet
from lambdanet_tf.data import IndexedSource
from lambdanet_tf.environment import is_there
from lambdanet_tf.environment import keras_version
from lambdanet_tf.training.batches import InputPipeline
from lambdanet_tf.training.options import number_of_workers
from lambdanet_tf.training.recipe import Recipe
from lambdanet_tf.training.steps import Predictions

_EXAMPLES = 16
_COLUMNS, _ROWS = 6, 5  # of the picture of predictions
_NAMED_CLASSES = 30  # of a confusion matrix; more would be too small to read


# While it trains.


def plan(
    recipe: Recipe, pipeline: InputPipeline, model: tf.keras.Model, folder: str
) -> str:
    """Returns the first lines that a run prints."""
    images, largest = pipeline.images, ""
    height, width = model.get_layer("pool").input.shape[1:3]
    if isinstance(images.train, IndexedSource):
        counts = np.bincount(images.train.columns["label"])
        largest = f" The largest class, {images.classes[counts.argmax()]}, has "
        largest += f"{counts.max() / counts.sum():.1%} of the training images."
    return (
        f"Recipe {recipe.name}, {recipe.model} at {recipe.image_size} pixels: "
        f"{trainable_parameters(model):,} trainable parameters, last map "
        f"{height}x{width}; {keras_version()}, TensorFlow "
        f"{tf.__version__}, {describe(pipeline.strategy)}\n"
        f"{images.description}{largest}\n{count(recipe.epochs, 'epoch')} of "
        f"{count(pipeline.steps_per_epoch, 'step')}, "
        f"{count(recipe.batch_size, 'image')} each. Run folder: {folder}"
    )


def describe(strategy: tf.distribute.Strategy) -> str:
    """Describes the devices."""
    kind = "GPU" if tf.config.list_physical_devices("GPU") else "CPU"
    if isinstance(strategy, tf.distribute.TPUStrategy):
        kind = "TPU core"
    workers = number_of_workers()
    where = f" on {workers} machines" if workers > 1 else ""
    return count(strategy.num_replicas_in_sync, kind) + where


class Progress:
    """Shows epoch, step, metrics, the time left and images per second.

    On a terminal, it updates one line, cut to the terminal's width. In a file
    or a log, it adds a line each minute and after each epoch.
    """

    def __init__(
        self,
        num_epochs: int,
        steps_per_epoch: int,
        batch_size: int,
        stream: TextIO | None = None,
        clock: Callable[[], float] = time.perf_counter,
    ):
        self._sizes = num_epochs, steps_per_epoch, batch_size
        self._stream, self._clock = stream or sys.stdout, clock
        self._period = 0.5 if self._stream.isatty() else 60.0
        self._start: tuple[float, int] | None = None
        self._shown = 0.0

    def is_due(self, step: int) -> bool:
        """Returns whether to show the progress after a step.

        The first call starts the clock, so that compiling does not count.
        """
        is_first = self._start is None
        if is_first:
            self._start = self._clock(), step
        return is_first or self._clock() - self._shown >= self._period

    def show(self, step: int, metrics: str, ends_epoch: bool = False) -> None:
        """Shows step and metrics; the line stays if it ends an epoch."""
        num_epochs, per_epoch, batch_size = self._sizes
        self._shown = self._clock()
        epoch, inside = divmod(max(step - 1, 0), per_epoch)
        line = f"epoch {epoch + 1}/{num_epochs}"
        line += f"  step {inside + 1}/{per_epoch}" * (not ends_epoch)
        line += f"  {metrics}"
        start, first = self._start or (self._shown, step)
        if step > first:
            seconds = (self._shown - start) / (step - first)
            left = duration((num_epochs * per_epoch - step) * seconds)
            line += f"  {left} left  {batch_size / seconds:,.0f} img/s"
        self.write(line, ends_epoch)

    def write(self, line: str, stays: bool = False) -> None:
        """Writes a line; on a terminal, the next one replaces it."""
        if self._stream.isatty():
            columns = shutil.get_terminal_size().columns - 1
            line = "\r" + line[:columns].ljust(columns) + "\n" * stays
        else:
            line += "\n"
        print(line, end="", file=self._stream, flush=True)


def duration(seconds: float) -> str:
    """Formats seconds: 48 s, 3:20 min, 5:02 h, 100:02 h."""
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours}:{minutes:02d} h"
    return f"{minutes}:{seconds:02d} min" if minutes else f"{seconds} s"


def count(number: int, noun: str) -> str:
    """Formats a number with its noun: 1 epoch, 1,295 images."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


# At its end.


def write_report(
    folder: runs.RunFolder,
    run: runs.Run,
    rows: Sequence[dict[str, Any]],
    predictions: Predictions,
    images: ImageSet,
) -> None:
    """Writes the report and its files; pictures need matplotlib."""
    numbers = np.array([*predictions.pictures])  # We keep some, evenly.
    wanted = np.linspace(0, numbers[-1], _EXAMPLES)
    kept = numbers[np.unique(np.searchsorted(numbers, wanted))]
    pictures = np.stack([predictions.pictures[number] for number in kept])
    folder.write_examples(pictures, predictions.labels[kept])
    folder.write_text("wrong_images.csv", _wrong_images(predictions, images))
    matrix, figures = _confusion_matrix(predictions, len(run.classes)), {}
    if is_there("matplotlib"):
        figures = {
            "curves.png": _curves(rows, run.metrics),
            "predictions.png": _predictions(predictions, run.classes),
            "confusion.png": _confusion(matrix, run.classes),
        }
    for name, figure in figures.items():
        content = io.BytesIO()
        figure.savefig(content, format="png", dpi=120)
        folder.write_bytes(name, content.getvalue())
    text = report(run, matrix, images.description, [*figures])
    folder.write_text("report.md", text)


def report(
    run: runs.Run,
    matrix: np.ndarray,
    description: str,
    pictures: Sequence[str],
) -> str:
    """Describes a finished run in Markdown, with links to its pictures.

    `matrix` counts the test images by class (row) and prediction (column).
    """
    recipe, metrics = run.recipe, run.metrics
    results = {
        "top-5 accuracy": _percent(metrics.get("top5_accuracy")),
        "test loss": f"{metrics['loss']:.4f}",
        "validation accuracy": _percent(metrics.get("validation_accuracy")),
        "images that could not be read": metrics["bad_images"],
        "training time": duration(metrics["seconds"]),
        "images per second, last epoch": f"{metrics['images_per_second']:,.0f}",
        "trainable parameters": f"{metrics['parameters']:,}",
        "device": metrics["device"],
        "command": markdown.code(run.command),
    }
    fields = [(f"`{k}`", markdown.code(v)) for k, v in recipe.items()]
    parts = [
        f"# {run.model} on {markdown.escape(recipe['data'])}",
        f"Test accuracy **{metrics['accuracy']:.2%}** on "
        f"{count(metrics['test_images'], 'image')}, with the weights of epoch "
        f"{metrics['best_epoch']} of {recipe['epochs']}: the best epoch on the "
        "validation images, or the last if there are none.",
        markdown.table(results.items()),
        markdown.escape(description),
        "## Classes, the least accurate first",
        *_by_class(matrix, run.classes),
        *(f"![{name.partition('.')[0]}]({name})" for name in pictures),
        "## Recipe",
        markdown.table(fields),
        "## Versions",
        markdown.table(run.versions.items()) + "\n",
    ]
    return "\n\n".join(parts)


def _percent(value):
    return "-" if value is None else f"{value:.2%}"


def _wrong_images(predictions, images):
    """Returns CSV of wrong predictions, the most certain first."""
    labels, predicted, certainties, positions, _ = predictions
    wrong = np.flatnonzero(labels != predicted)
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["name", "label", "prediction", "probability"])
    for n in wrong[np.argsort(-certainties[wrong], kind="stable")]:
        name = images.test.name(positions[n])
        pair = images.classes[labels[n]], images.classes[predicted[n]]
        writer.writerow([name, *pair, f"{certainties[n]:.4f}"])
    return text.getvalue()


def _confusion_matrix(predictions: Predictions, classes: int) -> np.ndarray:
    """Counts images by class (row) and prediction (column)."""
    matrix = np.zeros((classes, classes), np.int64)
    np.add.at(matrix, (predictions.labels, predictions.predicted), 1)
    return matrix


def _by_class(matrix, classes):
    """Yields the paragraphs about classes, the least accurate first."""
    names, totals = [*map(markdown.escape, classes)], matrix.sum(1)
    shares = matrix.diagonal() / np.maximum(totals, 1)
    wrong = matrix - np.diag(matrix.diagonal())
    others = [
        f"{names[row.argmax()]} ({row.max()})" if row.any() else "-"
        for row in wrong
    ]
    percents = [_percent(x) for x in np.where(totals, shares, None)]
    rows = [*zip(names, totals, percents, others, strict=True)]
    head = "class", "test images", "accuracy", "most frequent error"
    order = np.argsort(shares, kind="stable")
    yield markdown.table([rows[i] for i in order], head)
    yield (
        f"[wrong_images.csv](wrong_images.csv) lists "
        f"{count(int(wrong.sum()), 'wrong prediction')}, most certain first."
    )
    if len(names) <= _NAMED_CLASSES:
        yield "Test images of each class (row) by prediction (column):"
        rows = [(name, *row) for name, row in zip(names, matrix, strict=True)]
        yield markdown.table(rows, ("", *names))


def _curves(rows, metrics):
    """Draws loss and accuracy of each epoch."""
    figure = figure_of(9, 4)
    epochs, best = [row["epoch"] for row in rows], metrics["best_epoch"]
    names = ("loss", "accuracy")
    for axes, name in zip(figure.subplots(1, 2), names, strict=True):
        for prefix, label in (("", "training"), ("validation_", "validation")):
            values = [row.get(prefix + name, np.nan) for row in rows]
            axes.plot(epochs, values, ".-", label=label)
        axes.plot(best, metrics[name], "k*", label=f"test, epoch {best}")
        axes.set(title=name, xlabel="epoch")
        axes.legend(frameon=False)
    return figure


def _predictions(predictions, classes):
    """Draws test images with their predictions, first the wrong ones."""
    labels, predicted, certainties, _, pictures = predictions
    wrong = labels != predicted
    numbers = [n for n in pictures if wrong[n]][: _COLUMNS * _ROWS // 2]
    numbers += [n for n in pictures if not wrong[n]]
    figure = figure_of(1.9 * _COLUMNS, 2.4 * _ROWS)
    figure.suptitle(f"{wrong.sum()} of {len(wrong)} test images wrong")
    for place, n in enumerate(numbers[: _COLUMNS * _ROWS], 1):
        axes = figure.add_subplot(_ROWS, _COLUMNS, place)
        axes.imshow(pictures[n].clip(0, 255) / 255, "gray", vmin=0, vmax=1)
        axes.set_axis_off()
        text = f"{classes[predicted[n]]:.19} {certainties[n]:.0%}"
        if wrong[n]:
            text += f"\nnot {classes[labels[n]]:.19}"
        axes.set_title(text, color="red" if wrong[n] else "green", size=9)
    return figure


def _confusion(matrix, classes):
    """Draws the confusion matrix, each row as fractions of its class."""
    size = 3 + 0.3 * min(len(classes), _NAMED_CLASSES)
    figure = figure_of(size + 1, size)
    axes = figure.subplots()
    fractions = matrix / np.maximum(matrix.sum(1, keepdims=True), 1)
    figure.colorbar(axes.imshow(fractions, "Blues", vmin=0, vmax=1))
    axes.set(xlabel="prediction", ylabel="class")
    if len(classes) <= _NAMED_CLASSES:
        names = [name[:19] for name in classes]
        axes.set_xticks(range(len(names)), names, rotation=90)
        axes.set_yticks(range(len(names)), names)
        for row, column in zip(*matrix.nonzero(), strict=True):
            color = "white" if fractions[row, column] > 0.5 else "black"
            how = {"color": color, "size": 8, "ha": "center", "va": "center"}
            axes.text(column, row, matrix[row, column], **how)
    return figure
