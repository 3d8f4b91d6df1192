"""The end of a run: its report, with pictures."""

import io
from collections.abc import Callable
from collections.abc import Sequence
from typing import Any

import numpy as np

from lambdanet_tf import markdown
from lambdanet_tf import runs
from lambdanet_tf.environment import is_there
from lambdanet_tf.environment import require
from lambdanet_tf.training.progress import count
from lambdanet_tf.training.progress import duration
from lambdanet_tf.training.steps import Predictions

_COLUMNS, _ROWS = 6, 5  # of the picture of predictions
_NAMED_CLASSES = 30  # beside the confusion matrix


def write_report(
    folder: runs.RunFolder,
    run: runs.Run,
    rows: Sequence[dict[str, Any]],
    predictions: Predictions,
    description: str,
    print_fn: Callable[[str], Any] = print,
) -> None:
    """Writes report.md, and the pictures if matplotlib is there.

    Args:
        folder: where to.
        run: finished.
        rows: the lines of metrics.csv.
        predictions: for the test images.
        description: of the images.
        print_fn: is told if the pictures cannot be drawn.
    """
    drawn = {}
    if is_there("matplotlib"):
        try:
            drawn = {
                runs.CURVES_FILE: _curves(rows, run.metrics),
                runs.PREDICTIONS_FILE: _predictions(predictions, run.classes),
                runs.CONFUSION_FILE: _confusion(predictions, run.classes),
            }
        except Exception as error:  # of matplotlib: the figures are worth more
            print_fn(f"The pictures could not be drawn: {error}")
    for name, picture in drawn.items():
        folder.write_bytes(name, picture)
    folder.write_text(runs.REPORT_FILE, report(run, description, drawn))


def report(run: runs.Run, description: str, pictures: Sequence[str]) -> str:
    """Returns a finished run in Markdown.

    Args:
        run: finished.
        description: of the images.
        pictures: names of files.
    """
    recipe, metrics = run.recipe, run.metrics
    accuracy = f"Test accuracy **{metrics['accuracy']:.2%}**"
    if "top5_accuracy" in metrics:
        accuracy += f" (top 5: {metrics['top5_accuracy']:.2%})"
    chosen = "The weights are those of the last epoch."
    results = {"test loss": f"{metrics['loss']:.4f}"}
    if "validation_accuracy" in metrics:
        chosen = (
            "The best epoch is chosen by the validation images, never by the "
            "test images."
        )
        shown = f"{metrics['validation_accuracy']:.2%}"
        results["validation accuracy"] = shown
    results |= {
        "images that could not be read": metrics["bad_images"],
        "training time": duration(metrics["seconds"]),
        "images per second": f"{metrics['images_per_second']:,.0f}",
        "trainable parameters": f"{metrics['parameters']:,}",
        "device": metrics["device"],
        "command": markdown.code(run.command),
    }
    fields = [(f"`{k}`", markdown.code(v)) for k, v in recipe.items()]
    parts = [
        f"# {run.model} on {markdown.escape(recipe['data'])}",
        f"{accuracy} of {count(metrics['test_images'], 'image')}, with the "
        f"weights of epoch {metrics['best_epoch']} of {recipe['epochs']}.",
        markdown.table(results.items()),
        f"{markdown.escape(description)}\n{chosen}",
        *(f"![{name.partition('.')[0]}]({name})" for name in pictures),
        "## Recipe",
        markdown.table(fields),
        "## Versions",
        markdown.table(run.versions.items()) + "\n",
    ]
    return "\n\n".join(parts)


def _curves(rows, metrics):
    """Draws loss and accuracy of each epoch."""
    figure = _figure(9, 4)
    for axes, name in zip(
        figure.subplots(1, 2), ("loss", "accuracy"), strict=True
    ):
        for prefix, label in (("", "training"), ("validation_", "validation")):
            values = [row.get(prefix + name, np.nan) for row in rows]
            epochs = [row["epoch"] for row in rows]
            axes.plot(epochs, values, ".-", label=label)
        best = metrics["best_epoch"]
        axes.plot(best, metrics[name], "k*", label=f"test, epoch {best}")
        axes.set(title=name, xlabel="epoch")
        axes.grid(alpha=0.25)
        axes.legend(frameon=False)
    return _png(figure)


def _predictions(predictions, classes):
    """Draws test images with their predictions: mistakes, then the others."""
    wrong = predictions.labels != predictions.predicted
    numbers = [n for n in predictions.pictures if wrong[n]]
    numbers = numbers[: _COLUMNS * _ROWS // 2]
    numbers += [n for n in predictions.spread if not wrong[n]]
    figure = _figure(1.9 * _COLUMNS, 2.4 * _ROWS)
    grid = figure.subplots(_ROWS, _COLUMNS).ravel()
    for axes, number in zip(grid, numbers, strict=False):
        image = np.clip(predictions.pictures[number] / 255.0, 0.0, 1.0)
        axes.imshow(image, cmap="gray", vmin=0, vmax=1)
        text = classes[predictions.predicted[number]][:19]
        text += f" {predictions.probabilities[number]:.0%}"
        if wrong[number]:
            text += f"\nnot {classes[predictions.labels[number]][:19]}"
        color = "#c8102e" if wrong[number] else "#2e8b57"
        axes.set_title(text, color=color, fontsize=9)
    for axes in grid:
        axes.set_axis_off()
    figure.suptitle(f"{wrong.sum()} of {len(wrong)} test images wrong")
    return _png(figure)


def confusion_matrix(predictions: Predictions, classes: int) -> np.ndarray:
    """Returns how many images of each class (row) are taken for which."""
    matrix = np.zeros((classes, classes), np.int64)
    np.add.at(matrix, (predictions.labels, predictions.predicted), 1)
    return matrix


def _confusion(predictions, classes):
    """Draws the confusion matrix, each row as shares of its class."""
    matrix = confusion_matrix(predictions, len(classes))
    size = 3 + 0.3 * min(len(classes), _NAMED_CLASSES)
    figure = _figure(size + 1, size)
    axes = figure.subplots()
    shares = matrix / np.maximum(matrix.sum(1, keepdims=True), 1)
    figure.colorbar(axes.imshow(shares, cmap="Blues", vmin=0, vmax=1))
    axes.set(xlabel="prediction", ylabel="class")
    if len(classes) <= _NAMED_CLASSES:
        names = [name[:19] for name in classes]
        axes.set_xticks(range(len(names)), names, rotation=90)
        axes.set_yticks(range(len(names)), names)
        for row, column in zip(*matrix.nonzero(), strict=True):
            color = "white" if shares[row, column] > 0.5 else "black"
            axes.text(
                column, row, matrix[row, column], color=color, fontsize=8,
                ha="center", va="center",
            )  # fmt: skip
    return _png(figure)


def _figure(width, height):
    return require("matplotlib.figure", extra="plot").Figure(
        figsize=(width, height), layout="constrained"
    )


def _png(figure):
    content = io.BytesIO()
    figure.savefig(content, format="png", dpi=120)
    return content.getvalue()
