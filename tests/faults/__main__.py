"""Runs the tests on every fault, and lists what has caught it."""

import argparse
import contextlib
import importlib
import json
import os
import pathlib
import shutil
import sys
import tempfile
import traceback

import pytest
import tensorflow as tf

from tests.faults.catalogue import FAULTS
from tests.faults.catalogue import PAGE
from tests.faults.catalogue import ROOMS

ROOT = pathlib.Path(__file__).parents[2]
NOT_COPIED = (".*", "__pycache__", "build", "dist", "runs", "exported")
HEAD = "| Package | Fault | Caught by |\n|---|---|---|\n"


def first_failure(folder, tests):
    """Runs tests of the copy in a child; the first that fails, or ""."""
    shutil.rmtree(folder / ".pytest_cache", ignore_errors=True)
    child = os.fork()
    if child == 0:
        _run_tests(folder, tests)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if code not in (0, 1):  # neither all passed nor a test failed
        raise RuntimeError((folder / "output").read_text())
    if code == 0:
        return ""
    failed = folder / ".pytest_cache/v/cache/lastfailed"
    return next(iter(json.loads(failed.read_text("utf-8"))))


def _run_tests(folder, tests):
    """What the child does; it does not return."""
    with open(folder / "output", "w", encoding="utf-8") as output:
        os.dup2(output.fileno(), 1)
        os.dup2(output.fileno(), 2)
    os.chdir(folder)
    os.environ["PYTHONPATH"] = str(folder)
    sys.argv = ["pytest"]
    sys.path[:] = [str(folder), *(p for p in sys.path if p != str(ROOT))]
    for name in [*sys.modules]:
        if name.partition(".")[0] in ("tests", "lambdanet_tf"):
            del sys.modules[name]
    code = 3
    try:
        code = int(pytest.main(["-x", "-q", *tests]))
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def caught_by(fault, folder):
    """The test that finds a fault in the copy, or ""."""
    path = fault.path_in(folder)
    text = path.read_text(encoding="utf-8")
    path.write_text(text.replace(fault.old, fault.new), encoding="utf-8")
    try:
        found = fault.tests and first_failure(folder, fault.tests)
        return found or first_failure(folder, ROOMS[fault.room][1])
    finally:
        path.write_text(text, encoding="utf-8")


def _import_what_children_share():
    """Forked from here, each child does not import it again."""
    for name in ("sklearn.datasets", "matplotlib.pyplot", "PIL.Image"):
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    return tf.keras.layers.Layer  # TensorFlow imports Keras when it is read


def main():
    """Prints a row for each fault; returns how many were not caught."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="of faults; all if none")
    parser.add_argument("--write", action="store_true", help=f"to {PAGE.name}")
    options = parser.parse_args()
    unknown = set(options.names) - {fault.name for fault in FAULTS}
    if unknown:
        parser.error(f"no such faults: {sorted(unknown)}")
    _import_what_children_share()
    rows = {}
    with tempfile.TemporaryDirectory() as folder:
        copy = pathlib.Path(folder) / "tree"
        shutil.copytree(ROOT, copy, ignore=shutil.ignore_patterns(*NOT_COPIED))
        for fault in FAULTS:
            if options.names and fault.name not in options.names:
                continue
            found = caught_by(fault, copy)
            rows[fault.name] = found
            print(f"{fault.name}: {found or 'NOT CAUGHT'}", flush=True)
    if options.write:
        PAGE.write_text(page(PAGE.read_text("utf-8"), rows), "utf-8")
    missed = sum(not found for found in rows.values())
    print(f"{len(rows) - missed} of {len(rows)} caught")
    return missed


def page(text, rows):
    """The page with new rows in the place of the old ones."""
    before, _, after = text.partition(HEAD)
    old = dict((line.split("`")[1], line) for line in after.splitlines())
    lines = [
        f"| {fault.room} | `{fault.name}` | "
        f"{f'`{rows[fault.name]}`' if rows[fault.name] else '**nothing**'} |"
        if fault.name in rows
        else old.get(fault.name)
        for fault in FAULTS
    ]
    return before + HEAD + "\n".join(filter(None, lines)) + "\n"


if __name__ == "__main__":
    sys.exit(min(main(), 1))
