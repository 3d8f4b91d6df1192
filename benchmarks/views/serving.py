"""Tables and pictures of exports."""

from benchmarks.timing import median
from benchmarks.views import fields
from benchmarks.views import figure
from benchmarks.views import interval
from benchmarks.views import listing
from benchmarks.views import scaled
from benchmarks.views import summary
from benchmarks.views import view
from benchmarks.views.networks import ratio_of

BASELINE = "Keras, tf.function"
EXPORT, REMOTE = "export", "export, gRPC"
COLORS = {
    "Keras, predict_on_batch": "C0",
    EXPORT: "C1",
    "export, bfloat16 weights": "C2",
    "export, not folded": "C3",
    REMOTE: "C4",
}
LAMBDA, PLAIN = "LambdaResNet50", "ResNetRS50-SE"
RUNTIMES = ("ONNX Runtime", "OpenVINO")
_TEXTS = {
    "One client in the same process": "How many calls, p50 and p95 of one in "
    "milliseconds (the slowest where there are fewer than 20), images per "
    "second at p50, and how many times as fast that is as "
    f'"{BASELINE}". A call gives logits to arrays of pixels; the exports add '
    "probabilities and names. Not folded: the Keras model, saved as it is.",
    "Clients at the same time": "Each client asks again when it has its "
    "answer; p50 and p95 are what it waits, in milliseconds. Calls in this "
    "process, except gRPC: through the example's mock server, written in "
    "Python, in a process that shares the cores with the clients; TF Serving "
    "itself could not be run. Below the table: the largest number of clients.",
    "Loading, and size": "Loading and the first answer (batch 1) in a process "
    "that has imported TensorFlow; the size of the version folder, in MiB of "
    "2^20 bytes, warm-up requests included.",
}
_HEAD = """\
The machine is shared and noisy: read ratios rather than milliseconds, and no \
ratio within 10 % of 1 as a difference.

![Throughput of the exports](serving_speed.png)

A dot is the throughput of the tables; its line ends where it would be if every
call took as long as the 95th percentile."""


