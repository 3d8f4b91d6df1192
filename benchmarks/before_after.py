"""Times layers and networks of two versions of the package, in turns.

    python -m benchmarks.before_after --before v0.1.0
    python -m benchmarks.before_after --before HEAD~5 --cases 28 --turns 25

Each version computes in a process of its own; the processes take turns, call
by call. Printed are the medians of the ratios turn by turn, after over before,
with the interval of 95 %: above 1 the newer version is slower. The version
after is that of this checkout, the one before is taken from git. For a record,
on a quiet machine.
"""

import argparse
import io
import json
import os
import pathlib
import subprocess
import sys
import tarfile
import tempfile
import time

from benchmarks import timing

ROOT = pathlib.Path(__file__).parents[1]
PHASES = ("forward", "training")

# Name to the shape of the inputs with the batch, and arguments of
# `LambdaLayer`.
LAYERS = {
    "56x56 d=64 scope 23": ((2, 56, 56, 64), {"scope": 23}),
    "56x56 d=64 scope 7": ((2, 56, 56, 64), {"scope": 7}),
    "56x56 d=128 scope 23": ((2, 56, 56, 128), {"scope": 23}),
    "28x28 d=128 scope 23": ((4, 28, 28, 128), {"scope": 23}),
    "28x28 d=128 scope 7": ((4, 28, 28, 128), {"scope": 7}),
    "28x28 d=128 global": ((4, 28, 28, 128), {}),
    "28x28 d=256 scope 23": ((4, 28, 28, 256), {"scope": 23}),
    "28x28 d=256 global": ((4, 28, 28, 256), {}),
    "14x14 d=256 scope 23": ((8, 14, 14, 256), {"scope": 23}),
    "14x14 d=256 scope 7": ((8, 14, 14, 256), {"scope": 7}),
    "14x14 d=256 global": ((8, 14, 14, 256), {}),
    "14x14 d=512 scope 23": ((8, 14, 14, 512), {"scope": 23}),
    "7x7 d=512 global": ((16, 7, 7, 512), {}),
    "64x64 d=256 scope 23": ((2, 64, 64, 256), {"scope": 23}),
    "15x21 d=256 scope 9": ((4, 15, 21, 256), {"scope": 9}),
    "14x14 d=256 scope 7 u=4": (
        (8, 14, 14, 256),
        {"scope": 7, "intra_depth": 4},
    ),
    "14x14 d=64 scope 5 k=32": ((8, 14, 14, 64), {"scope": 5, "key_dim": 32}),
    "1024 d=256 scope 63": ((4, 1024, 256), {"scope": 63}),
    "1024 d=256 scope 63 causal": (
        (4, 1024, 256),
        {"scope": 63, "causal": True},
    ),
    "4096 d=256 scope 63": ((2, 4096, 256), {"scope": 63}),
    "4096 d=256 scope 63 causal": (
        (2, 4096, 256),
        {"scope": 63, "causal": True},
    ),
    "512 d=256 global": ((4, 512, 256), {}),
    "2048 d=256 global": ((2, 2048, 256), {}),
    "2048 d=256 global causal": ((2, 2048, 256), {"causal": True}),
    "16384 d=64 global": ((1, 16384, 64), {}),
    "16384 d=64 global causal": ((1, 16384, 64), {"causal": True}),
    "8x14x14 d=128 scope 7": ((2, 8, 14, 14, 128), {"scope": 7}),
}
# Name to the shape of the images with the batch, and arguments of `ResNet50`.
NETWORKS = {
    "CCCC": ((4, 224, 224, 3), {"pattern": "CCCC"}),
    "LLLL": ((4, 224, 224, 3), {"pattern": "LLLL"}),
    "CCLL": ((4, 224, 224, 3), {"pattern": "CCLL"}),
}
ATTENTION = "28x28 d=128 attention"
MASKED = "14x14 d=256 masked"
CASES = (*LAYERS, ATTENTION, MASKED, *NETWORKS)


