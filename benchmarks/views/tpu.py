"""Tables and pictures of programs that a TPU's compiler compiled."""

import itertools
import math
import statistics

from benchmarks import views
from benchmarks.tpu import outcome
from benchmarks.tpu import programs
from benchmarks.tpu.outcome import estimate
from benchmarks.tpu.outcome import listed
from benchmarks.tpu.programs import BATCH
from benchmarks.tpu.programs import CHIPS
from benchmarks.tpu.programs import TIMED
from benchmarks.views import networks as network_views
from lambdanet_tf.environment import require
from lambdanet_tf.specs import TABLE_20

IMAGES = 1024  # of a step that the paper timed, on 8 cores
CORES = 8
# Table, network, size, and seconds of a step of `IMAGES` on `CORES`.
MEASURED = (
    *(
        ("12", f"ResNet50 {pattern}", 224, IMAGES / throughput)
        for pattern, throughput in programs.PATTERNS.items()
    ),
    *(
        ("20", f"LambdaResNet{x.depth}", x.image_size, x.step_seconds)
        for x in TABLE_20
    ),
)
FULL = f"auto, {TIMED}"
PAPERS = f"einsum, {TIMED}"  # as the paper timed
# What the names end in, images on a core, and a color. `blocks` is what `auto`
# was in an earlier engine, see the records.
ORDERS = {
    "blocks": (" blocks", BATCH, "#3366aa"),
    "einsum": (" einsum", BATCH, "#dd7722"),
    "auto": ("", BATCH, "#99cc99"),
    PAPERS: (" einsum", TIMED, "#aa3311"),
    FULL: ("", TIMED, "#44aa55"),
}
MARKERS = {"12": "s", "20": "o"}
BOTH = "12 and 20"
FIGURES = {"the estimate": estimate, "its cycles": listed}


def indexed(found):
    """Records by name, size, batch and chip."""
    return {tuple(x["case"].values()): x for x in found["tpu"]}


def measured(found):
    """What the paper timed, with the compiler's figures of the same steps.

    In a row `estimate` and `cycles` are dicts from order of summation to
    seconds; `used` is what the paper's program needs of a core's memory, if
    that is too much.
    """
    results, rows = indexed(found), []
    for table, network, size, seconds in MEASURED:
        papers = results.get((f"{network} einsum", size, TIMED, "v3"), {})
        row = views.Row(table=table, network=network, measured=seconds)
        row["label"], row["used"] = f"{network}, {size} px", papers.get("used")
        row["estimate"], row["cycles"] = {}, {}
        is_plain = "CCCC" in network  # it has no lambda layer
        for order, (suffix, batch, _) in ORDERS.items():
            name = network if is_plain else network + suffix
            result = results.get((name, size, batch, "v3"), {})
            if result.get("status") != "ok" or is_plain and order == "einsum":
                continue
            steps = IMAGES / CORES / batch
            row["estimate"][order] = steps * estimate(result)
            if (cycles := listed(result)) is not None:
                row["cycles"][order] = steps * cycles
        rows.append(row)
    return rows


def throughputs(found):
    """Training images per second of Table 12's networks, relative to CCCC's.

    By pattern: the paper's measurement, and those of the engine's choice by the
    estimate and by the cycles, None if it is not compiled.
    """
    rows = [row for row in measured(found) if row.table == "12"]
    plain, shares = rows[0], {}  # CCCC is the first
    for row in rows:
        times = [(plain.measured, row.measured)]
        for name in ("estimate", "cycles"):
            times.append((plain[name].get(FULL), row[name].get(FULL)))
        shares[row.network.split()[1]] = tuple(
            base / own if base and own else None for base, own in times
        )
    return shares


