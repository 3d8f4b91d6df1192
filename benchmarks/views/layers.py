"""Tables and pictures of single layers."""

import statistics

from benchmarks.timing import median
from benchmarks.timing import spread
from benchmarks.views import bars
from benchmarks.views import crossed
from benchmarks.views import figure
from benchmarks.views import grouped
from benchmarks.views import interval
from benchmarks.views import listing
from benchmarks.views import regrets
from benchmarks.views import table
from benchmarks.views import view

NAIVE = ("einsum", "conv2d", "depthwise")  # the algorithms of other packages
BASELINES = ("timm conv", "timm table", "lucidrains")
PHASES = ("forward", "training")
_GROUPS = {
    "einsum, conv2d, depthwise in TensorFlow: the best": NAIVE,
    "timm, lucidrains in PyTorch: the best": BASELINES,
}
_TICKS = (0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500)


def lines_of(found):
    """A dict for each line, from phase to record."""
    return [
        {record["case"]["phase"]: record for record in group}
        for group in grouped(found, "layer", "batch").values()
    ]


def times_auto(record, names):
    """How many times longer the best of some takes than auto; None without."""
    seconds = record["seconds"]
    found = [median(seconds[name]) for name in names if name in seconds]
    return min(found) / median(seconds["auto"]) if found else None


def to_fastest(record):
    """How many times as long as auto the fastest algorithm takes.

    1 where auto chose that one: two timings of it differ by noise alone.
    """
    seconds = record["seconds"]
    names = [name for name in seconds if name not in ("auto", *BASELINES)]
    best = min(names, key=lambda name: median(seconds[name]))
    if record["plan"].startswith(best):
        return 1.0
    return times_auto(record, [best])


def _pair(ratio_of):
    """A column of ratios, forward and training."""

    def cell(line):
        ratios = [ratio_of(line[phase]) for phase in PHASES]
        return "/".join("" if x is None else f"{x:.2f}" for x in ratios)

    return cell


def _milliseconds(phase):
    return lambda line: f"{1e3 * median(line[phase]['seconds']['auto']):.1f}"


def _spread(phase):
    def cell(line):
        _, low, high = spread(line[phase]["seconds"]["auto"])
        return f"{1e3 * low:.1f}-{1e3 * high:.1f}"

    return cell


def _share(line):
    record = line["forward"]
    rate = record["operations"] / median(record["seconds"]["auto"])
    return f"{100 * rate / record['matrix_rate']:.0f} %"


def _memory(line):
    used = line["training"]["mebibytes"]
    einsum = f" ({used['einsum']:.0f})" if "einsum" in used else ""
    return f"{used['auto']:.0f}{einsum}"


COLUMNS = {
    "layer (h=4)": lambda line: "{layer}, batch {batch}".format(
        **line["forward"]["case"]
    ),
    "auto chooses": lambda line: line["training"]["plan"].split(":")[0],
    "forward ms": _milliseconds("forward"),
    "spread": _spread("forward"),
    "training ms": _milliseconds("training"),
    "spread ": _spread("training"),
    "% of peak": _share,
    "to the fastest": _pair(to_fastest),
    "to einsum, conv2d, depthwise": _pair(lambda x: times_auto(x, NAIVE)),
    "to timm, lucidrains": _pair(lambda x: times_auto(x, BASELINES)),
    "memory MiB (einsum)": _memory,
}


@view("engine.md#bench")
def layers(found):
    lines = lines_of(found["layers"])
    sentences = [_sentence([line[phase] for line in lines]) for phase in PHASES]
    return "\n\n".join([listing(lines, COLUMNS), "\n".join(sentences)])


def _sentence(found):
    phase = found[0]["case"]["phase"].capitalize()
    worst = max(1 / to_fastest(record) for record in found)
    text = (
        f"{phase}: `auto` at most {worst:.2f} times the time of the fastest "
        "algorithm of a line"
    )
    ratios = [times_auto(record, BASELINES) for record in found]
    if ratios := [ratio for ratio in ratios if ratio is not None]:
        text += (
            f"; the best baseline takes {min(ratios):.2f} to "
            f"{max(ratios):.2f} times as long as `auto`, median "
            f"{statistics.median(ratios):.2f}"
        )
    return text + "."