class Version:
    """A process that times calls with one version of the package.

    Args:
        root: the folder that holds the package.
    """

    def __init__(self, root):
        environment = dict(os.environ)
        environment.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
        # The package is taken from the first, this module from the second.
        environment["PYTHONPATH"] = f"{root}{os.pathsep}{ROOT}"
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.before_after", "--calls"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=root,
            env=environment,
        )

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self._process.communicate()

    def seconds(self, case, phase):
        """Returns what one call takes; the first of a case builds it."""
        self._process.stdin.write(json.dumps([case, phase]) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        if not answer:
            raise RuntimeError(f"The process ended in {case!r}.")
        return float(answer)


def answer_calls():
    """Times the calls that are asked for, one a line, until none follows."""
    functions, built = {}, None
    for line in sys.stdin:
        case, phase = json.loads(line)
        if case != built:  # the one before would only hold memory
            functions, built = compiled(case), case
            for function in functions.values():
                function()
                function()
        start = time.perf_counter()
        functions[phase]()
        print(time.perf_counter() - start, flush=True)


def compiled(case):
    """Returns the forward pass and the training step of a case, by phase."""
    # Here, since the process before this one only sends calls.
    import tensorflow as tf  # noqa: PLC0415

    model, shape, arguments = model_of(case)
    inputs = tf.random.stateless_uniform(shape, (0, 1))

    @tf.function(autograph=False)
    def forward():
        return model(inputs, training=False, **arguments)

    @tf.function(autograph=False)
    def training():
        with tf.GradientTape() as tape:
            tape.watch(inputs)
            outputs = model(inputs, training=True, **arguments)
            loss = tf.reduce_sum(tf.square(outputs))
        return tape.gradient(loss, [inputs, *model.trainable_variables])

    return {"forward": forward, "training": training}


def model_of(case):
    """Returns the model of a case, built, its shape and further arguments."""
    import tensorflow as tf  # noqa: PLC0415

    from lambdanet_tf import layers  # noqa: PLC0415
    from lambdanet_tf import models  # noqa: PLC0415

    if case in NETWORKS:
        shape, options = NETWORKS[case]
        model = models.ResNet50(
            input_shape=shape[1:],
            weights=None,
            classifier_activation=None,
            **options,
        )
        return model, shape, {}
    arguments = {}
    if case == ATTENTION:
        shape = (4, 28, 28, 128)
        model = layers.RelativeAttention(num_heads=4, scope=None)
    elif case == MASKED:
        shape = (8, 14, 14, 256)
        model = layers.LambdaLayer(num_heads=4)
        mask = tf.linalg.band_part(tf.ones([196, 196], tf.bool), -1, 40)
        arguments = {"attention_mask": mask}
    else:
        shape, options = LAYERS[case]
        model = layers.LambdaLayer(num_heads=4, **options)
    model.build(shape)
    return model, shape, arguments


def compare(before, after, case, turns):
    """Returns by phase the median ratio after / before, and its interval."""
    ratios = {}
    for phase in PHASES:
        seconds = {before: [], after: []}
        for version in seconds:  # once that is not counted
            version.seconds(case, phase)
        for turn in range(turns):
            order = (before, after) if turn % 2 else (after, before)
            for version in order:
                seconds[version].append(version.seconds(case, phase))
        ratios[phase] = timing.ratio(seconds[before], seconds[after])
    return ratios


def extract(commit, folder):
    """Writes the package of a commit into a folder."""
    archive = subprocess.run(
        ["git", "archive", commit, "lambdanet_tf"],
        cwd=ROOT,
        check=True,
        capture_output=True,
    )
    with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as files:
        files.extractall(folder, filter="data")


def main(arguments=None):
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--before", default="HEAD~1", help="a commit")
    parser.add_argument("--cases", help="only those whose name contains this")
    parser.add_argument("--turns", type=int, default=15)
    parser.add_argument("--calls", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.calls:
        answer_calls()
        return
    with tempfile.TemporaryDirectory() as folder:
        extract(options.before, folder)
        with Version(folder) as before, Version(ROOT) as after:
            print("case | " + " | ".join(f"{p}, after/before" for p in PHASES))
            for case in CASES:
                if options.cases and options.cases not in case:
                    continue
                ratios = compare(before, after, case, options.turns)
                cells = (
                    "{:.3f} ({:.2f} to {:.2f})".format(*ratios[phase])
                    for phase in PHASES
                )
                print(f"{case} | {' | '.join(cells)}", flush=True)


if __name__ == "__main__":
    main()
