"""The results: records, the pages made of them, the commands that make them."""

import argparse
import dataclasses
import importlib.util
import re
import subprocess

import pytest

from benchmarks import records
from benchmarks import render
from benchmarks.views import VIEWS

pytestmark = [
    pytest.mark.once,
    pytest.mark.skipif(
        not (records.ROOT / "lambdanet_tf").is_dir(), reason="no sources"
    ),
]
TOPICS, SOURCES = records.topics(), render.sources()
assert {x.stem for x in records.RESULTS.glob("*.jsonl")} <= TOPICS.keys()


def test_pages_are_what_their_records_give(capsys):
    assert render.main(["--check"]) == 0, capsys.readouterr().out


@pytest.mark.parametrize("name", TOPICS)
def test_a_topic_has_commands_and_files_and_its_records_an_origin(name):
    for path in TOPICS[name].files:
        assert git("ls-files", "--", path.removeprefix(":!")), path
    for command in TOPICS[name].commands:
        module = re.match(r"(?:\w+=\w+ )?python -m (\S+)", command)[1]
        assert importlib.util.find_spec(module), module
    for record in records.read(name):
        fields = {"case", "processor", "threads", "versions", "date", "commit"}
        assert fields <= record.keys()
        assert {"clean", "code"} & record.keys()


def test_the_figures_of_the_readme_are_those_of_the_claims():
    readme = (records.ROOT / "README.md").read_text("utf-8")
    claims = (records.ROOT / "docs/claims.md").read_text("utf-8")
    table = claims.partition("<!-- speed:begin -->")[2]
    answers = re.findall(r"\| Is a \w+ fast\? \| (.*) \|", readme)
    figures = re.findall(r"\d+\.\d\d", " ".join(answers))
    assert len(figures) >= 4
    for figure in figures:
        assert f" {figure} times" in table, figure


def test_records_are_appended_and_the_last_of_a_case_counts(tmp_path):
    options = argparse.Namespace(
        results=tmp_path, again=False, keep=False, only=""
    )
    recorder = records.Recorder("layers", options)
    recorder.append({"layer": "a", "batch": 1}, value=1)
    recorder.append({"layer": "b"}, value=2)
    path = tmp_path / "layers.jsonl"
    first = path.read_text()
    recorder.append({"batch": 1, "layer": "a"}, value=3)
    assert path.read_text().startswith(first)
    rows = records.read("layers", tmp_path)
    assert records.origin().items() <= rows[0].items()
    latest = records.latest("layers", tmp_path)
    assert [row["value"] for row in latest] == [3, 2]
    # What is known by the present code is not measured again.
    assert recorder.known({"layer": "b"})
    assert not recorder.known({"layer": "c"})
    path.write_text(path.read_text().replace(rows[0]["commit"], "0" * 10))
    assert not recorder.known({"layer": "b"})


# Before it, records were edited: see results/README.md.
FIRST = "93debb2210"


def git(*arguments):
    """What a command of git prints, but without a checkout a skip."""
    try:
        return records.git(*arguments)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("needs git and the history of the results")


def lines_of(commit, path):
    """The lines of a file in a commit, or the checkout, none without it."""
    try:
        if commit is None:
            return {*(records.ROOT / path).read_text("utf-8").splitlines()}
        return {*records.git("show", f"{commit}:{path}").splitlines()}
    except (FileNotFoundError, subprocess.CalledProcessError):
        return set()


@pytest.mark.parametrize("name", TOPICS)
def test_no_record_was_changed_or_deleted_but_a_whole_topic(name):
    path = f"results/{name}.jsonl"
    log = git("log", "--reverse", "--format=%h", f"{FIRST}..", "--", path)
    kept = set()
    for commit in (FIRST, *log.split(), None):
        lines = lines_of(commit, path)
        kept = lines | kept if lines & kept else lines
    assert kept <= lines, f"lines of {path} were changed or deleted"


def test_a_record_is_stale_where_a_later_commit_changed_its_files():
    head = git("rev-parse", "HEAD")
    first = git("log", "--format=%h", "-1", FIRST)
    assert not records.is_stale(head, ("lambdanet_tf",))
    assert records.is_stale(first, ("tests/project",))
    assert not records.is_stale(first, ("LICENSE",))
    assert records.is_stale("0" * 10, ("LICENSE",))
    topic = dataclasses.replace(TOPICS["layers"], files=("tests/project",))
    found = [row | {"commit": head} for row in KNOWN["layers"][:2]]
    assert "stale" not in render.provenance(topic, found)
    found[0]["commit"] = first
    text = render.provenance(topic, found)
    assert text.endswith(f"; stale: the code has changed since `{first[:7]}`.*")
    assert render.without_stale(text) == render.provenance(topic, found, False)


KNOWN = {name: records.latest(name) for name in TOPICS}


@pytest.mark.slow
@pytest.mark.parametrize("target", [x for x in SOURCES if "#" not in x])
def test_a_picture_is_drawn(target):
    known = {topic.name: KNOWN[topic.name] for topic in SOURCES[target]}
    assert not all(known.values()) or VIEWS[target](known).axes