@view("engine.png")
def overview(found):
    """On CPUs each line against others; on TPUs estimates and the paper."""
    from benchmarks.views import tpu  # noqa: PLC0415 - it uses this module

    others = NAIVE + BASELINES
    lines = [
        line
        for line in lines_of(found["layers"])
        if times_auto(line["forward"], others)
    ]
    made, ((left, middle, right),) = figure(
        15, 0.36 * len(lines) + 1.8, columns=3, width_ratios=[1.3, 1.3, 1]
    )
    _draw_lines((left, middle), lines)
    _draw_patterns(right, tpu.throughputs(tpu.indexed(found)))
    return made


def _draw_lines(axes, lines):
    """Bars of the time of other ways relative to auto, for each line."""
    labels = [
        f"{line['forward']['case']['layer']}  "
        f"[{line['training']['plan'].partition('(')[0].partition(':')[0]}]"
        for line in lines
    ]
    for axis, phase, texts in zip(
        axes, PHASES, (labels, [""] * len(lines)), strict=True
    ):
        groups = {
            label: [times_auto(line[phase], names) for line in lines]
            for label, names in _GROUPS.items()
        }
        bars(axis, texts, groups)
        axis.set(xscale="log", title=f"CPU, {phase}")
        axis.set_xlabel("time of others as a multiple of auto's (log scale)")
    largest = max(axis.get_xlim()[1] for axis in axes)
    end = next(tick for tick in _TICKS if tick >= largest)
    for axis in axes:
        axis.set_xticks(_TICKS, [f"{tick:g}" for tick in _TICKS])
        axis.set_xlim(_TICKS[0], end)
        axis.set_ylim(len(lines) + 1, -0.6)  # with room for the legend
    axes[0].legend(loc="lower right", fontsize=8)


def _draw_patterns(axis, throughputs):
    """Bars of the throughput of Table 12's networks, relative to CCCC's."""
    patterns = [name for name in throughputs if name != "CCCC"]
    names, colors = ("paper", "estimate", "cycles"), ("C2", "C3", "#ee9999")
    groups = {
        name: [throughputs[pattern][index] for pattern in patterns]
        for index, name in enumerate(names)
    }
    options = {x: {"color": y} for x, y in zip(names, colors, strict=True)}
    for name, drawn in bars(axis, patterns, groups, **options).items():
        texts = [f"{x:.2f}" if x else "not compiled" for x in groups[name]]
        axis.bar_label(drawn, texts, padding=3, fontsize=8)
    axis.set(xlim=(0, 1.2), title="ResNet-50 on TPUv3: paper, compiler")
    axis.set_xlabel("training images per second, relative to CCCC")
    axis.legend(loc="lower right", fontsize=8)


@view("engine_growth.png")
def growth(found):
    """What `auto` takes for images, and measured curves."""
    maps = [x for x in found["growth"] if "choices" in x["case"]]
    curves = [x for x in found["growth"] if "curve" in x["case"]]
    made, axes = figure(16, 8.5, rows=2, columns=3)
    for axis, record in zip(axes[0], maps, strict=False):
        _draw_choices(axis, record)
    places = [axes[0][2], *axes[1]]
    for axis, ((name,), points) in zip(
        places, grouped(curves, "curve").items(), strict=False
    ):
        for label in points[0]["seconds"]:
            timed = [
                (x["case"]["at"], 1e3 * median(x["seconds"][label]))
                for x in points
                if label in x["seconds"]
            ]
            axis.plot(*zip(*timed, strict=True), "o-", label=label)
        if "sequence" in name:
            axis.set_xscale("log", base=2)
        axis.set(yscale="log", xlabel=name)
        axis.set_ylabel("training step, ms (log scale)")
        axis.set_title(f"Measured, d={points[0]['filters']}")
        axis.grid(alpha=0.3)
        axis.legend()
    return made


