"""The claims about speed, each with the figures of its records."""

from benchmarks import views
from benchmarks.views import layers
from benchmarks.views import networks
from benchmarks.views import serving
from benchmarks.views import training
from lambdanet_tf import markdown

HELD_OUT = (11, 12)  # draws that no choice was fitted to
_HEAD = ("claim", "figure and spread", "command", "rows that lose")
_LAYER = "{layer}, batch {batch}"
_NETWORK = "{network}, batch {batch}"
_PAIR = "{network} against {against}"


def _said(rows, group, name, note=""):
    """The `ratio` of rows in words by group, what loses, then a note."""
    groups, figures, losing = {}, [], []
    for row in rows:
        if row.ratio is not None:
            groups.setdefault(views.filled(group, row), []).append(row)
    for title, found in groups.items():
        figures.append(f"{title}: {views.summary([x.ratio for x in found])}")
        losing += [
            f"{title}, {views.filled(name, row)} ({row.ratio:.2f})"
            for row in found
            if row.ratio < 1
        ]
    text = "; ".join(losing) or "none"
    return "; ".join(figures), f"{text}. {note}" if note else text


def _regret(found):
    rows = [x for x in layers.regrets(found) if x.draw in HELD_OUT]
    figures = [
        f"draw {x.draw}, {x.phase}: {x.mean:.2f} (mean; the fastest in "
        f"{x.fastest} of {x.layers} layers)"
        for x in rows
    ]
    worst = max(row.worst for row in rows)
    return "; ".join(figures), (
        f"single layers up to {worst:.2f}. On GPUs nothing was measured"
    )


def _loop(found):
    rows = [row for row in found["training"] if row.part == "loop"]
    texts = [f"{x.network}: {views.interval(training.ratio(x))}" for x in rows]
    return "; ".join(texts) + " times bare steps", "all, by so much"


@views.view("claims.md#speed")
def speed(found):
    lines = []

    def claim(text, command, said):
        figure, losing = said
        lines.append(
            (text, figure, f"`python -m benchmarks.{command}`", losing)
        )

    claim(
        "On a CPU a layer is faster than the better of timm's and lucidrains', "
        "in PyTorch, eager: theirs takes",
        "layers.speed --baselines",
        _said(layers.against(found, layers.BASELINES), "{phase}", _LAYER),
    )
    claim(
        "... than einsum and TensorFlow's convolutions: the best takes",
        "layers.speed",
        _said(layers.against(found, layers.NAIVE), "{phase}", _LAYER),
    )
    for row in found["timm"]:
        row["ratio"] = networks.ratio_of(row, "ours", "theirs")[0]
    note = "On GPUs nothing was measured"
    claim(
        "timm's networks are faster here than in PyTorch: theirs take",
        "networks.timm_speed",
        _said(found["timm"], "{phase}, {theirs}", _NETWORK, note),
    )
    page = "[comparison.md](comparison.md#compared-with-attention)"
    note = f"What is measured: {page}"
    rows = layers.timed_attention(found)
    rows = [row for row in rows if "attention" in row.layer]
    claim(
        "A global lambda layer trains faster than global and local attention: "
        "they take",
        "layers.attention --time",
        _said(rows, "{layer}", "{map}", note),
    )
    rows = found["comparison"]
    rows = networks.faster(rows, networks.phases_seconds(rows))
    note = (
        "The paper's 3.2 to 4.4 against EfficientNets on TPUs are not reached. "
        "Accuracies are those of other people's recipes: "
        "[comparison.md](comparison.md)"
    )
    claim(
        "LambdaResNets are faster than networks of equal published accuracy: "
        "theirs take",
        "networks.comparison",
        _said(rows, "{timed}", "{network}", note),
    )
    pairs = [row for row in found["networks"] if row.against]
    for row in pairs:
        row["ratio"] = networks.ratio_of(row, row.network, row.against)[0]
    rows = [row for row in pairs if row.against != networks.NORM]
    note = (
        "Letters: lambda layers (L) or convolutions (C) in each stage of "
        "ResNet-50. Ratios of whole networks move with the machine and its "
        "load: [engine.md](engine.md#measured)"
    )
    claim(
        "Networks with lambda layers are as fast as those without: theirs take",
        "networks.speed",
        _said(rows, "{phase}", _PAIR, note),
    )
    claim(
        "The planner chooses well, on layers that nothing was fitted to: its "
        "choice takes, as a multiple of the fastest",
        "layers.regret --draw 12",
        _regret(found),
    )
    claim(
        "`train.py` costs little: its loop takes",
        "training.speed",
        _loop(found),
    )
    rows = [x for x in serving.exports(found) if x.what == serving.EXPORT]
    note = (
        "**ONNX Runtime is faster** for one image at a time, from the same "
        "export: [serving.md](serving.md#other-runtimes-on-a-cpu)"
    )
    claim(
        "Exports are as fast as the Keras model as a `tf.function`: that takes",
        "serving.exports",
        _said(rows, "{what}", _NETWORK, note),
    )
    return markdown.table(lines, _HEAD)
