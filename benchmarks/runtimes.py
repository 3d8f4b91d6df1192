"""Times an export on a CPU in TensorFlow, ONNX Runtime and OpenVINO.

    pip install openvino
    python -m benchmarks.runtimes --write docs
    python -m benchmarks.runtimes --networks LLLL --batch 8

One export a network, with batch normalization folded, as `export.py --onnx`
writes it: TensorFlow runs the SavedModel in a session, as TF Serving does, the
others its `model.onnx`, OpenVINO with the batch fixed. Each runtime is a
process of its own; they take turns. Their probabilities of the same images are
compared first. With `--write`, rows that `runtimes.json` has are kept.
"""

import argparse
import importlib.util
import json
import os
import pathlib
import statistics
import tempfile

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np

from benchmarks import contestants
from benchmarks import report
from benchmarks import timing
from lambdanet_tf.serving import formats

THREADS = len(os.sched_getaffinity(0))
NETWORKS = {
    "CCCC": ("ResNet50", {"pattern": "CCCC"}, 224),
    "LLLL": ("ResNet50", {"pattern": "LLLL"}, 224),
    "LambdaResNet50": ("LambdaResNet50", {}, 224),
    "LambdaResNet26T": ("LambdaResNet26T", {}, 256),
    "LambdaResNet50TS": ("LambdaResNet50TS", {}, 256),
    "LambdaResNet26RPT256": ("LambdaResNet26RPT256", {}, 256),
}
BATCHES = (1, 8, 32)
TOLERANCE = 1e-3  # of probabilities
PLAIN = "TensorFlow"
DOCUMENT, FIGURES = "serving_speed.md", "runtimes.json"


def tensorflow(folder, batch):
    """A function from images to probabilities: the SavedModel in a session."""
    import tensorflow as tf  # noqa: PLC0415

    from lambdanet_tf.serving import standalone  # noqa: PLC0415

    session = standalone.Session(tf, folder)
    return lambda images: session.run("serving_default", {"images": images})[
        "probabilities"
    ]


def onnx_runtime(folder, batch):
    """The same by ONNX Runtime."""
    import onnxruntime  # noqa: PLC0415

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = THREADS
    session = onnxruntime.InferenceSession(
        str(folder / formats.FORMATS["onnx"]),
        options,
        providers=["CPUExecutionProvider"],
    )
    return lambda images: session.run(["probabilities"], {"images": images})[0]


def open_vino(folder, batch):
    """The same by OpenVINO, in float32 and for one batch size."""
    import openvino  # noqa: PLC0415

    core = openvino.Core()
    model = core.read_model(str(folder / formats.FORMATS["onnx"]))
    _, *image = model.input("images").partial_shape
    model.reshape({"images": openvino.PartialShape([batch, *image])})
    compiled = core.compile_model(
        model,
        "CPU",
        {
            "INFERENCE_NUM_THREADS": THREADS,
            "INFERENCE_PRECISION_HINT": "f32",
            "PERFORMANCE_HINT": "LATENCY",
        },
    )
    return lambda images: compiled({"images": images})["probabilities"]


# The runtime's name, its package and what makes it.
RUNTIMES = {
    PLAIN: ("tensorflow", tensorflow),
    "ONNX Runtime": ("onnxruntime", onnx_runtime),
    "OpenVINO": ("openvino", open_vino),
}


def export(name, folder):
    """Exports a network with random weights; returns the version folder."""
    import tensorflow as tf  # noqa: PLC0415

    from lambdanet_tf import models  # noqa: PLC0415
    from lambdanet_tf import serving  # noqa: PLC0415

    tf.keras.utils.set_random_seed(0)
    builder, arguments, size = NETWORKS[name]
    model = models.build(
        builder, weights=None, input_shape=(size, size, 3), **arguments
    )
    options = serving.ExportOptions(formats=("onnx",))
    place = serving.export_model(model, folder, name, options=options)
    tf.keras.backend.clear_session()
    return place


def images_of(name, batch):
    """Random images, the same at every call."""
    size = NETWORKS[name][2]
    images = np.random.default_rng(0).uniform(0, 255, (batch, size, size, 3))
    return images.astype(np.float32)


