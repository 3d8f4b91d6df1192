"""The pictures of a run: learning curves, and test images with predictions."""

import io
from collections.abc import Sequence
from typing import Any

import numpy as np

from lambdanet_tf.environment import require

_POINTS = 1000  # of the curve of the learning rate
_BLUE, _ORANGE = "#3366aa", "#dd7722"
_GREEN, _RED = "#2e8b57", "#c8102e"
# Letters of a prediction's title.
_LONGEST_LINE = 14
_LONGEST_NAME = 19


def learning_curves(
    rows: Sequence[dict[str, Any]],
    best_epoch: int,
    test_accuracy: float | None = None,
    label_smoothing: float = 0.0,
) -> bytes:
    """Draws loss, accuracy and learning rate of each epoch.

    Args:
        rows: the lines of metrics.csv.
        best_epoch: the epoch whose weights were kept.
        test_accuracy: a point of its own, if given.
        label_smoothing: of the training loss; the label says so.

    Returns:
        A PNG file.
    """
    figure = _figure(11, 4.0)
    losses, accuracies, rates = figure.subplots(
        1, 3, gridspec_kw={"width_ratios": [3, 3, 2]}
    )
    smoothed = f", labels smoothed by {label_smoothing:g}"
    _plot_pair(losses, rows, "loss", smoothed if label_smoothing else "")
    _plot_pair(accuracies, rows, "accuracy", "", factor=100)
    _plot(rates, rows, "learning_rate", color="black")
    losses.set(title="loss", ylim=(0, None))
    accuracies.set(title="accuracy, %", ylim=_accuracy_limits(rows))
    rates.set(title="learning rate", ylim=(0, None))
    if test_accuracy is not None:
        accuracies.plot(
            best_epoch, 100 * test_accuracy, "*", color="black", markersize=11,
            label=f"test: {test_accuracy:.2%}",
        )  # fmt: skip
    for axes in (losses, accuracies):
        axes.axvline(
            best_epoch, color="grey", linewidth=0.8, linestyle=":",
            label=f"best epoch: {best_epoch}",
        )  # fmt: skip
        axes.legend(
            frameon=False, fontsize=8, loc="upper center",
            bbox_to_anchor=(0.5, -0.16), ncols=2,
        )  # fmt: skip
    ticker = require("matplotlib.ticker", extra="plot")
    for axes in (losses, accuracies, rates):
        axes.set(xlabel="epoch")
        axes.xaxis.set_major_locator(ticker.MaxNLocator(integer=True))
        if len(rows) == 1:  # There are no whole numbers around a single one.
            axes.set_xlim(rows[0]["epoch"] - 1, rows[0]["epoch"] + 1)
        _plain(axes)
    return _png(figure)


