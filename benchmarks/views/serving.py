"""Tables and pictures of exports."""

from benchmarks import views
from benchmarks.timing import median
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


def parts(found):
    """Rows of one client, of many, and of loading.

    The first ones are of a batch and of what classifies it; both have the
    throughput, and `slow`, that of the 95th percentile.
    """
    rows = found["exports"]
    alone = [
        views.Row(
            row,
            what=what,
            calls=taken["calls"] if isinstance(taken, dict) else len(taken),
            p50=median(taken),
            p95=percentile_95(taken),
            rate=row.batch / median(taken),
            slow=row.batch / percentile_95(taken),
            ratio=median(row.seconds[BASELINE]) / median(taken),
        )
        for row in rows
        if not (row.what or row.loading)
        for what, taken in row.seconds.items()
    ]
    together = [
        views.Row(
            row,
            rate=row.images_per_second,
            p50=row.percentiles["50"],
            p95=row.percentiles["95"],
            slow=row.clients * row.batch / row.percentiles["95"],
        )
        for row in rows
        if row.what
    ]
    return alone, together, [row for row in rows if row.loading]


def _sentences(rows):
    """How exports compare; of clients, the largest number, which is last."""
    rates = {(row.network, row.batch, row.what): row.rate for row in rows}
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


@views.view("serving_speed.md#exports")
def exports(found):
    alone, together, loading = parts(found)
    times = {"p50 ms": "{p50:.1f/ms}", "p95 ms": "{p95:.1f/ms}"}
    rate = {"images/s": "{rate:.1f}"}
    tables = (
        views.listing(
            alone,
            {
                **views.fields("network", "batch", "what", "calls"),
                **times,
                **rate,
                "ratio": "{ratio:.2f}",
            },
        ),
        views.listing(
            together,
            {
                **views.fields(
                    "network", "batch", "what", "clients", "answers"
                ),
                **rate,
                **times,
            },
        ),
        views.listing(
            loading,
            {
                "network": "{network}",
                "what": "{loading}",
                "load s": "{load:.2f}",
                "first answer s": "{first:.2f}",
                "MiB": "{bytes:.1f/MiB}",
            },
        ),
    )
    sentences = _sentences(alone), _sentences(together), ""
    texts = [_HEAD]
    for (title, text), *below in zip(
        _TEXTS.items(), tables, sentences, strict=True
    ):
        texts += [f"## {title}", text, *below]
    return views.page(*texts)


@views.view("serving_speed.png")
def exports_picture(found):
    """Throughput relative to Keras, alone and together.

    A line goes from each dot to the slowest calls: what the throughput would
    be if all took as long as the 95th percentile.
    """
    alone, together, _ = parts(found)
    most = max(row.clients for row in together)
    panels = {
        "One client in the same process": alone,
        f"{most} clients at the same time": [
            row for row in together if row.clients == most
        ],
    }
    made, (axes,) = views.figure(12, 7.5, columns=2, sharex=True, sharey=True)
    for axis, (title, rows) in zip(axes, panels.items(), strict=True):
        _draw_ratios(axis, rows)
        axis.set_title(title)
    axes[0].invert_yaxis()
    return made


def _draw_ratios(axis, rows):
    """Dots of throughputs relative to the baseline's, with their tails."""
    base = {
        (row.network, row.batch): row.rate
        for row in rows
        if row.what == BASELINE
    }
    cells = list(base)
    names = list(dict.fromkeys(x.what for x in rows if x.what != BASELINE))
    for index, name in enumerate(names):
        shift = (index - (len(names) - 1) / 2) * 0.8 / len(names)
        for row in (row for row in rows if row.what == name):
            cell = row.network, row.batch
            place, color = cells.index(cell) + shift, COLORS[name]
            ends = [row.slow / base[cell], row.rate / base[cell]]
            axis.plot(ends, [place] * 2, color=color, linewidth=1.5)
            axis.plot(ends[1:], [place], "o", color=color)
        axis.plot([], [], "o", color=COLORS[name], label=name)
    axis.axvline(1.0, color="black", linewidth=1)
    labels = [f"{network}\nbatch {batch}" for network, batch in cells]
    axis.set_yticks(range(len(cells)), labels)
    axis.set_xlabel(f'throughput, as a multiple of "{BASELINE}"')
    axis.grid(axis="x", alpha=0.3)
    axis.legend(fontsize=8, loc="best", frameon=False)


@views.view("serving_speed.md#runtimes")
def runtimes(found):
    plain, rows = "TensorFlow", []
    ratios = {name: [] for name in RUNTIMES}
    for row in found["runtimes"]:
        row = views.Row(row)
        for name in (plain, *RUNTIMES):
            taken = row.seconds.get(name)
            rate = f"{row.batch / median(taken):.2f}" if taken else "refused"
            row[f"{name} rate"] = rate
        for name in (name for name in RUNTIMES if name in row.seconds):
            times = (row.ratios or {}).get(name) or ratio_of(row, plain, name)
            middle, _, rest = views.interval(times).partition(" ")
            row[f"{name} ratio"] = f"**{middle}** {rest}"
            ratios[name].append(times[0])
        rows.append(row)
    columns = views.fields("network", "batch")
    for name in (plain, *RUNTIMES):
        columns[f"{name}, images/s"] = f"{{{name} rate}}"
    for name in RUNTIMES:
        columns[f"{name}'s time / {plain}'s (95 %)"] = f"{{{name} ratio}}"
    sentences = [
        f"- {name}, {plain} being 1, takes {views.summary(times)} and is "
        f"faster in {sum(x < 1 for x in times)} of them."
        for name, times in ratios.items()
    ]
    return views.page(views.listing(rows, columns), "\n".join(sentences))


@views.view("serving_speed.md#convolutions")
def convolutions(found):
    rows = [
        views.Row(
            row,
            whole=median(row.seconds["signature"]),
            alone=median(row.seconds["convolutions"]),
            times=views.interval(ratio_of(row, "convolutions", "signature")),
        )
        for row in found["convolutions"]
    ]
    columns = {
        **views.fields("network", "batch", "convolutions"),
        "signature, ms": "{whole:.1f/ms}",
        "its convolutions alone, ms": "{alone:.1f/ms}",
        "signature / convolutions (95 %)": "{times}",
    }
    return views.listing(rows, columns)
