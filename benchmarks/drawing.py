"""Draws what a lambda layer computes: `docs/lambda_layer.png`.

python -m benchmarks.drawing --write docs
"""

import argparse
import pathlib

from lambdanet_tf.environment import require

FILE = "lambda_layer.png"
_SIDE, _SCOPE, _QUERY = 9, 5, (5, 3)
_BLUE, _ORANGE, _GREEN, _GRAY = "#3366aa", "#e08a1e", "#2e8b57", "#d9d9d9"


def draw():
    """Returns the figure."""
    pyplot = require("matplotlib.pyplot", extra="plot")
    figure, axes = pyplot.subplots(
        1, 3, figsize=(10, 3.9), layout="constrained"
    )
    texts = (
        (
            "Content lambda\none for all queries",
            "$\\lambda^c = \\sum_m K_m^\\top V_m$",
            "all positions, by what they hold",
        ),
        (
            "Position lambda\none for each query",
            "$\\lambda^p_n = \\sum_m E_{m-n}^\\top V_m$",
            "the scope, by where they lie",
        ),
        (
            "Output\nboth, applied to the query",
            "$y_n = (\\lambda^c + \\lambda^p_n)^\\top q_n$",
            "h queries share a lambda: no attention map",
        ),
    )
    for axis, (title, equation, note) in zip(axes, texts, strict=True):
        axis.set_title(title, fontsize=11)
        axis.text(4, 10.4, equation, ha="center", va="center", fontsize=14)
        axis.text(4, 12, note, ha="center", va="center", fontsize=9)
        axis.set(xlim=(-1, 9), ylim=(12.6, -0.8), aspect="equal")
        axis.set_axis_off()
    _map(axes[0], lambda row, column: _BLUE)
    _map(axes[1], lambda row, column: _ORANGE if _near(row, column) else _GRAY)
    _map(axes[2], lambda row, column: _GRAY)
    for axis in axes[1:]:
        _cell(axis, *_QUERY, _GREEN, 1.0)
    return figure


def _map(axis, color_of):
    """The positions of a map, stronger the more they weigh."""
    for row in range(_SIDE):
        for column in range(_SIDE):
            color = color_of(row, column)
            weight = 0.25 + 0.75 * ((5 * row * row + 3 * column) % 7) / 6
            alpha = 0.5 if color == _GRAY else weight
            _cell(axis, row, column, color, alpha)


def _cell(axis, row, column, color, alpha):
    axis.add_patch(
        require("matplotlib.patches", extra="plot").Rectangle(
            (column - 0.45, row - 0.45),
            0.9,
            0.9,
            color=color,
            alpha=alpha,
            lw=0,
        )
    )


def _near(row, column):
    half = _SCOPE // 2
    return max(abs(row - _QUERY[0]), abs(column - _QUERY[1])) <= half


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--write", default="docs", metavar="FOLDER")
    folder = pathlib.Path(parser.parse_args().write)
    draw().savefig(folder / FILE, dpi=130)
    print(f"wrote {folder / FILE}")


if __name__ == "__main__":
    main()
