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


def layer_of(group):
    """The arguments of a drawn layer, but for its algorithm."""
    layer = {**group[0].changes}
    del layer["implementation"]
    return layer


def measured(group, seconds):
    """A drawn layer as `device_fit.Measured`.

    Args:
        group: of `DRAWN`.
        seconds: dict from algorithm to its time.
    """
    sides, batch = (group[0].image_size,) * 2, group[0].batch
    return Line(sides, batch=batch, **layer_of(group)).measured(True, seconds)


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


def main(arguments=None):
    recorder, options = records.start(
        "tpu_choices", __doc__, arguments, fit=False
    )
    if options.fit:
        rows = records.latest("tpu", options.results)
        by_case = {records.key(row["case"]): row for row in rows}
        print(device_fit.report(list(compiled(by_case)), TPU))
        return
    cases = [
        {"layer": layer_of(x), "px": x[0].image_size, "batch": x[0].batch}
        for x in DRAWN
    ]
    groups = {records.key(x): y for x, y in zip(cases, DRAWN, strict=True)}

    def measure(case):
        group = groups[records.key(case)]
        seconds = dict.fromkeys(DRAWN_ALGORITHMS, 1.0)
        return {
            "value": measured(group, seconds).choice(TPU),
            "names": {x.changes["implementation"]: x.name for x in group},
        }

    recorder.fill(cases, measure)


if __name__ == "__main__":
    main()
