"""Tables and pictures of programs that a TPU's compiler compiled."""

import collections
import dataclasses
import itertools
import math
import statistics

from benchmarks.tpu.outcome import CLOCK
from benchmarks.tpu.outcome import estimate
from benchmarks.tpu.outcome import faults
from benchmarks.tpu.outcome import listed
from benchmarks.tpu.outcome import memory
from benchmarks.tpu.outcome import shortfall
from benchmarks.tpu.programs import BATCH
from benchmarks.tpu.programs import CHIPS
from benchmarks.tpu.programs import GIB
from benchmarks.tpu.programs import NETWORKS
from benchmarks.tpu.programs import PATTERNS
from benchmarks.tpu.programs import TIMED
from benchmarks.views import fields
from benchmarks.views import figure
from benchmarks.views import listing
from benchmarks.views import regrets
from benchmarks.views import scaled
from benchmarks.views import view
from benchmarks.views.layers import distribution
from benchmarks.views.networks import FAMILY_PHASES
from benchmarks.views.networks import at_equal_accuracy
from benchmarks.views.networks import families_picture
from benchmarks.views.networks import phase_seconds
from lambdanet_tf.specs import TABLE_20

IMAGES = 1024  # of a step that the paper timed, on 8 cores
CORES = 8
# Table 12 of the paper: images per second of training on 8 cores.
THROUGHPUTS = {
    "CCCC": 7240,
    "LCCC": 1880,
    "LLCC": 1280,
    "LLLC": 1160,
    "LLLL": 1160,
    "CLLL": 2200,
    "CCLL": 4980,
    "CCCL": 7160,
}
FULL = f"auto, {TIMED}"
PAPERS = f"einsum, {TIMED}"  # as the paper timed
# What the names end in, and images on a core. `blocks` is what `auto` was in an
# earlier engine, see the records.
ORDERS = {
    "blocks": (" blocks", BATCH),
    "einsum": (" einsum", BATCH),
    "auto": ("", BATCH),
    PAPERS: (" einsum", TIMED),
    FULL: ("", TIMED),
}
MARKERS = {"12": "s", "20": "o"}
COLORS = {
    "blocks": "#3366aa",
    "einsum": "#dd7722",
    "auto": "#99cc99",
    PAPERS: "#aa3311",
    FULL: "#44aa55",
}


def indexed(found):
    """Records by name, size, batch and chip."""
    return {tuple(x["case"].values()): x for x in found["tpu"]}


@dataclasses.dataclass(frozen=True)
class Row:
    """A network that the paper timed.

    Attributes:
        table: number of the paper's table.
        network: name, with a place for the order of summation.
        image_size: height and width.
        measured: seconds of a step with `IMAGES` images on `CORES` cores.
    """

    table: str
    network: str
    image_size: int
    measured: float

    @property
    def label(self):
        return f"{self.network.format('')}, {self.image_size} px"

    def _key(self, suffix, batch):
        return self.network.format(suffix), self.image_size, batch, "v3"

    def paper_memory(self, results):
        """What the paper's program needs of a core's memory, if too much."""
        suffix, batch = ORDERS[PAPERS]
        return results.get(self._key(suffix, batch), {}).get("used")

    def estimates(self, results, figure=estimate):
        """Seconds of the same images by the compiler, per order.

        Args:
            results: of `indexed`.
            figure: from a result to seconds, or None.
        """
        found = {}
        for order, (suffix, batch) in ORDERS.items():
            if "CCCC" in self.network:
                if order == "einsum":
                    continue  # it has no lambda layer
                suffix = ""
            result = results.get(self._key(suffix, batch))
            if result is None or result["status"] != "ok":
                continue
            seconds = figure(result)
            if seconds is not None:
                found[order] = IMAGES / CORES / batch * seconds
        return found


