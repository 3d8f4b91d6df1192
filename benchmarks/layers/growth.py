"""Times layers as maps, scopes and sequences grow, and says what `auto` takes.

    python -m benchmarks.layers.growth               ten minutes
    python -m benchmarks.layers.growth --seconds 0 --only scope

Training steps of whole layers, CPU, float32. The choices come from the cost
model alone.
"""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

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
    parser = records.parser(__doc__, seconds=3.0)
    options = parser.parse_args(arguments)
    recorder = records.Recorder("growth", options)
    for filters in (64, 256):
        case = {"choices": "training, square maps", "filters": filters}
        if options.only not in case["choices"] or recorder.has(case):
            continue
        algorithms = [[choice(n, r, filters) for n in MAPS] for r in SCOPES]
        recorder.append(case, maps=MAPS, scopes=SCOPES, value=algorithms)
    for name, points in CURVES.items():
        if options.only not in name:
            continue
        going = TIMED
        for place, line in points:
            case = {"curve": name, "at": place}
            if recorder.has(case):
                continue
            functions = {
                x: steps(line, x)[2] for x in going if x in line.algorithms()
            }
            taken = timing.turns(functions, options.seconds)
            recorder.append(case, filters=line.filters, seconds=taken)
            times = {x: timing.median(each) for x, each in taken.items()}
            going = [x for x, seconds in times.items() if seconds < SLOWEST]
            cells = [f"{x} {seconds:.4f} s" for x, seconds in times.items()]
            print(f"{name}, {place}: {', '.join(cells)}", flush=True)


if __name__ == "__main__":
    main()
