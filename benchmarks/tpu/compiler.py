"""Compiles StableHLO with the compiler of a TPU, on a machine without one.

libtpu holds the compiler, jax hands it a program. That is not documented: the
versions are pinned in requirements/tpu-compile.txt.
"""

import dataclasses
import math
import os
import re
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
import jax.export
import jax.numpy as jnp
import numpy as np
from jax.experimental import topologies
from jax.extend.mlir.dialects import stablehlo

from benchmarks.tpu.lowering import lower
from benchmarks.tpu.programs import CHIPS
from benchmarks.tpu.programs import refusal

_ALIASES = r"mhlo\.input_output_alias = \[(.*?)\](?=, mhlo|\})"
_DTYPES = {"i": "int", "ui": "uint", "f": "float", "bf": "bfloat"}


def compile_for(text, topology):
    """Compiles StableHLO for one core: bytes, operations, estimated time."""
    jax.config.update("jax_enable_x64", True)  # counters of steps are int64
    chips = topologies.get_topology_desc(platform="tpu", topology_name=topology)
    core = jax.sharding.SingleDeviceSharding(chips.devices[0])
    inputs, outputs = signature(text)
    step = exported(artifact(text), inputs, outputs)
    arguments = [
        jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=core) for x in inputs
    ]
    donated = jax.jit(step.call, donate_argnums=_aliases(text))
    compiled = donated.lower(*arguments).compile()
    memory, cost = compiled.memory_analysis(), compiled.cost_analysis()
    return {
        "arguments": memory.argument_size_in_bytes,
        "outputs": memory.output_size_in_bytes,
        "aliases": memory.alias_size_in_bytes,
        "temporaries": memory.temp_size_in_bytes,
        "code_bytes": memory.generated_code_size_in_bytes,
        "flops": cost["flops"],
        "bytes_accessed": cost["bytes accessed"],
        "optimal_seconds": cost["optimal_seconds"],
    }


def exported(module, inputs, outputs):
    """Returns a program that TensorFlow wrote, as `jax.export` has it."""
    stub = jax.export.export(
        jax.jit(lambda *_: tuple(jnp.zeros(x.shape, x.dtype) for x in outputs)),
        platforms=["tpu"],
    )(*inputs)
    return dataclasses.replace(
        stub,
        fun_name="step",
        mlir_module_serialized=module,
        module_kept_var_idx=tuple(range(len(inputs))),
    )


def artifact(text):
    # The one operation of another dialect; it stands for an identity.
    text = re.sub(
        r"= mhlo\.copy (%\w+)(?: \{[^\n]*?\})? : (tensor<[^>]*>)",
        r"= stablehlo.reshape \1 : (\2) -> \2",
        text,
    )
    text = re.sub(r'dense<"0x(\w+)">(?= : tensor<((?:\d+x)+)i1>)', _bytes, text)
    version = stablehlo.get_current_version()
    return stablehlo.serialize_portable_artifact_str(text, version)


def _bytes(found):
    """Booleans, which TensorFlow packs eight to a byte, as a byte each."""
    packed = np.frombuffer(bytes.fromhex(found[1]), np.uint8)
    count = math.prod(_shape(found[2]))
    values = np.unpackbits(packed, count=count, bitorder="little")
    return f'dense<"0x{values.tobytes().hex().upper()}">'


def _shape(sizes):
    return [int(size) for size in re.findall(r"\d+", sizes)]


def signature(text):
    """The arguments and the results of the function `main`."""
    head = re.search(r"func\.func @main\(.*", text)[0]
    head = re.sub(r'loc\("[^"]*"\)|loc\(#?\w+\)', "", head)
    left, _, right = head.partition("->")
    return _types(left), _types(right)


def _types(text):
    found = re.findall(r"tensor<((?:\d+x)*)([a-z]+)(\d+)>", text)
    if len(found) != text.count("tensor<"):
        raise ValueError(f"A shape is not static, or a type unknown: {text}")
    return [
        jax.ShapeDtypeStruct(
            _shape(sizes), "bool" if bits == "1" else _DTYPES[kind] + bits
        )
        for sizes, kind, bits in found
    ]


def _aliases(text):
    """The arguments whose memory the results take: the variables."""
    listed = re.search(_ALIASES, text, re.S)
    listed = listed[1] if listed else ""
    numbers = re.findall(r"parameter_number = (\d+)", listed)
    return tuple(sorted({*map(int, numbers)}))


def compiled(key, chip):
    text, facts = lower(key)
    start = time.perf_counter()
    try:
        result = {"status": "ok", **compile_for(text, CHIPS[chip].topology)}
    except jax.errors.JaxRuntimeError as error:
        result = refusal(str(error))
    seconds = round(time.perf_counter() - start, 1)
    return {**facts, "compile_seconds": seconds, **result}
