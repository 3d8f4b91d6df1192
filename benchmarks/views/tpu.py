"""The table of programs that a TPU's compiler compiled."""

import math
import statistics

from benchmarks import views
from benchmarks.tpu import programs
from lambdanet_tf.environment import require

IMAGES = 1024  # of a step that the paper timed, on 8 cores
CORES = 8


def of(program, found, chip="v3"):
    """Returns the record of a program, None if it was not compiled."""
    case = program.case(chip=chip)
    return next((x for x in found["tpu"] if x["case"] == case), None)


def _shown(row):
    if row.status != "ok":
        return views.Row(case=row["case"], result=programs.shortfall(row))
    needed, size = programs.memory(row), programs.CHIPS[row.chip].hbm
    fit = "fits" if needed <= size else "does not fit"
    share = 100 * row.flops / row.counted_flops
    used = (row.algorithms or {}).items()
    return views.Row(
        row,
        result="; ".join(programs.faults(row)) or fit,
        needed=f"{needed / programs.GIB:.2f} of {size // programs.GIB}",
        operations=f"{row.flops / 1e12:.3f} ({share:.0f})",
        algorithms=", ".join(f"{count} {name}" for name, count in used),
    )


def _ranks(found):
    """Yields a line for each table of the paper, and one for all."""
    stats, tables = require("scipy.stats", extra="data"), {}
    for table, program, seconds in programs.steps_timed():
        row = of(program, found)
        if row and row.status == "ok":
            steps = IMAGES / CORES / program.batch
            pair = steps * programs.estimate(row), seconds
            tables.setdefault(f"Table {table}", []).append(pair)
    tables["All"] = sum(tables.values(), [])
    for name, pairs in tables.items():
        ratios = [math.log(seconds / guess) for guess, seconds in pairs]
        factor, scatter = statistics.fmean(ratios), statistics.stdev(ratios)
        yield (
            f"- {name}: {len(pairs)} networks, factor {math.exp(factor):.2f}, "
            f"scatter {math.exp(scatter):.2f}, rank correlation "
            f"{stats.spearmanr(pairs).statistic:.3f}"
        )


@views.view("accelerators.md#networks")
def compiled(found):
    rows = filter(None, (of(program, found) for program in programs.NETWORKS))
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
    return views.page(
        views.listing(map(_shown, rows), columns),
        "Ratios of the paper's times to the estimated times:",
        "\n".join(_ranks(found)),
    )
