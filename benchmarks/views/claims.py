"""The claims about speed, each with the figures of its records."""

import statistics

from benchmarks import views
from benchmarks.timing import median
from benchmarks.views import layers
from benchmarks.views import networks
from benchmarks.views import serving
from benchmarks.views import training
from lambdanet_tf import markdown

HELD_OUT = (11, 12)  # draws that no choice was fitted to
_HEAD = ("claim", "figure and spread", "command", "rows that lose")
_CLAIMS = []


def _claim(text, command):
    """Makes a function of records, of a figure and what loses, a claim."""

    def register(function):
        _CLAIMS.append((text, f"`python -m benchmarks.{command}`", function))
        return function

    return register


def _ratios(named):
    """Ratios by name: their median, number and range, and those below 1."""
    figure = views.summary(list(named.values()))
    return figure, [f"{x} ({y:.2f})" for x, y in named.items() if y < 1]


def _said(groups, note=""):
    """Figures of groups, then all that loses, then a note.

    Args:
        groups: dict from the name of a group to ratios by name.
        note: what else loses.
    """
    figures, losing = [], []
    for group, named in groups.items():
        figure, below = _ratios(named)
        figures.append(f"{group}: {figure}")
        losing += [f"{group}, {name}" for name in below]
    text = "; ".join(losing) or "none"
    return "; ".join(figures), f"{text}. {note}" if note else text


def _layers(found, names):
    return {
        phase: {
            f"{row.layer}, batch {row.batch}": times
            for row in found["layers"]
            if row.phase == phase
            and (times := layers.times_auto(row, names)) is not None
        }
        for phase in layers.PHASES
    }


@_claim(
    "On a CPU a layer is faster than the better of timm's and lucidrains', in "
    "PyTorch, eager: theirs takes",
    "layers.speed --baselines",
)
def _baselines(found):
    return _said(_layers(found, layers.BASELINES))


@_claim(
    "... than einsum and TensorFlow's convolutions: the best takes",
    "layers.speed",
)
def _naive(found):
    return _said(_layers(found, layers.NAIVE))


@_claim(
    "timm's networks are faster here than in PyTorch: theirs take",
    "networks.timm_speed",
)
def _timm(found):
    groups = views.grouped(found["timm"], "phase", "theirs")
    return _said(
        {
            f"{phase}, {theirs}": {
                f"{x.network}, batch {x.batch}": networks.of_timm(x)[0]
                for x in rows
            }
            for (phase, theirs), rows in groups.items()
        },
        "On GPUs nothing was measured",
    )


@_claim(
    "A global lambda layer trains faster than attention: theirs takes",
    "layers.attention --time",
)
def _attention(found):
    rows = [row for row in found["attention"] if row.figure == "seconds"]
    base = {x.map: median(x.seconds) for x in rows if x.layer == "lambda"}
    return _said(
        {
            layer: {
                x.map: median(x.seconds) / base[x.map]
                for x in rows
                if x.layer == layer
            }
            for layer in layers.ATTENTION
            if "attention" in layer
        },
        "Our attention forms its scores in parts, which saves memory and costs "
        "time: [attention.md](attention.md)",
    )


@_claim(
    "LambdaResNets are faster than networks of equal published accuracy: "
    "theirs take",
    "networks.comparison",
)
def _comparison(found):
    rows, groups = found["comparison"], {}
    for phase in networks.FAMILY_PHASES:
        seconds = networks.phase_seconds(rows, phase)
        ours = networks.family_points(rows, seconds, "LambdaResNet")
        groups[phase] = {
            row.network: seconds[row.network] / at
            for row in rows
            if row.family != "LambdaResNet"
            and (at := networks.seconds_at(ours, row.top1))
        }
    return _said(
        groups,
        "The paper's 3.2 to 4.4 against EfficientNets are reached at the large "
        "end alone. Accuracies are those of other people's recipes: "
        "[comparison.md](comparison.md)",
    )


def _against(rows):
    """Ratios of networks to what they stand against, by phase."""
    return {
        phase: {
            f"{x.network} against {x.against}": networks.ratio_of(
                x, x.network, x.against
            )[0]
            for x in group
        }
        for (phase,), group in views.grouped(rows, "phase").items()
    }


@_claim(
    "... than with Keras' own batch normalization: it takes",
    "networks.speed --norm",
)
def _norms(found):
    rows = [row for row in found["networks"] if row.against == networks.NORM]
    return _said(
        _against(rows),
        "Exports fold it away; tf_keras has this layer already",
    )


@_claim(
    "Networks with lambda layers are as fast as those without: theirs take",
    "networks.speed",
)
def _networks(found):
    others = (None, networks.NORM)
    rows = [row for row in found["networks"] if row.against not in others]
    return _said(
        _against(rows),
        "Ratios of whole networks move with the machine and its load: "
        "[engine.md](engine.md#measured)",
    )


@_claim(
    "The planner chooses well, on layers that nothing was fitted to: its "
    "choice takes, as a multiple of the fastest",
    "layers.regret --draw 11",
)
def _regret(found):
    rows = [row for row in found["regret"] if row.draw in HELD_OUT]
    figures = [
        f"draw {draw}, {phase}: {statistics.geometric_mean(values):.2f} (mean; "
        f"{views.regrets(values)})"
        for (draw, phase), group in views.grouped(rows, "draw", "phase").items()
        if (values := [row.regret for row in group])
    ]
    worst = max(row.regret for row in rows)
    return "; ".join(figures), (
        f"single layers up to {worst:.2f}. The row for GPUs was not measured"
    )


@_claim("`train.py` costs little: its loop takes", "training.speed")
def _loop(found):
    rows = [row for row in found["training"] if row.part == "loop"]
    texts = [f"{x.network}: {views.interval(training.ratio(x))}" for x in rows]
    return "; ".join(texts) + " times bare steps", "all, by so much"


@_claim(
    "Exports are as fast as the Keras model as a `tf.function`: that takes",
    "serving.exports",
)
def _exports(found):
    alone, _, _ = serving.parts(found)
    return _said(
        {
            what: {
                f"{x.network}, batch {x.batch}": x.ratio
                for x in alone
                if x.what == what
            }
            for what in (serving.EXPORT, "export, bfloat16 weights")
        },
        "**ONNX Runtime is faster** for one image at a time, from the same "
        "export: [serving_speed.md](serving_speed.md#other-runtimes-on-a-cpu)",
    )


@views.view("claims.md#speed")
def speed(found):
    rows = []
    for text, command, function in _CLAIMS:
        figure, losing = function(found)
        rows.append((text, figure, command, losing))
    return markdown.table(rows, _HEAD)
