"""Records of measurements: `results/TOPIC.jsonl`, appended, never rewritten.

`results/README.md` says what a record has, and when it is stale.
"""

import argparse
import contextlib
import dataclasses
import datetime
import functools
import importlib.metadata
import itertools
import json
import os
import pathlib
import platform
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).parents[1]
RESULTS = ROOT / "results"
PACKAGES = (
    *("tensorflow", "keras", "tf_keras", "torch", "timm", "lambda-networks"),
    *("onnxruntime", "openvino", "jax", "libtpu"),
)
_PRINTED = 300  # letters of what was measured


@dataclasses.dataclass(frozen=True)
class Topic:
    """A row of `results/README.md`; its files as git's pathspecs."""

    name: str
    commands: tuple[str, ...]
    targets: tuple[str, ...]
    files: tuple[str, ...]


def topics():
    """Returns the rows of `results/README.md`, a dict from name to `Topic`."""
    found = {}
    for line in (RESULTS / "README.md").read_text("utf-8").splitlines():
        cells = [tuple(re.findall("`([^`]+)`", x)) for x in line.split("|")]
        if len(cells) == 6 and cells[1]:
            found[cells[1][0]] = Topic(*cells[1], *cells[2:-1])
    return found


def read(topic, folder=RESULTS):
    path = pathlib.Path(folder, f"{topic}.jsonl")
    lines = path.read_text("utf-8").splitlines() if path.exists() else ()
    return [json.loads(line) for line in lines]


def latest(topic, folder=RESULTS):
    """Returns the last record of each case, in the order of the first ones."""
    return list({key(x["case"]): x for x in read(topic, folder)}.values())


def key(case):
    """Returns a text that is equal for equal cases."""
    return json.dumps(case, sort_keys=True)


def cases(**values):
    """Returns all combinations of values; the last one changes fastest."""
    rows = itertools.product(*values.values())
    return [dict(zip(values, row, strict=True)) for row in rows]


class Recorder:
    """Appends records of a topic, with the options of a `script`."""

    def __init__(self, topic, options):
        self._topic, self._options = topic, options

    def append(self, case, **measured):
        """Writes and prints a record of what was measured; returns it."""
        # Nine digits are kept of a number.
        measured = json.loads(
            json.dumps(measured), parse_float=lambda x: float(f"{float(x):.9g}")
        )
        record = {"case": case, **measured, **origin()}
        path = pathlib.Path(self._options.results, f"{self._topic}.jsonl")
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(record) + "\n")
        print(f"{_text(case)}: {str(measured)[:_PRINTED]}", flush=True)
        return record

    def fill(self, cases, measure, phases=()):
        """Records what `--only` names and has no record, or one a phase."""
        for case in cases:
            last = {**case, "phase": phases[-1]} if phases else case
            if not self.wants(last):
                continue
            found = measure(case)
            for phase in phases:
                self.append({**case, "phase": phase}, **found[phase])
            if not phases:
                self.append(case, **found)

    def get(self, case, measure):
        return self.known(case) or self.append(case, **measure(case))

    def wants(self, case):
        """Returns whether `--only` names a case, and it has no record."""
        return self._options.only in _text(case) and not self.known(case)

    def known(self, case):
        """Returns the record of a case of the present code, or None."""
        rows = read(self._topic, self._options.results)
        record = {key(x["case"]): x for x in rows}.get(key(case))
        if self._options.again or record is None:
            return None
        if self._options.keep or record["commit"] == origin()["commit"]:
            return record
        files = topics()[self._topic].files
        return None if is_stale(record["commit"], files) else record


def script(topic, **defaults):
    """Makes a function of a `Recorder` and options what a script does.

    It is called at once where its file is run; else it takes a list of the
    command line's words. An option has the type of its default: False for a
    flag, a tuple for several values.
    """

    def of_words(function):
        def main(words=None):
            options = _parser(function.__module__, defaults).parse_args(words)
            return function(Recorder(topic, options), options)

        if function.__module__ == "__main__":
            sys.exit(main())
        return main

    return of_words


def _parser(module, defaults):
    parser = argparse.ArgumentParser(
        description=sys.modules[module].__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--only", default="", help="cases that contain this")
    parser.add_argument("--again", action="store_true", help="also known cases")
    parser.add_argument("--keep", action="store_true", help="no stale cases")
    parser.add_argument("--results", default=RESULTS, help="folder of records")
    for name, default in defaults.items():
        how = {"default": default, "type": type(default)}
        if default is False:
            how = {"action": "store_true"}
        elif isinstance(default, tuple):
            how |= {"type": type(default[0]), "nargs": "+"}
        parser.add_argument(f"--{name.replace('_', '-')}", **how)
    return parser


@functools.cache
def origin():
    """Returns where a record comes from that is written now, as a dict."""
    about = pathlib.Path("/proc/cpuinfo").read_text("utf-8")
    processor = re.search(r"model name\s*: (.*)", about)
    versions = {"python": platform.python_version()}
    unused = "keras" if os.environ.get("TF_USE_LEGACY_KERAS") else "tf_keras"
    for name in PACKAGES:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            versions[name] = importlib.metadata.version(name)
    versions.pop(unused, None)
    try:
        commit = git("rev-parse", "--short=10", "HEAD")
        clean = not git("status", "--porcelain", "--", ".", ":!results")
    except (OSError, subprocess.CalledProcessError):
        commit, clean = None, False
    today = datetime.datetime.now(datetime.timezone.utc).date()
    return {
        "processor": processor[1] if processor else platform.machine(),
        "threads": len(os.sched_getaffinity(0)),
        "onednn": os.environ["TF_ENABLE_ONEDNN_OPTS"] != "0",
        "versions": versions,
        "date": today.isoformat(),
        "commit": commit,
        "clean": clean,
    }


def git(*arguments):
    """Returns what a command of git prints in this checkout."""
    command = ["git", "-C", str(ROOT), *arguments]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return done.stdout.strip()


@functools.cache
def is_stale(commit, files):
    """Returns whether commits since one changed files, or it is unknown."""
    try:
        since = f"{commit.rstrip('+')}.."  # an old one may have this mark
        return bool(git("log", "-1", "--format=%h", since, "--", *files))
    except (AttributeError, OSError, subprocess.CalledProcessError):
        return True


def _text(case):
    return ", ".join(map(str, case.values()))