ROWS = (
    *(
        Row("12", f"ResNet50 {pattern}{{}}", 224, IMAGES / THROUGHPUTS[pattern])
        for pattern in PATTERNS
    ),
    *(
        Row("20", f"LambdaResNet{x.depth}{{}}", x.image_size, x.step_seconds)
        for x in TABLE_20
    ),
)


def throughputs(results):
    """Training images per second of Table 12's networks, relative to CCCC's.

    Returns:
        Dict from pattern to the paper's measurement, and those of the engine's
        choice by the estimate and by the cycles (None if it is not compiled),
        on 8 cores of TPUv3.
    """
    rows = {row.network.split()[-1][:4]: row for row in ROWS[: len(PATTERNS)]}
    plain = rows["CCCC"]
    found = {}
    for pattern, row in rows.items():
        shares = [plain.measured / row.measured]
        for of in (estimate, listed):
            base, own = (
                x.estimates(results, of).get(FULL) for x in (plain, row)
            )
            shares.append(base / own if base and own else None)
        found[pattern] = tuple(shares)
    return found


def fit(pairs):
    """Fits one factor to (estimate, measured) pairs.

    Returns:
        A dict: `factor`, the geometric mean of measured to estimate; `scatter`,
        the standard deviation of the ratio as a factor, and `worst`, its
        largest departure from the mean; `ranks`, the rank correlation.
    """
    ratios = [math.log(measured / guess) for guess, measured in pairs]
    mean = statistics.fmean(ratios)
    return {
        "number": len(pairs),
        "factor": math.exp(mean),
        "scatter": math.exp(statistics.stdev(ratios)),
        "worst": math.exp(max(abs(ratio - mean) for ratio in ratios)),
        "ranks": statistics.correlation(*map(ranks, zip(*pairs, strict=True))),
        "inverted": inverted(pairs),
    }


def ranks(values):
    """The rank of each value; equal values share the mean of theirs."""
    return [
        sum(other < value for other in values)
        + (sum(other == value for other in values) - 1) / 2
        for value in values
    ]


def inverted(pairs):
    """The largest measured ratio of two networks that are ranked wrongly."""
    worst = 1.0
    for (guess, time), (other, others) in itertools.combinations(pairs, 2):
        if (guess - other) * (time - others) < 0:
            worst = max(worst, time / others, others / time)
    return worst


def fits(results):
    """The fit of each order and table that at least three networks have.

    Those of another batch are left out.
    """
    found = {}
    for order in [name for name, (_, size) in ORDERS.items() if size == BATCH]:
        pairs = {
            table: [
                (row.estimates(results)[order], row.measured)
                for row in ROWS
                if row.table == table and order in row.estimates(results)
            ]
            for table in MARKERS
        }
        pairs["12 and 20"] = [*pairs["12"], *pairs["20"]]
        for table, points in pairs.items():
            if len(points) > 2:
                found[order, table] = fit(points)
    return found


def _algorithms(result):
    """Such as "4 query_first", or the name alone if there is one layer."""
    return ", ".join(
        f"{count} {name}" if count > 1 else name
        for name, count in result["algorithms"].items()
    )


def _if_ok(make):
    """A cell of a program that was compiled; else it is empty."""
    return lambda row: make(row) if row["status"] == "ok" else ""


def _scaled(field, unit, digits):
    return _if_ok(scaled(field, unit, digits))


def _gib(field):
    return _scaled(field, GIB, 2)


def _fits(row):
    if row["status"] != "ok":
        return shortfall(row)
    is_small = memory(row) <= CHIPS[row["case"]["chip"]].hbm
    return "fits" if is_small else "does not fit"


def _needed(row):
    size = CHIPS[row["case"]["chip"]].hbm // GIB
    return f"{memory(row) / GIB:.2f} of {size}"


def _terafloating(row):
    share = 100 * row["flops"] / row["counted_flops"]
    return f"{row['flops'] / 1e12:.3f} ({share:.0f})"