def duel(name, folder, batch, turns, seconds):
    """Times the installed runtimes at a batch size; returns a row of figures.

    A runtime that refuses the file is missing in the row.

    Raises:
        RuntimeError: if a runtime fails later.
        ValueError: if one computes something else.
    """
    outputs = folder.parent / "outputs"
    outputs.mkdir(exist_ok=True)
    commands = {
        runtime: (
            "benchmarks.runtimes",
            ("--child", runtime, folder, name, batch, outputs),
        )
        for runtime in installed()
    }
    others = [runtime for runtime in commands if runtime != PLAIN]
    times = contestants.take_turns(commands, turns, seconds, optional=others)
    arrays = {runtime: np.load(_file(outputs, runtime)) for runtime in times}
    difference = max(
        float(np.abs(array - arrays[PLAIN]).max()) for array in arrays.values()
    )
    if not difference < TOLERANCE:
        raise ValueError(f"Probabilities of {name} differ by {difference}.")
    return {
        "network": name,
        "batch": batch,
        "turns": len(times[PLAIN]),
        "difference": difference,
        "images_per_second": {
            runtime: batch / statistics.median(seconds)
            for runtime, seconds in times.items()
        },
        "ratios": {
            runtime: timing.ratio(times[PLAIN], seconds)
            for runtime, seconds in times.items()
            if runtime != PLAIN
        },
    }


def installed():
    """The runtimes that this machine has."""
    return [
        name
        for name, (package, _) in RUNTIMES.items()
        if importlib.util.find_spec(package) is not None
    ]


def child(runtime, folder, name, batch, outputs):
    """The process of a runtime."""
    run = RUNTIMES[runtime][1](pathlib.Path(folder), int(batch))
    images = images_of(name, int(batch))
    np.save(_file(pathlib.Path(outputs), runtime), run(images))
    contestants.serve(lambda: run(images))


def _file(folder, runtime):
    return folder / f"{runtime}.npy"


def text_row(row):
    """A row for the screen."""
    rates = ", ".join(
        f"{runtime} {rate:.2f}"
        for runtime, rate in row["images_per_second"].items()
    )
    return f"{row['network']}, batch {row['batch']}, images/s: {rates}"


def text(rows):
    """A table, and who wins how often."""
    others = [
        name for name in RUNTIMES if any(name in r["ratios"] for r in rows)
    ]
    head = ["network", "batch", f"{PLAIN}, images/s"]
    head += [f"{other}, images/s" for other in others]
    head += [f"{other}'s time / {PLAIN}'s (95 %)" for other in others]
    lines = [head, ["---"] * len(head)]
    for row in rows:
        rates = row["images_per_second"]
        cells = [row["network"], str(row["batch"])]
        for name in (PLAIN, *others):
            cells.append(f"{rates[name]:.2f}" if name in rates else "refused")
        for other in others:
            cells.append(_ratio_text(row["ratios"].get(other)))
        lines.append(cells)
    sentences = []
    for other in others:
        ratios = [r["ratios"][other][0] for r in rows if other in r["ratios"]]
        faster = sum(ratio < 1 for ratio in ratios)
        sentences.append(
            f"- {other} takes {statistics.median(ratios):.2f} times as long as "
            f"{PLAIN} (median of {len(ratios)} rows; {min(ratios):.2f} to "
            f"{max(ratios):.2f}) and is faster in {faster} of them."
        )
    table = "\n".join("| " + " | ".join(line) + " |" for line in lines)
    return f"{table}\n\n" + "\n".join(sentences)


def _ratio_text(figures):
    if figures is None:
        return ""
    middle, low, high = figures
    return f"**{middle:.2f}** ({low:.2f} to {high:.2f})"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--networks", nargs="+", default=list(NETWORKS))
    parser.add_argument("--batch", type=int, nargs="+", default=BATCHES)
    parser.add_argument("--turns", type=int, default=25)
    parser.add_argument(
        "--seconds", type=float, default=20, help="of the turns of a row (20)"
    )
    parser.add_argument("--write", help="folder of serving_speed.md")
    parser.add_argument("--child", nargs=5, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        child(*arguments.child)
        return
    folder = pathlib.Path(arguments.write) if arguments.write else None
    file = folder and folder / FIGURES
    rows = report.stored(file, [])
    done = {(row["network"], row["batch"]) for row in rows}
    for name in arguments.networks:
        batches = [n for n in arguments.batch if (name, n) not in done]
        if not batches:
            continue
        with tempfile.TemporaryDirectory() as scratch:
            exported = export(name, scratch)
            for batch in batches:
                row = duel(
                    name, exported, batch, arguments.turns, arguments.seconds
                )
                rows.append(row)
                print(text_row(row), flush=True)
                if file:
                    file.write_text(json.dumps(rows, indent=1) + "\n")
    if folder:
        report.insert(folder, "runtimes", text(rows), DOCUMENT)


if __name__ == "__main__":
    main()
