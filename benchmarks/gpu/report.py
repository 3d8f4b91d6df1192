"""Appends records of what `measure.py` wrote, and fits the row of GPUs.

python -m benchmarks.gpu.report gpu.json
python -m benchmarks.gpu.report gpu.json --fit       records nothing
"""

import json
import pathlib

from benchmarks import records
from benchmarks.layers import device_fit
from benchmarks.layers.speed import Line
from lambdanet_tf import ops

GPU = ops.DEVICES["gpu"]


def line_of(group):
    grid, changes = (group["image_size"],) * 2, group["changes"]
    return Line(grid, changes["filters"], changes["scope"], group["batch"])


def measured(group):
    """The algorithms of a layer that were timed, as `Measured`."""
    seconds = {x["contestant"]: x["median"] for x in group["lines"]}
    chosen = {x: seconds[x] for x in seconds if x in ops.ALGORITHMS}
    return line_of(group).measured(group["training"], chosen)


def main(arguments=None):
    recorder, options = records.start(
        "gpu", __doc__, arguments, file=..., fit=False
    )
    figures = json.loads(pathlib.Path(options.file).read_text())
    groups = figures["groups"]
    rows = {x: measured(y) for x, y in groups.items() if not y["recipe"]}
    rows = {name: row for name, row in rows.items() if row.expected(GPU)}
    if options.fit:
        print(device_fit.report(list(rows.values()), GPU))
        return
    for name, group in groups.items():
        facts = {"machine": figures["machine"]}
        if name in rows:
            facts["name"] = f"{line_of(group).name}, batch {group['batch']}"
            facts["auto"] = rows[name].choice(GPU)
        recorder.append({"group": name}, **group, **facts)
        print(name, group["failures"] or "", flush=True)


if __name__ == "__main__":
    main()
