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
# Name to arguments of `ResNet50`.
NETWORKS = {name: {"pattern": name} for name in ("CCCC", "LLLL", "CCLL")}
SHAPE = (4, 224, 224, 3)
ATTENTION = "28x28, d=128, attention"
MASKED = "14x14, d=256, masked"


def cases():
    """The names of what is timed."""
    from benchmarks.layers.speed import LINES  # noqa: PLC0415

    return [*(line.name for line in LINES), ATTENTION, MASKED, *NETWORKS]


@functools.lru_cache(1)  # the one before would only hold memory
def compiled(case):
    """The forward pass and the training step of a case, by phase."""
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
    """The model of a case, built, its shape and further arguments."""
    import tensorflow as tf  # noqa: PLC0415

    from benchmarks.layers.speed import LINES  # noqa: PLC0415
    from lambdanet_tf import layers  # noqa: PLC0415
    from lambdanet_tf import models  # noqa: PLC0415

    if case in NETWORKS:
        model = models.ResNet50(
            input_shape=SHAPE[1:],
            weights=None,
            classifier_activation=None,
            **NETWORKS[case],
        )
        return model, SHAPE, {}
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
        (line,) = (line for line in LINES if line.name == case)
        shape, model = line.shape, line.layer("auto")
    model.build(shape)
    return model, shape, arguments


def step_of(request):
    """What a version's process runs: a phase of a case."""
    phase, _, case = request.partition(" ")
    return compiled(case)[phase]


def compare(before, after, case, seconds):
    """Times a case of two workers; dict from phase to seconds of both."""
    found = {}
    for phase in PHASES:
        calls = {
            name: functools.partial(worker.run, f"{phase} {case}")
            for name, worker in (("before", before), ("after", after))
        }
        found[phase] = timing.turns(calls, seconds, least=5, clock=False)
    return found


def extract(commit, folder):
    """Writes the package of a commit into a folder."""
    archive = subprocess.run(
        ["git", "archive", commit, "lambdanet_tf"],
        cwd=records.ROOT,
        check=True,
        capture_output=True,
    )
    with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as files:
        files.extractall(folder, filter="data")


def main(arguments=None):
    parser = records.parser(__doc__, seconds=5.0)
    parser.add_argument("--before", default="HEAD~1", help="a commit")
    parser.add_argument("--calls", action="store_true", help="a child process")
    options = parser.parse_args(arguments)
    if options.calls:
        timing.serve(step_of)
        return
    recorder = records.Recorder("versions", options)
    module = ("benchmarks.layers.versions", ["--calls"])
    with tempfile.TemporaryDirectory() as folder:
        extract(options.before, folder)
        with (
            timing.Worker(*module, root=folder) as before,
            timing.Worker(*module) as after,
        ):
            for case in cases():
                if options.only not in case:
                    continue
                found = compare(before, after, case, options.seconds)
                for phase, seconds in found.items():
                    recorder.append(
                        {
                            "case": case,
                            "phase": phase,
                            "before": options.before,
                        },
                        seconds=seconds,
                    )
                    ratio = timing.ratio(seconds["before"], seconds["after"])
                    text = "{:.3f} ({:.2f} to {:.2f})".format(*ratio)
                    print(f"{case}, {phase}: after / before {text}", flush=True)


if __name__ == "__main__":
    main()
