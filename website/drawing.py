"""Draws a lambda layer with q, k, v and E: `docs/lambda_layer.svg`.

    python -m website.drawing

Text stands on boxes of its own, so that it is read on light and dark pages.
"""

import pathlib

FILE = pathlib.Path(__file__).parents[1] / "docs/lambda_layer.svg"
_INK, _LINE = "#1c2733", "#7d8997"
_FILL = {
    "x": "#e4e8ee",
    "q": "#bfe3cd",
    "k": "#bcd3f5",
    "v": "#dcd3ee",
    "e": "#fbdcae",
    "y": "#bfe3cd",
}
_SIDE, _QUERY, _SCOPE, _CELL = 7, (3, 2), 5, 22


def draw():
    """Returns the drawing as text."""
    parts = [*_map(20, 76), *_arrows()]
    for box in (
        (232, 20, "q", "queries q", "k numbers for each of h heads"),
        (232, 108, "k", "keys k", "softmax over all positions m"),
        (232, 196, "v", "values v", "v numbers at each position m"),
        (232, 284, "e", "embeddings E", "learned: one per relative position"),
    ):
        parts += _box(*box[:2], 218, 62, *box[2:])
    parts += _box(
        520,
        100,
        250,
        84,
        "k",
        "content lambda",
        "λᶜ = Σ kₘ vₘᵀ  over all m",
        "one k × v matrix for all queries",
    )
    parts += _box(
        520,
        226,
        250,
        84,
        "e",
        "position lambda",
        "λᵖₙ = Σ Eₘ₋ₙ vₘᵀ  over m in scope",
        "one k × v matrix for each position n",
    )
    parts += _box(
        834,
        134,
        166,
        104,
        "y",
        "output at n",
        "yₙ = (λᶜ + λᵖₙ)ᵀ qₙ",
        "for each of h heads:",
        "no n × m attention map",
    )
    return "\n".join(
        [
            '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 1020 366" '
            'font-family="DejaVu Sans, Verdana, sans-serif" role="img">',
            "<title>A lambda layer: keys and values make one content lambda, "
            "embeddings and values one position lambda for each query; both "
            "are applied to the query.</title>",
            f'<marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" '
            f'markerWidth="7" markerHeight="7" orient="auto">'
            f'<path d="M0 0L8 4L0 8z" fill="{_LINE}"/></marker>',
            *parts,
            "</svg>\n",
        ]
    )


def _map(left, top):
    """The positions of an image: a query n and the scope around it."""
    row, column = _QUERY
    half = _SCOPE // 2
    yield from _box(left - 8, top - 48, 180, 40, "x", "inputs: positions m")
    for y in range(_SIDE):
        for x in range(_SIDE):
            near = max(abs(y - row), abs(x - column)) <= half
            fill = _FILL["e"] if near else _FILL["x"]
            fill = "#2e8b57" if (y, x) == _QUERY else fill
            yield (
                f'<rect x="{left + x * _CELL}" y="{top + y * _CELL}" '
                f'width="{_CELL - 3}" height="{_CELL - 3}" fill="{fill}"/>'
            )
    bottom = top + _SIDE * _CELL + 8
    yield from _box(
        left - 8, bottom, 180, 62, "x", "green: query n", "orange: its scope"
    )


def _box(left, top, width, height, kind, title, *lines):
    """A box with a bold first line."""
    yield (
        f'<rect x="{left}" y="{top}" width="{width}" height="{height}" '
        f'rx="6" fill="{_FILL[kind]}"/>'
    )
    middle = left + width / 2
    start = top + height / 2 - 10 * len(lines) + 5
    for number, line in enumerate((title, *lines)):
        style = 'font-size="15" font-weight="bold"' if not number else ""
        style = style or 'font-size="12.5"'
        yield (
            f'<text x="{middle:g}" y="{start + 20 * number:g}" {style} '
            f'fill="{_INK}" text-anchor="middle">{line}</text>'
        )


def _arrows():
    for path in (
        "M184 153 H208 V51 H228",
        "M208 139 H228",
        "M208 153 V227 H228",
        "M450 139 H516",
        "M450 220 H484 V162 H516",
        "M484 220 V248 H516",
        "M450 315 H484 V288 H516",
        "M770 142 H800 V172 H830",
        "M770 268 H800 V200 H830",
        "M450 51 H917 V130",
    ):
        yield (
            f'<path d="{path}" fill="none" stroke="{_LINE}" '
            'stroke-width="2" marker-end="url(#tip)"/>'
        )


if __name__ == "__main__":
    FILE.write_text(draw(), encoding="utf-8")
    print(f"wrote {FILE.name}")
