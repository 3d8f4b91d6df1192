"""What is timed on a GPU: layers and training steps, in one file of programs.

    make gpu-programs

A layer is timed whole: projections, normalization, content and position
part. Every algorithm that `auto` may choose is there for every geometry, with
gradients in bfloat16 and forward alone in float32; what other packages compute
is there where it can be computed.
"""

import collections
import json
import pathlib
import zipfile

from benchmarks.tpu.compiler import artifact
from benchmarks.tpu.compiler import signature
from benchmarks.tpu.lowering import lower_program
from benchmarks.tpu.programs import POLICY
from benchmarks.tpu.programs import RATES
from benchmarks.tpu.programs import Program
from benchmarks.tpu.programs import hybrid
from benchmarks.tpu.programs import vanilla

# A program and what it is compared with: those of a group take turns. A
# contestant is an algorithm or "step"; a peer, timm's name of the same network.
Entry = collections.namedtuple(
    "Entry", "group contestant program peer", defaults=[None]
)
# Map side, channels, scope and batch; with 4 heads and 16 key channels.
LAYERS = (
    (14, 256, 23, 64),
    (56, 64, 23, 32),
    (28, 128, 7, 32),
    (28, 128, 23, 32),
    (14, 256, 7, 64),
    (56, 64, 7, 32),
    (7, 512, None, 128),
    (28, 256, None, 32),
    (14, 512, None, 64),
    (56, 128, 23, 32),
)
NETWORKS = (
    (vanilla("CCCC", 64), None),
    (vanilla("LLLL", 64), None),
    (hybrid("LambdaResNet50", 224, RATES, 64), None),
    (hybrid("LambdaResNet26T", 256, RATES, 64), "lambda_resnet26t"),
)


def _layers(places, training):
    kind = "training, bfloat16" if training else "forward, float32"
    how = (POLICY if training else "float32"), training
    for side, filters, scope, batch in places:
        group = f"{side}x{side}, d={filters}, scope {scope or 'global'}"
        names = ["lambda_first", "query_first"]
        # Larger ones take gigabytes, or minutes to tune.
        if training and side <= 28:
            names.append("einsum")
        if training and scope == 7:
            names.append("conv2d")
        for name in names:
            changes = {"filters": filters, "scope": scope}
            changes["implementation"] = name
            program = Program(name, "", changes, side, batch, *how)
            yield Entry(f"{group}, batch {batch}, {kind}", name, program)


# In the order in which they are timed: a short run has layers and networks.
ENTRIES = (
    *_layers(LAYERS[:4], training=True),
    *(
        Entry(f"{program.key}, training, bfloat16", "step", program, peer)
        for program, peer in NETWORKS
    ),
    *_layers(LAYERS[4:], training=True),
    *_layers(LAYERS, training=False),
)


def write(path, entries):
    """Lowers programs, without a GPU, into a file with `manifest.json`.

    It holds StableHLO as artifacts of the oldest version that can be written.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    manifest = []
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for group, contestant, program, peer in entries:
            file, line = f"{len(manifest):03d}.mlirbc", {**vars(program)}
            text, _ = lower_program(program, "gpu")
            archive.writestr(file, artifact(text, "minimum"))
            sides = zip(("inputs", "outputs"), signature(text), strict=True)
            for side, specs in sides:
                line[side] = [(x.shape, str(x.dtype)) for x in specs]
            line |= {"group": group, "contestant": contestant, "peer": peer}
            manifest.append({**line, "file": file})
            print(group, contestant, flush=True)
        archive.writestr("manifest.json", json.dumps(manifest))


if __name__ == "__main__":
    write(pathlib.Path("build/gpu_programs.zip"), ENTRIES)