@view("tpu_compile.md#networks")
def networks(found):
    rows = [row for row in found["tpu"] if "filters" not in row["changes"]]
    columns = {
        "network": "{name}",
        **fields("px", "batch"),
        "TPU": "{chip}",
        "result": lambda row: (
            _fits(row) if row["status"] != "ok" else faults(row) or _fits(row)
        ),
        "seconds": _scaled("compile_seconds", 1, 0),
        "arguments, GiB": _gib("arguments"),
        "temporaries, GiB": _gib("temporaries"),
        "total, GiB": _if_ok(_needed),
        "operations, TFLOP": _if_ok(_terafloating),
        "algorithms": _if_ok(_algorithms),
    }
    results = indexed(found)
    parts = [listing(rows, columns), *_missing(results), _orders(results)]
    return "\n\n".join(parts)


def _missing(results):
    """Sentences that name what was not compiled, one per chip that was."""
    for chip in CHIPS:
        missing = collections.defaultdict(lambda: collections.defaultdict(list))
        for x in NETWORKS:
            if (x.name, x.image_size, x.batch, chip) not in results:
                missing[x.batch][x.image_size].append(x.name)
        absent = itertools.chain(*map(dict.values, missing.values()))
        if sum(map(len, absent)) in (0, len(NETWORKS)):
            continue
        parts = [
            f"with {batch} images "
            + "; ".join(
                f"at {size} px {', '.join(names)}"
                for size, names in sorted(sizes.items())
            )
            for batch, sizes in sorted(missing.items())
        ]
        yield f"Not compiled for {chip}: {'; '.join(parts)}."


def _orders(results):
    """How many times longer the paper's order takes than `auto`."""
    pairs = []
    for (name, *rest), papers in results.items():
        ours = results.get((name.removesuffix(" einsum"), *rest), papers)
        if ours is not papers and ours["status"] == papers["status"] == "ok":
            pairs.append(((name, *rest), ours, papers))

    def ratio(figure):
        def cell(pair):
            ours, papers = map(figure, pair[1:])
            return f"{papers / ours:.2f}" if ours and papers else ""

        return cell

    columns = {
        "network": lambda x: "{}, {} px, batch {}".format(
            x[0][0].replace(" einsum", ""), *x[0][1:3]
        ),
        "TPU": lambda x: x[0][3],
        "`auto`, ms": lambda x: f"{1e3 * estimate(x[1]):.1f}",
        "the paper's order, ms": lambda x: f"{1e3 * estimate(x[2]):.1f}",
        "ratio of estimates": ratio(estimate),
        "ratio of cycles": ratio(listed),
    }
    return listing(pairs, columns)


@view("tpu_compile.md#layers")
def layers(found):
    rows = [
        row
        for row in found["tpu"]
        if "filters" in row["changes"] and "num_heads" not in row["changes"]
    ]

    def algorithm(row):
        name = row["case"]["name"].partition(",")[0]
        if name == "auto" and "algorithms" in row:
            return f"auto: {_algorithms(row)}"
        return name

    def result(row):
        if row["status"] != "ok":
            return shortfall(row)
        return faults(row) or "compiles"

    def milliseconds(row):
        more = "+" if row["optimal_seconds"] < 0 else ""
        return f"{1e3 * estimate(row):.2f}{more}"

    def cycles(row):
        return f"{row['cycles'] / 1e6:.2f}" if row.get("cycles") else ""

    columns = {
        "map": "{px}",
        "channels": lambda row: row["changes"]["filters"],
        **fields("batch"),
        "algorithm": algorithm,
        "TPU": "{chip}",
        "result": result,
        "seconds": _scaled("compile_seconds", 1, 0),
        "temporaries, MiB": _scaled("temporaries", 2**20, 0),
        "operations, GFLOP": _scaled("flops", 1e9, 1),
        "bytes moved, MiB": _scaled("bytes_accessed", 2**20, 0),
        "estimate, ms": _if_ok(milliseconds),
        "cycles, million": _if_ok(cycles),
    }
    return listing(rows, columns)


