"""Tables and pictures of whole networks."""

import math

from benchmarks.timing import median
from benchmarks.timing import ratio
from benchmarks.timing import spread
from benchmarks.views import fields
from benchmarks.views import figure
from benchmarks.views import grouped
from benchmarks.views import interval
from benchmarks.views import listing
from benchmarks.views import scaled
from benchmarks.views import summary
from benchmarks.views import view

NORM = "itself with Keras' batch normalization"
# The paper's ratios of throughputs (TPUv3).
PAPERS = {
    "CCLL": "4980/7240 = 0.69 (Table 12)",
    "LLLL": "1160/7240 = 0.16 (Table 12)",
    "LambdaResNet50": "1.01 at depth 101 (Table 13)",
}


def ratio_of(record, first, second):
    """How many times as long the second takes, with its interval."""
    if "ratio" in record:
        return record["ratio"]
    return ratio(record["seconds"][first], record["seconds"][second])


def _head(rows):
    batch, size = (rows[0]["case"][field] for field in ("batch", "size"))
    return f"Batch {batch}, {size} px."


@view("engine.md#networks")
def networks(found):
    rows = [x for x in found["networks"] if "against" not in x["case"]]
    pairs = {
        (x["case"]["network"], x["case"]["phase"]): x
        for x in found["networks"]
        if x["case"].get("against") not in (None, NORM)
    }

    def place(row):
        return row["case"]["network"], row["case"]["phase"]

    def rates(row):
        middle, fast, slow = spread(row["seconds"])
        batch = row["case"]["batch"]
        return f"{batch / middle:.2f}", f"{batch / slow:.2f}-{batch / fast:.2f}"

    def against(row):
        pair = pairs.get(place(row))
        return pair["case"]["against"] if pair else ""

    def times(row):
        if place(row) not in pairs:
            return ""
        names = place(row)[0], against(row)
        return interval(ratio_of(pairs[place(row)], *names))

    columns = {
        **fields("network", "phase"),
        "images/s": lambda row: rates(row)[0],
        "slowest to fastest": lambda row: rates(row)[1],
        "compared with": against,
        "ratio": times,
        "the paper's (TPUv3)": lambda row: (
            PAPERS[place(row)[0]] if place(row) in pairs else ""
        ),
    }
    return f"{_head(rows)}\n\n{listing(rows, columns)}"


@view("engine.md#norms")
def norms(found):
    rows = [x for x in found["networks"] if x["case"].get("against") == NORM]
    columns = {
        **fields("network", "phase"),
        "time with Keras' layer / with this one": lambda row: interval(
            ratio_of(row, row["case"]["network"], NORM)
        ),
    }
    return f"{_head(rows)}\n\n{listing(rows, columns)}"


@view("engine.md#floor")
def floor(found):
    texts = []
    for record in found["floor"]:
        times = {name: median(x) for name, x in record["seconds"].items()}
        products = record["operations"] / record["matrix_rate"]
        moves = record["bytes"] / record["copy_rate"]
        rows = {
            "CCCC": times["CCCC"],
            "LLLL": times["LLLL"],
            "LLLL without position lambdas": times["rest"],
            f"their products: {record['operations'] / 1e9:.1f} Gop at "
            f"{record['matrix_rate'] / 1e9:.0f} Gop/s": products,
            f"their largest intermediates: {record['bytes'] / 1e9:.2f} GB at "
            f"{record['copy_rate'] / 1e9:.1f} GB/s": moves,
            "LLLL, if they cost no more": times["rest"] + products + moves,
        }
        columns = {
            f"{record['case']['batch']} images in inference": lambda x: x[0],
            "ms": lambda x: f"{1e3 * x[1]:.0f}",
            "throughput / CCCC's": lambda x, base=times["CCCC"]: (
                f"{base / x[1]:.2f}" if "LLLL" in x[0] else ""
            ),
        }
        texts.append(listing(list(rows.items()), columns))
    return "\n\n".join(texts)


