"""Records of measurements: `results/TOPIC.jsonl`, appended, never rewritten.

A line has the case that it is about, what was measured with all repeats, and
where it comes from: processor, threads, versions, date, commit, and whether the
checkout was clean. Of the records of a case the last one counts. A record is
stale where a later commit changed a file of its topic.
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
            (name,), *others = cells[1:-1]
            found[name] = Topic(name, *others)
    return found


def read(topic, folder=RESULTS):
    """Returns the records of a topic, the oldest first."""
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
    """Appends records of a topic, with the options of `start`."""

    def __init__(self, topic, options):
        self._topic, self._folder = topic, pathlib.Path(options.results)
        self._again, self._only = options.again, options.only

    def append(self, case, **measured):
        """Writes and prints a record of what was measured; returns it."""
        # Nine digits are kept of a number.
        measured = json.loads(
            json.dumps(measured), parse_float=lambda x: float(f"{float(x):.9g}")
        )
        record = {"case": case, **measured, **origin()}
        self._folder.mkdir(parents=True, exist_ok=True)
        path = self._folder / f"{self._topic}.jsonl"
        with path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(record) + "\n")
        print(f"{_text(case)}: {str(measured)[:_PRINTED]}", flush=True)
        return record

    def fill(self, cases, measure):
        """Records those cases that `--only` names and that have no record."""
        for case in cases:
            if self._only in _text(case):
                self.get(case, measure)

    def get(self, case, measure):
        """Returns the record of a case, which is measured if there is none."""
        return self.known(case) or self.append(case, **measure(case))

    def known(self, case):
        """Returns the record of a case of the present code, or None.

        With `--again` there is none.
        """
        found = {key(x["case"]): x for x in read(self._topic, self._folder)}
        record = found.get(key(case))
        if self._again or record is None:
            return None
        if record["commit"] == origin()["commit"]:
            return record
        files = topics()[self._topic].files
        return None if is_stale(record["commit"], files) else record


def start(topic, documentation, arguments=None, **options):
    """Returns the `Recorder` and the options of a script's command line.

    Args:
        topic: str.
        documentation: the script's own, which `--help` shows.
        arguments: list of str, in the place of the command line.
        **options: defaults by name, of the type of the option; False for a
            flag, a tuple for several.
    """
    parser = argparse.ArgumentParser(
        description=documentation,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--only", default="", help="cases that contain this")
    parser.add_argument("--again", action="store_true", help="also known cases")
    parser.add_argument("--results", default=RESULTS, help="folder of records")
    for name, default in options.items():
        how = {"action": "store_true"}
        if isinstance(default, tuple):
            how = {"default": default, "type": type(default[0]), "nargs": "+"}
        elif default is None:
            how = {}
        elif default is not False:
            how = {"default": default, "type": type(default)}
        parser.add_argument(f"--{name.replace('_', '-')}", **how)
    chosen = parser.parse_args(arguments)
    return Recorder(topic, chosen), chosen


@functools.cache
def origin():
    """Returns where a record comes from that is written now, as a dict."""
    try:
        commit = git("rev-parse", "--short=10", "HEAD")
        clean = not git("status", "--porcelain", "--", ".", ":!results")
    except (OSError, subprocess.CalledProcessError):
        commit, clean = None, False
    today = datetime.datetime.now(datetime.timezone.utc).date()
    return {
        "processor": _processor(),
        "threads": len(os.sched_getaffinity(0)),
        "versions": _versions(),
        "date": today.isoformat(),
        "commit": commit,
        "clean": clean,
    }


def _processor():
    with contextlib.suppress(OSError):
        text = pathlib.Path("/proc/cpuinfo").read_text("utf-8")
        if found := re.search(r"model name\s*: (.*)", text):
            return found[1]
    return platform.processor() or platform.machine()


def _versions():
    found = {"python": platform.python_version()}
    unused = "keras" if os.environ.get("TF_USE_LEGACY_KERAS") else "tf_keras"
    for name in PACKAGES:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found[name] = importlib.metadata.version(name)
    found.pop(unused, None)
    return found


def git(*arguments):
    """Returns what a command of git prints in this checkout.

    Raises:
        OSError, subprocess.CalledProcessError: there is no git, no checkout,
            or no such commit.
    """
    command = ["git", "-C", str(ROOT), *arguments]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return done.stdout.strip()


@functools.cache
def is_stale(commit, files):
    """Returns whether files were changed by commits since a commit.

    A commit that this checkout lacks is stale, too.

    Args:
        commit: of a record; a mark "+" of an old one is ignored.
        files: tuple of paths, see `Topic`.
    """
    try:
        since = f"{commit.rstrip('+')}.."
        return bool(git("log", "-1", "--format=%h", since, "--", *files))
    except (AttributeError, OSError, subprocess.CalledProcessError):
        return True


def _text(case):
    return ", ".join(map(str, case.values()))
