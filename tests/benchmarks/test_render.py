"""Rendering: from records alone, the same each time, and it deletes nothing."""

import copy
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
