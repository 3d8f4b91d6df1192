"""Pictures of what a lambda layer learned."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from lambdanet_tf.analysis.parts import PartNorms
from lambdanet_tf.environment import require

_COLUMNS = 8
_BLUE, _ORANGE, _GREY = "#3366aa", "#dd7722", "#bbbbbb"


def position_table_figure(layer: Any, title: str | None = None) -> Any:
    """Draws the table of relative positions, a picture per key channel.

    Red is positive, blue negative, white zero, with one scale for all; the
    dot is the query's own position. A causal layer has a use for the first
    half of its table alone.

    Args:
        layer: a built lambda layer or `RelativePositionEmbedding`, of one or
            two spatial axes.
        title: str, or None for the layer's name.

    Returns:
        A `matplotlib.figure.Figure`. With several heads or intra-depths there
        is a picture for each, key channels fastest.

    Raises:
        ValueError: if the layer has no table, or one of three axes.
        ImportError: if matplotlib is not installed.
    """
    embedding = getattr(layer, "position_embedding", layer)
    if getattr(embedding, "embeddings", None) is None:
        raise ValueError(
            f"Layer {layer.name!r} has no table of relative positions, or is "
            "not built."
        )
    table = np.asarray(embedding.embeddings)
    heads = 0 if embedding.num_heads is None else 1
    entries = table.shape[: -2 - heads]
    if len(entries) > 2:
        raise ValueError(
            "A table of one or two axes can be drawn. Received: a table of "
            f"{entries} relative positions."
        )
    rows = np.moveaxis(table, -2, -1).reshape(*entries, -1)
    # A convolution that is causal has its own position last.
    last = getattr(layer, "padding", None) == "causal"
    own = [size - 1 if last else size // 2 for size in entries]
    draw = _draw_lines if len(entries) == 1 else _draw_maps
    title = layer.name if title is None else title
    return draw(rows, own, title)


def receptive_field_figure(
    fields: dict[str, np.ndarray],
    position: Sequence[float] | None = None,
    columns: int = _COLUMNS,
) -> Any:
    """Draws effective receptive fields side by side.

    Args:
        fields: from title to what `receptive_field` returned, of one or two
            spatial axes. Each is drawn on a scale of its own.
        position: where to mark the query, in the pixels of the fields.
        columns: int. Fields in a row, at most.

    Returns:
        A `matplotlib.figure.Figure`.
    """
    count = len(fields)
    columns = min(count, columns)
    figure = _figure(1.9 * columns, 2.1 * -(-count // columns))
    axes = figure.subplots(-(-count // columns), columns, squeeze=False).ravel()
    for axis in axes[count:]:
        axis.set_axis_off()
    for axis, (title, field) in zip(axes, fields.items(), strict=False):
        axis.set_title(title, fontsize=8)
        if field.ndim == 1:
            axis.plot(field, color=_BLUE)
            if position is not None:
                axis.axvline(position[0], color=_ORANGE, linewidth=0.8)
            continue
        axis.imshow(field, cmap="magma", vmin=0)
        axis.set(xticks=[], yticks=[])
        if position is not None:
            y, x = position
            axis.plot(x, y, marker="+", color="white", markersize=7)
    return figure


def part_norms_figure(norms: Sequence[PartNorms]) -> Any:
    """Draws how large the content and position parts are, by depth.

    Args:
        norms: what `part_norms` returned.

    Returns:
        A `matplotlib.figure.Figure`.
    """
    figure = _figure(1.2 * len(norms) + 3, 3.2)
    axes = figure.subplots()
    places = np.arange(len(norms))
    for offset, part, color in (
        (-0.26, "content", _BLUE),
        (0.0, "position", _ORANGE),
        (0.26, "both", _GREY),
    ):
        heights = [getattr(row, part) for row in norms]
        axes.bar(places + offset, heights, 0.24, color=color, label=part)
    names = [row.name.replace("_", "\n") for row in norms]
    axes.set_xticks(places, names, fontsize=8)
    axes.set(ylabel="root mean square of the output")
    axes.legend(frameon=False)
    axes.spines[["top", "right"]].set_visible(False)
    return figure


def _figure(width, height):
    figures = require("matplotlib.figure", extra="plot")
    return figures.Figure(figsize=(width, height), layout="constrained")


def _draw_maps(rows, own, title):
    count = rows.shape[-1]
    columns = min(count, _COLUMNS)
    lines = -(-count // columns)
    figure = _figure(1.15 * columns + 0.8, 1.3 * lines + 0.4)
    axes = figure.subplots(lines, columns, squeeze=False)
    limit = np.abs(rows).max() or 1.0
    for axis in axes.ravel()[count:]:
        axis.set_axis_off()
    for index, axis in enumerate(axes.ravel()[:count]):
        image = axis.imshow(
            rows[..., index], cmap="RdBu_r", vmin=-limit, vmax=limit
        )
        axis.plot(own[1], own[0], marker=".", color="black", markersize=3)
        axis.set(xticks=[], yticks=[])
        axis.set_title(f"k = {index}", fontsize=7, pad=2)
    figure.colorbar(image, ax=axes, shrink=0.8)
    figure.suptitle(title, fontsize=10)
    return figure


def _draw_lines(rows, own, title):
    figure = _figure(7, 0.16 * rows.shape[1] + 1.4)
    axes = figure.subplots()
    limit = np.abs(rows).max() or 1.0
    first = -own[0] - 0.5
    image = axes.imshow(
        rows.T,
        cmap="RdBu_r",
        vmin=-limit,
        vmax=limit,
        aspect="auto",
        extent=(first, first + len(rows), rows.shape[1] - 0.5, -0.5),
    )
    axes.axvline(0, color="black", linewidth=0.6, linestyle=":")
    axes.set(xlabel="relative position", ylabel="key channel", title=title)
    figure.colorbar(image, ax=axes)
    return figure
