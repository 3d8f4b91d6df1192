"""Times timm's networks in PyTorch and ours on the same cores, in pairs.

    python -m benchmarks.networks.timm_speed    40 minutes, by the extra `timm`

The two of a pair take turns in random order, each in a process of its own:
random weights, images 256x256, float32. A training step is that of
`benchmarks.networks.speed`.
"""

import os

from benchmarks import records
from benchmarks import timing
from benchmarks.networks import timm_models

THREADS = len(os.sched_getaffinity(0))
NETWORKS = ("LambdaResNet26T", "LambdaResNet50TS", "LambdaResNet26RPT256")
PHASES = ("inference", "training")
BATCHES = (1, 8, 32)
KINDS = ("eager", "compiled")  # of timm's


def ours(name, phase, batch, size):
    import tensorflow as tf  # noqa: PLC0415

    from benchmarks.networks.speed import compiled_steps  # noqa: PLC0415
    from lambdanet_tf import models  # noqa: PLC0415

    tf.config.threading.set_intra_op_parallelism_threads(THREADS)
    model = models.build(
        name, input_shape=(size, size, 3), classifier_activation=None
    )
    steps = compiled_steps(model, batch, size)
    step = steps[PHASES.index(phase)]
    return lambda: step().numpy()


def theirs(name, phase, batch, size, kind):
    import torch  # noqa: PLC0415

    from lambdanet_tf import specs  # noqa: PLC0415

    torch.set_num_threads(THREADS)
    network = timm_models.build(specs.RESNETS[name], image_size=size)
    images = torch.rand(batch, 3, size, size)
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


def worker(side, *arguments):
    step = {"ours": ours, "theirs": theirs}[side](*arguments)
    return lambda request: step


@records.script("timm", seconds=60.0, batch=BATCHES, size=256, theirs=KINDS)
def main(recorder, options):
    if reason := timm_models.missing():
        raise SystemExit(reason)

    def measure(case):
        *place, _, kind = case.values()
        child = "benchmarks.networks.timm_speed:worker"
        commands = {"ours": (child, "ours", *place)}
        commands["theirs"] = child, "theirs", *place, kind
        return {"seconds": timing.worker_turns(commands, options.seconds)}

    cases = records.cases(
        network=NETWORKS,
        phase=PHASES,
        batch=options.batch,
        size=[options.size],
        ours=["graph"],
        theirs=options.theirs,
    )
    recorder.fill(cases, measure)
