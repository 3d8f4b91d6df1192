"""What is made of records: a view for each table and picture of the docs.

A view is a function of records, pure, under the target that
`results/README.md` gives it: "engine.md#bench" is a block of a page, and
returns Markdown; "engine.png" is a picture, and returns a figure. Its argument
has the latest records of each topic by name, each a `Row`.

A table is rows and columns, and a column is a template of a row's fields, such
as "{network}" or "{seconds[auto]:.1f/ms}". What no record has is computed into
the rows before.
"""

import functools
import statistics
import string

from benchmarks.timing import median
from lambdanet_tf import markdown

VIEWS = {}
ENDED = {"fourier_tpu"}  # algorithms, of which no view tells
UNITS = {
    "ms": 1e-3,
    "min": 60,
    "M": 1e6,
    "G": 1e9,
    "T": 1e12,
    "%": 1e-2,
    "MiB": 2**20,
    "GiB": 2**30,
}


class Row(dict):
    """A record; its fields and those of its case are attributes, too."""

    def __getattr__(self, name):
        return self.get(name, self.get("case", {}).get(name))


def view(target):
    """Makes a function the view of a target."""

    def register(function):
        @functools.wraps(function)
        def of_rows(found):
            rows = {x: list(map(Row, y)) for x, y in found.items()}
            return function({x: list(filter(_stands, rows[x])) for x in rows})

        VIEWS[target] = of_rows
        return of_rows

    return register


def _stands(row):
    """Returns whether a record is about algorithms that there still are."""
    return not ENDED & {row.algorithm, *(row.algorithms or ())}


def text(value, spec=""):
    """A value as text: None as nothing, of repeats their median."""
    spec, _, unit = spec.partition("/")
    if value is None:
        return ""
    if spec and isinstance(value, (list, dict)):
        value = median(value)
    return format(value / UNITS[unit] if unit else value, spec)


class _Template(string.Formatter):
    def get_value(self, key, args, row):
        return getattr(row, key)

    def format_field(self, value, spec):
        return text(value, spec)


def filled(make, row):
    """What a template, or a function, makes of a row."""
    return make(row) if callable(make) else _Template().vformat(make, (), row)


def grouped(rows, *fields):
    """Rows by fields: dict from the tuple of the values to the list of rows."""
    groups = {}
    for row in rows:
        group = tuple(getattr(row, field) for field in fields)
        groups.setdefault(group, []).append(row)
    return groups


def listing(rows, columns):
    """A table with a line for each row, of columns by head, see `filled`."""
    cells = [[filled(make, row) for make in columns.values()] for row in rows]
    return markdown.table(cells, tuple(columns))


def table(target, topic, columns, where=lambda row: True):
    """Makes a table of those rows of a topic the view of a target."""
    return view(target)(
        lambda found: listing(list(filter(where, found[topic])), columns)
    )


def fields(*names):
    """Columns of fields as they are."""
    return {name: f"{{{name}}}" for name in names}


def crossed(cells, corner):
    """A table of cells, a dict from (line, column) to text."""
    lines = dict.fromkeys(line for line, _ in cells)
    columns = dict.fromkeys(column for _, column in cells)
    rows = [
        (line, *(cells.get((line, column), "") for column in columns))
        for line in lines
    ]
    return markdown.table(rows, (corner, *columns))


def page(*parts):
    """Paragraphs, tables and pictures under each other."""
    return "\n\n".join(part for part in parts if part)


def joined(numbers, spec):
    """Numbers in a row."""
    return ", ".join(format(number, spec) for number in numbers)


def interval(values, digits=2):
    """A median with its interval as text."""
    middle, low, high = (f"{value:.{digits}f}" for value in values)
    return f"{middle} ({low} to {high})"


def summary(ratios):
    """Ratios in words: median, number, least to most."""
    return (
        f"{statistics.median(ratios):.2f} times as long (median of "
        f"{len(ratios)} rows; {min(ratios):.2f} to {max(ratios):.2f})"
    )


def figure(width, height, rows=1, columns=1, **options):
    """A figure of matplotlib and its axes, an array `(rows, columns)`."""
    from lambdanet_tf.environment import require  # noqa: PLC0415

    made = require("matplotlib.figure", extra="plot").Figure(
        figsize=(width, height), layout="constrained"
    )
    return made, made.subplots(rows, columns, squeeze=False, **options)


def bars(axis, labels, groups):
    """Horizontal bars side by side, the first label on top, and a line at 1."""
    thick = 0.8 / len(groups)
    for index, (name, numbers) in enumerate(groups.items()):
        shift = (index - (len(groups) - 1) / 2) * thick
        places = [place + shift for place in range(len(labels))]
        widths = [number or 0 for number in numbers]
        axis.barh(places, widths, 0.95 * thick, label=name)
    axis.axvline(1.0, color="black", linewidth=1)
    axis.set_yticks(range(len(labels)), labels)
    axis.set_ylim(len(labels) - 0.4, -0.6)
    axis.grid(axis="x", alpha=0.3)


def lines(axis, curves, colors=None, **settings):
    """Curves of pairs (x, y) by label, a grid and a legend."""
    for label, points in curves.items():
        color = colors and colors[label]
        x, y = zip(*points, strict=True)
        axis.plot(x, y, "o-", color=color, label=label)
    axis.set(**settings)
    axis.grid(alpha=0.3)
    axis.legend(frameon=False)
