"""Times timm's networks in PyTorch and ours on the same cores, in pairs.

    python -m benchmarks.networks.timm_speed                 40 minutes
    python -m benchmarks.networks.timm_speed --only 26T --batch 1 --seconds 5
    python -m benchmarks.networks.timm_speed --ours graph xla folded

Needs the extra `timm`. Each network is a process of its own, so that threads
and memory of one do not disturb the other; the two of a pair take turns, in
random order. Weights are random, images 256x256, float32; a training step is
the forward pass with batch statistics, the gradients of all weights and a step
of SGD with momentum.
"""

import itertools
import os
import sys

from benchmarks import records
from benchmarks import timing
from benchmarks.networks import timm_models

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

    from benchmarks.networks.speed import compiled_steps  # noqa: PLC0415
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
    network = timm_models.build(specs.RESNETS[name], image_size=size)
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


def main(arguments=None):
    parser = records.parser(__doc__, seconds=60.0)
    parser.add_argument("--batch", type=int, nargs="+", default=BATCHES)
    parser.add_argument("--size", type=int, default=IMAGE_SIZE)
    parser.add_argument("--ours", nargs="+", choices=OURS, default=["graph"])
    parser.add_argument(
        "--theirs", nargs="+", choices=THEIRS, default=["eager", "compiled"]
    )
    parser.add_argument("--worker", nargs=6, help="a child process")
    options = parser.parse_args(arguments)
    if options.worker:
        side, *names, batch, size = options.worker
        make = {"ours": ours, "theirs": theirs}[side]
        step = make(*names, int(batch), int(size))
        timing.serve(lambda request: step)
        return
    if reason := timm_models.missing():
        raise SystemExit(reason)
    recorder = records.Recorder("timm", options)
    for name, phase, batch, one, other in itertools.product(
        NETWORKS, PHASES, options.batch, options.ours, options.theirs
    ):
        case = {"network": name, "phase": phase, "batch": batch}
        case |= {"size": options.size, "ours": one, "theirs": other}
        if options.only not in name or recorder.has(case):
            continue
        if (one, phase) == ("folded", "training"):
            continue  # it cannot be trained
        commands = {
            side: (
                "benchmarks.networks.timm_speed",
                ("--worker", side, name, kind, phase, batch, options.size),
            )
            for side, kind in (("ours", one), ("theirs", other))
        }
        try:
            taken = timing.worker_turns(commands, options.seconds)
        except RuntimeError as error:
            print(error, file=sys.stderr)
            continue
        recorder.append(case, seconds=taken)
        ratio = "{:.2f} ({:.2f} to {:.2f})".format(
            *timing.ratio(taken["ours"], taken["theirs"])
        )
        print(f"{case}: timm takes {ratio} times as long", flush=True)


if __name__ == "__main__":
    main()
