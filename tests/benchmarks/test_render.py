"""Rendering: from records alone, the same each time, and it deletes nothing."""

import copy
import csv
import json
import shutil

import pytest

from benchmarks import records
from benchmarks import render
from benchmarks.views import VIEWS

pytestmark = pytest.mark.once

SOURCES = render.sources()
KNOWN = {name: records.latest(name) for name in records.topics()}


@pytest.fixture
def docs(tmp_path):
    """A copy of the pages that are made of records."""
    for target in SOURCES:
        name = target.partition("#")[0]
        if not (render.DOCS / name).exists():
            continue  # It has no records yet.
        shutil.copy(render.DOCS / name, tmp_path / name)
    return tmp_path


MEASURED = [
    target
    for target, topics in SOURCES.items()
    if all(KNOWN[topic.name] for topic in topics)
]


@pytest.mark.parametrize("target", [t for t in MEASURED if "#" in t])
def test_a_view_is_pure(target):
    topics = SOURCES[target]
    found = {topic.name: KNOWN[topic.name] for topic in topics}
    before = copy.deepcopy(found)
    text = render.block(target, topics, found)
    assert text == render.block(target, topics, found)
    assert found == before
    for topic in topics:
        assert f"*{topic.name}.jsonl, by `{topic.commands[0]}`" in text


@pytest.mark.thorough
@pytest.mark.parametrize("target", [t for t in MEASURED if "#" not in t])
def test_a_picture_is_drawn(target):
    found = {topic.name: KNOWN[topic.name] for topic in SOURCES[target]}
    assert VIEWS[target](found).axes


def test_every_view_has_a_target():
    assert VIEWS.keys() == SOURCES.keys()


def test_a_page_that_differs_is_found_and_mended(docs):
    page = docs / "engine.md"
    text = page.read_text("utf-8")
    assert render.render(docs=docs) == []
    page.write_text(text.replace("fourier(56x4)", "fourier(57x4)"), "utf-8")
    assert render.render(docs=docs, write=False) == ["engine.md#bench"]
    assert render.render(docs=docs) == ["engine.md#bench"]
    assert page.read_text("utf-8") == text


def test_code_that_changed_is_found(docs, monkeypatch):
    monkeypatch.setattr(records, "fingerprint", lambda code: "another")
    current = {
        target
        for target, topics in SOURCES.items()
        if "#" in target
        and "**of earlier code**"
        not in (docs / target.partition("#")[0]).read_text("utf-8")
        and all(KNOWN[topic.name] for topic in topics)
    }
    assert current <= set(render.render(docs=docs, write=False))


def test_without_records_a_page_stays_as_it_is(docs, tmp_path):
    before = {path: path.read_bytes() for path in docs.iterdir()}
    assert render.render(results=tmp_path / "none", docs=docs) == []
    assert {path: path.read_bytes() for path in docs.iterdir()} == before


def test_a_picture_has_a_stamp_of_its_records(docs, tmp_path):
    results = tmp_path / "results"
    results.mkdir()
    row = KNOWN["regret"][0]
    (results / "regret.jsonl").write_text(json.dumps(row) + "\n")
    assert "regret.png" in render.render(results, docs, write=False)
    assert "regret.png" in render.render(results, docs)
    assert render.render(results, docs) == []
    row["regret"] += 1
    (results / "regret.jsonl").write_text(json.dumps(row) + "\n")
    assert "regret.png" in render.render(results, docs, write=False)


def test_records_as_csv(tmp_path):
    render.write_csv(tmp_path)
    with (tmp_path / "layers.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == len(KNOWN["layers"])
    assert rows[0]["case.phase"] == "forward"
    assert float(rows[0]["matrix_rate"]) > 0
