"""Tables and pictures of whole networks."""

from benchmarks import views
from benchmarks.timing import median
from benchmarks.timing import ratio

NORM = "itself with Keras' batch normalization"
# The paper's ratios of throughputs (TPUv3).
PAPERS = {
    "CCLL": "4980/7240 = 0.69 (Table 12)",
    "LLLL": "1160/7240 = 0.16 (Table 12)",
    "LambdaResNet50": "1.01 at depth 101 (Table 13)",
}


def ratio_of(row, first, second):
    """How many times as long the second takes, with its interval."""
    return row.ratio or ratio(row.seconds[first], row.seconds[second])


@views.view("engine.md#networks")
def networks(found):
    pairs = {
        (row.network, row.phase): row
        for row in found["networks"]
        if row.against not in (None, NORM)
    }
    rows = [row for row in found["networks"] if row.against is None]
    for row in rows:
        row["rate"] = row.batch / median(row.seconds)
        if pair := pairs.get((row.network, row.phase)):
            times = ratio_of(pair, row.network, pair.against)
            row["other"], row["times"] = pair.against, views.interval(times)
            row["papers"] = PAPERS[row.network]
    columns = {
        **views.fields("network", "phase"),
        "images/s": "{rate:.2f}",
        "compared with": "{other}",
        "ratio": "{times}",
        "the paper's (TPUv3)": "{papers}",
    }
    return views.listing(rows, columns)


@views.view("engine.md#timm")
def timm(found):
    """A line for each network and phase, a column for each batch and mode."""
    cells = {}
    rows = sorted(
        found["timm"], key=lambda row: (row.network, row.phase, row.batch)
    )
    for row in rows:
        rate = row.batch / median(row.seconds["ours"])
        times = views.interval(ratio_of(row, "ours", "theirs"))
        column = f"batch {row.batch}, {row.theirs}"
        cells[f"{row.network}, {row.phase}", column] = f"{rate:.1f}; {times}"
    return views.crossed(cells, "network")


FAMILIES = {
    "LambdaResNet": "#3366aa",
    "ResNet-RS": "#777777",
    "EfficientNet": "#cc3311",
    "EfficientNetV2": "#ee9955",
    "ViT": "#228833",
}
FAMILY_PHASES = ("training", "inference")


def seconds_at(points, top1):
    """Seconds an image of a family of (top1, seconds) at an accuracy."""
    best = []
    for accuracy, seconds in sorted(points, reverse=True):
        if not best or seconds < best[-1][1]:
            best.append((accuracy, seconds))
    best.reverse()
    for (a, slow), (b, fast) in zip(best, best[1:], strict=False):
        if a <= top1 <= b:
            return slow * (fast / slow) ** ((top1 - a) / (b - a))
    return None


def phases_seconds(rows):
    """Returns seconds an image by network, for each phase."""
    return {
        x: {row.network: median(row.seconds[x]) / row.batch for row in rows}
        for x in FAMILY_PHASES
    }


def family_points(rows, seconds, family):
    """(top1, seconds an image) of the networks of a family."""
    return [
        (row.top1, seconds[row.network])
        for row in rows
        if row.family == family and row.network in seconds
    ]


def faster(rows, timed):
    """Rows of the other families with ratios, for each that was timed."""
    for name, seconds in timed.items():
        ours = family_points(rows, seconds, "LambdaResNet")
        for row in (row for row in rows if row.family != "LambdaResNet"):
            at = seconds_at(ours, row.top1)
            ratio = seconds[row.network] / at if at else None
            yield views.Row(row, timed=name, ratio=ratio)


@views.view("comparison.md#measured")
def comparison(found):
    rows = found["comparison"]
    for row in rows:
        for phase in FAMILY_PHASES:
            row[phase] = row.batch / median(row.seconds[phase])
    columns = {
        "network": "{network}",
        "parameters, M": "{parameters:.1f/M}",
        "top-1": "{top1:.1f}",
        **{f"{x}, images/s": f"{{{x}:.2f}}" for x in FAMILY_PHASES},
    }
    ratios = {
        (row.network, row.timed): views.text(row.ratio, ".2f") or "none"
        for row in faster(rows, phases_seconds(rows))
    }
    for phase in FAMILY_PHASES:
        for row in rows:
            row[f"{phase} gain"] = ratios.get((row.network, phase))
        columns[f"{phase}: its time / LambdaResNet's"] = f"{{{phase} gain}}"
    return views.listing(rows, columns)


@views.view("comparison.png")
def comparison_picture(found):
    """Accuracy over time for an image: published, and on a CPU."""
    rows = found["comparison"]
    published = {row.network: row.published for row in rows if row.published}
    panels = {"training, 8 TPUv3 cores, published": published}
    for phase, seconds in phases_seconds(rows).items():
        panels[f"{phase}, this CPU"] = seconds
    made, (axes,) = views.figure(14, 4.8, columns=len(panels), sharey=True)
    for axis, (title, seconds) in zip(axes, panels.items(), strict=True):
        curves = {
            family: [(1e3 * time, top1) for top1, time in sorted(points)]
            for family in FAMILIES
            if (points := family_points(rows, seconds, family))
        }
        axis.set_xscale("log")
        views.lines(
            axis, curves, FAMILIES, xlabel="milliseconds an image", title=title
        )
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


@views.view("paper_tables.md#tables")
def paper_tables(found):
    """A line for each table with what agrees; then the rows that do not."""
    rows = found["paper_tables"]
    for row in rows:
        digits = len(row.paper.partition(".")[2]) + 2
        row["ours"] = f"{row.value:.{digits}f}"
    same = [row for row in rows if row.verdict == "agrees"]
    other = [row for row in rows if row.verdict != "agrees"]
    groups = views.grouped(same, "table", "quantity")
    agreeing = [
        views.Row(
            title=TITLES[table],
            quantity=quantity,
            rows="; ".join(f"{x.row}: {x.ours} ({x.paper})" for x in group),
        )
        for (table, quantity), group in groups.items()
    ]
    first = {"table": "{title}", **views.fields("quantity")}
    for row in other:
        row["title"] = TITLES[row.table]
    return views.page(
        f"{len(same)} of {len(rows)} figures agree to the last digit; "
        "ours, with the paper's in brackets:",
        views.listing(agreeing, first | {"rows that agree": "{rows}"}),
        "The others:",
        views.listing(
            other,
            first | views.fields("row", "paper", "ours") | {"why": "{verdict}"},
        ),
    )
