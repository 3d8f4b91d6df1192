"""Records of measurements: `results/TOPIC.jsonl`, appended, never rewritten.

A line has the case that it is about, what was measured with all repeats, and
where it comes from: processor, threads, versions, commit, date, and a
fingerprint of the code that `results/README.md` names for its topic. Of the
records of a case the last one counts.
"""

import argparse
import ast
import contextlib
import dataclasses
import datetime
import functools
import hashlib
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
}


@dataclasses.dataclass(frozen=True)
class Topic:
    """A row of `results/README.md`."""

    name: str
    commands: tuple[str, ...]
    targets: tuple[str, ...]
    code: tuple[str, ...]


def topics():
    """The rows of `results/README.md`: dict from name to `Topic`."""
    found, groups = {}, {}
    for line in (RESULTS / "README.md").read_text("utf-8").splitlines():
        cells = [tuple(re.findall("`([^`]+)`", x)) for x in line.split("|")]
        if len(cells) not in (4, 6) or not cells[1]:
            continue
        (name,), *others, code, _ = cells[1:]
        code = tuple(y for x in code for y in groups.get(x, (x,)))
        if others:
            found[name] = Topic(name, *others, code)
        else:  # a name for code of topics
            groups[name] = code
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
        record = {"case": case, **_shortened(measured), **origin(self._topic)}
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
        """The record of a case by the present code; None with `--again`."""
        found = {key(x["case"]): x for x in read(self._topic, self._folder)}
        record = found.get(key(case))
        if self._again or record is None:
            return None
        code = fingerprint(topics()[self._topic].code)
        return record if record["code"] == code else None


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
def origin(topic):
    """Where a record of a topic comes from that is written now."""
    code = topics()[topic].code
    return {
        "processor": processor(),
        "threads": len(os.sched_getaffinity(0)),
        "versions": versions(),
        "commit": commit(code),
        "date": datetime.datetime.now(datetime.timezone.utc).date().isoformat(),
        "code": fingerprint(code),
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


def commit(code):
    """The commit of this checkout, with a mark if the code was changed."""

    def git(*arguments):
        return subprocess.run(
            ["git", *arguments],
            cwd=ROOT,
            check=True,
            capture_output=True,
            text=True,
        ).stdout.strip()

    try:
        places = [path.replace("!", ":!") for path in code]
        changed = git("status", "--porcelain", "--", *places)
        return git("rev-parse", "--short=10", "HEAD") + "+" * bool(changed)
    except (OSError, subprocess.CalledProcessError):
        return None


def fingerprint(code, root=ROOT):
    """A fingerprint of files, and of the Python files of folders.

    Those with a mark of exclamation before them are left out.
    """
    digest = hashlib.sha256()
    left_out = {pathlib.Path(root, x[1:]) for x in code if x[0] == "!"}
    for path in code:
        place = pathlib.Path(root, path)
        files = sorted(place.rglob("*.py")) if place.is_dir() else [place]
        for file in (x for x in files if x.exists() and x not in left_out):
            digest.update(file.relative_to(root).as_posix().encode())
            digest.update("\n".join(_statements(file)).encode())
    return digest.hexdigest()[:12]


def _statements(path):
    """The lines of a file but comments, docstrings, checks and empty ones."""
    text = path.read_text("utf-8")
    skipped = set()
    for node in ast.walk(ast.parse(text)) if path.suffix == ".py" else ():
        if _computes_nothing(node):
            skipped.update(range(node.lineno, node.end_lineno + 1))
    for number, line in enumerate(text.splitlines(), 1):
        line = line.strip()
        if line and not line.startswith("#") and number not in skipped:
            yield line


def _computes_nothing(node):
    """Whether code is a docstring, or can do nothing but refuse arguments.

    A function that is called a check and returns something counts.
    """
    value = getattr(node, "value", None)
    if isinstance(node, ast.If):
        names_something = ast.NamedExpr in map(type, ast.walk(node.test))
        only_raises = {*map(type, node.body)} == {ast.Raise}
        return only_raises and not node.orelse and not names_something
    if isinstance(node, ast.FunctionDef):
        if _answers(node):
            return False
        names = [node.name]
    elif isinstance(node, ast.ImportFrom):
        names = [x.name for x in node.names]
    elif isinstance(node, ast.Expr) and isinstance(value, ast.Call):
        names = [ast.unparse(value.func).rpartition(".")[-1]]
    else:
        return isinstance(node, ast.Expr) and isinstance(value, ast.Constant)
    return all(re.match("_?check(_|$)", name) for name in names)


def _answers(function):
    """Whether a function returns something, or yields."""
    rest = [*function.body]
    while rest:
        node = rest.pop()
        if isinstance(node, ast.Return | ast.Yield | ast.YieldFrom):
            if node.value is not None:
                return True
        elif not isinstance(node, ast.FunctionDef):  # one inside of it
            rest += ast.iter_child_nodes(node)
    return False


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