def predictions(
    images: np.ndarray,
    labels: np.ndarray,
    probabilities: np.ndarray,
    classes: Sequence[str],
) -> bytes:
    """Draws test images with their predictions: mistakes, then the others.

    Args:
        images: `(number, height, width, channels)`, in [0, 255].
        labels: ints `(number,)`.
        probabilities: `(number, classes)`.
        classes: the names of the labels.

    Returns:
        A PNG file.
    """
    predicted = probabilities.argmax(axis=1)
    wrong = np.flatnonzero(predicted != labels)
    right = np.flatnonzero(predicted == labels)
    longest = max(len(name) for name in classes)
    columns, num_rows, width = (10, 6, 1.15) if longest < 4 else (6, 5, 1.9)
    space = columns * num_rows
    shown_wrong = wrong[: space // 2]
    spread = np.linspace(0, len(right) - 1, num=min(space, len(right)))
    spread = right[spread.astype(int)] if len(right) else right
    shown = np.concatenate([shown_wrong, spread])[:space]

    num_rows = max(-(-len(shown) // columns), 1)
    height = width + (0.2 if longest < 4 else 0.5)
    figure = _figure(width * columns, height * num_rows + 0.7)
    grid = figure.subplots(num_rows, columns, squeeze=False).ravel()
    for axes in grid[len(shown) :]:
        axes.set_axis_off()
    for axes, index in zip(grid, shown, strict=False):
        _draw_prediction(
            axes,
            images[index],
            classes[int(labels[index])],
            classes[int(predicted[index])],
            probabilities[index].max(),
        )
    which = "all of them" if len(shown_wrong) == len(wrong) else "some of them"
    first = f" ({which} first, in red)" if len(wrong) else ""
    figure.suptitle(
        f"{len(labels)} test images: {len(right)} right, {len(wrong)} wrong"
        + first
    )
    return _png(figure)


def rate_curve(schedule: Any, steps_per_epoch: int, title: str) -> bytes:
    """Draws the learning rate over a whole training.

    Args:
        schedule: a `WarmupSchedule`.
        steps_per_epoch: for the axis.
        title: of the picture.

    Returns:
        A PNG file.
    """
    steps = np.linspace(0, schedule.num_steps, _POINTS).round()
    steps = np.union1d(steps, [schedule.warmup_steps])
    rates = np.array(schedule(steps.astype("float32")))
    peak = int(np.argmax(rates))
    figure = _figure(8, 3.6)
    axes = figure.subplots()
    axes.plot(steps / steps_per_epoch, rates, color=_BLUE)
    axes.plot(
        steps[peak] / steps_per_epoch, rates[peak], "o", color=_ORANGE,
        label=f"peak {rates[peak]:.4g}, after {steps[peak]:,.0f} steps",
    )  # fmt: skip
    axes.set(xlabel="epoch", ylabel="learning rate", ylim=(0, None))
    axes.set(xlim=(0, steps[-1] / steps_per_epoch), title=title)
    axes.legend(frameon=False, loc="upper right")
    _plain(axes)
    return _png(figure)


def _plot_pair(axes, rows, name, note, factor=1):
    """Plots a metric on training and validation images."""
    label = f"training (augmented{note})"
    _plot(axes, rows, name, factor, color=_BLUE, label=label)
    name, label = f"validation_{name}", "validation"
    if any(name in row for row in rows):
        _plot(axes, rows, name, factor, color=_ORANGE, label=label)


def _plot(axes, rows, name, factor=1, **how):
    """Plots a column of metrics.csv; a single epoch is a point."""
    axes.plot(
        [row["epoch"] for row in rows],
        [factor * row.get(name, np.nan) for row in rows],
        marker="o" if len(rows) == 1 else None,
        **how,
    )


def _draw_prediction(axes, image, truth, predicted, probability):
    is_right = truth == predicted
    color = _GREEN if is_right else _RED
    image = np.clip(image / 255.0, 0.0, 1.0)
    if image.shape[-1] == 1:
        axes.imshow(image[..., 0], cmap="gray_r", vmin=0, vmax=1)
    else:
        axes.imshow(image)
    axes.set(xticks=[], yticks=[])
    for spine in axes.spines.values():
        spine.set(color=color, linewidth=1.2 if is_right else 3.5)
    axes.set_title(
        prediction_title(truth, predicted, probability),
        color=color,
        fontsize=9,
        pad=3,
        fontweight="normal" if is_right else "bold",
    )


def prediction_title(truth: str, predicted: str, probability: float) -> str:
    """Returns the title of a prediction: lines that fit above its image."""
    short_truth, short = _shortened(truth), _shortened(predicted)
    lines = [f"✗ {short},", f"not {short_truth}"]
    space = " "
    if truth == predicted:
        lines, space = [f"✓ {short}", f"{probability:.0%}"], "  "
    both = space.join(lines)
    return both if len(both) <= _LONGEST_LINE else "\n".join(lines)


def _shortened(name):
    if len(name) <= _LONGEST_NAME:
        return name
    return f"{name[: _LONGEST_NAME - 1]}…"


def _accuracy_limits(rows):
    """From a little below the accuracies after the first epochs, to 100."""
    names = ("accuracy", "validation_accuracy")
    later = rows[len(rows) // 10 :]
    low = min(100 * row[name] for row in later for name in names if name in row)
    return max(min(low - 2, 95), 0), 100.5


def _plain(axes):
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)


def _figure(width, height):
    return require("matplotlib.figure", extra="plot").Figure(
        figsize=(width, height), layout="constrained"
    )


def _png(figure):
    content = io.BytesIO()
    figure.savefig(content, format="png", dpi=120)
    return content.getvalue()