@view("engine.md#timm")
def timm(found):
    rows = found["timm"]
    columns = {
        **fields("network", "phase", "batch", "ours"),
        "images/s": lambda row: _rate(row, "ours"),
        "timm": "{theirs}",
        "images/s ": lambda row: _rate(row, "theirs"),
        "timm's time / ours": lambda row: f"**{_timm_ratio(row)[0]:.2f}**",
        "95 % interval of the median": lambda row: "{1:.2f} to {2:.2f}".format(
            *_timm_ratio(row)
        ),
    }
    sentences = []
    for (phase, theirs), group in grouped(rows, "phase", "theirs").items():
        ratios = [_timm_ratio(row)[0] for row in group]
        text = (
            f"{phase.capitalize()}, timm {theirs}: it takes {summary(ratios)}"
        )
        losing = [
            "{network}, batch {batch}".format(**row["case"])
            for row, times in zip(group, ratios, strict=True)
            if times < 1
        ]
        if losing:
            text += f", and is faster for {'; '.join(losing)}"
        sentences.append(f"- {text}.")
    parts = ["![Times of timm over ours](timm_speed.png)"]
    return "\n\n".join([*parts, listing(rows, columns), "\n".join(sentences)])


def _timm_ratio(row):
    return ratio_of(row, "ours", "theirs")


def _rate(row, side):
    return f"{row['case']['batch'] / median(row['seconds'][side]):.2f}"


@view("timm_speed.png")
def timm_picture(found):
    """The ratios with their intervals, a panel for each phase."""
    rows = found["timm"]
    labels = list(grouped(rows, "network", "batch"))
    height = 0.5 * len(labels) + 1.6
    made, (axes,) = figure(11, height, columns=2, sharex=True, sharey=True)
    for axis, phase in zip(axes, ("inference", "training"), strict=True):
        chosen = [row for row in rows if row["case"]["phase"] == phase]
        pairs = grouped(chosen, "ours", "theirs")
        for index, (pair, group) in enumerate(pairs.items()):
            places = [
                labels.index((row["case"]["network"], row["case"]["batch"]))
                + 0.15 * (index - (len(pairs) - 1) / 2)
                for row in group
            ]
            ratios = [_timm_ratio(row) for row in group]
            errors = [[m - low for m, low, _ in ratios]]
            errors.append([high - m for m, _, high in ratios])
            axis.errorbar(
                [m for m, _, _ in ratios],
                places,
                xerr=errors,
                fmt="o",
                capsize=3,
                label=f"{pair[0]} and timm, {pair[1]}",
            )
        axis.axvline(1.0, color="black", linewidth=1)
        axis.set_title(phase)
        axis.set_xlabel("timm's time / ours: above 1, ours is faster")
        axis.grid(axis="x", alpha=0.3)
    axes[0].set_yticks(range(len(labels)), [f"{n}, {b}" for n, b in labels])
    axes[0].invert_yaxis()
    axes[1].legend(fontsize=8)
    return made


FAMILIES = {
    "LambdaResNet": "#3366aa",
    "ResNet-RS": "#777777",
    "EfficientNet": "#cc3311",
    "EfficientNetV2": "#ee9955",
    "ViT": "#228833",
}
FAMILY_PHASES = ("training", "inference")


def seconds_at(points, top1):
    """Seconds an image of a family at an accuracy, between its networks.

    Args:
        points: list of (top1, seconds) of a family.
        top1: accuracy.

    Returns:
        Seconds, between the fastest networks that are at least as good as
        each accuracy, on a line in the logarithm; None outside of them.
    """
    best = []
    for accuracy, seconds in sorted(points, reverse=True):
        if not best or seconds < best[-1][1]:
            best.append((accuracy, seconds))
    best.reverse()
    for (a, slow), (b, fast) in zip(best, best[1:], strict=False):
        if a <= top1 <= b:
            share = (top1 - a) / (b - a)
            return math.exp(
                (1 - share) * math.log(slow) + share * math.log(fast)
            )
    return None


def phase_seconds(rows, phase):
    """Seconds an image by network, as measured."""
    return {
        row["case"]["network"]: median(row["seconds"][phase])
        / row["case"]["batch"]
        for row in rows
    }


