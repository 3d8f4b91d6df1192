"""Tables and pictures of whole networks."""

from statistics import median

from benchmarks import views
from benchmarks.timing import ratio

# The paper's ratios of throughputs (TPUv3).
PAPERS = {
    "CCLL": "4980/7240 = 0.69 (Table 12)",
    "LLLL": "1160/7240 = 0.16 (Table 12)",
    "LambdaResNet50": "1.01 at depth 101 (Table 13)",
}


def pairs(found):
    """Records of two networks in turns, with the ratio of their times."""
    rows = [row for row in found["networks"] if row.against]
    for row in rows:
        times = ratio(row.seconds[row.network], row.seconds[row.against])
        row["ratio"], row["times"] = times[0], views.interval(times)
    return rows


@views.view("engine.md#networks")
def networks(found):
    compared = {(row.network, row.phase): row for row in pairs(found)}
    rows = [row for row in found["networks"] if not row.against]
    for row in rows:
        row["rate"] = row.batch / median(row.seconds)
        if pair := compared.get((row.network, row.phase)):
            row["other"], row["times"] = pair.against, pair.times
            row["papers"] = PAPERS[row.network]
    columns = {
        **views.fields("network", "phase"),
        "images/s": "{rate:.2f}",
        "compared with": "{other}",
        "ratio of images/s": "{times}",
        "ratio in the paper (TPUv3)": "{papers}",
    }
    return views.listing(rows, columns)


def beside_timm(found):
    """Records of timm's networks, with the ratio of their time to ours."""
    for row in found["timm"]:
        times = ratio(row.seconds["ours"], row.seconds["theirs"])
        row["ratio"], row["times"] = times[0], views.interval(times)
    return found["timm"]


@views.view("engine.md#timm")
def timm(found):
    cells, rows = {}, beside_timm(found)
    for row in sorted(rows, key=lambda x: (x.network, x.phase, x.batch)):
        rate = row.batch / median(row.seconds["ours"])
        line = f"{row.network}, {row.phase}"
        column = f"batch {row.batch}, {row.theirs}"
        cells[line, column] = f"{rate:.1f}; {row.times}"
    return views.crossed(cells, "network")


FAMILIES = {
    "LambdaResNet": "#3366aa",
    "ResNet-RS": "#777777",
    "EfficientNet": "#cc3311",
    "EfficientNetV2": "#ee9955",
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


def family_points(rows, seconds, family):
    """(top1, seconds an image) of the networks of a family."""
    return [
        (row.top1, seconds[row.network])
        for row in rows
        if row.family == family and row.network in seconds
    ]


def seconds_of(rows, phase):
    """Seconds an image, by ratios to the network that all take turns with."""
    first = f"{phase}, first"
    usual = median(x for row in rows for x in row.seconds[first])
    seconds = {}
    for row in rows:
        times, *_ = ratio(row.seconds[first], row.seconds[phase])
        seconds[row.network] = usual * times / row.batch
    return seconds


def faster(rows):
    """Yields rows of the other families with ratios, for each phase."""
    for phase in FAMILY_PHASES:
        seconds = seconds_of(rows, phase)
        ours = family_points(rows, seconds, "LambdaResNet")
        for row in (row for row in rows if row.family != "LambdaResNet"):
            at = seconds_at(ours, row.top1)
            times = seconds[row.network] / at if at else None
            yield views.Row(row, timed=phase, ratio=times)


@views.view("comparison.md#measured")
def comparison(found):
    rows = {row.network: row for row in found["comparison"]}
    for phase in FAMILY_PHASES:
        for name, seconds in seconds_of(rows.values(), phase).items():
            rows[name][phase] = 1 / seconds
    for row in faster(found["comparison"]):
        times = views.text(row.ratio, ".2f") or "none"
        rows[row.network][f"{row.timed} gain"] = times
    columns = {
        "network": "{network}",
        "parameters, M": "{parameters:.1f/M}",
        "top-1": "{top1:.1f}",
    }
    for phase in FAMILY_PHASES:
        columns[f"{phase}, images/s"] = f"{{{phase}:.2f}}"
    for phase in FAMILY_PHASES:
        columns[f"{phase}: its time / LambdaResNet's"] = f"{{{phase} gain}}"
    return views.listing(rows.values(), columns)


@views.view("comparison.png")
def comparison_picture(found):
    rows = found["comparison"]
    published = {row.network: row.published for row in rows if row.published}
    panels = {"training, 8 TPUv3 cores, published": published}
    for phase in FAMILY_PHASES:
        panels[f"{phase}, this CPU"] = seconds_of(rows, phase)
    made, axes = views.figure(14, 4.8, columns=len(panels))
    for axis, (title, seconds) in zip(axes, panels.items(), strict=True):
        curves = {
            family: [(1e3 * time, top1) for top1, time in sorted(points)]
            for family in FAMILIES
            if (points := family_points(rows, seconds, family))
        }
        axis.set_xscale("log")
        views.lines(
            axis, curves, FAMILIES, xlabel="milliseconds per image", title=title
        )
    axes[0].set_ylabel("published top-1 accuracy on ImageNet, %")
    return made


TITLES = {
    "3": "Table 3: layers in ResNet-50",
    "4": "Table 4: memory for 128 images of 224 px",
    "8": "Table 8: query depth, heads, intra-depth and scope",
    "9": "Table 9: content and position lambdas",
    "10": "Table 10: scope, with lambda layers in c3, c4 and c5",
    "12": "Table 12: stages c2 to c5 (C: convolution, L: lambda layer)",
    "13": "Table 13: LambdaResNets and ResNet-RS",
    "15": "Table 15: C4 variants at 320 px",
    "16": "Table 16: C4 variant with scope 7 at 256 px",
    "17": "Table 17: MobileNetV2",
}


@views.view("paper_tables.md#tables")
def paper_tables(found):
    """A line for each table with what agrees; then the rows that do not."""
    rows, agreeing = found["paper_tables"], []
    for row in rows:
        digits = len(row.paper.partition(".")[2]) + 2
        row["ours"] = f"{row.value:.{digits}f}"
        row["title"] = TITLES[row.table]
    same = [row for row in rows if row.verdict == "agrees"]
    other = [row for row in rows if row.verdict != "agrees"]
    for (title, quantity), group in views.grouped(
        same, "title", "quantity"
    ).items():
        texts = "; ".join(f"{x.row}: {x.ours} ({x.paper})" for x in group)
        agreeing.append(views.Row(title=title, quantity=quantity, rows=texts))
    first = {"table": "{title}", **views.fields("quantity")}
    why = {**views.fields("row", "paper", "ours"), "why": "{verdict}"}
    return views.page(
        f"{len(same)} of {len(rows)} figures agree to the last digit. Each "
        "entry is our figure, with the paper's in parentheses:",
        views.listing(agreeing, first | {"rows that agree": "{rows}"}),
        "The other figures differ:",
        views.listing(other, first | why),
    )
