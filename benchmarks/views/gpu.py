"""Tables and pictures of programs that ran on a GPU."""

from benchmarks.views import figure
from benchmarks.views import listing
from benchmarks.views import view

ALGORITHMS = ("lambda_first", "query_first", "einsum", "conv2d")
BASELINES = ("timm", "lucidrains")


def seconds(group, name):
    """The median of what was timed under a name; None if it was not."""
    found = {line["contestant"]: line["median"] for line in group["lines"]}
    return found.get(name)


def _best(group, kind):
    times = [seconds(group, f"{name}, {kind}") for name in BASELINES]
    return min((time for time in times if time is not None), default=None)


def _milliseconds(value):
    return "" if value is None else f"{1e3 * value:.3f}"


def _phase(group):
    return "training" if group["training"] else "forward"


def _regret(group):
    times = [seconds(group, name) for name in ALGORITHMS]
    fastest = min(time for time in times if time is not None)
    return f"{seconds(group, group['auto']) / fastest:.2f}"


def _temporaries(name):
    def cell(group):
        (line,) = (x for x in group["lines"] if x["contestant"] == name(group))
        return f"{line['temporaries'] / 2**20:,.0f}"

    return cell


@view("gpu.md#gpu")
def gpu(found):
    layers = [group for group in found["gpu"] if "auto" in group]
    steps = [group for group in found["gpu"] if seconds(group, "step")]
    columns = {
        "layer": lambda group: group["name"],
        "phase": _phase,
        "precision": lambda group: (
            "bfloat16" if group["bfloat16"] else "float32 (TF32)"
        ),
        "`auto`": lambda group: group["auto"],
        "ms": lambda group: _milliseconds(seconds(group, group["auto"])),
        **{
            name: lambda group, name=name: _milliseconds(seconds(group, name))
            for name in ALGORITHMS
        },
        "`auto` / best": _regret,
        "best baseline, eager": lambda x: _milliseconds(_best(x, "eager")),
        "compiled": lambda x: _milliseconds(_best(x, "compiled")),
        "temporaries, MiB": _temporaries(lambda group: group["auto"]),
    }

    def rate(name):
        def cell(group):
            time = seconds(group, name)
            return f"{group['batch'] / time:.0f}" if time else ""

        return cell

    networks = {
        "step": lambda group: group["case"]["group"],
        "ms": lambda group: _milliseconds(seconds(group, "step")),
        "images/s": rate("step"),
        "temporaries, MiB": _temporaries(lambda group: "step"),
        "timm, eager": rate("timm, eager"),
        "timm, compiled": rate("timm, compiled"),
    }
    machine = found["gpu"][-1]["machine"]
    packages = [f"{name} {x}" for name, x in machine["packages"].items()]
    where = ", ".join([f"jax {machine['jax']}", *packages])
    texts = [
        f"One {machine['device']}; {where}.",
        "![Time against the best baseline](gpu.png)",
        listing(layers, columns),
        listing(steps, networks),
    ]
    failures = [
        f"- {group['case']['group']}, {name}: {message}"
        for group in found["gpu"]
        for name, message in group["failures"].items()
    ]
    if failures:
        texts += ["Failed:", "\n".join(failures)]
    return "\n\n".join(texts)


@view("gpu.png")
def gpu_picture(found):
    """Bars: the best baseline's time as a multiple of the choice's."""
    groups = [group for group in found["gpu"] if "auto" in group][::-1]
    made, ((axis,),) = figure(9, 0.36 * len(groups) + 1.4)
    for index, kind in enumerate(("eager", "compiled")):
        ratios = [
            (_best(group, kind) or 0) / seconds(group, group["auto"])
            for group in groups
        ]
        places = [i + 0.2 - 0.4 * index for i in range(len(groups))]
        axis.barh(places, ratios, 0.38, label=f"best baseline, {kind}")
    axis.axvline(1.0, color="black", linewidth=1)
    names = [f"{group['name']}, {_phase(group)}" for group in groups]
    axis.set_yticks(range(len(groups)), names, fontsize=7)
    axis.set_xlabel("time as a multiple of that of `auto`")
    axis.grid(axis="x", alpha=0.3)
    axis.legend()
    return made
