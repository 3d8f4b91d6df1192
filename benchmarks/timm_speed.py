"""Times timm's networks in PyTorch beside ours on the same cores, in pairs.

    python -m benchmarks.networks --timm
    python -m benchmarks.networks --timm --networks LambdaResNet26T --batch 1 8
    python -m benchmarks.networks --timm --ours graph xla folded

Each contestant is a process of its own, so that threads and memory of one do
not disturb the other; a pair of them takes turns, in random order. Reported is
the ratio of the two times of a turn: whatever slows the machine slows both.
Weights are random, images 256x256, float32; a training step is the forward
pass with batch statistics, the gradients of all weights and a step of SGD with
momentum. A pair takes turns until its time is over, or as often as it may.
With `--write`, pairs that `timm_speed.json` has are not timed again.
"""

import argparse
import os
import pathlib
import statistics
import sys

from benchmarks import contestants
from benchmarks import report
from benchmarks import timing
from benchmarks import timm_networks
from benchmarks import timm_report

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

THREADS = len(os.sched_getaffinity(0))
NETWORKS = ("LambdaResNet26T", "LambdaResNet50TS", "LambdaResNet26RPT256")
PHASES = ("inference", "training")
BATCHES = (1, 8, 32)
OURS = ("graph", "xla", "folded")
THEIRS = ("eager", "channels_last", "compiled")
IMAGE_SIZE = 256


def ours(name, kind, phase, batch, size):
    """A function that runs a network of ours once."""
    import tensorflow as tf  # noqa: PLC0415

    from benchmarks.networks import compiled_steps  # noqa: PLC0415
    from lambdanet_tf import models  # noqa: PLC0415
    from lambdanet_tf import serving  # noqa: PLC0415

    tf.config.threading.set_intra_op_parallelism_threads(THREADS)
    model = models.build(
        name, input_shape=(size, size, 3), classifier_activation=None
    )
    if kind == "folded":
        model = serving.fold_batch_norm(model)
    inference, training = compiled_steps(
        model, batch, size, jit_compile=kind == "xla"
    )
    step = inference if phase == "inference" else training
    return lambda: step().numpy()


def theirs(name, kind, phase, batch, size):
    """A function that runs the same network of timm once."""
    import torch  # noqa: PLC0415

    from lambdanet_tf import specs  # noqa: PLC0415

    torch.set_num_threads(THREADS)
    network = timm_networks.build(specs.RESNETS[name], image_size=size)
    images = torch.rand(batch, 3, size, size)
    if kind == "channels_last":
        for weight in network.parameters():
            if weight.dim() == 4:  # Not the 3-D convolutions.
                weight.data = weight.data.to(memory_format=torch.channels_last)
        images = images.to(memory_format=torch.channels_last)
    network.train(phase == "training")
    labels = torch.arange(batch) % 1000
    optimizer = torch.optim.SGD(network.parameters(), 1e-6, momentum=0.9)
    forward = torch.compile(network) if kind == "compiled" else network

    def inference():
        with torch.inference_mode():
            forward(images)

    def training():
        optimizer.zero_grad()
        losses = torch.nn.functional.cross_entropy(forward(images), labels)
        losses.backward()
        optimizer.step()

    return inference if phase == "inference" else training


def duel(name, kinds, phase, batch, size, turns, seconds):
    """Times a pair in turns; returns a row of figures, or None if one fails.

    Args:
        name: of the network.
        kinds: ours and theirs.
        phase: of `PHASES`.
        batch: int.
        size: of the images.
        turns: at most.
        seconds: after which there are no more turns than a few.
    """
    commands = {
        side: ("benchmarks.timm_speed", (side, name, kind, phase, batch, size))
        for side, kind in zip(("ours", "theirs"), kinds, strict=True)
    }
    try:
        times = contestants.take_turns(commands, turns, seconds)
    except RuntimeError as error:
        print(error, file=sys.stderr)
        return None
    row = {"network": name, "phase": phase, "batch": batch, "size": size}
    return {
        **row,
        "ours": kinds[0],
        "theirs": kinds[1],
        **figures(times, batch),
    }


def figures(times, batch):
    """Medians, fastest runs and ratios of the times of a pair."""
    median, *interval = timing.ratio(times["ours"], times["theirs"])
    return {
        "turns": len(times["ours"]),
        "images_per_second": {
            side: batch / statistics.median(seconds)
            for side, seconds in times.items()
        },
        "fastest_images_per_second": {
            side: batch / min(seconds) for side, seconds in times.items()
        },
        "ratio": median,
        "interval": tuple(interval),
    }


def measure(arguments):
    """Times the pairs that the command line asks for and writes their rows."""
    if reason := timm_networks.missing():
        raise SystemExit(reason)
    folder = pathlib.Path(arguments.write) if arguments.write else None
    rows = report.stored(folder and folder / timm_report.FIGURES, [])
    done = {_pair(row) for row in rows}
    pairs = [
        (name, phase, batch, kinds)
        for name in arguments.networks or NETWORKS
        for phase in PHASES
        for batch in arguments.batch or BATCHES
        for kinds in _kinds(arguments, phase)
    ]
    size = arguments.size or IMAGE_SIZE
    for name, phase, batch, kinds in pairs:
        if (name, phase, batch, size, *kinds) in done:
            continue
        row = duel(
            name, kinds, phase, batch, size, arguments.turns, arguments.seconds
        )
        if row is not None:
            rows.append(row)
            print(line(row), flush=True)
            if folder:
                timm_report.write(rows, folder)
    if not rows:
        raise SystemExit("No pair could be measured: see above.")


def _pair(row):
    fields = ("network", "phase", "batch", "size", "ours", "theirs")
    return tuple(row[field] for field in fields)


def line(row):
    """A row as text."""
    low, high = row["interval"]
    return (
        f"{row['network']}, {row['phase']}, batch {row['batch']}: timm "
        f"({row['theirs']}) takes {row['ratio']:.2f} times as long as ours "
        f"({row['ours']}), {low:.2f} to {high:.2f} in {row['turns']} turns; "
        f"ours {row['images_per_second']['ours']:.2f} images/s"
    )


def _kinds(arguments, phase):
    """Pairs of ours and theirs; a folded network cannot be trained."""
    return [
        (one, other)
        for one in arguments.ours
        for other in arguments.theirs
        if phase == "inference" or one != "folded"
    ]


def add_arguments(parser):
    """The arguments of the comparison."""
    group = parser.add_argument_group("beside timm (extra `timm`)")
    group.add_argument(
        "--timm", action="store_true", help="time timm's networks beside ours"
    )
    group.add_argument("--ours", nargs="+", choices=OURS, default=["graph"])
    group.add_argument(
        "--theirs", nargs="+", choices=THEIRS, default=["eager", "compiled"]
    )
    group.add_argument("--turns", type=int, default=25)
    group.add_argument(
        "--seconds", type=float, default=60, help="of a pair's turns (60)"
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("side", choices=("ours", "theirs"))
    for name in ("name", "kind", "phase"):
        parser.add_argument(name)
    for name in ("batch", "size"):
        parser.add_argument(name, type=int)
    arguments = vars(parser.parse_args())
    make = {"ours": ours, "theirs": theirs}[arguments.pop("side")]
    contestants.serve(make(**arguments))


if __name__ == "__main__":
    main()