def _draw_choices(axis, record):
    names = sorted({name for row in record["value"] for name in row})
    cells = [[names.index(name) for name in row] for row in record["value"]]
    image = axis.imshow(
        cells, origin="lower", aspect="auto", cmap="Set2", vmin=0, vmax=7
    )
    axis.set_xticks(range(len(record["maps"])), record["maps"])
    axis.set_yticks(range(len(record["scopes"])), record["scopes"])
    axis.set(xlabel="map side", ylabel="scope")
    axis.set_title(
        f"What auto chooses for training, d={record['case']['filters']}"
    )
    for number, name in enumerate(names):
        color = image.cmap(image.norm(number))
        axis.plot([], [], "s", color=color, label=name)
    axis.legend(loc="upper right", fontsize=8)


@view("engine.md#regret")
def regret(found):
    texts = ["![Distribution](regret.png)"]
    for (draw, phase), rows in grouped(
        found["regret"], "draw", "phase"
    ).items():
        values = [row["regret"] for row in rows]
        worst = max(rows, key=lambda row: row["regret"])
        texts.append(
            f"Draw {draw}, {phase}: {regrets(values)}, mean "
            f"{statistics.geometric_mean(values):.2f}, worst "
            f"{max(values):.2f} ({worst['line']}, batch "
            f"{worst['layer']['batch']}: {worst['auto']} for {worst['best']})."
        )
    return "\n\n".join([texts[0], "\n".join(texts[1:])])


@view("regret.png")
def regret_picture(found):
    return distribution(
        {
            f"draw {draw}, {phase}": [row["regret"] for row in rows]
            for (draw, phase), rows in grouped(
                found["regret"], "draw", "phase"
            ).items()
        }
    )


def distribution(lists):
    """The share of layers up to each regret; a curve for each list."""
    made, ((axis,),) = figure(7, 3.8)
    for label, values in lists.items():
        share = [(i + 1) / len(values) for i in range(len(values))]
        label = f"{label}, {len(values)} layers"
        axis.step(sorted(values), share, where="post", label=label)
    axis.set(
        xlabel="time of auto / time of the fastest algorithm",
        ylabel="share of layers",
        title="Layers drawn at random",
        ylim=(0, 1.02),
    )
    axis.grid(alpha=0.3)
    axis.legend(loc="lower right")
    return made


table(
    "claims.md#exactness",
    "rounding",
    {
        "algorithm": "`{algorithm}`",
        "dtype": "{dtype}",
        "output": "{output[value]:.1e}",
        "at": "{output[at]}",
        "gradients": "{gradients[value]:.1e}",
        "at ": "{gradients[at]}",
    },
)


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
GIB = 2**30
COLORS = ("#cc3311", "#ee7733", "#bb9900", "#88bbdd", "#3366aa", "#339966")


def _attention_rows(found, figure):
    rows = [x for x in found["attention"] if x["case"]["figure"] == figure]
    return sorted(rows, key=lambda x: list(ATTENTION).index(x["case"]["layer"]))


def _is_one(case):
    return case["layers"] == 1


@view("attention.md#memory")
def attention_memory(found):
    from benchmarks.networks.paper_memory import table_4_gib  # noqa: PLC0415

    rows, formula = _attention_rows(found, "bytes"), table_4_gib()
    cells, one = {}, {}
    for (layer,), group in grouped(rows, "layer").items():
        stages = [x for x in group if not _is_one(x["case"])]
        for x in stages:
            head = "{map} ({layers})".format(**x["case"])
            cells[layer, head] = f"{x['value'] / GIB:.2f}"
        cells[layer, "all"] = f"{sum(x['value'] for x in stages) / GIB:.2f}"
        row, printed, _ = ATTENTION[layer]
        cells[layer, "the formula"] = f"{formula[row]:.2f}" if row else ""
        cells[layer, "the paper prints"] = printed
        for x in group:
            if _is_one(x["case"]) and x["case"]["map"] == "64x64x64":
                one.setdefault(x["case"]["batch"], {})[layer] = x["value"]
    batches = {
        (layer, f"batch {batch}"): _gib(value)
        for batch in (1, 8, 32, 128, 512)
        for layer, value in one[batch].items()
    }
    for x in _attention_rows(found, "largest batch"):
        head = f"largest batch in {x['case']['GiB']} GiB"
        batches[x["case"]["layer"], head] = f"{x['value']:,}"
    return "\n\n".join(
        [crossed(cells, "layers"), crossed(batches, "one layer, 64x64")]
    )


