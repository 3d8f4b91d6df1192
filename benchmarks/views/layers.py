"""Tables and pictures of single layers."""

from statistics import geometric_mean
from statistics import median

from benchmarks import views
from benchmarks.networks.paper_memory import table_4_gib

NAIVE = ("einsum", "conv2d", "depthwise")  # the algorithms of other packages
BASELINES = ("timm conv", "timm table", "lucidrains")
PHASES = ("forward", "training")
_GROUPS = {
    "einsum, conv2d, depthwise in TensorFlow: the best": NAIVE,
    "timm, lucidrains in PyTorch: the best": BASELINES,
}
_TICKS = (0.5, 1, 2, 5, 10, 20)


def _lines(found):
    """Returns the records of both phases, for each line on a CPU."""
    rows = [row for row in found["layers"] if row.device is None]
    return [
        sorted(pair, key=lambda row: PHASES.index(row.phase))
        for pair in views.grouped(rows, "layer", "batch").values()
    ]


def times_auto(row, names):
    """How many times longer the best of some takes than auto; None without."""
    found = [median(row.seconds[x]) for x in names if x in row.seconds]
    return min(found) / median(row.seconds["auto"]) if found else None


def against(found, names):
    rows = [row for pair in _lines(found) for row in pair]
    return [views.Row(row, ratio=times_auto(row, names)) for row in rows]


def to_fastest(row):
    """How many times as long as auto the fastest algorithm takes."""
    names = [name for name in row.seconds if name not in ("auto", *BASELINES)]
    best = min(names, key=lambda name: median(row.seconds[name]))
    return 1.0 if row.plan.startswith(best) else times_auto(row, [best])


def _line(forward, training):
    """A line of the table: the record of training, and what it lacks."""
    line, both = views.Row(training), (forward, training)
    line["algorithm"] = training.plan.split(":")[0]
    for row in both:
        line[row.phase] = row.seconds["auto"]
    rate = forward.operations / median(forward.seconds["auto"])
    line["share"] = rate / forward.matrix_rate
    ratios = {
        "fastest": map(to_fastest, both),
        "naive": [times_auto(row, NAIVE) for row in both],
        "baselines": [times_auto(row, BASELINES) for row in both],
    }
    for name, pair in ratios.items():
        line[name] = "/".join(views.text(ratio, ".2f") for ratio in pair)
    return line


@views.view("engine.md#bench")
def layers(found):
    columns = {
        "layer (h=4)": "{layer}, batch {batch}",
        "auto chooses": "{algorithm}",
        "forward, ms": "{forward:.1f/ms}",
        "training, ms": "{training:.1f/ms}",
        "% of peak": "{share:.0f/%}%",
        "fastest": "{fastest}",
        "best of einsum, conv2d, depthwise": "{naive}",
        "best of timm, lucidrains": "{baselines}",
    }
    return views.listing([_line(*pair) for pair in _lines(found)], columns)


@views.view("engine.png")
def overview(found):
    lines = [x for x in _lines(found) if times_auto(x[0], NAIVE + BASELINES)]
    made, axes = views.figure(11, 0.36 * len(lines) + 1.8, columns=2)
    for axis, rows in zip(axes, zip(*lines, strict=True), strict=True):
        for shift, (label, names) in zip(
            (-0.2, 0.2), _GROUPS.items(), strict=True
        ):
            places = [place + shift for place in range(len(lines))]
            widths = [times_auto(row, names) or 0 for row in rows]
            axis.barh(places, widths, 0.38, label=label)
        axis.axvline(1.0, color="black", linewidth=1)
        axis.grid(axis="x", alpha=0.3)
        axis.set(xscale="log", title=f"CPU, {rows[0].phase}")
        axis.set_xlabel("time of others as a multiple of auto's (log scale)")
        axis.set_xticks(_TICKS, [f"{tick:g}" for tick in _TICKS])
        axis.set_xlim(_TICKS[0], _TICKS[-1])
        axis.set_ylim(len(lines) + 1, -0.6)  # with room for the legend
    labels = [f"{x.layer}  [{x.plan.partition('(')[0]}]" for _, x in lines]
    axes[0].set_yticks(range(len(lines)), labels)
    axes[0].legend(loc="lower right", fontsize=8)
    return made


def regrets(found):
    """Yields a row for each draw and phase of layers drawn at random."""
    groups = views.grouped(found["regret"], "draw", "phase")
    for (draw, phase), rows in groups.items():
        values = [row.regret for row in rows]
        yield views.Row(
            draw=draw,
            phase=phase,
            layers=len(values),
            fastest=values.count(1.0),
            mean=geometric_mean(values),
            worst=max(values),
        )


