"""The end of a run: predictions, pictures and the report."""

from collections.abc import Callable
from typing import Any

import numpy as np

from lambdanet_tf import markdown
from lambdanet_tf import runs
from lambdanet_tf.environment import is_there
from lambdanet_tf.training import pictures
from lambdanet_tf.training.progress import count
from lambdanet_tf.training.progress import duration


def write_report(
    folder: runs.RunFolder,
    run: runs.Run,
    rows: list[dict[str, Any]],
    predictions: tuple[np.ndarray, np.ndarray, np.ndarray],
    facts: dict[str, str],
    print_fn: Callable[[str], Any] = print,
) -> None:
    """Writes report.md, and the pictures if matplotlib is there.

    Args:
        folder: where to.
        run: finished.
        rows: the lines of metrics.csv.
        predictions: test images, their labels and the probabilities of all
            classes, as `Evaluation.predictions` returns them.
        facts: further lines of the report's table, and under "data" the
            description of the images.
        print_fn: is told if the pictures cannot be drawn.
    """
    drawn = {}
    if is_there("matplotlib"):
        try:
            drawn = _draw(folder, run, rows, predictions)
        except Exception as error:  # of matplotlib: the figures are worth more
            print_fn(f"The pictures could not be drawn: {error}")
    folder.write_text(runs.REPORT_FILE, report(run, facts, drawn))


def _draw(folder, run, rows, predictions):
    """Draws the pictures; the file of each by its title."""
    metrics = run.metrics
    curves = pictures.learning_curves(
        rows,
        metrics["best_epoch"],
        metrics["accuracy"],
        run.recipe["label_smoothing"],
    )
    folder.write_bytes(runs.CURVES_FILE, curves)
    images, labels, probabilities = predictions
    picture = pictures.predictions(images, labels, probabilities, run.classes)
    folder.write_bytes(runs.PREDICTIONS_FILE, picture)
    return {
        "Learning curves": runs.CURVES_FILE,
        "Predictions": runs.PREDICTIONS_FILE,
    }


def report(run: runs.Run, facts: dict[str, str], drawn: dict[str, str]) -> str:
    """Returns a finished run in Markdown.

    Args:
        run: finished.
        facts: as for `write_report`.
        drawn: the file of each picture by its title.
    """
    recipe, metrics = run.recipe, run.metrics
    facts = dict(facts)
    description = facts.pop("data")
    accuracy = accuracy_text(metrics)
    results = markdown.table([*_results(run), *facts.items()])
    chosen = "The weights are those of the last epoch."
    if "validation_accuracy" in metrics:
        chosen = (
            "The best epoch is chosen by the validation images, never by the "
            "test images."
        )
    fields = [(f"`{k}`", markdown.code(v)) for k, v in recipe.items()]
    return "\n\n".join(
        [
            f"# {run.model} on {markdown.escape(recipe['data'])}",
            f"{accuracy}, with the weights of epoch "
            f"{metrics['best_epoch']} of {recipe['epochs']}.",
            results,
            f"{markdown.escape(description)}\n{chosen}",
            *(f"![{title}]({name})" for title, name in drawn.items()),
            "## Recipe",
            markdown.table(fields),
            "## Versions",
            markdown.table(run.versions.items()) + "\n",
        ]
    )


def accuracy_text(metrics: Any) -> str:
    """Returns the accuracy on the test images in words."""
    text = f"Test accuracy **{metrics['accuracy']:.2%}**"
    if "top5_accuracy" in metrics:
        text += f" (top 5: {metrics['top5_accuracy']:.2%})"
    return f"{text} of {count(metrics['test_images'], 'image')}"


def _results(run):
    metrics = run.metrics
    rows = [("test loss", f"{metrics['loss']:.4f}")]
    if "validation_accuracy" in metrics:
        rows.append(
            ("validation accuracy", f"{metrics['validation_accuracy']:.2%}")
        )
    return [
        *rows,
        ("training time", duration(metrics["seconds"])),
        ("images per second", f"{metrics['images_per_second']:,.0f}"),
        ("device", metrics["device"]),
        ("seed", run.recipe["seed"]),
        ("command", markdown.code(run.command)),
    ]
