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
_ALONE = f"""\
The machine is shared and noisy: read ratios rather than milliseconds, and no \
ratio within 10 % of 1 as a difference.

![Throughput of the exports](serving_speed.png)

A dot is the throughput of the tables; its line ends where it would be if every
call took as long as the 95th percentile.

## One client in the same process

How many calls, p50 and p95 of one in milliseconds (the slowest where there \
are fewer than 20), images per second at p50, and how many times as fast that \
is as "{BASELINE}". A call gives logits to arrays of pixels; the exports add \
probabilities and names. Not folded: the Keras model, saved as it is."""
_TOGETHER = """\
## Clients at the same time

Each client asks again when it has its answer; p50 and p95 are what it waits, \
in milliseconds. Calls in this process, except gRPC: through the example's \
mock server, written in Python, in a process that shares the cores with the \
clients; TF Serving itself could not be run. Below the table: the largest \
number of clients."""
_LOADING = """\
## Loading, and size

Loading and the first answer (batch 1) in a process that has imported \
TensorFlow; the size of the version folder, in MiB of 2^20 bytes, warm-up \
requests included."""


def percentile_95(seconds):
    """The 95th percentile of repeats, the slowest of fewer than 20."""
    return sorted(seconds)[-(-95 * len(seconds) // 100) - 1]


def parts(found):
    """Rows of one client, of many, and of loading.

    The first ones are of a batch and of what classifies it; both have the
    throughput, and `slow`, that of the 95th percentile.
    """
    alone, together, loading = [], [], []
    for row in found["exports"]:
        if row.loading:
            loading.append(row)
        elif row.what:
            p50, p95 = (row.percentiles[x] for x in ("50", "95"))
            rate, slow = row.images_per_second, row.clients * row.batch / p95
            figures = {"p50": p50, "p95": p95, "rate": rate, "slow": slow}
            together.append(views.Row(row, **figures))
        else:
            alone += _contestants(row)
    return alone, together, loading


def _contestants(row):
    """A row for each that classifies the same batches."""
    for what, taken in row.seconds.items():
        p50, p95 = median(taken), percentile_95(taken)
        yield views.Row(
            row,
            what=what,
            calls=len(taken),
            p50=p50,
            p95=p95,
            rate=row.batch / p50,
            slow=row.batch / p95,
            ratio=median(row.seconds[BASELINE]) / p50,
        )


def _sentences(rows):
    """How exports compare; of clients, the largest number, which is last."""
    rates = {((row.network, row.what), row.batch): row.rate for row in rows}
    batches = dict.fromkeys(row.batch for row in rows)
    names = dict.fromkeys(row.network for row in rows)

    def ratios(first, second):
        return ", ".join(
            f"{rates[first, batch] / rates[second, batch]:.2f} (batch {batch})"
            for batch in batches
        )

    sentences = [
        f"- {name}, throughput of the export to that of the compiled Keras "
        f"model: {ratios((name, EXPORT), (name, BASELINE))}."
        for name in names
    ]
    if {LAMBDA, PLAIN} <= names.keys():
        sentences.append(
            f"- Exports, throughput of {LAMBDA} to that of {PLAIN}: "
            f"{ratios((LAMBDA, EXPORT), (PLAIN, EXPORT))}."
        )
    return "\n".join(sentences)


@views.view("serving_speed.md#exports")
def exports(found):
    alone, together, loading = parts(found)
    case = views.fields("network", "batch", "what")
    times = {"p50 ms": "{p50:.1f/ms}", "p95 ms": "{p95:.1f/ms}"}
    rate = {"images/s": "{rate:.1f}"}
    ratio = {"ratio": "{ratio:.2f}"}
    calls, clients = views.fields("calls"), views.fields("clients", "answers")
    loads = {
        "network": "{network}",
        "what": "{loading}",
        "load s": "{load:.2f}",
        "first answer s": "{first:.2f}",
        "MiB": "{bytes:.1f/MiB}",
    }
    return views.page(
        _ALONE,
        views.listing(alone, {**case, **calls, **times, **rate, **ratio}),
        _sentences(alone),
        _TOGETHER,
        views.listing(together, {**case, **clients, **rate, **times}),
        _sentences(together),
        _LOADING,
        views.listing(loading, loads),
    )


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
    groups = views.grouped([x for x in rows if x.what != BASELINE], "what")
    for index, ((name,), group) in enumerate(groups.items()):
        shift = (index - (len(groups) - 1) / 2) * 0.8 / len(groups)
        color = COLORS[name]
        for row in group:
            cell = row.network, row.batch
            place = cells.index(cell) + shift
            ends = [row.slow / base[cell], row.rate / base[cell]]
            axis.plot(ends, [place] * 2, color=color, linewidth=1.5)
            axis.plot(ends[1:], [place], "o", color=color)
        axis.plot([], [], "o", color=color, label=name)
    axis.axvline(1.0, color="black", linewidth=1)
    labels = [f"{network}\nbatch {batch}" for network, batch in cells]
    axis.set_yticks(range(len(cells)), labels)
    axis.set_xlabel(f'throughput, as a multiple of "{BASELINE}"')
    axis.grid(axis="x", alpha=0.3)
    axis.legend(fontsize=8, loc="best", frameon=False)


@views.view("serving_speed.md#runtimes")
def runtimes(found):
    plain, rows = "TensorFlow", found["runtimes"]
    ratios = {name: [] for name in RUNTIMES}
    for row in rows:
        for name in (plain, *RUNTIMES):
            taken = row.seconds.get(name)
            rate = f"{row.batch / median(taken):.2f}" if taken else "refused"
            row[f"{name} rate"] = rate
        for name in (name for name in RUNTIMES if name in row.seconds):
            times = ratio_of(row, plain, name)
            middle, _, rest = views.interval(times).partition(" ")
            row[f"{name} ratio"] = f"**{middle}** {rest}"
            ratios[name].append(times[0])
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