@view("tpu_compile.md#calibration")
def calibration(found):
    results = indexed(found)
    fitted = fits(results)
    factor = fitted["blocks", "12 and 20"]["factor"]

    def seconds(order):
        def cell(row):
            value = row.estimates(results).get(order)
            return "" if value is None else f"{factor * value:.3f}"

        return cell

    def ratio(row):
        values = row.estimates(results)
        if "auto" in values and "blocks" in values:
            return f"{values['auto'] / values['blocks']:.2f}"
        return ""

    def to_paper(row):
        value = row.estimates(results).get("blocks")
        return f"{factor * value / row.measured:.2f}" if value else ""

    columns = {
        "Table": lambda row: row.table,
        "network": lambda row: row.label,
        "paper, s": lambda row: f"{row.measured:.3f}",
        "`blocks`, s": seconds("blocks"),
        "`blocks` / paper": to_paper,
        "`einsum`, s": seconds("einsum"),
        "`auto`, s": seconds("auto"),
        "`auto` / `blocks`": ratio,
        f"`auto`, {TIMED}, s": seconds(FULL),
    }
    return "\n\n".join(
        [
            "![Estimate against measurement](tpu_calibration.png)",
            listing(ROWS, columns),
            f"Estimates are multiplied by {factor:.2f}, the factor of "
            "`blocks` over both tables. A *scatter* of 1.10 says that the "
            "ratio of measured to estimated time varies by 10 % from network "
            "to network.",
            fit_table(fitted),
            f"With {TIMED} images on a core and the paper's order, as the "
            f"paper timed, and by cycles at {CLOCK / 1e6:.0f} MHz:",
            papers_table(results),
            *_without_papers_order(results),
        ]
    )


def _without_papers_order(results):
    """Which networks have no figure of the paper's order, and why."""
    missing = {
        row.label: row.paper_memory(results)
        for row in ROWS
        if "CCCC" not in row.network
        and not {"einsum", PAPERS} & row.estimates(results).keys()
    }
    large = [f"{label} ({used})" for label, used in missing.items() if used]
    others = [label for label, used in missing.items() if not used]
    if large:
        yield (
            f"Larger than a core's memory in the paper's order, with {TIMED} "
            f"images: {'; '.join(large)}."
        )
    if others:
        yield f"Not compiled with the paper's order: {'; '.join(others)}."


def papers_table(results):
    """The paper's order and batch, by both figures of the compiler."""
    rows = []
    for row in ROWS:
        seconds = row.estimates(results).get(PAPERS)
        if seconds is not None:
            cycles = row.estimates(results, listed).get(PAPERS, math.nan)
            rows.append((row, seconds, cycles))
    columns = {
        "Table": lambda x: x[0].table,
        "network": lambda x: x[0].label,
        "paper, s": lambda x: f"{x[0].measured:.3f}",
        "estimate, s": lambda x: f"{x[1]:.3f}",
        "paper / estimate": lambda x: f"{x[0].measured / x[1]:.2f}",
        "cycles, s": lambda x: f"{x[2]:.3f}",
        "paper / cycles": lambda x: f"{x[0].measured / x[2]:.2f}",
    }
    parts = [listing(rows, columns)]
    if len(rows) > 2:
        fitted = {
            (PAPERS, f"12 and 20, by {name}"): fit(
                [(x[index], x[0].measured) for x in rows]
            )
            for index, name in ((1, "the estimate"), (2, "the cycles"))
        }
        parts.append(fit_table(fitted))
    return "\n\n".join(parts)


def fit_table(fitted):
    """A line per order of summation and table."""
    columns = {
        "order": lambda x: f"`{x[0][0]}`",
        "Table": lambda x: x[0][1],
        "networks": lambda x: x[1]["number"],
        **{
            name: lambda x, name=name: f"{x[1][name]:.2f}"
            for name in ("factor", "scatter", "worst")
        },
        "rank correlation": lambda x: f"{x[1]['ranks']:.3f}",
        "largest ratio ranked wrongly": lambda x: f"{x[1]['inverted']:.2f}",
    }
    return listing(list(fitted.items()), columns)