def draw_patterns(axis, found):
    """Bars of the throughput of Table 12's networks, relative to CCCC's."""
    shares = {x: y for x, y in throughputs(found).items() if x != "CCCC"}
    names = ("paper", "estimate", "cycles")
    groups = dict(zip(names, zip(*shares.values(), strict=True), strict=True))
    drawn = views.bars(axis, list(shares), groups, ("C2", "C3", "#ee9999"))
    for name, numbers in groups.items():
        texts = [f"{x:.2f}" if x else "not compiled" for x in numbers]
        axis.bar_label(drawn[name], texts, padding=3, fontsize=8)
    axis.set(xlim=(0, 1.2), title="ResNet-50 on TPUv3: paper, compiler")
    axis.set_xlabel("training images per second, relative to CCCC")
    axis.legend(loc="lower right", fontsize=8)


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
    """The fit of each order and table that at least three networks have.

    Those of another batch are left out.
    """
    found = {}
    orders = [x for x, (_, batch, _) in ORDERS.items() if batch == BATCH]
    for order, tables in itertools.product(orders, ("12", "20", BOTH)):
        pairs = [
            (row.estimate[order], row.measured)
            for row in rows
            if row.table in tables and order in row.estimate
        ]
        if len(pairs) > 2:
            found[order, tables] = fit(pairs)
    return found


def _fit_table(fitted):
    """A line per order of summation and table."""
    columns = {
        "order": "`{order}`",
        "Table": "{table}",
        "networks": "{number}",
        **{x: f"{{{x}:.2f}}" for x in ("factor", "scatter", "worst")},
        "rank correlation": "{ranks:.3f}",
        "largest ratio ranked wrongly": "{inverted:.2f}",
    }
    rows = [views.Row(x, order=y, table=z) for (y, z), x in fitted.items()]
    return views.listing(rows, columns)


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
    rows = [row for row in found["tpu"] if "filters" not in row.changes]
    columns = {
        "network": "{name}",
        **views.fields("px", "batch"),
        "TPU": "{chip}",
        "result": "{result}",
        "seconds": "{compile_seconds:.0f}",
        **NEEDED,
        "operations, TFLOP": "{operations}",
        "algorithms": "{algorithms}",
    }
    table = views.listing(map(_shown, rows), columns)
    return views.page(table, *_missing(indexed(found)), _orders(found))


def _missing(results):
    """Sentences that name what was not compiled, one per chip that was."""
    for chip in CHIPS:
        missing = [
            x
            for x in programs.NETWORKS
            if (x.name, x.image_size, x.batch, chip) not in results
        ]
        if len(missing) in (0, len(programs.NETWORKS)):
            continue
        missing.sort(key=lambda x: (x.batch, x.image_size))
        parts = [
            f"with {batch} images "
            + "; ".join(
                f"at {size} px {', '.join(x.name for x in rows)}"
                for (size,), rows in views.grouped(group, "image_size").items()
            )
            for (batch,), group in views.grouped(missing, "batch").items()
        ]
        yield f"Not compiled for {chip}: {'; '.join(parts)}."


def _orders(found):
    """How many times longer the paper's order takes than `auto`."""
    results, rows = indexed(found), []
    for (name, *rest), papers in results.items():
        ours = results.get((name.removesuffix(" einsum"), *rest), papers)
        if ours is papers or not ours.status == papers.status == "ok":
            continue
        row = views.Row(ours, ours=estimate(ours), papers=estimate(papers))
        row["ratio"] = row.papers / row.ours
        both = ours.cycles and papers.cycles
        row["cycles"] = papers.cycles / ours.cycles if both else None
        rows.append(row)
    columns = {
        "network": "{name}, {px} px, batch {batch}",
        "TPU": "{chip}",
        "`auto`, ms": "{ours:.1f/ms}",
        "the paper's order, ms": "{papers:.1f/ms}",
        "ratio of estimates": "{ratio:.2f}",
        "ratio of cycles": "{cycles:.2f}",
    }
    return views.listing(rows, columns)


@views.view("tpu_compile.md#layers")
def layers(found):
    rows = []
    for row in found["tpu"]:
        changes = row.changes
        if "filters" not in changes or "num_heads" in changes:
            continue
        name = row.name.partition(",")[0]
        if name == "auto" and "algorithms" in row:
            name = f"auto: {_algorithms(row)}"
        shown = _shown(row, good="compiles")
        rows.append(views.Row(shown, name=name, channels=changes["filters"]))
    columns = {
        "map": "{px}",
        **views.fields("channels", "batch"),
        "algorithm": "{name}",
        "TPU": "{chip}",
        "result": "{result}",
        "seconds": "{compile_seconds:.0f}",
        "temporaries, MiB": "{temporaries:.0f/MiB}",
        "operations, GFLOP": "{flops:.1f/G}",
        "bytes moved, MiB": "{bytes_accessed:.0f/MiB}",
        "estimate, ms": "{estimate}",
        "cycles, million": "{cycles:.2f/M}",
    }
    return views.listing(rows, columns)


