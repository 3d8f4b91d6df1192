"""Compiles StableHLO with the compiler of a TPU, on a machine without one.

    python -m benchmarks.tpu.compiler MODULE KEY CHIP

MODULE has a function `lower` that makes StableHLO of what KEY names, CHIP is
one of `CHIPS`. The last line is the result as JSON, for
`benchmarks.tpu.compile`, which gives each compilation a process of its own.

libtpu holds the compiler and describes the chips; jax hands it a program. The
text becomes a portable artifact, which takes the place of the module of a
stub that `jax.export` made for the same arguments. The last step is not
documented: the versions are pinned in requirements/tpu-compile.txt.
"""

import dataclasses
import importlib
import json
import math
import os
import re
import sys
import time

# What training on a TPU runs on.
os.environ.setdefault("TF_USE_LEGACY_KERAS", "1")
os.environ.setdefault("TPU_SKIP_MDS_QUERY", "1")  # no cloud machine is asked
os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("TPU_STDERR_LOG_LEVEL", "3")
os.environ.setdefault("TPU_MIN_LOG_LEVEL", "3")
# Otherwise two processes at once fail on the library's lock file.
os.environ.setdefault("ALLOW_MULTIPLE_LIBTPU_LOAD", "true")

import jax
import jax.numpy as jnp
import numpy as np
from jax import export
from jax.experimental import topologies
from jax.extend.mlir.dialects import stablehlo

from benchmarks.tpu.outcome import refusal
from benchmarks.tpu.programs import CHIPS

_CYCLES = r'"estimated_cycles":"(\d+)"'
_DTYPES = {
    "i1": "bool",
    "i32": "int32",
    "i64": "int64",
    "ui32": "uint32",
    "ui64": "uint64",
    "f32": "float32",
    "bf16": "bfloat16",
}


def compile_for(text, topology):
    """Compiles StableHLO for one core: bytes, operations, estimated time."""
    jax.config.update("jax_enable_x64", True)  # counters of steps are int64
    chips = topologies.get_topology_desc(platform="tpu", topology_name=topology)
    core = jax.sharding.SingleDeviceSharding(chips.devices[0])
    inputs, outputs = signature(text)
    stub = export.export(
        jax.jit(lambda *_: tuple(jnp.zeros(x.shape, x.dtype) for x in outputs)),
        platforms=["tpu"],
    )(*inputs)
    exported = dataclasses.replace(
        stub,
        fun_name="step",
        mlir_module_serialized=artifact(text),
        module_kept_var_idx=tuple(range(len(inputs))),
    )
    arguments = [
        jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=core) for x in inputs
    ]
    donated = jax.jit(exported.call, donate_argnums=_aliases(text))
    compiled = donated.lower(*arguments).compile()
    listing = compiled.as_text()
    listing = listing[listing.index("\nENTRY ") :]
    memory, cost = compiled.memory_analysis(), compiled.cost_analysis()
    cost = cost[0] if isinstance(cost, (list, tuple)) else cost
    return {
        "arguments": memory.argument_size_in_bytes,
        "outputs": memory.output_size_in_bytes,
        "aliases": memory.alias_size_in_bytes,
        "temporaries": memory.temp_size_in_bytes,
        "code_bytes": memory.generated_code_size_in_bytes,
        "flops": cost["flops"],
        "bytes_accessed": cost["bytes accessed"],
        "optimal_seconds": cost.get("optimal_seconds"),
        # The sum of what the listing expects of each instruction.
        "cycles": sum(map(int, re.findall(_CYCLES, listing))),
    }


def artifact(text, version=None):
    """The portable artifact of a text, of the current version or another."""
    # The one operation of another dialect; it stands for an identity.
    text = re.sub(
        r"= mhlo\.copy (%\w+)(?: \{[^\n]*?\})? : (tensor<[^>]*>)",
        r"= stablehlo.reshape \1 : (\2) -> \2",
        text,
    )
    text = re.sub(r'dense<"0x(\w+)">(?= : tensor<((?:\d+x)+)i1>)', _bytes, text)
    version = version or stablehlo.get_current_version()
    return stablehlo.serialize_portable_artifact_str(text, version)


def _bytes(found):
    """Booleans, which TensorFlow packs eight to a byte, as a byte each."""
    packed, sizes = found.groups()
    count = math.prod(int(size) for size in sizes.split("x") if size)
    packed = np.frombuffer(bytes.fromhex(packed), np.uint8)
    values = np.unpackbits(packed, count=count, bitorder="little")
    return f'dense<"0x{values.tobytes().hex().upper()}">'


def signature(text):
    """The arguments and the results of the function `main`."""
    lines = (x for x in text.splitlines() if "func.func @main(" in x)
    head = re.sub(r'loc\("[^"]*"\)|loc\(#?\w+\)', "", next(lines))
    left, _, right = head.partition("->")
    return _types(left), _types(right)


def _types(text):
    found = re.findall(r"tensor<((?:\d+x)*)([a-z]+\d+)>", text)
    if len(found) != text.count("tensor<"):
        raise ValueError(f"A shape is not static, or a type unknown: {text}")
    return [
        jax.ShapeDtypeStruct(
            tuple(int(size) for size in sizes.split("x") if size),
            _DTYPES[dtype],
        )
        for sizes, dtype in found
    ]


def _aliases(text):
    """The arguments whose memory the results take: the variables."""
    alias = r"mhlo\.input_output_alias = \[(.*?)\](?=, mhlo|\})"
    listed = re.search(alias, text, re.S)
    numbers = re.findall(
        r"parameter_number = (\d+)", listed[1] if listed else ""
    )
    return tuple(sorted(map(int, set(numbers))))


def main(module, key, chip):
    start = time.perf_counter()
    text, facts = importlib.import_module(module).lower(key)
    lowered = time.perf_counter()
    try:
        result = {"status": "ok", **compile_for(text, CHIPS[chip].topology)}
    except jax.errors.JaxRuntimeError as error:
        result = refusal(str(error))
    facts["lowering_seconds"] = round(lowered - start, 1)
    facts["compile_seconds"] = round(time.perf_counter() - lowered, 1)
    print(json.dumps({**facts, **result}))


if __name__ == "__main__":
    main(*sys.argv[1:])
