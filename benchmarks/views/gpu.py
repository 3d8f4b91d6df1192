"""Tables and pictures of programs that ran on a GPU."""

from benchmarks import views

ALGORITHMS = ("lambda_first", "query_first", "einsum", "conv2d")
BASELINES = ("timm", "lucidrains")
KINDS = ("eager", "compiled")


def _row(group):
    """A record with what tables show of it: seconds by name, bytes, rates."""
    row = views.Row(group)
    row["phase"] = "training" if group.training else "forward"
    row["precision"] = "bfloat16" if group.bfloat16 else "float32 (TF32)"
    for line in group.lines:
        name, time = line["contestant"], line["median"]
        row[name], row[f"{name} rate"] = time, group.batch / time
        if name == (group.auto or "step"):
            row["chosen"], row["temporaries"] = time, line["temporaries"]
    for kind in KINDS:
        found = [row.get(f"{name}, {kind}") for name in BASELINES]
        row[f"best {kind}"] = min(filter(None, found), default=None)
    if group.auto:
        fastest = min(filter(None, map(row.get, ALGORITHMS)))
        row["regret"] = row.chosen / fastest
    return row


LAYERS = {
    "layer": "{name}",
    **views.fields("phase", "precision"),
    "`auto`": "{auto}",
    "ms": "{chosen:.3f/ms}",
    **{name: f"{{{name}:.3f/ms}}" for name in ALGORITHMS},
    "`auto` / best": "{regret:.2f}",
    "best baseline, eager": "{best eager:.3f/ms}",
    "compiled": "{best compiled:.3f/ms}",
    "temporaries, MiB": "{temporaries:,.0f/MiB}",
}
NETWORKS = {
    "step": "{group}",
    "ms": "{step:.3f/ms}",
    "images/s": "{step rate:.0f}",
    "temporaries, MiB": "{temporaries:,.0f/MiB}",
    "timm, eager": "{timm, eager rate:.0f}",
    "timm, compiled": "{timm, compiled rate:.0f}",
}


@views.view("gpu.md#gpu")
def gpu(found):
    rows = list(map(_row, found["gpu"]))
    machine = rows[-1].machine
    packages = [f"{name} {x}" for name, x in machine["packages"].items()]
    where = ", ".join([f"jax {machine['jax']}", *packages])
    failures = [
        f"- {row.group}, {name}: {message}"
        for row in rows
        for name, message in row.failures.items()
    ]
    return views.page(
        f"One {machine['device']}; {where}.",
        "![Time against the best baseline](gpu.png)",
        views.listing([row for row in rows if row.auto], LAYERS),
        views.listing([row for row in rows if row.step], NETWORKS),
        "Failed:" if failures else "",
        "\n".join(failures),
    )


@views.view("gpu.png")
def gpu_picture(found):
    """Bars: the best baseline's time as a multiple of the choice's."""
    rows = [_row(group) for group in found["gpu"] if group.auto]
    made, ((axis,),) = views.figure(9, 0.36 * len(rows) + 1.4)
    groups = {
        f"best baseline, {kind}": [
            (row[f"best {kind}"] or 0) / row.chosen for row in rows
        ]
        for kind in KINDS
    }
    views.bars(axis, [f"{row.name}, {row.phase}" for row in rows], groups)
    axis.tick_params(axis="y", labelsize=7)
    axis.set_xlabel("time as a multiple of that of `auto`")
    axis.legend()
    return made
