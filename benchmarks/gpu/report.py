"""Appends records of what `measure.py` wrote, and fits the row of GPUs.

    python -m benchmarks.gpu.report gpu.json
    python -m benchmarks.gpu.report gpu.json --fit       records nothing

The programs are TensorFlow's, compiled by XLA through JAX, on one card.
"""

import json
import pathlib

from benchmarks import records
from benchmarks.gpu.programs import Layer
from benchmarks.layers import device_fit
from benchmarks.layers.speed import Line
from lambdanet_tf import ops

GPU = ops.DEVICES["gpu"]


def measured(group):
    """The algorithms of a layer that were timed, as `Measured`."""
    layer = group["layer"]
    grid = (layer["image_size"],) * 2
    line = Line(grid, layer["filters"], layer["scope"], group["batch"])
    return device_fit.Measured(
        line.geometry,
        line.dims,
        group["training"],
        line.batch,
        {
            line["contestant"]: line["median"]
            for line in group["lines"]
            if line["contestant"] in ops.ALGORITHMS
        },
    )


def timed(figures):
    """Groups of layers of which an algorithm was measured, as `Measured`."""
    rows = [
        measured(group)
        for group in figures["groups"].values()
        if group["layer"] is not None
    ]
    return [row for row in rows if row.expected(GPU)]


def fit(figures):
    """A fitted row, and how far each choice is from the fastest, in words."""
    rows = timed(figures)
    fitted = device_fit.fit(rows, GPU)
    lines = [f"{GPU}", f"{fitted}"]
    for device in (GPU, fitted):
        worst = max(row.regret(device) for row in rows)
        lines.append(f"at most {worst:.2f} times the fastest algorithm")
    return "\n".join(lines)


def main(arguments=None):
    recorder, options = records.start(
        "gpu", __doc__, arguments, file=..., fit=False
    )
    figures = json.loads(pathlib.Path(options.file).read_text())
    if options.fit:
        print(fit(figures))
        return
    for name, group in figures["groups"].items():
        facts = {"machine": figures["machine"]}
        if group["layer"] is not None and measured(group).expected(GPU):
            facts["name"] = Layer(**group["layer"]).name
            facts["auto"] = measured(group).choice(GPU)
        recorder.append({"group": name}, **group, **facts)
        print(name, group["failures"] or "", flush=True)


if __name__ == "__main__":
    main()
