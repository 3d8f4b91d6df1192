"""Tables and pictures of programs that a TPU's compiler compiled."""

import itertools
import math
import statistics

from benchmarks import views
from benchmarks.tpu import outcome
from benchmarks.tpu.outcome import estimate
from benchmarks.tpu.outcome import listed
from benchmarks.tpu.programs import CHIPS
from benchmarks.tpu.programs import GIB
from benchmarks.tpu.programs import NETWORKS
from benchmarks.tpu.programs import steps_timed
from lambdanet_tf.environment import require

IMAGES = 1024  # of a step that the paper timed, on 8 cores
CORES = 8
FIGURES = {"the estimate": estimate, "its cycles": listed}
MARKERS = {"12": "s", "13": "^", "20": "o"}


def of(program, found, chip="v3"):
    """Returns the record of a program, None if it was not compiled."""
    case = program.case(chip=chip)
    return next((x for x in found["tpu"] if x["case"] == case), None)


def measured(found):
    """Returns what the paper timed, with the compiler's figures."""
    rows = []
    for table, program, seconds in steps_timed():
        row = of(program, found)
        if row and row.status == "ok":
            steps = IMAGES / CORES / program.batch
            figures = {x: steps * y(row) for x, y in FIGURES.items() if y(row)}
            rows.append(views.Row(row, table=table, timed=seconds, **figures))
    return rows


def fits(rows):
    """Yields how each figure of the compiler fits the times of each table."""
    stats = require("scipy.stats", extra="data")
    tables = (("12",), ("20",), ("13",), tuple(MARKERS))
    for name, table in itertools.product(FIGURES, tables):
        chosen = [x for x in rows if x.table in table and x[name]]
        ratios = [math.log(row.timed / row[name]) for row in chosen]
        pairs = [(row[name], row.timed) for row in chosen]
        yield views.Row(
            figure=name,
            table=table[0] if len(table) == 1 else "all",
            networks=len(chosen),
            factor=math.exp(statistics.fmean(ratios)),
            scatter=math.exp(statistics.stdev(ratios)),
            ranks=stats.spearmanr(pairs).statistic,
        )


def _shown(row):
    """Returns a record of a program with what the table shows of it."""
    if row.status != "ok":
        return views.Row(case=row["case"], result=outcome.shortfall(row))
    needed, size = outcome.memory(row), CHIPS[row.chip].hbm
    fit = "fits" if needed <= size else "does not fit"
    share = 100 * row.flops / row.counted_flops
    used = (row.algorithms or {}).items()
    return views.Row(
        row,
        result=outcome.faults(row) or fit,
        needed=f"{needed / GIB:.2f} of {size // GIB}",
        operations=f"{row.flops / 1e12:.3f} ({share:.0f})",
        algorithms=", ".join(f"{count} {name}" for name, count in used),
    )


@views.view("accelerators.md#networks")
def compiled(found):
    rows = filter(None, (of(program, found) for program in NETWORKS))
    columns = {
        "network": "{name}",
        **views.fields("px", "batch"),
        "result": "{result}",
        "seconds": "{compile_seconds:.0f}",
        "arguments, GiB": "{arguments:.2f/GiB}",
        "temporaries, GiB": "{temporaries:.2f/GiB}",
        "total, GiB": "{needed}",
        "operations, TFLOP": "{operations}",
        "algorithms": "{algorithms}",
    }
    return views.listing(map(_shown, rows), columns)


@views.view("accelerators.md#calibration")
def calibration(found):
    columns = {
        **views.fields("figure"),
        "Table": "{table}",
        "networks": "{networks}",
        "factor": "{factor:.2f}",
        "scatter": "{scatter:.2f}",
        "rank correlation": "{ranks:.3f}",
    }
    return views.listing(fits(measured(found)), columns)


@views.view("tpu_calibration.png")
def calibration_picture(found):
    """The compiler's figures against measurements, both logarithmic."""
    rows = measured(found)
    made, axes = views.figure(10, 5, columns=2, sharex=True, sharey=True)
    for axis, name in zip(axes[0], FIGURES, strict=True):
        known = [row for row in rows if name in row]
        for (table,), group in views.grouped(known, "table").items():
            axis.scatter(
                [row.timed for row in group],
                [row[name] for row in group],
                marker=MARKERS[table],
                label=f"Table {table}",
            )
        limits = [0.9 * min(row[name] for row in known), 2.6]
        axis.plot(limits, limits, color="black", linewidth=0.8)
        axis.set(xscale="log", yscale="log", title=f"{name}, seconds")
        axis.set_xlabel("measured by the paper, seconds for 1024 images")
        axis.grid(alpha=0.3, which="both")
        axis.legend(loc="upper left")
    return made
