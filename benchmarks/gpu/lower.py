"""Lowers the programs of the GPU benchmark to one file, without a GPU.

    make gpu-programs
    python -m benchmarks.gpu.lower --write build/gpu_programs.zip

The file holds StableHLO as portable artifacts of the oldest version that this
compiler can write, and `manifest.json`.
"""

import argparse
import json
import os
import pathlib
import zipfile

# What networks are trained on.
os.environ.setdefault("TF_USE_LEGACY_KERAS", "1")
os.environ.setdefault("JAX_PLATFORMS", "cpu")

import tensorflow as tf
from jax.extend.mlir.dialects import stablehlo

from benchmarks.gpu.programs import ENTRIES
from benchmarks.tpu.compiler import artifact
from benchmarks.tpu.compiler import signature
from benchmarks.tpu.lowering import lower_program


def _write_entry(archive, number, entry):
    """Lowers one program into the archive; returns its line of the manifest."""
    program = entry.program
    text, facts = lower_program(program, "gpu")
    tf.keras.backend.clear_session()
    inputs, outputs = signature(text)
    name = f"{number:03d}.mlirbc"
    version = stablehlo.get_minimum_version()
    archive.writestr(name, artifact(text, version))
    place = {"image_size": program.image_size, "batch": program.batch}
    sizes = {x: program.changes.get(x) for x in ("filters", "scope")}
    return {
        "file": name,
        "group": entry.group,
        "contestant": entry.contestant,
        **place,
        "training": program.training,
        "bfloat16": program.precision != "float32",
        "layer": None if program.recipe else {**sizes, **place},
        "peer": entry.peer,
        "operations": facts["counted_flops"],
        "algorithms": facts["algorithms"],
        "inputs": [[list(x.shape), str(x.dtype)] for x in inputs],
        "outputs": [[list(x.shape), str(x.dtype)] for x in outputs],
    }


def write(path, entries):
    """Lowers programs into a file with a manifest."""
    path.parent.mkdir(parents=True, exist_ok=True)
    manifest = []
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for number, entry in enumerate(entries):
            manifest.append(_write_entry(archive, number, entry))
            print(entry.group, entry.contestant, flush=True)
        archive.writestr("manifest.json", json.dumps(manifest, indent=1))
    size = path.stat().st_size / 2**20
    print(f"Wrote {len(manifest)} programs, {size:.1f} MiB: {path}")


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--write", default="build/gpu_programs.zip")
    parser.add_argument(
        "--only", nargs="+", default=[""], help="parts of the groups' names"
    )
    options = parser.parse_args(arguments)
    entries = [x for x in ENTRIES if any(n in x.group for n in options.only)]
    if not entries:
        parser.error(f"no group's name has {' or '.join(options.only)}")
    write(pathlib.Path(options.write), entries)


if __name__ == "__main__":
    main()
