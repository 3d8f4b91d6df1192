"""Tables and pictures of programs that a TPU's compiler compiled."""

import itertools
import math
import statistics

from benchmarks import views
from benchmarks.tpu import outcome
from benchmarks.tpu import programs
from benchmarks.tpu.outcome import estimate
from benchmarks.tpu.outcome import listed
from benchmarks.tpu.programs import CHIPS
from benchmarks.views import networks as network_views
from lambdanet_tf.environment import require
from lambdanet_tf.specs import TABLE_20

IMAGES = 1024  # of a step that the paper timed, on 8 cores
CORES = 8
FIGURES = {"the estimate": estimate, "its cycles": listed}
MARKERS = {"12": "s", "13": "^", "20": "o"}


def steps_timed():
    """Steps that the paper timed: table, program, seconds of `IMAGES`.

    Table 12 in the paper's order of summation, as `Program`s; the others as
    `auto` computes them, which has few lambda layers to choose for there.
    """
    for pattern, throughput in programs.PATTERNS.items():
        plain = programs.vanilla(pattern)
        program = programs.PAPERS_ORDER.get(pattern, plain)
        yield "12", program, IMAGES / throughput
    for row in TABLE_20:
        program = programs.hybrid(f"LambdaResNet{row.depth}", row.image_size)
        yield "20", program, row.step_seconds
    for place, throughput in programs.TABLE_13.items():
        yield "13", programs.hybrid(*place), IMAGES / throughput


def indexed(found):
    """Records by name, size, batch and chip."""
    return {tuple(x["case"].values()): x for x in found["tpu"]}


def of(program, results, chip="v3"):
    """The record of a program, empty if it was not compiled."""
    return results.get(tuple(program.case(chip=chip).values()), views.Row())


def measured(found):
    """What the paper timed, with the compiler's figures of as many images."""
    results, rows = indexed(found), []
    for table, program, seconds in steps_timed():
        result = of(program, results)
        if result.status == "ok":
            steps = IMAGES / CORES / program.batch
            row = views.Row(result, table=table, measured=seconds)
            for name, figure in FIGURES.items():
                if (one := figure(result)) is not None:
                    row[name] = steps * one
                    row[f"to {name}"] = seconds / row[name]
            rows.append(row)
    return rows


def fit(pairs):
    """Fits one factor to (estimate, measured) pairs.

    `factor` is the geometric mean of measured to estimate; `scatter`, the
    standard deviation of the ratio as a factor, and `worst`, its largest
    departure from the mean; `ranks`, the rank correlation; `inverted`, the
    largest measured ratio of two that are ranked wrongly.
    """
    stats = require("scipy.stats", extra="data")
    ratios = [math.log(measured / guess) for guess, measured in pairs]
    mean = statistics.fmean(ratios)
    inverted = [
        max(time / others, others / time)
        for (guess, time), (other, others) in itertools.combinations(pairs, 2)
        if (guess - other) * (time - others) < 0
    ]
    return {
        "number": len(pairs),
        "factor": math.exp(mean),
        "scatter": math.exp(statistics.stdev(ratios)),
        "worst": math.exp(max(abs(ratio - mean) for ratio in ratios)),
        "ranks": stats.spearmanr(pairs).statistic,
        "inverted": max(inverted, default=1.0),
    }


def fits(rows):
    """A line for each figure of the compiler and table, see `fit`."""
    groups = {"12": "12", "20": "20", "13": "13", "all": "12 13 20"}
    for name, (label, tables) in itertools.product(FIGURES, groups.items()):
        pairs = [
            (row[name], row.measured)
            for row in rows
            if row.table in tables and name in row
        ]
        if len(pairs) > 2:
            yield views.Row(fit(pairs), figure=name, table=label)


def _algorithms(row):
    """Such as "4 query_first", or the name alone if there is one layer."""
    return ", ".join(
        f"{count} {name}" if count > 1 else name
        for name, count in (row.algorithms or {}).items()
    )


def _shown(row, good=""):
    """A record of a program with what tables show of it.

    Of one that was not compiled only the case is kept. `good` is the result of
    one without faults, other than whether it fits.
    """
    if row.status != "ok":
        return views.Row(case=row["case"], result=outcome.shortfall(row))
    needed, size = outcome.memory(row), CHIPS[row.chip].hbm
    good = good or ("fits" if needed <= size else "does not fit")
    counted = row.counted_flops
    more = "+" if (row.optimal_seconds or 0) < 0 else ""
    return views.Row(
        row,
        result=outcome.faults(row) or good,
        needed=f"{needed / programs.GIB:.2f} of {size // programs.GIB}",
        operations=counted
        and f"{row.flops / 1e12:.3f} ({100 * row.flops / counted:.0f})",
        algorithms=_algorithms(row),
        estimate=row.optimal_seconds and f"{1e3 * estimate(row):.2f}{more}",
        cycles=row.cycles or None,
    )