def percentile_95(seconds):
    """The 95th percentile of repeats, the slowest of fewer than 20."""
    if isinstance(seconds, dict):
        return seconds["p95"]
    return sorted(seconds)[-(-95 * len(seconds) // 100) - 1]


def _calls(seconds):
    return seconds["calls"] if isinstance(seconds, dict) else len(seconds)


def _parts(found):
    """Records of one client, of many, and of loading."""
    rows = found["exports"]
    return (
        [x for x in rows if not {"what", "loading"} & x["case"].keys()],
        [x for x in rows if "what" in x["case"]],
        [x for x in rows if "loading" in x["case"]],
    )


def _alone_table(rows):
    lines = [
        (row["case"], what, taken, row["seconds"][BASELINE])
        for row in rows
        for what, taken in row["seconds"].items()
    ]
    columns = {
        "network": lambda x: x[0]["network"],
        "batch": lambda x: x[0]["batch"],
        "what": lambda x: x[1],
        "calls": lambda x: _calls(x[2]),
        "p50 ms": lambda x: f"{1e3 * median(x[2]):.1f}",
        "p95 ms": lambda x: f"{1e3 * percentile_95(x[2]):.1f}",
        "images/s": lambda x: f"{x[0]['batch'] / median(x[2]):.1f}",
        "ratio": lambda x: f"{median(x[3]) / median(x[2]):.2f}",
    }
    return listing(lines, columns)


def _together_table(rows):
    columns = {
        **fields("network", "batch", "what", "clients", "answers"),
        "images/s": "{images_per_second:.1f}",
        "p50 ms": lambda row: f"{1e3 * row['percentiles']['50']:.1f}",
        "p95 ms": lambda row: f"{1e3 * row['percentiles']['95']:.1f}",
    }
    return listing(rows, columns)


def _loading_table(rows):
    columns = {
        "network": "{network}",
        "what": "{loading}",
        "load s": "{load:.2f}",
        "first answer s": "{first:.2f}",
        "MiB": scaled("bytes", 2**20),
    }
    return listing(rows, columns)


def _rates(rows):
    """Images per second by network, batch and what answers."""
    rates = {}
    for row in rows:
        place = row["case"]["network"], row["case"]["batch"]
        if "what" in row["case"]:  # the largest number of clients comes last
            rates[(*place, row["case"]["what"])] = row["images_per_second"]
        else:
            for what, taken in row["seconds"].items():
                rates[(*place, what)] = place[1] / median(taken)
    return rates


def _sentences(rows):
    """How exports compare, by the rates of `_rates`."""
    rates = _rates(rows)
    batches = list(dict.fromkeys(batch for _, batch, _ in rates))
    names = list(dict.fromkeys(name for name, _, _ in rates))

    def ratios(first, second):
        texts = []
        for batch in batches:
            one, other = (rates[x[0], batch, x[1]] for x in (first, second))
            texts.append(f"{one / other:.2f} (batch {batch})")
        return ", ".join(texts)

    sentences = [
        f"- {name}, throughput of the export to that of the compiled Keras "
        f"model: {ratios((name, EXPORT), (name, BASELINE))}."
        for name in names
    ]
    if {LAMBDA, PLAIN} <= set(names):
        sentences.append(
            f"- Exports, throughput of {LAMBDA} to that of {PLAIN}: "
            f"{ratios((LAMBDA, EXPORT), (PLAIN, EXPORT))}."
        )
    return "\n".join(sentences)


@view("serving_speed.md#exports")
def exports(found):
    alone, together, loading = _parts(found)
    tables = (
        f"{_alone_table(alone)}\n\n{_sentences(alone)}",
        f"{_together_table(together)}\n\n{_sentences(together)}",
        _loading_table(loading),
    )
    parts = [_HEAD]
    for (title, text), table in zip(_TEXTS.items(), tables, strict=True):
        parts += [f"## {title}", text, table]
    return "\n\n".join(parts)


@view("serving_speed.png")
def exports_picture(found):
    """Throughput relative to Keras, alone and together.

    A line goes from each dot to the slowest calls: what the throughput would
    be if all took as long as the 95th percentile.
    """
    alone, together, _ = _parts(found)
    most = max(row["case"]["clients"] for row in together)
    dots = [
        (row["case"], what, row["case"]["batch"] / median(taken))
        + (row["case"]["batch"] / percentile_95(taken),)
        for row in alone
        for what, taken in row["seconds"].items()
    ]
    crowd = [
        (row["case"], row["case"]["what"], row["images_per_second"])
        + (most * row["case"]["batch"] / row["percentiles"]["95"],)
        for row in together
        if row["case"]["clients"] == most
    ]
    made, (axes,) = figure(12, 7.5, columns=2, sharex=True, sharey=True)
    _draw_ratios(axes[0], dots)
    axes[0].set_title("One client in the same process")
    _draw_ratios(axes[1], crowd)
    axes[1].set_title(f"{most} clients at the same time")
    axes[0].invert_yaxis()
    return made


def _draw_ratios(axis, dots):
    """Dots of throughputs relative to the baseline's, with their tails."""
    base = {
        (case["network"], case["batch"]): rate
        for case, what, rate, _ in dots
        if what == BASELINE
    }
    cells = list(base)
    names = list(dict.fromkeys(x[1] for x in dots if x[1] != BASELINE))
    for index, name in enumerate(names):
        shift = (index - (len(names) - 1) / 2) * 0.8 / len(names)
        for case, what, rate, slow in dots:
            cell = case["network"], case["batch"]
            if what == name:
                place, color = cells.index(cell) + shift, COLORS[name]
                ends = [slow / base[cell], rate / base[cell]]
                axis.plot(ends, [place] * 2, color=color, linewidth=1.5)
                axis.plot(ends[1:], [place], "o", color=color)
        axis.plot([], [], "o", color=COLORS[name], label=name)
    axis.axvline(1.0, color="black", linewidth=1)
    labels = [f"{network}\nbatch {batch}" for network, batch in cells]
    axis.set_yticks(range(len(cells)), labels)
    axis.set_xlabel(f'throughput, as a multiple of "{BASELINE}"')
    axis.grid(axis="x", alpha=0.3)
    axis.legend(fontsize=8, loc="best", frameon=False)


@view("serving_speed.md#runtimes")
def runtimes(found):
    rows = found["runtimes"]
    plain = "TensorFlow"

    def rate(name):
        def cell(row):
            if name not in row["seconds"]:
                return "refused"
            return f"{row['case']['batch'] / median(row['seconds'][name]):.2f}"

        return cell

    def ratio(row, name):
        if "ratios" in row:
            return row["ratios"][name]
        return ratio_of(row, plain, name)

    def ratio_cell(name):
        def cell(row):
            if name not in row["seconds"]:
                return ""
            middle, _, rest = interval(ratio(row, name)).partition(" ")
            return f"**{middle}** {rest}"

        return cell

    columns = fields("network", "batch")
    for name in (plain, *RUNTIMES):
        columns[f"{name}, images/s"] = rate(name)
    for name in RUNTIMES:
        columns[f"{name}'s time / {plain}'s (95 %)"] = ratio_cell(name)
    sentences = []
    for name in RUNTIMES:
        timed = [row for row in rows if name in row["seconds"]]
        ratios = [ratio(row, name)[0] for row in timed]
        faster = sum(times < 1 for times in ratios)
        sentences.append(
            f"- {name}, {plain} being 1, takes {summary(ratios)} and is faster "
            f"in {faster} of them."
        )
    return "\n\n".join([listing(rows, columns), "\n".join(sentences)])
