"""Compiles training steps with the compiler of a TPU; needs no TPU.

    make tpu-compile                   what is missing, hours
    make test-tpu                      two programs; fails if they do
    python -m benchmarks.tpu.compile --chips v3 --only "LambdaResNet50, 128"

Each program is compiled in a process of its own, one at a time, and its
result recorded at once: a run that was stopped goes on where it was.
"""

import collections
import itertools
import json
import os
import signal
import subprocess
import sys

from benchmarks import records
from benchmarks.tpu import outcome
from benchmarks.tpu.programs import CHIPS
from benchmarks.tpu.programs import PROGRAMS

CHILD = (sys.executable, "-m", "benchmarks.tpu.child")
LOWERING = "benchmarks.tpu.lowering"
CHECKED = ("LambdaResNet50, 128 px, batch 32", "auto, d=64, 56 px, batch 32")
# How far the compiler's count may be from that of `lambdanet_tf.analysis`,
# which knows products alone, and takes each to have two gradients: those with
# the constant matrices of a transform have one.
TOLERANCE = 0.08


def compile_in_child(module, key, chip, timeout):
    """The result of one compilation, as a dict with a `status`."""
    child = subprocess.Popen(
        [*CHILD, module, key, chip],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        output, errors = child.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        return {"status": "timed out", "limit_seconds": timeout}
    finally:
        if child.returncode is None:
            os.killpg(child.pid, signal.SIGKILL)
            child.communicate()
    if child.returncode:
        lines = errors.strip().splitlines() or ["no message"]
        return {
            "status": "failed",
            "exit_code": child.returncode,
            "message": lines[-1][:600],
        }
    return json.loads(output.splitlines()[-1])


def problems(chip, result):
    """What is wrong with a result, as a list of texts."""
    if result["status"] != "ok":
        return [result["status"] + ": " + result.get("message", "")]
    found = []
    if (needed := outcome.memory(result)) > CHIPS[chip].hbm:
        found.append(f"needs {needed} bytes of {CHIPS[chip].hbm}")
    for name in ("without_kernel", "double"):
        if result[name]:
            found.append(f"{name}: {', '.join(result[name])}")
    ratio = result["flops"] / result["counted_flops"]
    if abs(ratio - 1) > TOLERANCE:
        found.append(f"{ratio:.2f} times the flops that the analysis counts")
    return found


def check(chips, timeout):
    """Compiles the programs of `make test-tpu`; returns the exit code."""
    counts = collections.Counter()
    for key in CHECKED:
        for chip in chips:
            result = compile_in_child(LOWERING, key, chip, timeout)
            found = problems(chip, result)
            counts["failed" if found else "passed"] += 1
            summary = outcome.summary(chip, result)
            print(f"{key} on {chip}: {summary}", flush=True)
            for text in found:
                print(f"  FAILED: {text}")
    print(f"{counts['passed']} passed, {counts['failed']} failed")
    return 1 if counts["failed"] or not counts["passed"] else 0


def compile_all(topic, module, programs, options):
    """Compiles what has no record of the present code; returns what failed.

    Args:
        topic: of the records.
        module: name of the one whose `lower` makes StableHLO of a key.
        programs: dict from key to (case, further facts) of its records.
        options: of `chips_parser`.
    """
    recorder, failed = records.Recorder(topic, options), []
    jobs = itertools.product(options.chips, programs.items())
    for chip, (key, (case, facts)) in jobs:
        case, name = {**case, "chip": chip}, f"{key} on {chip}"
        known, limit = recorder.known(case) or {}, options.timeout
        # With more time it may be compiled; without that, all is said.
        is_known = limit <= known.get("limit_seconds", limit * bool(known))
        if is_known or options.only not in key:
            continue
        result = compile_in_child(module, key, chip, limit)
        print(f"{name}: {outcome.summary(chip, result)}", flush=True)
        # An error of the process is none of the program's.
        if result["status"] == "failed":
            failed.append(name)
        else:
            recorder.append(case, **facts, **result)
    return failed


def chips_parser(documentation, chips=("v3", "v5e"), timeout=900):
    """The command line of scripts that compile; seconds of a compilation."""
    return records.parser(documentation, chips=chips, timeout=timeout)


def main(arguments=None):
    parser = chips_parser(__doc__)
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args(arguments)
    if options.check:
        return check(options.chips, options.timeout)
    if not any(options.only in key for key in PROGRAMS):
        parser.error(f"no program's name has {options.only!r}")
    programs = {
        key: (program.case_of_all, {"changes": dict(program.changes)})
        for key, program in PROGRAMS.items()
    }
    failed = compile_all("tpu", LOWERING, programs, options)
    for name in failed:
        print(f"FAILED: {name}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
