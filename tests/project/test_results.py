"""The results: records, the pages made of them, the commands that make them."""

import argparse
import copy
import importlib.util
import re
import shutil

import pytest

from benchmarks import records
from benchmarks import render
from benchmarks.views import VIEWS
from tests.support import fingerprints

pytestmark = [
    pytest.mark.once,
    pytest.mark.skipif(
        not (records.ROOT / "lambdanet_tf").is_dir(), reason="no sources"
    ),
]
TOPICS, SOURCES = records.topics(), render.sources()


@pytest.fixture(autouse=True)
def each_fingerprint_once(monkeypatch):
    monkeypatch.setattr(records, "fingerprint", fingerprints.fingerprint)


def test_pages_are_what_their_records_give(capsys):
    assert render.main(["--check"]) == 0, capsys.readouterr().out


def test_every_file_of_records_has_a_topic():
    files = {path.stem for path in records.RESULTS.glob("*.jsonl")}
    assert files <= TOPICS.keys()


@pytest.mark.parametrize("name", TOPICS)
def test_a_topic_has_commands_and_code_and_its_records_an_origin(name):
    for path in TOPICS[name].code:
        assert (records.ROOT / path.removeprefix("!")).exists()
    for command in TOPICS[name].commands:
        module = re.match(r"(?:\w+=\w+ )?python -m (\S+)", command)[1]
        assert importlib.util.find_spec(module), module
    for record in records.read(name):
        fields = {"case", "processor", "threads", "versions", "commit"}
        assert fields | {"date", "code"} <= record.keys()


def test_the_figures_of_the_readme_are_those_of_the_claims():
    """What README says of speed stands in the table that records make."""
    readme = (records.ROOT / "README.md").read_text("utf-8")
    claims = (records.ROOT / "docs/claims.md").read_text("utf-8")
    table = claims.partition("<!-- speed:begin -->")[2]
    answers = re.findall(r"\| Is a \w+ fast\? \| (.*) \|", readme)
    figures = re.findall(r"\d+\.\d\d", " ".join(answers))
    assert len(figures) >= 4
    for figure in figures:
        assert f" {figure} times" in table, figure


def test_records_are_appended_and_the_last_of_a_case_counts(tmp_path):
    options = argparse.Namespace(results=tmp_path, again=False, only="")
    recorder = records.Recorder("layers", options)
    path = tmp_path / "layers.jsonl"
    for value in (1, 2):
        recorder.append({"layer": "a", "batch": 1}, value=value)
        recorder.append({"layer": "b"}, value=value)
        first = path.read_text()
    recorder.append({"batch": 1, "layer": "a"}, value=3)
    assert path.read_text().startswith(first)
    rows = records.read("layers", tmp_path)
    assert len(rows) == 5
    assert rows[0]["code"] == records.fingerprint(TOPICS["layers"].code)
    assert {"date", "threads", "processor", "versions"} <= rows[0].keys()
    latest = records.latest("layers", tmp_path)
    assert [row["value"] for row in latest] == [3, 2]
    # What is known by the present code is not measured again.
    assert recorder.known({"layer": "b"})
    assert not recorder.known({"layer": "c"})
    path.write_text(path.read_text().replace(rows[0]["code"], "earlier"))
    assert not recorder.known({"layer": "b"})


def test_a_fingerprint_is_that_of_statements(tmp_path):
    file = tmp_path / "a.py"
    file.write_text('"""One."""\n\nx = 1  # here\n# there\n')
    first = records.fingerprint(["."], tmp_path)
    file.write_text('"""Two\n\nlines."""\nx = 1  # here\n')
    assert records.fingerprint(["."], tmp_path) == first
    checked = (
        "from b import check_x\ndef _check(x):\n  y = 1\n  return\ncheck_x(1)\n"
    )
    file.write_text(f"{checked}if 0:\n  raise KeyError\nx = 1  # here\n")
    assert records.fingerprint(["."], tmp_path) == first
    for text in (
        "x = 2  # here\n",
        "x = 1  # here\nif x:\n  y = check(x)\n",
        "def check(x):\n  return 2\nx = 1  # here\n",
        "x = 1  # here\nif y := 2:\n  raise KeyError\n",
    ):
        file.write_text(text)
        assert records.fingerprint(["."], tmp_path) != first
    first = records.fingerprint([".", "!a.py"], tmp_path)
    file.write_text("x = 3\n")
    assert records.fingerprint([".", "!a.py"], tmp_path) == first


KNOWN = {name: records.latest(name) for name in TOPICS}
MEASURED = [x for x in SOURCES if all(KNOWN[y.name] for y in SOURCES[x])]


def known(target):
    """The records that a table or picture is made of."""
    return {topic.name: KNOWN[topic.name] for topic in SOURCES[target]}


@pytest.mark.parametrize("target", [x for x in MEASURED if "#" in x])
def test_a_table_is_pure(target):
    found, topics = known(target), SOURCES[target]
    before = copy.deepcopy(found)
    text = render.block(target, topics, found)
    assert text == render.block(target, topics, found)
    assert found == before


@pytest.mark.thorough
@pytest.mark.parametrize("target", [x for x in MEASURED if "#" not in x])
def test_a_picture_is_drawn(target):
    assert VIEWS[target](known(target)).axes


def test_a_page_that_differs_is_found_and_mended(tmp_path):
    docs = shutil.copytree(render.DOCS, tmp_path / "docs")
    page = docs / "engine.md"
    text = page.read_text("utf-8")
    assert render.render(docs=docs) == []
    page.write_text(text.replace("fourier(56x4)", "fourier(57x4)"), "utf-8")
    assert render.render(docs=docs, write=False) == ["engine.md#bench"]
    assert render.render(docs=docs) == ["engine.md#bench"]
    assert page.read_text("utf-8") == text