def _gib(size):
    gib = size / GIB
    return f"{gib:,.0f}" if gib >= 100 else f"{gib:.3g}"


@view("attention.md#time")
def attention_time(found):
    cells = {}
    rows = _attention_rows(found, "seconds")
    base = {
        (x["case"]["map"], x["case"]["layers"]): median(x["seconds"])
        for x in rows
        if x["case"]["layer"] == "lambda"
    }
    for x in rows:
        layer, case = x["case"]["layer"], x["case"]
        head = "{map}, batch {batch} ({layers})".format(**case)
        middle, fast, slow = (1e3 * y for y in spread(x["seconds"]))
        ratio = middle / base[case["map"], case["layers"]] / 1e3
        text = f"{middle:.0f} ({fast:.0f}-{slow:.0f}), {ratio:.2f}"
        cells[layer, head] = text
    for layer, (_, _, printed) in ATTENTION.items():
        cells[layer, "the paper's images/s, top-1"] = printed
    return crossed(cells, "layers")


@view("attention.png")
def attention_picture(found):
    """Memory as the batch and as the map grow; what still fits."""
    rows = _attention_rows(found, "bytes")
    one = [x for x in rows if _is_one(x["case"])]
    made, (axes,) = figure(12, 5.2, columns=2, sharey=True)
    panels = {
        "batch": ("map", "64x64x64", lambda case: case["batch"]),
        "map side": ("batch", 128, lambda case: int(case["map"].split("x")[0])),
    }
    ticks = (1, 8, 64, 512, 4096), (16, 24, 32, 48, 64, 96)
    for axis, places, (label, (field, value, place)) in zip(
        axes, ticks, panels.items(), strict=True
    ):
        chosen = [x for x in one if x["case"][field] == value]
        for color, ((layer,), group) in zip(
            COLORS, grouped(chosen, "layer").items(), strict=False
        ):
            points = sorted((place(x["case"]), x["value"] / GIB) for x in group)
            axis.plot(*zip(*points, strict=True), "o-", c=color, label=layer)
        for gib in (16, 80):  # a core of a TPU v3, an A100 or H100
            axis.axhline(gib, color="black", linewidth=0.8, linestyle="--")
            axis.text(places_min(chosen, place), gib, f"{gib} GiB", va="bottom")
        axis.set(xscale="log", yscale="log", xlabel=label)
        axis.set_xticks(places, places)
        axis.minorticks_off()
        axis.grid(alpha=0.3)
    axes[0].set_title("One layer on 64x64 maps of 64 channels")
    axes[1].set_title("One layer, batch 128, 64 channels")
    axes[0].set_ylabel("memory of a training step, GiB (compiler's figure)")
    axes[0].legend(frameon=False)
    return made


def places_min(rows, place):
    return min(place(row["case"]) for row in rows)


@view("streaming.md#generation")
def generation(found):
    cells = {
        (x["case"]["way"], f"{x['case']['tokens']:,} tokens"): interval(
            [1000 * seconds for seconds in spread(x["seconds"])], digits=1
        )
        for x in found["generation"]
    }
    return crossed(cells, "ms for a token, after")


@view("generation.png")
def generation_picture(found):
    made, ((axes,),) = figure(7, 4)
    for (way,), rows in grouped(found["generation"], "way").items():
        axes.loglog(
            [row["case"]["tokens"] for row in rows],
            [1000 * median(row["seconds"]) for row in rows],
            "--" if "again" in way else "-",
            base=2,
            marker="o",
            label=way,
        )
    axes.set_yscale("log", base=10)
    axes.set(xlabel="tokens before it", ylabel="milliseconds for a token")
    axes.grid(alpha=0.25)
    axes.legend(frameon=False)
    return made
