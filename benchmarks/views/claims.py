"""The claims about speed, each with the figures of its records."""

from benchmarks import views
from benchmarks.views import commands
from benchmarks.views import layers
from benchmarks.views import networks
from lambdanet_tf import markdown

HELD_OUT = (11, 12, 13)  # draws that no choice was fitted to
_HEAD = ("claim", "their time / ours", "command", "rows where ours is slower")
CLAIMS = {
    "layers.speed --baselines": "Layers are faster than timm's and lucidrains'",
    "layers.speed": "Layers are faster than einsum and convolutions",
    "networks.timm_speed": "timm's networks run faster than in PyTorch",
    "layers.attention --time": "A lambda layer trains faster than attention",
    "networks.comparison": "LambdaResNets are faster at equal accuracy",
    "networks.speed": "Networks are as fast with lambda layers as without",
    "layers.regret --draw 13": "`auto` is near the fastest algorithm",
    "training.speed": "`train.py` adds little time",
    "serving.exports": "Exports are as fast as a `tf.function`",
}


def _said(rows, group, name):
    """The `ratio` of rows in words by group, and what loses."""
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
    return "; ".join(figures), "; ".join(losing) or "none"


def _regret(found):
    rows = [x for x in layers.regrets(found) if x.draw in HELD_OUT]
    figures = [
        f"draw {x.draw}, {x.phase}: {x.mean:.2f} on average (fastest for "
        f"{x.fastest} of {x.layers} layers)"
        for x in rows
    ]
    worst = max(row.worst for row in rows)
    return "; ".join(figures), f"up to {worst:.2f} for individual layers"


def _loop(found):
    rows = commands.loops(found)
    texts = [f"{x.network}: {views.interval(x.ratio)}" for x in rows]
    return "; ".join(texts) + ", over bare steps", "all, by these factors"


@views.view("claims.md#speed")
def speed(found):
    layer, network = "{layer}, batch {batch}", "{network}, batch {batch}"
    attention = layers.timed_attention(found)
    said = (
        _said(layers.against(found, layers.BASELINES), "{phase}", layer),
        _said(layers.against(found, layers.NAIVE), "{phase}", layer),
        _said(networks.beside_timm(found), "{phase}, {theirs}", network),
        _said(
            [x for x in attention if "attention" in x.layer], "{layer}", "{map}"
        ),
        _said(networks.faster(found["comparison"]), "{timed}", "{network}"),
        _said(networks.pairs(found), "{phase}", "{network} versus {against}"),
        _regret(found),
        _loop(found),
        _said(commands.exports(found), commands.EXPORT, network),
    )
    rows = [
        (claim, figure, f"`python -m benchmarks.{command}`", losing)
        for (command, claim), (figure, losing) in zip(
            CLAIMS.items(), said, strict=True
        )
    ]
    return markdown.table(rows, _HEAD)
