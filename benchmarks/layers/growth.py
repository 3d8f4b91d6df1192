"""Times layers as maps, scopes and sequences grow, and says what `auto` takes.

    python -m benchmarks.layers.growth               ten minutes
    python -m benchmarks.layers.growth --seconds 0 --only scope

Training steps of whole layers, CPU, float32. The choices come from the cost
model alone.
"""

from benchmarks import records
from benchmarks import timing
from benchmarks.layers.speed import Line
from benchmarks.layers.speed import steps
from lambdanet_tf import ops

MAPS = (7, 10, 14, 20, 28, 40, 56)
SCOPES = (3, 5, 7, 9, 13, 17, 23, 31, 45)
LENGTHS = (128, 256, 512, 1024, 2048, 4096, 8192, 16384)
CURVES = {
    "map side, scope 23": [(n, Line((n, n), 128, 23, 2)) for n in MAPS],
    "scope, 28x28 map": [(r, Line((28, 28), 128, r, 2)) for r in SCOPES],
    "sequence length, global": [(n, Line((n,), 64, None, 1)) for n in LENGTHS],
    "sequence length, causal": [
        (n, Line((n,), 64, None, 1, causal=True)) for n in LENGTHS
    ],
}
TIMED = ("auto", "einsum", "conv2d")
SLOWEST = 1.0  # seconds; beyond, a curve ends


def choice(size, scope, filters):
    """The algorithm that `auto` takes to train on a square map, on a CPU."""
    geometry = ops.Geometry.of([ops.same_axis(size, scope)] * 2)
    dims = ops.Dims(4, 16, filters // 4)
    return ops.plan_for(geometry, dims, device="cpu", training=True).algorithm


def main(arguments=None):
    recorder, options = records.start("growth", __doc__, arguments, seconds=3.0)
    recorder.fill(
        records.cases(choices=["training, square maps"], filters=(64, 256)),
        lambda case: {
            "maps": MAPS,
            "scopes": SCOPES,
            "value": [
                [choice(n, r, case["filters"]) for n in MAPS] for r in SCOPES
            ],
        },
    )
    for name, points in CURVES.items():
        lines, going = dict(points), list(TIMED)

        def measure(case, lines=lines, going=going):
            line = lines[case["at"]]
            names = [x for x in going if x in line.algorithms()]
            functions = {x: steps(line, x)[2] for x in names}
            taken = timing.turns(functions, options.seconds)
            going[:] = [x for x in names if timing.median(taken[x]) < SLOWEST]
            return {"filters": line.filters, "seconds": taken}

        recorder.fill([{"curve": name, "at": n} for n in lines], measure)


if __name__ == "__main__":
    main()
