"""What is made of records: a view for each table and picture of the docs.

A view is a pure function under a target of `results/README.md`: of the latest
records of its topics by name, each a `Row`, with the fields that the view asks
for. It returns Markdown for a block of a page ("engine.md#bench"), and a figure
for a picture ("engine.png").

A table is rows and columns, and a column a template of a row's fields, such as
"{network}" or "{seconds[auto]:.1f/ms}". What no record has is computed before.
"""

import importlib
import string
from collections.abc import Callable
from fnmatch import fnmatchcase
from statistics import median
from typing import NamedTuple

from lambdanet_tf import markdown

VIEWS = {}
# What no view shows: algorithms, comparisons, ways to stream, fields of cases.
ENDED = {
    *("fourier_tpu", "itself with Keras' batch normalization"),
    *("lambda", "attention", "local attention"),
    *("loading", "clients", "pipeline", "replicas"),
}
UNITS = {"ms": 1e-3, "min": 60, "M": 1e6, "%": 1e-2, "GiB": 2**30}


class Row(dict):
    """A record; its fields and those of its case are attributes, too."""

    def __getattr__(self, name):
        return self.get(name, self.get("case", {}).get(name))


class View(NamedTuple):
    """A function of rows, and the fields that they have."""

    function: Callable
    fields: dict

    def rows(self, found):
        """Returns the rows that are shown, by topic."""
        shown = self.fields.items()
        return {
            topic: [
                row
                for row in standing(records)
                if all(fnmatchcase(f"{getattr(row, x)}", y) for x, y in shown)
            ]
            for topic, records in found.items()
        }

    def __call__(self, found):
        return self.function(self.rows(found))


def view(target, **fields):
    """Makes a function the view of a target, of records that match fields."""

    def register(function):
        VIEWS[target] = View(function, fields)
        return function

    return register


def standing(records):
    """Returns records as rows, but those of what has ended."""
    rows = [Row(record) for record in records]
    about = ("way", "algorithm", "against")
    rows = [x for x in rows if ENDED.isdisjoint(getattr(x, y) for y in about)]
    rows = [x for x in rows if ENDED.isdisjoint(x.algorithms or ())]
    return [x for x in rows if ENDED.isdisjoint(x["case"])]


def text(value, spec=""):
    """A value as text: None as nothing, of repeats their median."""
    spec, _, unit = spec.partition("/")
    if value is None:
        return ""
    if spec and isinstance(value, list):
        value = median(value)
    return format(value / UNITS[unit] if unit else value, spec)


class _Template(string.Formatter):
    def get_value(self, key, args, row):
        return getattr(row, key)

    def format_field(self, value, spec):
        return text(value, spec)


def filled(template, row):
    return _Template().vformat(template, (), row)


def grouped(rows, *fields):
    groups = {}
    for row in rows:
        group = tuple(getattr(row, field) for field in fields)
        groups.setdefault(group, []).append(row)
    return groups


def listing(rows, columns):
    """A table with a line for each row, of templates by column."""
    cells = [[filled(x, row) for x in columns.values()] for row in rows]
    return markdown.table(cells, tuple(columns))


def fields(*names):
    return {name: f"{{{name}}}" for name in names}


def crossed(cells, corner):
    """A table of cells, a dict from (line, column) to text."""
    lines, columns = (dict.fromkeys(x) for x in zip(*cells, strict=True))
    rows = [[x, *(cells.get((x, y), "") for y in columns)] for x in lines]
    return markdown.table(rows, (corner, *columns))


def page(*parts):
    return "\n\n".join(parts)


def joined(numbers, spec):
    return ", ".join(format(number, spec) for number in numbers)


def interval(values, digits=2):
    """A median with its interval as text."""
    middle, low, high = (f"{value:.{digits}f}" for value in values)
    return f"{middle} ({low} to {high})"


def summary(ratios):
    """Ratios in words: median, number, least to most."""
    return (
        f"{median(ratios):.2f} times as long (median of "
        f"{len(ratios)} rows; range {min(ratios):.2f} to {max(ratios):.2f})"
    )


def figure(width, height, columns=1):
    """A figure of matplotlib and its axes in a row, a list."""
    made = importlib.import_module("matplotlib.figure").Figure(
        figsize=(width, height), layout="constrained"
    )
    return made, list(made.subplots(1, columns, squeeze=False, sharey=True)[0])


def lines(axis, curves, colors=None, **settings):
    """Curves of pairs (x, y) by label, a grid and a legend."""
    for label, points in curves.items():
        color = colors and colors[label]
        axis.plot(*zip(*points, strict=True), "o-", color=color, label=label)
    axis.set(**settings)
    axis.grid(alpha=0.3)
    axis.legend(frameon=False)
