"""Compiles training steps with the compiler of a TPU; needs no TPU.

    make tpu-compile                   what is missing, hours
    make test-tpu                      a network; fails if it does

Each program is compiled in a process of its own, and recorded at once.
"""

import itertools
import subprocess

from benchmarks import records
from benchmarks import timing
from benchmarks.tpu import programs

CHECKED = ("LambdaResNet50, 128 px, batch 32",)
# How far the compiler's count may be from that of `lambdanet_tf.analysis`,
# which knows products alone, and takes each to have two gradients: those with
# the constant matrices of a transform have one.
TOLERANCE = 0.08


def compile_in_child(key, chip, timeout):
    child = "benchmarks.tpu.compiler:compiled"
    try:
        return timing.in_child(child, key, chip, timeout=timeout)
    except subprocess.TimeoutExpired:
        return {"status": "timed out", "limit_seconds": timeout}
    except subprocess.CalledProcessError:
        return {"status": "failed", "message": "see above"}


def problems(chip, result):
    if result["status"] != "ok":
        return [programs.shortfall(result)]
    found = [*programs.faults(result)]
    if programs.memory(result) > programs.CHIPS[chip].hbm:
        found.append("does not fit")
    ratio = result["flops"] / result["counted_flops"]
    if abs(ratio - 1) > TOLERANCE:
        found.append(f"{ratio:.2f} times the flops that the analysis counts")
    return found


@records.script("tpu", chips=("v3",), timeout=900, check=False)
def main(recorder, options):
    failed = []
    keys = CHECKED if options.check else programs.PROGRAMS
    for chip, key in itertools.product(options.chips, keys):
        case = programs.PROGRAMS[key].case(chip=chip)
        if options.only not in key:
            continue
        if not options.check and recorder.known(case):
            continue
        result = compile_in_child(key, chip, options.timeout)
        # An error of the process is none of the program's.
        if result["status"] != "failed" and not options.check:
            recorder.append(case, **result)
            continue
        found = problems(chip, result)
        print(f"{key} on {chip}: {'; '.join(found) or 'passed'}", flush=True)
        failed += found
    return int(bool(failed))