@view("tpu_calibration.png")
def calibration_picture(found):
    """The estimates against the measurements, both logarithmic."""
    results = indexed(found)
    factor = fits(results)["blocks", "12 and 20"]["factor"]
    made, ((axis,),) = figure(6.4, 5.6)
    for order, number in itertools.product(ORDERS, MARKERS):
        points = [
            (row.measured, factor * row.estimates(results)[order])
            for row in ROWS
            if row.table == number and order in row.estimates(results)
        ]
        if points:
            axis.scatter(
                *zip(*points, strict=True),
                marker=MARKERS[number],
                color=COLORS[order],
                alpha=0.75,
                label=f"{order}, Table {number}",
            )
    limits = [0.9 * min(x.measured for x in ROWS), 1.15 * ROWS[-1].measured]
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


@view("tpu_compile.md#floor")
def floor(found):
    results = indexed(found)
    rows = [
        (results[place], row["floor"])
        for row in found["tpu_floor"]
        if (place := tuple(row["case"].values())) in results
    ]
    (plain,) = (x for x, _ in rows if x["case"]["name"] == "ResNet50 CCCC")
    shares = throughputs(results)

    def share(index):
        def cell(row):
            pattern = row[0]["case"]["name"].removeprefix("ResNet50 ")
            return f"{shares[pattern][index]:.2f}" if pattern in shares else ""

        return cell

    def at_floor(row):
        is_plain = row[0]["case"]["name"].startswith("ResNet50 ")
        return f"{estimate(plain) / row[1]['all']:.2f}" if is_plain else ""

    columns = {
        "network": lambda row: row[0]["case"]["name"],
        "px": lambda row: row[0]["case"]["px"],
        "estimate, ms": lambda row: f"{1e3 * estimate(row[0]):.1f}",
        "floor, ms": lambda row: f"{1e3 * row[1]['all']:.1f}",
        "estimate / floor": lambda row: (
            f"{estimate(row[0]) / row[1]['all']:.2f}"
        ),
        "floor of its lambda layers, ms": lambda row: (
            f"{1e3 * row[1]['lambda']:.1f}"
        ),
        "throughput over CCCC's: paper": share(0),
        "by the estimates": share(1),
        "this floor, CCCC's estimate": at_floor,
    }
    return listing(rows, columns)


MEASURES = {
    "estimate": estimate,
    "cycles": lambda result: result["cycles"],
    "mean of both": lambda result: math.sqrt(
        estimate(result) * result["cycles"]
    ),
}


def drawn(found, measure):
    """Layers drawn at random that were compiled, by chip.

    Args:
        found: records of `tpu` and `tpu_choices`.
        measure: key of `MEASURES`.

    Returns:
        Dict from chip to a list of (case, choice, dict from algorithm to what
        the measure gives).
    """
    results, rows = indexed(found), collections.defaultdict(list)
    for chip, choice in itertools.product(CHIPS, found["tpu_choices"]):
        case = choice["case"]
        group = {
            algorithm: results.get((name, case["px"], case["batch"], chip), {})
            for algorithm, name in choice["names"].items()
        }
        if all(x.get("status") == "ok" for x in group.values()):
            figures = {x: MEASURES[measure](y) for x, y in group.items()}
            rows[chip].append((case, choice["value"], figures))
    return rows


def _regret(row):
    return row[2][row[1]] / min(row[2].values())


