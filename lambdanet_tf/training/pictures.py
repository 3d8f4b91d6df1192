"""The pictures of a run: learning curves, and test images with answers."""

import io

import numpy as np

from lambdanet_tf.environment import require

_BLUE, _ORANGE = "#3366aa", "#dd7722"
_GREEN, _RED = "#2e8b57", "#c8102e"
_COLUMNS = 10
_ROWS = 6


def learning_curves(rows, best_epoch, test_accuracy=None):
    """The loss, accuracy and learning rate of each epoch.

    Args:
        rows: list of dictionaries, the lines of metrics.csv.
        best_epoch: int. The epoch whose weights were kept.
        test_accuracy: float or None.

    Returns:
        The bytes of a PNG file.
    """
    figure = _figure(11, 3.6)
    losses, accuracies, rates = figure.subplots(
        1, 3, gridspec_kw={"width_ratios": [3, 3, 2]}
    )
    epochs = [row["epoch"] for row in rows]
    for axes, name, factor in (
        (losses, "loss", 1),
        (accuracies, "accuracy", 100),
    ):
        for prefix, label, colour in (
            ("", "training (varied)", _BLUE),
            ("validation_", "validation", _ORANGE),
        ):
            values = [factor * row.get(prefix + name, np.nan) for row in rows]
            if not np.all(np.isnan(values)):
                axes.plot(epochs, values, color=colour, label=label)
        axes.axvline(best_epoch, color="grey", linewidth=0.8, linestyle=":")
        axes.set(xlabel="epoch", title=name)
    losses.set_ylim(bottom=0)
    accuracies.set(title="accuracy, %", ylim=_accuracy_limits(rows))
    if test_accuracy is not None:
        accuracies.plot(
            [best_epoch],
            [100 * test_accuracy],
            color="black",
            marker="*",
            markersize=11,
            linestyle="none",
            label=f"test: {test_accuracy:.2%}",
        )
    rates.plot(epochs, [row["learning_rate"] for row in rows], color="black")
    rates.set(xlabel="epoch", title="learning rate", ylim=(0, None))
    losses.legend(frameon=False)
    accuracies.legend(frameon=False, loc="lower right")
    for axes in (losses, accuracies, rates):
        axes.grid(alpha=0.25)
        axes.spines[["top", "right"]].set_visible(False)
    return _png(figure)


def predictions(images, labels, probabilities, classes):
    """Test images with the network's answers: all mistakes, then right ones.

    Args:
        images: array `(number, height, width, channels)`, in [0, 255].
        labels: int array `(number,)`.
        probabilities: array `(number, classes)`.
        classes: sequence of str. The names of the labels.

    Returns:
        The bytes of a PNG file.
    """
    answers = probabilities.argmax(axis=1)
    wrong = np.flatnonzero(answers != labels)
    right = np.flatnonzero(answers == labels)
    space = _COLUMNS * _ROWS
    shown_wrong = wrong[: space // 2]
    spread = np.linspace(0, len(right) - 1, num=min(space, len(right)))
    spread = right[spread.astype(int)] if len(right) else right
    shown = np.concatenate([shown_wrong, spread])[:space]

    num_rows = max(-(-len(shown) // _COLUMNS), 1)
    figure = _figure(1.15 * _COLUMNS, 1.32 * num_rows + 0.7)
    grid = figure.subplots(num_rows, _COLUMNS, squeeze=False).ravel()
    for axes in grid[len(shown) :]:
        axes.set_axis_off()
    for axes, index in zip(grid, shown, strict=False):
        _draw_answer(
            axes,
            images[index],
            truth=classes[labels[index]],
            answer=classes[answers[index]],
            confidence=probabilities[index].max(),
        )
    which = "all of them" if len(shown_wrong) == len(wrong) else "some of them"
    first = f" ({which} first, in red)" if len(wrong) else ""
    figure.suptitle(
        f"{len(labels)} test images: {len(right)} right, {len(wrong)} wrong"
        + first
    )
    return _png(figure)


def rate_curve(updates, rates, updates_per_epoch, title):
    """The learning rate over a whole training.

    Args:
        updates: array of updates of the weights, from the first to the last.
        rates: array of the learning rate at each of them.
        updates_per_epoch: float.
        title: str.

    Returns:
        The bytes of a PNG file.
    """
    figure = _figure(8, 3.6)
    axes = figure.subplots()
    peak = int(np.argmax(rates))
    axes.plot(updates / updates_per_epoch, rates, color=_BLUE)
    axes.plot(
        [updates[peak] / updates_per_epoch],
        [rates[peak]],
        color=_ORANGE,
        marker="o",
        linestyle="none",
        label=f"peak {rates[peak]:.4g}, after {updates[peak]:,.0f} updates",
    )
    axes.set(xlabel="epoch", ylabel="learning rate", ylim=(0, None))
    axes.set(xlim=(0, updates[-1] / updates_per_epoch), title=title)
    axes.legend(frameon=False, loc="upper right")
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    return _png(figure)


def _draw_answer(axes, image, truth, answer, confidence):
    is_right = truth == answer
    colour = _GREEN if is_right else _RED
    image = np.clip(image / 255.0, 0.0, 1.0)
    if image.shape[-1] == 1:
        axes.imshow(image[..., 0], cmap="gray_r", vmin=0, vmax=1)
    else:
        axes.imshow(image)
    axes.set(xticks=[], yticks=[])
    for spine in axes.spines.values():
        spine.set(color=colour, linewidth=1.2 if is_right else 3.5)
    mark = "✓" if is_right else "✗"
    title = f"{mark} {answer}  {confidence:.0%}"
    if not is_right:
        title = f"{mark} {answer}, not {truth}"
    axes.set_title(
        title,
        color=colour,
        fontsize=9,
        pad=3,
        fontweight="normal" if is_right else "bold",
    )


def _accuracy_limits(rows):
    """From a little below the accuracies after the first epochs, to 100."""
    names = ("accuracy", "validation_accuracy")
    later = rows[len(rows) // 10 :]
    low = min(100 * row[name] for row in later for name in names if name in row)
    return max(min(low - 2, 95), 0), 100.5


def _figure(width, height):
    return require("matplotlib.figure", extra="plot").Figure(
        figsize=(width, height), layout="constrained"
    )


def _png(figure):
    content = io.BytesIO()
    figure.savefig(content, format="png", dpi=120)
    return content.getvalue()
