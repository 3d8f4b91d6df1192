"""One compilation, in a process of its own: see `benchmarks.tpu.compile`.

    python -m benchmarks.tpu.child MODULE KEY CHIP

MODULE has a function `lower` that makes StableHLO of what KEY names, CHIP is
one of `CHIPS`. The last line is the result as JSON.
"""

import importlib
import json
import os
import sys
import time

# What training on a TPU runs on.
os.environ.setdefault("TF_USE_LEGACY_KERAS", "1")

import jax

from benchmarks.tpu.compiler import compile_for
from benchmarks.tpu.outcome import refusal
from benchmarks.tpu.programs import CHIPS


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