@view("tpu_compile.md#regret")
def regret(found):
    lines = []
    for measure in MEASURES:
        for chip, rows in drawn(found, measure).items():
            values = [_regret(row) for row in rows]
            case, choice, figures = max(rows, key=_regret)
            best = min(figures, key=figures.__getitem__)
            lines.append(
                f"{chip}, by the {measure}: {regrets(values)}, worst "
                f"{max(values):.2f} ({choice} for {best}, batch "
                f"{case['batch']})."
            )
    chip, rows = next(iter(drawn(found, "estimate").items()))

    def layer(row):
        changes = row[0]["layer"]
        parts = [
            f"d={changes['filters']}",
            f"scope {changes['scope'] or 'global'}",
            f"h={changes['num_heads']}, k={changes['key_dim']}",
        ]
        if changes["intra_depth"] > 1:
            parts.append(f"u={changes['intra_depth']}")
        return ", ".join(parts)

    columns = {
        "map": lambda row: row[0]["px"],
        "batch": lambda row: row[0]["batch"],
        "layer": layer,
        **{
            f"{name}, ms": lambda row, name=name: f"{1e3 * row[2][name]:.2f}"
            for name in rows[0][2]
        },
        "`auto` takes": lambda row: row[1],
        "regret": lambda row: f"{_regret(row):.2f}",
    }
    parts = ["![Distribution](tpu_regret.png)", "\n".join(lines)]
    return "\n\n".join(
        [*parts, f"Estimates for {chip}:", listing(rows, columns)]
    )


@view("tpu_regret.png")
def regret_picture(found):
    return distribution(
        {
            f"{chip}, {measure}": [_regret(row) for row in rows]
            for measure in MEASURES
            for chip, rows in drawn(found, measure).items()
        }
    )


FIGURES = {"the estimate": estimate, "its cycles": listed}


def compiled_steps(rows, figure):
    """Seconds an image of training on 8 cores of v3, by network.

    Args:
        rows: records of `comparison_tpu`.
        figure: from a record to seconds of its step.
    """
    return {
        row["case"]["network"]: figure(row) / (row["images"] * CORES)
        for row in rows
        if row["case"]["chip"] == "v3" and row["status"] == "ok"
    }


@view("comparison.md#estimated")
def comparison(found):
    rows = [x for x in found["comparison_tpu"] if x["status"] == "ok"]
    timed = {name: compiled_steps(rows, x) for name, x in FIGURES.items()}

    def rate(name):
        return lambda row: f"{1 / timed[name][row['case']['network']]:,.0f}"

    def to_published(name):
        def cell(row):
            seconds = timed[name][row["case"]["network"]]
            known = row["published"]
            return f"{seconds / known:.2f}" if known else ""

        return cell

    columns = {
        "network": "{network}",
        "top-1": "{top1:.1f}",
        "published, images/s": lambda row: (
            f"{1 / row['published']:,.0f}" if row["published"] else ""
        ),
        **{f"{name}, images/s": rate(name) for name in FIGURES},
        **{f"published / {name}": to_published(name) for name in FIGURES},
    }
    return f"{listing(rows, columns)}\n\n{at_equal_accuracy(rows, timed)}"


@view("comparison.png")
def comparison_picture(found):
    """Accuracy over time: published, by the compiler, on a CPU."""
    rows, compiled = found["comparison"], found["comparison_tpu"]
    panels = {
        "training, 8 TPUv3 cores, published": {
            row["case"]["network"]: row["published"]
            for row in rows
            if row["published"]
        },
        "training, TPUv3, the compiler's cycles": compiled_steps(
            compiled, listed
        ),
    }
    for phase in FAMILY_PHASES:
        panels[f"{phase}, this CPU"] = phase_seconds(rows, phase)
    return families_picture(rows, panels)


@view("detection.md#tpu")
def detection(found):
    columns = {
        "experiment": "`{experiment}`",
        "TPU": "{chip}",
        "result": _fits,
        "arguments, GiB": _gib("arguments"),
        "temporaries, GiB": _gib("temporaries"),
        "total, GiB": _if_ok(_needed),
    }
    return listing(found["detection_tpu"], columns)
