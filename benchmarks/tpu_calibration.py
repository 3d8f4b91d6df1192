"""Holds the TPU compiler's estimates against the paper's measurements.

    make tpu-calibration       compiles what is missing, then the two below
    python -m benchmarks.tpu_calibration --write docs

Table 20 has the seconds of a step, Table 12 images per second, both for 8
cores of TPUv3. One factor, common to all networks, is fitted.
"""

import argparse
import dataclasses
import itertools
import json
import math
import pathlib
import statistics

from benchmarks import report
from benchmarks.tpu_programs import BATCH
from benchmarks.tpu_programs import PATTERNS
from benchmarks.tpu_programs import TIMED
from benchmarks.tpu_report import estimate
from lambdanet_tf.specs import TABLE_20

DOCUMENT = "tpu_compile.md"
PICTURE = "tpu_calibration.png"
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
CLOCK = 940e6  # cycles a second of TPUv3: Norrie et al. (2021), IEEE Micro 41
FULL = f"auto, {TIMED}"
PAPERS = f"einsum, {TIMED}"  # as the paper timed
# What the names end in, and images on a core. `blocks` is what `auto` was in an
# earlier engine, see `benchmarks.tpu_programs`.
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
        network = self.network.format(suffix)
        return f"{network}, {self.image_size} px, batch {batch} on v3"

    def paper_memory(self, results):
        """What the paper's program needs of a core's memory, if too much."""
        suffix, batch = ORDERS[PAPERS]
        return results.get(self._key(suffix, batch), {}).get("used")

    def estimates(self, results, figure=estimate):
        """Seconds of the same images by the compiler, per order.

        Args:
            results: of `benchmarks.tpu_compile`.
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


def listed(result):
    """Seconds by the cycles in the compiler's listing of a program.

    None of results that were stored without it.
    """
    return result["cycles"] / CLOCK if "cycles" in result else None


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
        for figure in (estimate, listed):
            base, own = (
                x.estimates(results, figure).get(FULL) for x in (plain, row)
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


def table(results, factor):
    """A line per network: measured, estimated, and what `auto` saves."""
    lines = [
        "| Table | network | paper, s | `blocks`, s | `blocks` / paper "
        f"| `einsum`, s | `auto`, s | `auto` / `blocks` | `auto`, {TIMED}, s |",
        "|" + "---|" * 9,
    ]
    for row in ROWS:
        found = row.estimates(results)
        blocks, auto = found.get("blocks"), found.get("auto")
        full = found.get(FULL)
        cells = [
            row.table,
            row.label,
            f"{row.measured:.3f}",
            _seconds(blocks, factor),
            f"{factor * blocks / row.measured:.2f}" if blocks else "",
            _seconds(found.get("einsum"), factor),
            _seconds(auto, factor),
            f"{auto / blocks:.2f}" if auto and blocks else "",
            _seconds(full, factor),
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _seconds(seconds, factor):
    return "" if seconds is None else f"{factor * seconds:.3f}"


def papers_table(results):
    """The paper's order and batch, by both figures of the compiler."""
    lines = [
        "| Table | network | paper, s | estimate, s | paper / estimate | "
        "cycles, s | paper / cycles |",
        "|" + "---|" * 7,
    ]
    pairs = []
    for row in ROWS:
        seconds = row.estimates(results).get(PAPERS)
        if seconds is None:
            continue
        cycles = row.estimates(results, listed).get(PAPERS, math.nan)
        pairs.append((seconds, cycles, row.measured))
        lines.append(
            f"| {row.table} | {row.label} | {row.measured:.3f} | {seconds:.3f} "
            f"| {row.measured / seconds:.2f} | {cycles:.3f} "
            f"| {row.measured / cycles:.2f} |"
        )
    if len(pairs) > 2:
        found = {
            (PAPERS, f"12 and 20, by {name}"): fit(
                [(pair[index], pair[2]) for pair in pairs]
            )
            for index, name in enumerate(("the estimate", "the cycles"))
        }
        lines += ["", fit_table(found)]
    return "\n".join(lines)


def fit_table(found):
    """A line per order of summation and table."""
    lines = [
        "| order | Table | networks | factor | scatter | worst | rank "
        "correlation | largest ratio ranked wrongly |",
        "|" + "---|" * 8,
    ]
    for (order, number), x in found.items():
        lines.append(
            f"| `{order}` | {number} | {x['number']} | {x['factor']:.2f} "
            f"| {x['scatter']:.2f} | {x['worst']:.2f} | {x['ranks']:.3f} "
            f"| {x['inverted']:.2f} |"
        )
    return "\n".join(lines)


def section(results):
    """The text of the section, and the factor that is common to all."""
    found = fits(results)
    whole = found["blocks", "12 and 20"]
    missing = {
        row.label: row.paper_memory(results)
        for row in ROWS
        if "CCCC" not in row.network
        and not {"einsum", PAPERS} & row.estimates(results).keys()
    }
    too_large = [f"{label} ({used})" for label, used in missing.items() if used]
    missing = [label for label, used in missing.items() if not used]
    texts = [
        f"![Estimate against measurement]({PICTURE})",
        table(results, whole["factor"]),
        f"Estimates are multiplied by {whole['factor']:.2f}, the factor of "
        "`blocks` over both tables. A *scatter* of 1.10 says that the ratio of "
        "measured to estimated time varies by 10 % from network to network.",
        fit_table(found),
        f"With {TIMED} images on a core and the paper's order, as the paper "
        f"timed, and by cycles at {CLOCK / 1e6:.0f} MHz:",
        papers_table(results),
    ]
    if too_large:
        texts.append(
            f"Larger than a core's memory in the paper's order, with {TIMED} "
            f"images: {'; '.join(too_large)}."
        )
    if missing:
        texts.append(
            f"Not compiled with the paper's order: {'; '.join(missing)}."
        )
    return "\n\n".join(texts), whole["factor"]


def picture(results, factor, path):
    """Draws the estimates against the measurements, both logarithmic."""
    import matplotlib  # noqa: PLC0415

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt  # noqa: PLC0415

    figure, axis = plt.subplots(figsize=(6.4, 5.6))
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
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    plt.close(figure)


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--write", default="docs", help="folder of the results")
    folder = pathlib.Path(parser.parse_args(arguments).write)
    results = json.loads((folder / "tpu_compile.json").read_text())
    text, factor = section(results)
    report.insert(folder, "calibration", text, DOCUMENT)
    picture(results, factor, folder / PICTURE)
    print(text)


if __name__ == "__main__":
    main()
