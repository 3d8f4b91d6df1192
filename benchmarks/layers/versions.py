"""Times layers and networks of two versions of the package, in turns.

    python -m benchmarks.layers.versions --before HEAD~1
    python -m benchmarks.layers.versions --before HEAD~5 --only 28x28

Each version computes in a process of its own; the processes take turns, call
by call. Above 1 the newer version, that of this checkout, is slower; the one
before is taken from git.
"""

import functools
import io
import subprocess
import tarfile
import tempfile

from benchmarks import records
from benchmarks import timing

PHASES = ("forward", "training")
NETWORKS = ("CCCC", "LLLL", "CCLL")  # patterns of `ResNet50`
SIZE = 224
ATTENTION = "28x28, d=128, attention"
MASKED = "14x14, d=256, masked"


@functools.lru_cache(1)  # the one before would only hold memory
def compiled(case):
    import tensorflow as tf  # noqa: PLC0415

    from benchmarks.layers import speed  # noqa: PLC0415
    from benchmarks.networks.speed import build  # noqa: PLC0415
    from lambdanet_tf import layers  # noqa: PLC0415

    if case in NETWORKS:
        return speed.compiled(build(case, SIZE), (4, SIZE, SIZE, 3))
    if case == ATTENTION:
        layer = layers.RelativeAttention(num_heads=4, scope=None)
        return speed.compiled(layer, (4, 28, 28, 128))
    if case == MASKED:
        mask = tf.linalg.band_part(tf.ones([196, 196], tf.bool), -1, 40)
        layer = layers.LambdaLayer(num_heads=4)
        return speed.compiled(layer, (8, 14, 14, 256), attention_mask=mask)
    (line,) = (line for line in speed.LINES if line.name == case)
    return speed.steps(line, "auto")[1:]


def steps():
    """What the process of a version runs: phases of cases."""

    def step_of(request):
        phase, _, case = request.partition(" ")
        return compiled(case)[PHASES.index(phase)]

    return step_of


def worker(root=records.ROOT):
    return timing.Worker("benchmarks.layers.versions:steps", root=root)


def extract(commit, folder):
    archive = subprocess.run(
        ["git", "archive", commit, "lambdanet_tf"],
        cwd=records.ROOT,
        check=True,
        capture_output=True,
    )
    with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as files:
        files.extractall(folder, filter="data")


def main(arguments=None):
    from benchmarks.layers.speed import LINES  # noqa: PLC0415

    parser = records.parser(__doc__, seconds=5.0, before="HEAD~1")
    parser.set_defaults(again=True)  # "HEAD~1" is another commit by then
    options = parser.parse_args(arguments)
    recorder = records.Recorder("versions", options)
    names = [*(line.name for line in LINES), ATTENTION, MASKED, *NETWORKS]
    with tempfile.TemporaryDirectory() as folder:
        extract(options.before, folder)
        with worker(folder) as before, worker() as after:

            def measure(case):
                request = f"{case['phase']} {case['case']}"
                calls = {
                    "before": functools.partial(before.run, request),
                    "after": functools.partial(after.run, request),
                }
                taken = timing.turns(calls, options.seconds, 5, clock=False)
                return {"seconds": taken}

            cases = records.cases(
                case=names, phase=PHASES, before=[options.before]
            )
            recorder.fill(cases, measure)


if __name__ == "__main__":
    main()
