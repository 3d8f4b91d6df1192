"""Pictures of what a lambda layer learned."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from lambdanet_tf import ops
from lambdanet_tf.analysis.parts import PartNorms
from lambdanet_tf.environment import require

_COLUMNS = 8
_BLUE, _ORANGE, _GREY = "#3366aa", "#dd7722", "#bbbbbb"


def position_table_figure(layer: Any, title: str | None = None) -> Any:
    """Draws the table of relative positions, a picture per key channel.

    Red is positive, blue negative, with one scale for all; the dot is the
    query's own position. A causal layer uses the first half of its table alone.

    Args:
        layer: a built lambda layer or `RelativePositionEmbedding`, of one or
            two spatial axes.
        title: str, or None for the layer's name.

    Returns:
        A `matplotlib.figure.Figure`. With several intra-depths there is a
        picture for each, key channels fastest.

    Raises:
        ValueError: if the layer has no table.
        ImportError: if matplotlib is not installed.
    """
    embedding = getattr(layer, "position_embedding", layer)
    if getattr(embedding, "embeddings", None) is None:
        raise ValueError(
            f"Layer {layer.name!r} has no table of relative positions, or is "
            "not built."
        )
    table = np.asarray(embedding.embeddings)
    *entries, _, _ = table.shape
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
    figure, axes = _grid(len(fields), columns, 1.9, 2.1)
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


def reading_figure(
    reading: ops.Reading,
    shown: Any = None,
    example: int = 0,
    query: int = 0,
    title: str | None = None,
) -> Any:
    """Draws what a query read: over an image a map for each head, or a text.

    There is a row for the content part, the position part and their sum, each
    on a scale of its own: red adds the values of a position, blue takes them
    away.

    Args:
        reading: of a layer's `read`, with one or two axes of context.
        shown: what was read: an image `(height, width[, channels])` of any
            size, numbers up to 1 or 255; a list of words, one per position;
            or None.
        example: int. Of the batch.
        query: int. Of the positions that were read.
        title: str, or None for the query's position.

    Returns:
        A `matplotlib.figure.Figure`. With an intra-depth above 1 there is a
        map for each, intra-depths fastest.

    Raises:
        ImportError: if matplotlib is not installed.
    """
    grid = reading.content.shape[3:-1]
    content, position = (
        np.moveaxis(np.asarray(part[example, query]), -1, 1).reshape(-1, *grid)
        for part in (reading.content, reading.position)
    )
    parts = {"content": content, "position": position}
    parts["both"] = content + position
    place = reading.places[query]
    # The middle of the query's share of the context.
    own = [
        (index + 0.5) * size / queries - 0.5
        for index, size, queries in zip(place, grid, reading.grid, strict=True)
    ]
    intra = reading.values.shape[-1]
    names = [
        f"head {i // intra}" + (f", u {i % intra}" if intra > 1 else "")
        for i in range(len(content))
    ]
    draw = _draw_read_words if len(grid) == 1 else _draw_read_image
    figure = draw(parts, own, names, shown)
    figure.suptitle(
        f"query at {place}" if title is None else title, fontsize=10
    )
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
    colors = {"content": _BLUE, "position": _ORANGE, "both": _GREY}
    for offset, (part, color) in zip(
        (-0.26, 0, 0.26), colors.items(), strict=True
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


def _grid(count, columns, width, height):
    """Returns a figure and its axes, so many, in rows of some columns."""
    columns = min(count, columns)
    rows = -(-count // columns)
    figure = _figure(width * columns, height * rows)
    axes = figure.subplots(rows, columns, squeeze=False).ravel()
    for axis in axes[count:]:
        axis.set_axis_off()
    return figure, axes[:count]


def _signed(axis, values, limit, **settings):
    """Draws numbers up to a limit, red above zero and blue below."""
    limit = limit or 1.0
    settings |= {"cmap": "RdBu_r", "vmin": -limit, "vmax": limit}
    return axis.imshow(values, **settings)


def _draw_read_image(parts, own, names, image):
    columns = len(names) + (image is not None)
    figure = _figure(1.25 * columns + 1.2, 1.35 * len(parts) + 0.5)
    axes = figure.subplots(len(parts), columns, squeeze=False)
    for axis, name in zip(axes[0, -len(names) :], names, strict=True):
        axis.set_title(name, fontsize=8)
    for row, (part, maps) in zip(axes, parts.items(), strict=True):
        for axis in row:
            axis.set(xticks=[], yticks=[])
        if image is not None:
            _draw_image(row[0], image, own, maps.shape[1:])
        for axis, weights in zip(row[-len(names) :], maps, strict=True):
            drawn = _signed(axis, weights, np.abs(maps).max())
            axis.plot(own[1], own[0], marker="+", color="black", markersize=5)
        row[0].set_ylabel(part, fontsize=9)
        figure.colorbar(drawn, ax=list(row), shrink=0.9)
    return figure


def _draw_image(axis, image, own, grid):
    """Draws an image, and the query where it is in its pixels."""
    image = np.asarray(image, "float32")
    image = image / 255 if image.max() > 1 else image
    axis.imshow(np.squeeze(image), cmap="gray", vmin=0, vmax=1)
    y, x = (
        (place + 0.5) * size / count - 0.5
        for place, size, count in zip(own, image.shape, grid, strict=False)
    )
    axis.plot(x, y, marker="+", color=_ORANGE, markersize=7)


def _draw_read_words(parts, own, names, words):
    count = len(next(iter(parts.values()))[0])
    words = list(map(str, range(count))) if words is None else list(words)
    figure = _figure(0.55 * count + 2.2, 0.75 * len(names) + 1.6)
    axes = figure.subplots(len(parts), 1, sharex=True)
    for axis, (part, maps) in zip(axes, parts.items(), strict=True):
        drawn = _signed(axis, maps, np.abs(maps).max(), aspect="auto")
        axis.axvspan(own[0] - 0.5, own[0] + 0.5, fill=False, edgecolor="black")
        axis.set_yticks(range(len(names)), names, fontsize=7)
        axis.set_ylabel(part, fontsize=9)
        figure.colorbar(drawn, ax=axis)
    axes[-1].set_xticks(
        range(count), words, rotation=45, ha="right", fontsize=9
    )
    return figure


def _draw_maps(rows, own, title):
    figure, axes = _grid(rows.shape[-1], _COLUMNS, 1.25, 1.4)
    for index, axis in enumerate(axes):
        image = _signed(axis, rows[..., index], np.abs(rows).max())
        axis.plot(own[1], own[0], marker=".", color="black", markersize=3)
        axis.set(xticks=[], yticks=[])
        axis.set_title(f"k = {index}", fontsize=7, pad=2)
    figure.colorbar(image, ax=list(axes), shrink=0.8)
    figure.suptitle(title, fontsize=10)
    return figure


def _draw_lines(rows, own, title):
    figure = _figure(7, 0.16 * rows.shape[1] + 1.4)
    axes = figure.subplots()
    first = -own[0] - 0.5
    extent = (first, first + len(rows), rows.shape[1] - 0.5, -0.5)
    limit = np.abs(rows).max()
    image = _signed(axes, rows.T, limit, aspect="auto", extent=extent)
    axes.axvline(0, color="black", linewidth=0.6, linestyle=":")
    axes.set(xlabel="relative position", ylabel="key channel", title=title)
    figure.colorbar(image, ax=axes)
    return figure