@views.view("tpu_compile.md#calibration")
def calibration(found):
    rows = measured(found)
    fitted = fits(rows)
    factor = fitted["blocks", BOTH]["factor"]
    for row in rows:
        row.update({x: factor * y for x, y in row.estimate.items()})
        if row.blocks:
            row["to_paper"] = row.blocks / row.measured
        if row.blocks and row.auto:
            row["ratio"] = row.auto / row.blocks
    columns = {
        "Table": "{table}",
        "network": "{label}",
        "paper, s": "{measured:.3f}",
        "`blocks`, s": "{blocks:.3f}",
        "`blocks` / paper": "{to_paper:.2f}",
        "`einsum`, s": "{einsum:.3f}",
        "`auto`, s": "{auto:.3f}",
        "`auto` / `blocks`": "{ratio:.2f}",
        f"`auto`, {TIMED}, s": f"{{{FULL}:.3f}}",
    }
    return views.page(
        "![Estimate against measurement](tpu_calibration.png)",
        views.listing(rows, columns),
        f"Estimates are multiplied by {factor:.2f}, the factor of "
        "`blocks` over both tables. A *scatter* of 1.10 says that the "
        "ratio of measured to estimated time varies by 10 % from network "
        "to network.",
        _fit_table(fitted),
        f"With {TIMED} images on a core and the paper's order, as the "
        f"paper timed, and by cycles at {outcome.CLOCK / 1e6:.0f} MHz:",
        *_papers_order(rows),
    )


def _papers_order(rows):
    """The paper's order and batch, by both figures of the compiler.

    And which networks have no figure of it, and why.
    """
    lines, names = [], ("estimate", "cycles")
    for row in rows:
        if PAPERS in row.estimate:
            line = views.Row(row)
            for name in names:
                line[name] = row[name].get(PAPERS, math.nan)
                line[f"to_{name}"] = row.measured / line[name]
            lines.append(line)
    columns = {
        "Table": "{table}",
        "network": "{label}",
        "paper, s": "{measured:.3f}",
        "estimate, s": "{estimate:.3f}",
        "paper / estimate": "{to_estimate:.2f}",
        "cycles, s": "{cycles:.3f}",
        "paper / cycles": "{to_cycles:.2f}",
    }
    yield views.listing(lines, columns)
    fitted = {}
    for name in names:
        pairs = [(line[name], line.measured) for line in lines]
        fitted[PAPERS, f"{BOTH}, by the {name}"] = fit(pairs)
    yield _fit_table(fitted)
    missing = [
        row
        for row in rows
        if "CCCC" not in row.network
        and not {"einsum", PAPERS} & {*row.estimate}
    ]
    if large := [f"{row.label} ({row.used})" for row in missing if row.used]:
        yield (
            f"Larger than a core's memory in the paper's order, with {TIMED} "
            f"images: {'; '.join(large)}."
        )
    if others := [row.label for row in missing if not row.used]:
        yield f"Not compiled with the paper's order: {'; '.join(others)}."


@views.view("tpu_calibration.png")
def calibration_picture(found):
    """The estimates against the measurements, both logarithmic."""
    rows = measured(found)
    factor = fits(rows)["blocks", BOTH]["factor"]
    made, ((axis,),) = views.figure(6.4, 5.6)
    for (order, (*_, color)), (table, marker) in itertools.product(
        ORDERS.items(), MARKERS.items()
    ):
        points = [
            (row.measured, factor * row.estimate[order])
            for row in rows
            if row.table == table and order in row.estimate
        ]
        if points:
            x, y = zip(*points, strict=True)
            label = f"{order}, Table {table}"
            look = {"marker": marker, "color": color, "alpha": 0.75}
            axis.scatter(x, y, label=label, **look)
    limits = [0.9 * min(x.measured for x in rows), 1.15 * rows[-1].measured]
    axis.plot(limits, limits, color="black", linewidth=0.8)
    axis.set(
        xscale="log",
        yscale="log",
        xlabel="measured by the paper, seconds for 1024 images",
        ylabel=f"the compiler's estimate, times {factor:.2f}",
        title="Training steps on 8 cores of TPUv3",
    )
    axis.grid(alpha=0.3, which="both")
    axis.legend(loc="upper left")
    return made


