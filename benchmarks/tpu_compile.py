"""Compiles training steps with the compiler of a TPU; needs no TPU.

    make tpu-compile                   what is missing, into docs/
    make test-tpu                      two programs; fails if they do
    python -m benchmarks.tpu_compile --chips v4 --only LambdaResNet50

Each program is compiled in a process of its own, one at a time, and its
result stored at once: a run that was stopped goes on where it was.
"""

import argparse
import collections
import json
import os
import pathlib
import signal
import subprocess
import sys

from benchmarks import report
from benchmarks import tpu_report
from benchmarks.tpu_programs import CHIPS
from benchmarks.tpu_programs import PROGRAMS

DOCUMENT = "tpu_compile.md"
CHILD = (sys.executable, "-m", "benchmarks.tpu_child")
CHECKED = ("LambdaResNet50, 128 px, batch 32", "auto, d=64, 56 px, batch 32")
# How far the compiler's count may be from that of `lambdanet_tf.analysis`,
# which knows products alone, and takes each to have two gradients: those with
# the constant matrices of a transform have one.
TOLERANCE = 0.08
FINAL = ("ok", "out of memory")


def compile_in_child(key, chip, timeout, command=CHILD):
    """The result of one compilation, as a dict with a `status`."""
    child = subprocess.Popen(
        [*command, key, chip],
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
    if (needed := tpu_report.memory(result)) > CHIPS[chip].hbm:
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
            result = compile_in_child(key, chip, timeout)
            found = problems(chip, result)
            counts["failed" if found else "passed"] += 1
            summary = tpu_report.summary(chip, result)
            print(f"{key} on {chip}: {summary}", flush=True)
            for text in found:
                print(f"  FAILED: {text}")
    print(f"{counts['passed']} passed, {counts['failed']} failed")
    return 1 if counts["failed"] or not counts["passed"] else 0


def is_done(result, timeout):
    """Whether a stored result needs no other attempt."""
    if result["status"] == "timed out":
        return result["limit_seconds"] >= timeout
    return result["status"] in FINAL


def compile_all(keys, chips, timeout, path, command=CHILD):
    """Compiles what the file lacks; returns all results.

    Args:
        keys: of the programs.
        chips: of `CHIPS`.
        timeout: seconds of one compilation.
        path: the file, JSON; stored after each program.
        command: of a process that compiles the program named by its last two
            arguments, a key and a chip, and prints the result.
    """
    results = report.stored(path, {})
    jobs = [(key, chip) for chip in chips for key in keys]
    for number, (key, chip) in enumerate(jobs, start=1):
        stored = results.get(f"{key} on {chip}")
        if stored and is_done(stored, timeout):
            continue
        place = f"[{number}/{len(jobs)}]"
        print(f"{place} {key} on {chip} ... ", end="", flush=True)
        result = compile_in_child(key, chip, timeout, command)
        print(tpu_report.summary(chip, result), flush=True)
        results[f"{key} on {chip}"] = result
        scratch = path.with_suffix(".partial")
        scratch.write_text(json.dumps(results, indent=1, sort_keys=True) + "\n")
        scratch.replace(path)
    return results


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument(
        "--chips", nargs="+", choices=CHIPS, default=["v3", "v5e"]
    )
    parser.add_argument(
        "--only", nargs="+", default=[""], help="parts of the programs' names"
    )
    parser.add_argument(
        "--timeout", type=int, default=900, help="seconds of one compilation"
    )
    parser.add_argument("--write", default="docs", help="folder of the results")
    parser.add_argument(
        "--check", action="store_true", help="compile two, fail if they do"
    )
    options = parser.parse_args(arguments)
    if options.check:
        return check(options.chips, options.timeout)
    keys = [k for k in PROGRAMS if any(part in k for part in options.only)]
    if not keys:
        parser.error(f"no program's name has {' or '.join(options.only)}")
    folder = pathlib.Path(options.write)
    if not (folder / DOCUMENT).is_file():
        parser.error(f"{folder} has no {DOCUMENT} to write the tables into")
    results = compile_all(
        keys, options.chips, options.timeout, folder / "tpu_compile.json"
    )
    for section, text in tpu_report.sections(results).items():
        report.insert(folder, section, text, DOCUMENT)
    print(f"Wrote {folder / DOCUMENT}")
    failed = [name for name, r in results.items() if r["status"] == "failed"]
    for name in failed:
        print(f"FAILED: {name}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
