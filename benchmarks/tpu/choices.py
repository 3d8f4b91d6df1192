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

from benchmarks import records
from benchmarks.layers import device_fit
from benchmarks.layers.speed import Line
from benchmarks.tpu.outcome import estimate
from benchmarks.tpu.programs import CHIPS
from benchmarks.tpu.programs import DRAWN
from benchmarks.tpu.programs import DRAWN_ALGORITHMS
from lambdanet_tf import ops

TPU = ops.DEVICES["tpu"]


def case_of(group):
    """What is recorded as the case of one of `DRAWN`."""
    layer = {**group[0].changes}
    del layer["implementation"]
    return {"layer": layer, "px": group[0].image_size, "batch": group[0].batch}


def measured(group, seconds):
    """One of `DRAWN`, with seconds by algorithm, as `device_fit.Measured`."""
    layer, side, batch = case_of(group).values()
    return Line((side, side), batch=batch, **layer).measured(True, seconds)


def compiled(results):
    """The drawn layers that all algorithms were compiled for, as `Measured`.

    Results are records by the key of their case.
    """
    for chip, group in itertools.product(CHIPS, DRAWN):
        found = [results.get(records.key(x.case(chip=chip)), {}) for x in group]
        if all(x.get("status") == "ok" for x in found):
            means = (math.sqrt(estimate(x) * x["cycles"]) for x in found)
            seconds = dict(zip(DRAWN_ALGORITHMS, means, strict=True))
            yield measured(group, seconds)


def main(arguments=None):
    recorder, options = records.start(
        "tpu_choices", __doc__, arguments, fit=False
    )
    if options.fit:
        rows = records.latest("tpu", options.results)
        by_case = {records.key(row["case"]): row for row in rows}
        print(device_fit.report(list(compiled(by_case)), TPU))
        return
    groups = {records.key(case_of(group)): group for group in DRAWN}

    def measure(case):
        group = groups[records.key(case)]
        seconds = dict.fromkeys(DRAWN_ALGORITHMS, 1.0)
        return {
            "value": measured(group, seconds).choice(TPU),
            "names": {x.changes["implementation"]: x.name for x in group},
        }

    recorder.fill(map(case_of, DRAWN), measure)


if __name__ == "__main__":
    main()
