"""How much longer `auto` takes than the best algorithm, by a TPU's compiler.

    make tpu-compile TPU_ARGS="--chips v3 --only num_heads"
    python -m benchmarks.tpu_regret --write docs

The first command compiles layers drawn at random, by the algorithms that `auto`
takes on a TPU, but `conv2d`; the second holds its choice against the compiler's
estimates of the whole layer's training step, the cycles of its listing, and the
geometric mean of the two, of which neither alone follows what was measured
(docs/tpu_compile.md). `--fit` fits the row of TPUs to the mean.
"""

import argparse
import itertools
import json
import math
import os
import pathlib
import statistics

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

from benchmarks import device_fit
from benchmarks import regret
from benchmarks import report
from benchmarks.engine import Line
from benchmarks.tpu_compile import DOCUMENT
from benchmarks.tpu_programs import CHIPS
from benchmarks.tpu_programs import DRAWN
from benchmarks.tpu_report import estimate
from lambdanet_tf import ops

TPU = ops.DEVICES["tpu"]
MEASURES = {
    "estimate": estimate,
    "cycles": lambda result: result["cycles"],
    "mean of both": lambda result: math.sqrt(
        estimate(result) * result["cycles"]
    ),
}


def measured(group, chip, results, measure):
    """The programs of a layer as `Measured`; None unless all compiled.

    Args:
        group: of `DRAWN`.
        chip: of `CHIPS`.
        results: dict from "PROGRAM on CHIP" to the result.
        measure: key of `MEASURES`.
    """
    found = {}
    for program in group:
        result = results.get(f"{program.key} on {chip}", {})
        if result.get("status") != "ok":
            return None
        name = program.changes["implementation"]
        found[name] = MEASURES[measure](result)
    program = group[0]
    layer = {**program.changes}
    del layer["implementation"]
    line = Line((program.image_size,) * 2, batch=program.batch, **layer)
    return device_fit.Measured(
        line.geometry, line.dims, program.training, line.batch, found
    )


def all_measured(results, measure):
    """Dict from chip to the drawn layers that were compiled for it."""
    rows = {
        chip: [measured(group, chip, results, measure) for group in DRAWN]
        for chip in CHIPS
    }
    return {
        chip: compiled
        for chip, found in rows.items()
        if (compiled := [row for row in found if row])
    }


def sentences(results):
    """The regret on every chip, by every measure, in words."""
    lines = []
    for measure in MEASURES:
        for chip, rows in all_measured(results, measure).items():
            values = [row.regret(TPU) for row in rows]
            worst = rows[values.index(max(values))]
            best = min(worst.seconds, key=worst.seconds.__getitem__)
            lines.append(
                f"{chip}, by the {measure}: the choice is the fastest in "
                f"{values.count(1.0)} of {len(rows)} layers; median "
                f"{statistics.median(values):.2f}, worst {max(values):.2f} "
                f"({worst.choice(TPU)} for {best}, batch {worst.batch})."
            )
    return "\n".join(lines)


def table(results, chip):
    """A line per drawn layer: the estimate of each algorithm on a chip."""
    names = [program.changes["implementation"] for program in DRAWN[0]]
    heads = [f"{name}, ms" for name in names]
    columns = ["map", "batch", "layer", *heads, "`auto` takes", "regret"]
    lines = ["| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
    for group in DRAWN:
        row = measured(group, chip, results, "estimate")
        if row is None:
            continue
        changes = group[0].changes
        layer = [f"d={changes['filters']}"]
        layer.append(f"scope {changes['scope'] or 'global'}")
        layer.append(f"h={changes['num_heads']}, k={changes['key_dim']}")
        if changes["intra_depth"] > 1:
            layer.append(f"u={changes['intra_depth']}")
        cells = [str(group[0].image_size), str(row.batch), ", ".join(layer)]
        cells += [f"{1e3 * row.seconds[name]:.2f}" for name in names]
        cells += [row.choice(TPU), f"{row.regret(TPU):.2f}"]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def fit(results):
    """Fits the row of TPUs; returns it and what it changes, in words."""
    layers = all_measured(results, "mean of both").values()
    rows = list(itertools.chain.from_iterable(layers))
    fitted = device_fit.fit(rows, TPU)
    lines = [f"{TPU}", f"{fitted}"]
    for device in (TPU, fitted):
        values = [row.regret(device) for row in rows]
        mean = statistics.geometric_mean(values)
        lines.append(f"mean {mean:.3f}, worst {max(values):.2f}")
    return "\n".join(lines)


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--write", default="docs", help="folder of the results")
    parser.add_argument("--fit", action="store_true", help="fit, write nothing")
    options = parser.parse_args(arguments)
    folder = pathlib.Path(options.write)
    results = json.loads((folder / "tpu_compile.json").read_text())
    rows = all_measured(results, "estimate")
    if not rows:
        parser.error(f"{folder}/tpu_compile.json has none of the drawn layers")
    if options.fit:
        print(fit(results))
        return
    regret.picture(
        {
            f"{chip}, {measure}": [row.regret(TPU) for row in found]
            for measure in MEASURES
            for chip, found in all_measured(results, measure).items()
        },
        folder / "tpu_regret.png",
    )
    text = "\n\n".join(
        [
            "![Distribution](tpu_regret.png)",
            sentences(results),
            f"Estimates for {next(iter(rows))}:",
            table(results, next(iter(rows))),
        ]
    )
    report.insert(folder, "regret", text, DOCUMENT)
    print(sentences(results))


if __name__ == "__main__":
    main()