def at_equal_accuracy(rows, columns):
    """A table: how many times faster LambdaResNets are at equal accuracy.

    Args:
        rows: records with `family` and `top1`.
        columns: dict from what was timed to seconds an image, by network.
    """

    def times(seconds):
        ours = family_points(rows, seconds, "LambdaResNet")

        def cell(row):
            name, at = row["case"]["network"], seconds_at(ours, row["top1"])
            if name not in seconds:
                return ""
            return f"{seconds[name] / at:.2f}" if at else "no such accuracy"

        return cell

    others = [row for row in rows if row["family"] != "LambdaResNet"]
    return listing(
        others,
        {
            "at the accuracy of": "{network} ({top1})",
            **{
                f"{name}: LambdaResNet is faster by": times(seconds)
                for name, seconds in columns.items()
            },
        },
    )


def family_points(rows, seconds, family):
    """(top1, seconds an image) of the networks of a family."""
    return [
        (row["top1"], seconds[row["case"]["network"]])
        for row in rows
        if row["family"] == family and row["case"]["network"] in seconds
    ]


@view("comparison.md#measured")
def comparison(found):
    rows = found["comparison"]

    def rates(phase):
        def cell(row):
            batch = row["case"]["batch"]
            numbers = [batch / x for x in spread(row["seconds"][phase])]
            return "{0:.2f} ({2:.2f}-{1:.2f})".format(*numbers)

        return cell

    columns = {
        "network": "{network}",
        "parameters, M": scaled("parameters", 1e6),
        "top-1": "{top1:.1f}",
        **{f"{x}, images/s": rates(x) for x in FAMILY_PHASES},
    }
    timed = {phase: phase_seconds(rows, phase) for phase in FAMILY_PHASES}
    return f"{listing(rows, columns)}\n\n{at_equal_accuracy(rows, timed)}"


def families_picture(rows, panels):
    """Accuracy over time for an image, in panels.

    Args:
        rows: records with `family` and `top1`.
        panels: dict from a title to seconds an image, by network.
    """
    made, (axes,) = figure(
        4.6 * len(panels) + 0.6, 4.8, columns=len(panels), sharey=True
    )
    for axis, (title, seconds) in zip(axes, panels.items(), strict=True):
        for family, color in FAMILIES.items():
            if points := family_points(rows, seconds, family):
                top1, times = zip(*sorted(points), strict=True)
                times = [1e3 * time for time in times]
                axis.plot(times, top1, "o-", c=color, label=family)
        axis.set(xscale="log", xlabel="milliseconds an image", title=title)
        axis.grid(alpha=0.3, which="both")
        axis.legend(loc="lower right", frameon=False)
    axes[0].set_ylabel("published top-1 accuracy on ImageNet, %")
    return made


TITLES = {
    "3": "Table 3: layers in ResNet-50",
    "4": "Table 4: memory for 128 images of 224 px",
    "8": "Table 8: query depth, heads, intra-depth and scope",
    "9": "Table 9: content and position lambdas",
    "10": "Table 10: scope, lambda layers in c3, c4 and c5",
    "12": "Table 12: stages c2 to c5, C convolution, L lambda layer",
    "13": "Table 13: LambdaResNets and ResNet-RS",
    "15": "Table 15: C4 variants at 320 px",
    "16": "Table 16: C4 variant with scope 7 at 256 px",
    "17": "Table 17: MobileNetV2",
}


@view("paper_tables.md#tables")
def paper_tables(found):
    columns = {
        **fields("row", "quantity", "paper"),
        "ours": lambda x: (
            f"{x['value']:.{len(x['paper'].partition('.')[2]) + 2}f}"
        ),
        "": "{verdict}",
    }
    rows = found["paper_tables"]
    agreeing = sum(row["verdict"] == "agrees" for row in rows)
    texts = [
        f"{agreeing} of {len(rows)} figures agree to the last digit that the "
        "paper prints; beside each of the others stands why."
    ]
    tables = grouped(rows, "table")
    for (table,) in sorted(tables, key=lambda x: int(x[0])):
        texts += [f"## {TITLES[table]}", listing(tables[table,], columns)]
    return "\n\n".join(texts)
