"""What is made of records: a view for each table and picture of the docs.

A view is a function of records, pure, under the target that
`results/README.md` gives it: "engine.md#bench" is a block of a page, and
returns Markdown; "engine.png" is a picture, and returns a figure. Its argument
has the latest records of each topic by name.
"""

import statistics

from benchmarks.timing import median
from lambdanet_tf import markdown

VIEWS = {}


def view(target):
    """Makes a function the view of a target."""

    def register(function):
        VIEWS[target] = function
        return function

    return register


def grouped(records, *fields):
    """Records by fields of their case.

    Args:
        records: list of records.
        *fields: names; where a case has none of a name, it counts as None.

    Returns:
        Dict from the tuple of the values to the list of its records.
    """
    groups = {}
    for record in records:
        group = tuple(record["case"].get(field) for field in fields)
        groups.setdefault(group, []).append(record)
    return groups


def listing(rows, columns):
    """A table with a line for each row.

    Args:
        rows: list of records, or of anything.
        columns: dict from head to a function from a row to its cell; or, of
            records, a text with the fields of a record and of its case in
            braces, such as "{network}" or "{seconds:.1f}".
    """
    cells = [
        tuple(_cell(row, make) for make in columns.values()) for row in rows
    ]
    return markdown.table(cells, tuple(columns))


def _cell(row, make):
    if isinstance(make, str):
        return make.format(**{**row, **row["case"]})
    return make(row)


def table(target, topic, columns, where=lambda record: True):
    """Makes a table of a topic's records the view of a target.

    Args:
        target: see `view`.
        topic: its name.
        columns: see `listing`.
        where: says of a record whether it has a line.
    """
    view(target)(
        lambda found: listing(list(filter(where, found[topic])), columns)
    )


def fields(*names):
    """Columns of a record's fields, or of its case's, as they are."""
    return {name: f"{{{name}}}" for name in names}


def scaled(field, unit, digits=1):
    """A column of a record's number in another unit."""
    return lambda row: f"{row[field] / unit:.{digits}f}"


def milliseconds(name, digits=1):
    """A column of the median of what was timed under a name."""
    return lambda row: f"{1e3 * median(row['seconds'][name]):.{digits}f}"


def crossed(cells, corner, empty=""):
    """A table of cells by line and column.

    Args:
        cells: dict from (line, column) to text.
        corner: head of the first column.
        empty: text where there is no cell.
    """
    lines = dict.fromkeys(line for line, _ in cells)
    columns = dict.fromkeys(column for _, column in cells)
    rows = [
        (line, *(cells.get((line, column), empty) for column in columns))
        for line in lines
    ]
    return markdown.table(rows, (corner, *columns))


def interval(values, digits=2):
    """A median with its interval as text."""
    middle, low, high = (f"{value:.{digits}f}" for value in values)
    return f"{middle} ({low} to {high})"


def bars(axis, labels, groups, **options):
    """Horizontal bars side by side, the first label on top, and a line at 1.

    Args:
        axis: of matplotlib.
        labels: of the places.
        groups: dict from the name of a group to its numbers, one a place;
            None is no bar.
        **options: by name of a group, those of `barh`.

    Returns:
        Dict from the name of a group to what `barh` gives.
    """
    made, thick = {}, 0.8 / len(groups)
    for index, (name, numbers) in enumerate(groups.items()):
        shift = (index - (len(groups) - 1) / 2) * thick
        made[name] = axis.barh(
            [place + shift for place in range(len(labels))],
            [number or 0 for number in numbers],
            0.95 * thick,
            label=name,
            **options.get(name, {}),
        )
    axis.axvline(1.0, color="black", linewidth=1)
    axis.set_yticks(range(len(labels)), labels)
    axis.set_ylim(len(labels) - 0.4, -0.6)
    axis.grid(axis="x", alpha=0.3)
    return made


def regrets(values):
    """How far choices are from the fastest, in words."""
    return (
        f"the choice is the fastest in {values.count(1.0)} of {len(values)} "
        f"layers; median {statistics.median(values):.2f}"
    )


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