NEEDED = {
    "arguments, GiB": "{arguments:.2f/GiB}",
    "temporaries, GiB": "{temporaries:.2f/GiB}",
    "total, GiB": "{needed}",
}


@views.view("tpu_compile.md#networks")
def networks(found):
    results = indexed(found)
    columns = {
        "network": "{name}",
        **views.fields("px", "batch"),
        "result": "{result}",
        "seconds": "{compile_seconds:.0f}",
        **NEEDED,
        "operations, TFLOP": "{operations}",
        "algorithms": "{algorithms}",
    }
    rows = [of(x, results) for x in programs.NETWORKS]
    return views.page(
        views.listing([_shown(row) for row in rows if row], columns),
        _orders(results),
    )


def _orders(results):
    """How many times longer the paper's order takes than `auto`."""
    rows = []
    for pattern, program in programs.PAPERS_ORDER.items():
        pair = of(programs.vanilla(pattern), results), of(program, results)
        if all(x.status == "ok" for x in pair):
            row = views.Row(name=f"ResNet50 {pattern}")
            row["ours"], row["papers"] = map(estimate, pair)
            row["ratio"] = row.papers / row.ours
            row["cycles"] = pair[1].cycles / pair[0].cycles
            rows.append(row)
    columns = {
        f"network, batch {programs.TIMED}": "{name}",
        "`auto`, ms": "{ours:.1f/ms}",
        "the paper's order, ms": "{papers:.1f/ms}",
        "ratio of estimates": "{ratio:.2f}",
        "ratio of cycles": "{cycles:.2f}",
    }
    return views.listing(rows, columns)


@views.view("tpu_compile.md#calibration")
def calibration(found):
    rows = measured(found)
    columns = {
        "Table": "{table}",
        "network": "{name}, {px} px",
        "images on a core": "{batch}",
        "paper, s": "{measured:.3f}",
        **{f"{x}, s": f"{{{x}:.3f}}" for x in FIGURES},
        **{f"paper / {x}": f"{{to {x}:.2f}}" for x in FIGURES},
    }
    of_fits = {
        **views.fields("figure"),
        "Table": "{table}",
        "networks": "{number}",
        **{x: f"{{{x}:.2f}}" for x in ("factor", "scatter", "worst")},
        "rank correlation": "{ranks:.3f}",
        "largest ratio ranked wrongly": "{inverted:.2f}",
    }
    return views.page(
        "![Estimate against measurement](tpu_calibration.png)",
        views.listing(rows, columns),
        views.listing(list(fits(rows)), of_fits),
    )


@views.view("tpu_calibration.png")
def calibration_picture(found):
    """The compiler's figures against measurements, both logarithmic."""
    rows = measured(found)
    made, axes = views.figure(10, 5, columns=2, sharex=True, sharey=True)
    for axis, name in zip(axes[0], FIGURES, strict=True):
        known = [row for row in rows if name in row]
        for (table,), group in views.grouped(known, "table").items():
            axis.scatter(
                [row.measured for row in group],
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


def _image_seconds(rows, figure):
    """Seconds an image of training on 8 cores of v3, by network."""
    return {
        row.network: figure(row) / (row.images * CORES)
        for row in rows
        if row.chip == "v3" and row.status == "ok"
    }


@views.view("comparison.md#estimated")
def comparison(found):
    rows = [row for row in found["comparison_tpu"] if row.status == "ok"]
    timed = {x: _image_seconds(rows, y) for x, y in FIGURES.items()}
    columns = {
        "network": "{network}",
        "top-1": "{top1:.1f}",
        "published, images/s": "{known:,.0f}",
        **{f"{x}, images/s": f"{{{x}:,.0f}}" for x in FIGURES},
        **{f"published / {x}": f"{{to {x}:.2f}}" for x in FIGURES},
    }
    for row in rows:
        row["known"] = 1 / row.published if row.published else None
        for name, seconds in timed.items():
            row[name] = 1 / seconds[row.network]
            if row.published:
                row[f"to {name}"] = row.known / row[name]
    table = network_views.at_equal_accuracy(rows, timed)
    return views.page(views.listing(rows, columns), table)


@views.view("comparison.png")
def comparison_picture(found):
    """Accuracy over time: published, by the compiler, on a CPU."""
    rows = found["comparison"]
    cycles = _image_seconds(found["comparison_tpu"], listed)
    return network_views.families_picture(
        rows,
        {
            "training, 8 TPUv3 cores, published": {
                row.network: row.published for row in rows if row.published
            },
            "training, TPUv3, the compiler's cycles": cycles,
            **{
                f"{phase}, this CPU": network_views.phase_seconds(rows, phase)
                for phase in network_views.FAMILY_PHASES
            },
        },
    )


@views.view("detection.md#tpu")
def detection(found):
    columns = {
        "experiment": "`{experiment}`",
        "TPU": "{chip}",
        "result": "{result}",
        **NEEDED,
    }
    return views.listing(map(_shown, found["detection_tpu"]), columns)
