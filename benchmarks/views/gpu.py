"""Tables and pictures of programs that ran on a GPU."""

from benchmarks import views

ALGORITHMS = ("lambda_first", "query_first", "einsum", "conv2d")
BASELINES = ("timm", "lucidrains")
KINDS = ("eager", "compiled")


def _row(group):
    """A record with what tables show of it: seconds by name, bytes, rates."""
    lines = {line["contestant"]: line for line in group.lines}
    times = {name: line["median"] for name, line in lines.items()}
    chosen = group.auto or "step"
    row = views.Row(
        group,
        **times,
        phase="training" if group.training else "forward",
        precision="bfloat16" if group.bfloat16 else "float32 (TF32)",
        chosen=times.get(chosen),
        temporaries=lines.get(chosen, {}).get("temporaries"),
    )
    for kind in KINDS:
        found = [times.get(f"{name}, {kind}") for name in BASELINES]
        row[f"best {kind}"] = min(filter(None, found), default=None)
    for name, time in times.items():
        row[f"{name} rate"] = group.batch / time
    if group.auto:
        fastest = min(times[name] for name in ALGORITHMS if name in times)
        row["regret"] = times[group.auto] / fastest
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