@views.view("tpu_compile.md#floor")
def floor(found):
    results, shares, rows = indexed(found), throughputs(found), []
    plain = estimate(results["ResNet50 CCCC", 224, TIMED, "v3"])
    for row in found["tpu_floor"]:
        if (place := tuple(row["case"].values())) in results:
            row["own"], least = estimate(results[place]), row["floor"]["all"]
            row["ratio"] = row.own / least
            if pair := shares.get(row.name.removeprefix("ResNet50 ")):
                row["papers"], row["ours"], _ = pair
                row["least"] = plain / least
            rows.append(row)
    columns = {
        "network": "{name}",
        "px": "{px}",
        "estimate, ms": "{own:.1f/ms}",
        "floor, ms": "{floor[all]:.1f/ms}",
        "estimate / floor": "{ratio:.2f}",
        "floor of its lambda layers, ms": "{floor[lambda]:.1f/ms}",
        "throughput over CCCC's: paper": "{papers:.2f}",
        "by the estimates": "{ours:.2f}",
        "this floor, CCCC's estimate": "{least:.2f}",
    }
    return views.listing(rows, columns)


MEASURES = {
    "estimate": estimate,
    "cycles": lambda x: x["cycles"],
    "mean of both": lambda x: math.sqrt(estimate(x) * x["cycles"]),
}


def drawn(found, measure):
    """Layers drawn at random that were compiled, by chip.

    They are records of `tpu_choices` with `figures`, what one of `MEASURES`
    gives of each algorithm, the `best` one and the `regret`.
    """
    results, rows = indexed(found), {}
    for chip, row in itertools.product(CHIPS, found["tpu_choices"]):
        row, group = views.Row(row), {}
        for algorithm, name in row.names.items():
            group[algorithm] = results.get((name, row.px, row.batch, chip), {})
        if all(x.get("status") == "ok" for x in group.values()):
            figures = {x: MEASURES[measure](y) for x, y in group.items()}
            row["figures"] = figures
            row["best"] = min(figures, key=figures.get)
            row["regret"] = figures[row.value] / figures[row.best]
            rows.setdefault(chip, []).append(row)
    return rows


def _layer(row):
    """A drawn layer in words."""
    layer = views.Row(row.layer)
    more = f", u={layer.intra_depth}" if layer.intra_depth > 1 else ""
    return (
        f"d={layer.filters}, scope {layer.scope or 'global'}, "
        f"h={layer.num_heads}, k={layer.key_dim}{more}"
    )


@views.view("tpu_compile.md#regret")
def regret(found):
    lines = []
    for measure in MEASURES:
        for chip, rows in drawn(found, measure).items():
            worst = max(rows, key=lambda row: row.regret)
            lines.append(
                f"{chip}, by the {measure}: "
                f"{views.regrets([row.regret for row in rows])}, worst "
                f"{worst.regret:.2f} ({worst.value} for {worst.best}, batch "
                f"{worst.batch})."
            )
    chip, rows = next(iter(drawn(found, "estimate").items()))
    columns = {
        "map": "{px}",
        "batch": "{batch}",
        "layer": _layer,
        **{f"{x}, ms": f"{{figures[{x}]:.2f/ms}}" for x in rows[0].figures},
        "`auto` takes": "{value}",
        "regret": "{regret:.2f}",
    }
    return views.page(
        "![Distribution](tpu_regret.png)",
        "\n".join(lines),
        f"Estimates for {chip}:",
        views.listing(rows, columns),
    )


@views.view("tpu_regret.png")
def regret_picture(found):
    lists = {
        f"{chip}, {measure}": [row.regret for row in rows]
        for measure in MEASURES
        for chip, rows in drawn(found, measure).items()
    }
    return views.steps(lists, "Layers drawn at random")


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
