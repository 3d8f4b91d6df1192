"""Compiles training steps with the compiler of a TPU; needs no TPU.

    make tpu-compile                   what is missing, hours
    make test-tpu                      two programs; fails if they do
    python -m benchmarks.tpu.compile --chips v3 --only "LambdaResNet50, 128"

Each program is compiled in a process of its own, one at a time, and its
result recorded at once: a run that was stopped goes on where it was.
"""

import itertools
import subprocess
import sys

from benchmarks import records
from benchmarks import timing
from benchmarks.tpu import outcome
from benchmarks.tpu.programs import CHIPS
from benchmarks.tpu.programs import PROGRAMS

LOWERING = "benchmarks.tpu.lowering"
CHECKED = ("LambdaResNet50, 128 px, batch 32", "auto, d=64, 56 px, batch 32")
# How far the compiler's count may be from that of `lambdanet_tf.analysis`,
# which knows products alone, and takes each to have two gradients: those with
# the constant matrices of a transform have one.
TOLERANCE = 0.08


def compile_in_child(module, key, chip, timeout):
    """The result of one compilation, as a dict with a `status`."""
    place = module, key, chip
    child = "benchmarks.tpu.compiler:compiled"
    try:
        return timing.in_child(child, *place, timeout=timeout)
    except subprocess.TimeoutExpired:
        return {"status": "timed out", "limit_seconds": timeout}
    except subprocess.CalledProcessError:
        return {"status": "failed", "message": "see above"}


def problems(chip, result):
    """What is wrong with a result, as a list of texts."""
    if result["status"] != "ok":
        return [outcome.shortfall(result)]
    found = list(filter(None, [outcome.faults(result)]))
    if outcome.memory(result) > CHIPS[chip].hbm:
        found.append("does not fit")
    ratio = result["flops"] / result["counted_flops"]
    if abs(ratio - 1) > TOLERANCE:
        found.append(f"{ratio:.2f} times the flops that the analysis counts")
    return found


def check(chips, timeout):
    """Compiles the programs of `make test-tpu`; returns the exit code."""
    failed = 0
    for key, chip in itertools.product(CHECKED, chips):
        found = problems(chip, compile_in_child(LOWERING, key, chip, timeout))
        print(f"{key} on {chip}: {'; '.join(found) or 'passed'}", flush=True)
        failed |= bool(found)
    return failed


def compile_all(recorder, options, module, programs):
    """Compiles what has no record; returns the exit code."""
    failed, limit = 0, options.timeout
    jobs = itertools.product(options.chips, programs.items())
    for chip, (key, (case, facts)) in jobs:
        case = {**case, "chip": chip}
        known = recorder.known(case)
        # With more time it may be compiled; without that, all is said.
        is_known = known and limit <= known.get("limit_seconds", limit)
        if is_known or options.only not in key:
            continue
        result = compile_in_child(module, key, chip, limit)
        # An error of the process is none of the program's.
        if result["status"] == "failed":
            failed = 1
            print(f"FAILED: {key} on {chip}: {result['message']}", flush=True)
        else:
            recorder.append(case, **facts, **result)
    return failed


def main(arguments=None):
    chips = ("v3",)
    recorder, options = records.start(
        "tpu", __doc__, arguments, chips=chips, timeout=900, check=False
    )
    if options.check:
        return check(options.chips, options.timeout)
    programs = {
        key: (program.case(), {"changes": dict(program.changes)})
        for key, program in PROGRAMS.items()
    }
    return compile_all(recorder, options, LOWERING, programs)


if __name__ == "__main__":
    sys.exit(main())
