"""Makes the tables and pictures of the docs from records; measures nothing.

    python -m benchmarks.render               what differs, in docs/
    python -m benchmarks.render --check       fails where something differs

`--check` leaves out which records are stale: no commit knows what it makes so.
"""

import argparse
import hashlib
import importlib
import inspect
import json
import pkgutil
import re
import sys

from benchmarks import records
from benchmarks import views
from lambdanet_tf.training.report import count

DOCS = records.ROOT / "docs"
VIEWS = views.VIEWS
_STALE = "; stale: the code has changed since"
for _module in pkgutil.iter_modules(views.__path__, f"{views.__name__}."):
    importlib.import_module(_module.name)  # registers views


def sources():
    found = {}
    for topic in records.topics().values():
        for target in topic.targets:
            found.setdefault(target, []).append(topic)
    return found


def block(target, topics, found, with_stale=True):
    """Returns the text of a block, with where its records come from."""
    view = VIEWS[target]
    rows = view.rows(found)
    parts = [provenance(x, rows[x.name], with_stale) for x in topics]
    return "\n\n".join([view.function(rows), *parts])


def provenance(topic, found, with_stale=True):
    """Returns where the records of a topic come from, in a line."""
    machines = dict.fromkeys(
        ", ".join(filter(None, (x["processor"], count(x["threads"], "thread"))))
        for x in found
        if x["threads"]
    )
    dates = {}
    for x in found:
        dates.setdefault(x["date"], {}).setdefault(x["commit"])
    measured = "; ".join(
        f"at {_commits(at)} on {date}" for date, at in sorted(dates.items())
    )
    text = f"Data from {topic.name}.jsonl, recorded by "
    text += ", ".join(f"`{command}`" for command in topic.commands)
    text += f" on {'; '.join(machines)}" if machines else ""
    text += f"; measured {measured}"
    commits = dict.fromkeys(x["commit"] for x in found)
    stale = [x for x in commits if records.is_stale(x, topic.files)]
    if stale and with_stale:
        text += _STALE
        text += f" {_commits(stale)}" if len(stale) < len(commits) else ""
    return f"*{text}.*"


def _commits(names):
    return ", ".join(
        f"`{(name or 'unknown').rstrip('+')[:7]}`" for name in names
    )


def without_stale(text):
    """Returns a page without what it says of stale records."""
    return re.sub(rf"{_STALE}[^*]*[.][*]$", ".*", text, flags=re.MULTILINE)


def draw(target, found, path, write):
    """Draws a picture unless its file is of these records and this source."""
    source = inspect.getsource(VIEWS[target].function)
    text = json.dumps(found, sort_keys=True) + source
    stamp = hashlib.sha256(text.encode()).hexdigest()[:16]
    is_new = not path.exists() or stamp.encode() not in path.read_bytes()
    if is_new and write:
        figure = VIEWS[target](found)
        figure.savefig(path, dpi=110, metadata={"Records": stamp})
    return is_new


def render(results=records.RESULTS, docs=DOCS, write=True):
    """Brings pages up to date; returns the targets that differ."""
    known = {name: records.latest(name, results) for name in records.topics()}
    differing = []
    for target, topics in sources().items():
        found = {topic.name: known[topic.name] for topic in topics}
        name, _, section = target.partition("#")
        if not all(found.values()):
            continue
        if section:
            text = block(target, topics, found, with_stale=write)
            differs = replace(docs / name, section, text, write)
        else:
            differs = draw(target, found, docs / name, write)
        if differs:
            differing.append(target)
    return differing


def replace(page, section, text, write):
    """Puts a text between the marks; returns whether it differs."""
    whole = page.read_text("utf-8")
    begin, end = (f"<!-- {section}:{mark} -->" for mark in ("begin", "end"))
    before, rest = whole.split(begin)
    after = rest.split(end)[1]
    new = f"{before}{begin}\n\n{text}\n\n{end}{after}"
    if write:
        page.write_text(new, "utf-8")
        return new != whole
    return without_stale(new) != without_stale(whole)


def main(arguments=None):
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--check", action="store_true", help="write nothing")
    options = parser.parse_args(arguments)
    verb = "differs from its records" if options.check else "written"
    differing = render(write=not options.check)
    for target in differing:
        print(f"docs/{target}: {verb}")
    if options.check and differing:
        print("Bring them up to date: python -m benchmarks.render")
    return int(options.check and bool(differing))


if __name__ == "__main__":
    sys.exit(main())
