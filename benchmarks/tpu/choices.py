"""What `auto` takes on a TPU, for layers drawn at random.

    make tpu-compile TPU_ARGS="--chips v3 --only num_heads"
    python -m benchmarks.tpu.choices
    python -m benchmarks.tpu.choices --fit               records nothing

The first command compiles the layers by the algorithms that `auto` takes on a
TPU, but `conv2d`; the second records which of them `auto` does take. `--fit`
fits the row of TPUs to the geometric mean of the compiler's estimate and of the
cycles of its listing, of which neither alone follows what was measured
(docs/tpu_compile.md).
"""

import itertools
import math
import statistics

from benchmarks import records
from benchmarks.layers import device_fit
from benchmarks.layers.speed import Line
from benchmarks.tpu.outcome import estimate
from benchmarks.tpu.programs import CHIPS
from benchmarks.tpu.programs import DRAWN
from benchmarks.tpu.programs import DRAWN_ALGORITHMS
from lambdanet_tf import ops

TPU = ops.DEVICES["tpu"]


def measured(group, seconds):
    """A drawn layer as `device_fit.Measured`.

    Args:
        group: of `DRAWN`.
        seconds: dict from algorithm to its time.
    """
    program = group[0]
    layer = {**program.changes}
    del layer["implementation"]
    line = Line((program.image_size,) * 2, batch=program.batch, **layer)
    return device_fit.Measured(
        line.geometry, line.dims, True, line.batch, seconds
    )


def compiled(results):
    """The drawn layers that were compiled by all algorithms, as `Measured`.

    Args:
        results: dict from the key of a case to the record.
    """
    for chip, group in itertools.product(CHIPS, DRAWN):
        found = [results.get(records.key(x.case(chip)), {}) for x in group]
        if all(x.get("status") == "ok" for x in found):
            means = (math.sqrt(estimate(x) * x["cycles"]) for x in found)
            seconds = dict(zip(DRAWN_ALGORITHMS, means, strict=True))
            yield measured(group, seconds)


def fit(rows):
    """Fits the row of TPUs; returns it and what it changes, in words."""
    fitted = device_fit.fit(rows, TPU)
    lines = [f"{TPU}", f"{fitted}"]
    for device in (TPU, fitted):
        values = [row.regret(device) for row in rows]
        mean = statistics.geometric_mean(values)
        lines.append(f"mean {mean:.3f}, worst {max(values):.2f}")
    return "\n".join(lines)


def main(arguments=None):
    recorder, options = records.start(
        "tpu_choices", __doc__, arguments, fit=False
    )
    if options.fit:
        rows = records.latest("tpu", options.results)
        print(fit(list(compiled({records.key(x["case"]): x for x in rows}))))
        return
    recorder = records.Recorder("tpu_choices", options)
    for group in DRAWN:
        layer = {**group[0].changes}
        del layer["implementation"]
        case = {"layer": layer, "px": group[0].image_size}
        case["batch"] = group[0].batch
        if options.only not in str(case) or recorder.has(case):
            continue
        seconds = dict.fromkeys(DRAWN_ALGORITHMS, 1.0)
        choice = measured(group, seconds).choice(TPU)
        names = {x.changes["implementation"]: x.name for x in group}
        recorder.append(case, value=choice, names=names)
        print(case, choice, flush=True)


if __name__ == "__main__":
    main()
