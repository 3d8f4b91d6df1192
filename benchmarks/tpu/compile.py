"""Compiles training steps with the compiler of a TPU; needs no TPU.

    make tpu-compile                   what is missing, hours
    make test-tpu                      two programs; fails if they do
    python -m benchmarks.tpu.compile --chips v3 --only "LambdaResNet50, 128"

Each program is compiled in a process of its own, one at a time, and its
result recorded at once: a run that was stopped goes on where it was.
"""

import itertools
import json
import subprocess
import sys

from benchmarks import records
from benchmarks.tpu import outcome
from benchmarks.tpu.programs import CHIPS
from benchmarks.tpu.programs import PROGRAMS

CHILD = (sys.executable, "-m", "benchmarks.tpu.compiler")
LOWERING = "benchmarks.tpu.lowering"
CHECKED = ("LambdaResNet50, 128 px, batch 32", "auto, d=64, 56 px, batch 32")
# How far the compiler's count may be from that of `lambdanet_tf.analysis`,
# which knows products alone, and takes each to have two gradients: those with
# the constant matrices of a transform have one.
TOLERANCE = 0.08


def compile_in_child(module, key, chip, timeout):
    """The result of one compilation, as a dict with a `status`."""
    command = [*CHILD, module, key, chip]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=timeout
        )
    except subprocess.TimeoutExpired:
        return {"status": "timed out", "limit_seconds": timeout}
    if done.returncode == 0:
        return json.loads(done.stdout.splitlines()[-1])
    message = (done.stderr.strip().splitlines() or ["no message"])[-1][:600]
    code = done.returncode
    return {"status": "failed", "exit_code": code, "message": message}


def problems(chip, result):
    """What is wrong with a result, as a list of texts."""
    if result["status"] != "ok":
        return [result["status"] + ": " + result.get("message", "")]
    found = []
    if (needed := outcome.memory(result)) > CHIPS[chip].hbm:
        found.append(f"needs {needed} bytes of {CHIPS[chip].hbm}")
    if faults := outcome.faults(result):
        found.append(faults)
    ratio = result["flops"] / result["counted_flops"]
    if abs(ratio - 1) > TOLERANCE:
        found.append(f"{ratio:.2f} times the flops that the analysis counts")
    return found


def check(chips, timeout):
    """Compiles the programs of `make test-tpu`; returns the exit code."""
    passed = []
    for key, chip in itertools.product(CHECKED, chips):
        result = compile_in_child(LOWERING, key, chip, timeout)
        print(f"{key} on {chip}: {outcome.summary(chip, result)}", flush=True)
        found = problems(chip, result)
        for text in found:
            print(f"  FAILED: {text}")
        passed.append(not found)
    print(f"{passed.count(True)} passed, {passed.count(False)} failed")
    return int(not all(passed))


def compile_all(topic, module, programs, options):
    """Compiles what has no record of the present code; returns what failed.

    Args:
        topic: of the records.
        module: name of the one whose `lower` makes StableHLO of a key.
        programs: dict from key to (case, further facts) of its records.
        options: of the command line: `chips`, and `timeout` in seconds of each.
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


def main(arguments=None):
    parser = records.parser(
        __doc__, chips=("v3", "v5e"), timeout=900, check=False
    )
    options = parser.parse_args(arguments)
    if options.check:
        return check(options.chips, options.timeout)
    if not any(options.only in key for key in PROGRAMS):
        parser.error(f"no program's name has {options.only!r}")
    programs = {
        key: (program.case(), {"changes": dict(program.changes)})
        for key, program in PROGRAMS.items()
    }
    failed = compile_all("tpu", LOWERING, programs, options)
    for name in failed:
        print(f"FAILED: {name}")
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
