"""Pictures of what a lambda layer learned."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from lambdanet_tf import ops
from lambdanet_tf.environment import require

_BLUE, _ORANGE = "#3366aa", "#dd7722"


def position_table_figure(layer: Any) -> Any:
    """Draws the table of relative positions, one picture per key channel.

    Red is positive and blue negative, on one scale; the cross marks the query's
    own position. A causal layer uses only the first half of its table.

    Args:
        layer: a built lambda layer or `RelativePositionEmbedding` with one or
            two spatial axes. With one axis, each channel is a row. Each
            intra-depth has its own pictures; key channels vary fastest.

    Raises:
        ValueError: if the layer has no table.
        ImportError: if matplotlib is not installed.
    """
    embedding = getattr(layer, "position_embedding", layer)
    if getattr(embedding, "embeddings", None) is None:
        raise ValueError(
            f"Layer {layer.name!r} has no table of relative positions. If it "
            "should have one, build the layer first: call it once."
        )
    table = np.asarray(embedding.embeddings)
    *entries, _, _ = table.shape
    maps = np.moveaxis(table, (-1, -2), (0, 1)).reshape(-1, *entries)
    # In a causal convolution, the query's own position is the last.
    last = getattr(layer, "padding", None) == "causal"
    own = [size - 1 if last else size // 2 for size in entries]
    if len(entries) == 1:
        names = [f"k = {n}" for n in range(len(maps))]
        parts = {"key channel": maps}
        figure = _draw_rows(parts, [0], names, first=-own[0])
    else:
        columns = math.gcd(len(maps), 8)
        parts = {
            f"k = {n} on": maps[n : n + columns]
            for n in range(0, len(maps), columns)
        }
        limit = np.abs(maps).max()
        figure = _draw_maps(parts, own, [""] * columns, limit=limit)
    figure.suptitle(layer.name, fontsize=10)
    return figure


def receptive_field_figure(
    fields: dict[str, np.ndarray],
    position: Sequence[float] | None = None,
) -> Any:
    """Draws effective receptive fields side by side.

    Args:
        fields: dictionary from title to a result of `receptive_field`, of one
            or two spatial axes. Each has its own scale.
        position: where to mark the query, in pixels of the fields.
    """
    figure = figure_of(1.9 * len(fields), 2.1)
    axes = figure.subplots(1, len(fields), squeeze=False)[0]
    for axis, (title, field) in zip(axes, fields.items(), strict=True):
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
    """Draws how much a query reads from each position, one map per head.

    The content part, the position part and their sum have a row each, with its
    own scale. Red adds the values of a position, blue subtracts them.

    Args:
        reading: the result of a layer's `read`, with one or two context axes.
        shown: the inputs to draw: an image `(height, width[, channels])` of
            any size, with numbers up to 1 or 255; a list of words, one per
            position; or None.
        example: int. Index in the batch.
        query: int. Index of the query in the reading.
        title: str, or None for the query's position.

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
    # The middle of the context that the query covers.
    own = [
        (index + 0.5) * size / queries - 0.5
        for index, size, queries in zip(place, grid, reading.grid, strict=True)
    ]
    intra = reading.values.shape[-1]
    names = [
        f"head {i // intra}" + (f", u {i % intra}" if intra > 1 else "")
        for i in range(len(content))
    ]
    draw = _draw_rows if len(grid) == 1 else _draw_maps
    figure = draw(parts, own, names, shown)
    figure.suptitle(
        f"query at {place}" if title is None else title, fontsize=10
    )
    return figure


def figure_of(width: float, height: float) -> Any:
    """Returns an empty figure, `width` by `height` inches."""
    figures = require("matplotlib.figure", extra="plot")
    return figures.Figure(figsize=(width, height), layout="constrained")


def _signed(axis, values, limit, **settings):
    """Draws numbers on a scale up to `limit`: red above zero, blue below."""
    limit = limit or 1.0
    settings |= {"cmap": "RdBu_r", "vmin": -limit, "vmax": limit}
    return axis.imshow(values, **settings)


def _draw_maps(parts, own, names, image=None, limit=None):
    """Draws a row of maps for each part, and a cross at the query."""
    columns = len(names) + (image is not None)
    figure = figure_of(1.25 * columns + 1.2, 1.35 * len(parts) + 0.5)
    axes = figure.subplots(len(parts), columns, squeeze=False)
    for axis, name in zip(axes[0, -len(names) :], names, strict=True):
        axis.set_title(name, fontsize=8)
    for row, (part, maps) in zip(axes, parts.items(), strict=True):
        for axis in row:
            axis.set(xticks=[], yticks=[])
        if image is not None:
            _draw_image(row[0], image, own, maps.shape[1:])
        for axis, weights in zip(row[-len(names) :], maps, strict=True):
            drawn = _signed(axis, weights, limit or np.abs(maps).max())
            axis.plot(own[1], own[0], marker="+", color="black", markersize=5)
        row[0].set_ylabel(part, fontsize=9)
        figure.colorbar(drawn, ax=list(row), shrink=0.9)
    return figure


def _draw_image(axis, image, own, grid):
    """Draws an image, and marks the query in it."""
    image = np.asarray(image, "float32")
    image = image / 255 if image.max() > 1 else image
    axis.imshow(np.squeeze(image), cmap="gray", vmin=0, vmax=1)
    y, x = (
        (place + 0.5) * size / count - 0.5
        for place, size, count in zip(own, image.shape, grid, strict=False)
    )
    axis.plot(x, y, marker="+", color=_ORANGE, markersize=7)


def _draw_rows(parts, own, names, words=None, first=0):
    """Draws maps of one axis as rows, and a frame at the query."""
    count = len(next(iter(parts.values()))[0])
    width = 0.55 * count if words is not None else 5
    figure = figure_of(width + 2.2, len(parts) * 0.25 * len(names) + 1.6)
    axes = figure.subplots(len(parts), 1, sharex=True, squeeze=False)[:, 0]
    ends = first - 0.5, first + count - 0.5, len(names) - 0.5, -0.5
    for axis, (part, maps) in zip(axes, parts.items(), strict=True):
        limit = np.abs(maps).max()
        drawn = _signed(axis, maps, limit, aspect="auto", extent=ends)
        axis.axvspan(own[0] - 0.5, own[0] + 0.5, fill=False, edgecolor="black")
        axis.set_yticks(range(len(names)), names, fontsize=7)
        axis.set_ylabel(part, fontsize=9)
        figure.colorbar(drawn, ax=axis)
    if words is None:
        axes[-1].set_xlabel("position")
    else:
        axes[-1].set_xticks(range(count), words, rotation=45, ha="right")
    return figure
