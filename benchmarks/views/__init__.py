"""What is made of records: a view for each table and picture of the docs.

A view is a function of records, pure, under the target that
`results/README.md` gives it: "engine.md#bench" is a block of a page, and
returns Markdown; "engine.png" is a picture, and returns a figure. Its argument
has the latest records of each topic by name.
"""

import statistics

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
        rows: list of anything.
        columns: dict from head to a function from a row to its cell.
    """
    cells = [tuple(make(row) for make in columns.values()) for row in rows]
    return markdown.table(cells, tuple(columns))


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
