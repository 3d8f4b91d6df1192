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

from benchmarks import records
from benchmarks.layers import device_fit
from benchmarks.layers.speed import Line
from benchmarks.tpu.programs import DRAWN
from benchmarks.views.tpu import drawn
from lambdanet_tf import ops

TPU = ops.DEVICES["tpu"]


def case_of(group):
    """What is recorded as the case of one of `DRAWN`."""
    layer = {**group[0].changes}
    del layer["implementation"]
    return {"layer": layer, "px": group[0].image_size, "batch": group[0].batch}


def measured(case, seconds):
    """A case with seconds by algorithm, as `device_fit.Measured`."""
    layer, side, batch = case.values()
    return Line((side, side), batch=batch, **layer).measured(True, seconds)


def main(arguments=None):
    recorder, options = records.start(
        "tpu_choices", __doc__, arguments, fit=False
    )
    if options.fit:
        topics = "tpu", "tpu_choices"
        found = {x: records.latest(x, options.results) for x in topics}
        compiled = sum(drawn(found, "mean of both").values(), [])
        rows = [measured(row["case"], row.figures) for row in compiled]
        print(device_fit.report(rows, TPU))
        return
    groups = {records.key(case_of(group)): group for group in DRAWN}

    def measure(case):
        group = groups[records.key(case)]
        names = {x.changes["implementation"]: x.name for x in group}
        return {"value": measured(case, names).choice(TPU), "names": names}

    recorder.fill(map(case_of, DRAWN), measure)


if __name__ == "__main__":
    main()