@views.view("engine.md#regret")
def regret(found):
    columns = {
        **views.fields("draw", "phase", "layers"),
        "layers where `auto` is fastest": "{fastest}",
        "mean regret": "{mean:.2f}",
        "worst regret": "{worst:.2f}",
    }
    return views.listing(regrets(found), columns)


@views.view("claims.md#exactness")
def exactness(found):
    cells = {}
    for row in found["rounding"]:
        for part in ("output", "gradients"):
            error = row[part]
            text = f"{error['value']:.1e} ({error['at']})"
            cells[f"`{row.algorithm}`", f"{row.dtype}, {part}"] = text
    return views.crossed(cells, "algorithm")


# The paper's rows: memory in GB by its formula for a whole ResNet-50 and as
# printed, images per second on 8 TPUv3 cores and top-1 accuracy (Table 4).
ATTENTION = {
    "global attention": ("global self-attention", "120", "does not fit"),
    "axial attention": ("axial self-attention", "4.8", "960, 77.5"),
    "local attention 7x7": (None, "", "440, 77.4"),
    "lambda, all pairs": ("lambda", "1.9", "1160, 78.4"),
    "lambda, all pairs, shared": (
        "lambda shared embeddings",
        "0.63",
        "1210, 78.0",
    ),
    "lambda": ("lambda", "1.9", "1160, 78.4"),
    "lambda, shared": ("lambda shared embeddings", "0.63", "1210, 78.0"),
    "lambda convolution 7x7": (None, "", "1100, 78.1"),
}


def _attention(found, kind):
    rows = [row for row in found["attention"] if row.figure == kind]
    return sorted(rows, key=lambda row: list(ATTENTION).index(row.layer))


def _of_one(found):
    """Returns the bytes of single layers on 64x64 maps, by batch."""
    rows = [x for x in _attention(found, "bytes") if x.map == "64x64x64"]
    return sorted((x for x in rows if x.layers == 1), key=lambda x: x.batch)


@views.view("comparison.md#memory")
def attention_memory(found):
    formula, cells, batches = table_4_gib(), {}, {}
    stages = [row for row in _attention(found, "bytes") if row.layers > 1]
    for (layer,), group in views.grouped(stages, "layer").items():
        gib = {f"{x.map} ({x.layers})": x.value / 2**30 for x in group}
        gib["sum"] = sum(gib.values())
        line, printed, _ = ATTENTION[layer]
        gib["paper's formula"] = formula.get(line)
        for column, value in gib.items():
            cells[layer, column] = views.text(value, ".2f")
        cells[layer, "printed in the paper"] = printed
    for row in _of_one(found):
        text = f"{row.value / 2**30:,.3g}"
        batches[row.layer, f"batch {row.batch}"] = text
    return views.page(
        views.crossed(cells, "layers"),
        views.crossed(batches, "one layer, 64x64"),
    )


def timed_attention(found):
    """Records of times, with the ratio to that of a global lambda layer."""
    rows = _attention(found, "seconds")
    base = {x.map: median(x.seconds) for x in rows if x.layer == "lambda"}
    for row in rows:
        row["ratio"] = median(row.seconds) / base[row.map]
    return rows


@views.view("comparison.md#time")
def attention_time(found):
    cells = {}
    for row in timed_attention(found):
        ms = sorted(1e3 * seconds for seconds in row.seconds)
        head = f"{row.map}, batch {row.batch} ({row.layers})"
        text = f"{median(ms):.0f} ({ms[0]:.0f}-{ms[-1]:.0f}), {row.ratio:.2f}"
        cells[row.layer, head] = text
    for layer, (_, _, printed) in ATTENTION.items():
        cells[layer, "images/s, top-1 in the paper"] = printed
    return views.crossed(cells, "layers")


@views.view("attention.png")
def attention_picture(found):
    """Memory of a training step as the batch grows; what still fits."""
    made, (axis,) = views.figure(8, 5)
    curves = {
        layer: [(row.batch, row.value / 2**30) for row in group]
        for (layer,), group in views.grouped(_of_one(found), "layer").items()
    }
    views.lines(axis, curves, title="One layer on 64x64 maps of 64 channels")
    axis.set(xscale="log", yscale="log", xlabel="batch")
    axis.set_ylabel("memory of a training step, GiB (compiler's figure)")
    for gib in (16, 80):  # a core of a TPU v3, an A100 or H100
        axis.axhline(gib, color="black", linewidth=0.8, linestyle="--")
        axis.text(1, gib, f"{gib} GiB", va="bottom")
    return made


@views.view("streaming.md#generation")
def generation(found):
    cells = {}
    for row in sorted(found["generation"], key=lambda x: "whole" in x.way):
        ms = sorted(1e3 * seconds for seconds in row.seconds)
        text = views.interval((median(ms), ms[0], ms[-1]), 1)
        cells[row.way, f"{row.tokens:,} tokens"] = text
    return views.crossed(cells, "ms per token after")
