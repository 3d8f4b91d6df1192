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
import statistics
import subprocess

ROOT = pathlib.Path(__file__).parents[1]
RESULTS = ROOT / "results"
PACKAGES = (
    *("tensorflow", "keras", "tf_keras", "torch", "timm", "lambda-networks"),
    *("onnxruntime", "openvino", "jax", "libtpu"),
)
_DIGITS = 9  # of a number that is kept
_PRINTED = 300  # letters of what was measured
_HELPS = {
    "seconds": "budget of a case, in seconds (%(default)s)",
    "seeds": "how many seeds (%(default)s)",
    "batch": "examples of a batch (%(default)s)",
    "size": "height and width of images (%(default)s)",
    "data": "folder of the images (%(default)s)",
    "jobs": "runs at once (%(default)s)",
    "times": "time a training step of each instead",
    "runs": "folder of runs (%(default)s); those that stopped go on",
    "steps": "updates, other than those of the study",
    "device": "of TensorFlow (%(default)s)",
    "before": "commit to compare this checkout with",
}


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
    """The records of a topic, the oldest first."""
    path = pathlib.Path(folder, f"{topic}.jsonl")
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def latest(topic, folder=RESULTS):
    """The last record of each case, in the order of the first ones."""
    return list({key(x["case"]): x for x in read(topic, folder)}.values())


def key(case):
    """A case as text that is equal for equal cases."""
    return json.dumps(case, sort_keys=True)


def cases(**values):
    """All combinations of values by field; the last one changes fastest."""
    rows = itertools.product(*values.values())
    return [dict(zip(values, row, strict=True)) for row in rows]


class Recorder:
    """Appends records of a topic, with the options of `parser`."""

    def __init__(self, topic, options):
        self._topic, self._folder = topic, pathlib.Path(options.results)
        self._again, self._only = options.again, options.only

    def append(self, case, **measured):
        """Writes a record of what was measured; returns it."""
        record = {"case": case, **_shortened(measured), **origin()}
        self._folder.mkdir(parents=True, exist_ok=True)
        path = self._folder / f"{self._topic}.jsonl"
        with path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(record) + "\n")
        return record

    def note(self, case, **measured):
        """As `append`, and prints the record."""
        record = self.append(case, **measured)
        found = {name: record[name] for name in measured}
        print(f"{_text(case)}: {_brief(found)}", flush=True)
        return record

    def fill(self, cases, measure):
        """Notes those cases that `--only` names and that have no record.

        Args:
            cases: dicts.
            measure: function from a case to a dict of what was measured.
        """
        for case in cases:
            if self._only in _text(case):
                self.get(case, measure)

    def get(self, case, measure):
        """The record of a case, which is measured if there is none."""
        return self.known(case) or self.note(case, **measure(case))

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


def parser(documentation, **options):
    """The command line of a script: what all have, and options of its own.

    Args:
        documentation: the script's own, which `--help` shows.
        **options: defaults by name, of the type of the option; False for a
            flag, a tuple for several, `...` for what must be given.
    """
    made = argparse.ArgumentParser(
        description=documentation,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.add_argument("--only", default="", help="cases that contain this")
    made.add_argument("--again", action="store_true", help="also known cases")
    made.add_argument("--results", default=RESULTS, help="folder of records")
    for name, default in options.items():
        flag, how = f"--{name.replace('_', '-')}", {"help": _HELPS.get(name)}
        if default is ...:
            flag = name
        elif default is False:
            how["action"] = "store_true"
        elif isinstance(default, tuple):
            how |= {"default": default, "type": type(default[0]), "nargs": "+"}
        elif default is not None:
            how |= {"default": default, "type": type(default)}
        made.add_argument(flag, **how)
    return made


def start(topic, documentation, arguments=None, **options):
    """The `Recorder` and the options of a script's command line."""
    chosen = parser(documentation, **options).parse_args(arguments)
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
        "processor": processor(),
        "threads": len(os.sched_getaffinity(0)),
        "versions": versions(),
        "date": today.isoformat(),
        "commit": commit,
        "clean": clean,
    }


def processor():
    """The name of the processor."""
    try:
        text = pathlib.Path("/proc/cpuinfo").read_text("utf-8")
    except OSError:
        text = ""
    found = re.search(r"model name\s*: (.*)", text)
    return found[1] if found else platform.processor() or platform.machine()


def versions():
    """Those of Python and of the packages that are compared."""
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
    return subprocess.run(
        ["git", *arguments],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    ).stdout.strip()


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


def _brief(found):
    """What was measured in a line: of seconds medians, of two their ratio."""
    times = found.get("seconds")
    if not times or isinstance(times, (int, float)):
        return str(found)[:_PRINTED]
    times = times if isinstance(times, dict) else {"": times}
    times = {name: statistics.median(taken) for name, taken in times.items()}
    text = ", ".join(f"{x} {1e3 * y:.4g} ms".strip() for x, y in times.items())
    if len(times) == 2:
        first, second = times.values()
        text += f", ratio {second / first:.3f}"
    return text


def _shortened(found):
    """As JSON gives it back, with fewer digits of each float."""
    return json.loads(
        json.dumps(found),
        parse_float=lambda text: float(f"{float(text):.{_DIGITS}g}"),
    )
