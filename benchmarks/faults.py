"""Tests the tests: does one fail where a fault is put into the code?

    python -m benchmarks.faults                    those without a verdict
    python -m benchmarks.faults --only ops/ --again

`faults.toml` has faults: a file, a text that stands once in it, and what comes
in its place; and the tests of each folder. They run in copies of what git
tracks, two at once, the quick ones first. A fault is caught by the first that
fails; without one it has survived.
"""

import collections
import concurrent.futures
import contextlib
import os
import pathlib
import queue
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import tomllib

from benchmarks import records

FILE = pathlib.Path(__file__).with_suffix(".toml")
PYTEST = (sys.executable, "-m", "pytest", "-xq", "-p", "no:cacheprovider", "-m")
# By pytest's exit code: tests failed, their files did; passed; none were there.
VERDICTS = {1: "caught", 2: "caught", 0: "survived", 5: "survived"}


def copied(folder):
    """Returns a folder with a copy of all files that git tracks."""
    for name in records.git("ls-files").splitlines():
        if (records.ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(records.ROOT / name, folder / name)
    return folder


def tested(tree, tests, marks, limit):
    """Returns the verdict of tests in so many seconds, and what failed."""
    # A fault may be as long as what it replaces: no cache of compiled code.
    variables = {"PYTHONPATH": str(tree), "PYTHONDONTWRITEBYTECODE": "1"}
    variables |= dict(word.split("=") for word in tests if "=" in word)
    with subprocess.Popen(
        [*PYTEST, marks, *(word for word in tests if "=" not in word)],
        cwd=tree,
        env=os.environ | variables,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    ) as child:
        try:
            output, _ = child.communicate(timeout=limit)
        except subprocess.TimeoutExpired:
            return "timed out", ""
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)  # what tests left, too
    failed = re.search(r"^(?:FAILED|ERROR) (\S+)", output, re.MULTILINE)
    verdict = VERDICTS.get(child.returncode, "failed")
    return verdict, failed[1] if failed else ""


def judged(tree, fault, tests, limit):
    """Returns what is recorded of a fault, which is put into a tree."""
    path, begin = tree / fault["file"], time.monotonic()
    text = path.read_text("utf-8")
    path.write_text(text.replace(fault["old"], fault["new"]), "utf-8")
    for marks in ("not slow", "slow"):
        verdict, by = tested(tree, tests, marks, limit)
        if verdict != "survived":
            break
    path.write_text(text, "utf-8")
    return {"verdict": verdict, "by": by, "seconds": time.monotonic() - begin}


@records.script("faults", limit=600, at_once=2)
def main(recorder, options):
    table, trees = tomllib.loads(FILE.read_text("utf-8")), queue.SimpleQueue()

    def judge(fault):
        folders = [x for x in table["tests"] if fault["file"].startswith(x)]
        tests = table["tests"][max(folders, key=len)].split()
        tree = trees.get()
        recorder.append(fault, **judged(tree, fault, tests, options.limit))
        trees.put(tree)

    waiting = [x for x in table["fault"] if recorder.wants(x)]
    for fault in waiting:
        text = (records.ROOT / fault["file"]).read_text("utf-8")
        if text.count(fault["old"]) != 1:
            raise SystemExit(f"Must stand once in its file: {fault}")
    with tempfile.TemporaryDirectory() as scratch:
        for number in range(options.at_once):
            trees.put(copied(pathlib.Path(scratch, str(number))))
        with concurrent.futures.ThreadPoolExecutor(options.at_once) as pool:
            list(pool.map(judge, waiting))
    found = records.latest("faults", options.results)
    print(collections.Counter(row["verdict"] for row in found))
