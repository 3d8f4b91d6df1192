"""The pages: short sentences, and none of the words that we have replaced."""

import pathlib
import re
import statistics

import pytest

from tests.support import prose

pytestmark = pytest.mark.once

ROOT = pathlib.Path(__file__).parents[2]
README = ROOT / "README.md"
PAGES = sorted(
    {
        *ROOT.glob("*.md"),
        *ROOT.glob("docs/**/*.md"),
        *ROOT.glob("examples/**/*.md"),
        *ROOT.glob("tests/**/*.md"),
    }
)
MOST_WORDS = 35
MEAN_WORDS = 16
# What readers stumbled over, with what to write.
REPLACED = {
    r"besides?": "compared with, next to",
    r"(?:held|holds?) [^.|]{0,40}against": "compared with",
    r"geometry|geometries": "shape",
    r"rooms?": "package, space",
    r"lanes?": "test matrix, versions",
    r"contestants?|peers?|arms?": "baseline, variant",
    r"stand-ins?|stood in": "mock server, replaced",
    r"matrix rate": "% of peak",
    r"as it stands|in hand|asked to be": "nothing, in-memory",
    r"relaid|poisoned|spoilt|unasked|witness": "plain words",
}


def mean_length(page):
    """Words of a sentence of a page on average."""
    lengths = [len(sentence.split()) for sentence in prose.sentences(page)]
    return statistics.mean(lengths or [0])


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_page_is_in_short_sentences_and_plain_words(page):
    for sentence in [*prose.sentences(page), *prose.cells(page)]:
        assert len(sentence.split()) <= MOST_WORDS, sentence
    assert mean_length(page) <= MEAN_WORDS
    text = re.sub(r"`[^`\n]*`", "code", prose.text_of(page))
    for word, better in REPLACED.items():
        found = re.search(rf"\b(?:{word})\b", text, re.IGNORECASE)
        assert not found, f"{found[0]!r}, better: {better}"
    if page == README:  # May have 90 lines, so its lines are paragraphs.
        return
    for line in prose.source_lines(page):
        shortened = re.sub(r"\]\([^)]*\)|`[^`]*`", "", line)
        assert len(line) <= 90 or len(shortened) <= 80, line


def test_the_readme_can_be_finished():
    assert len(README.read_text(encoding="utf-8").splitlines()) <= 90
    assert mean_length(README) <= 15


def test_sentences_are_counted_as_a_reader_does(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(
        "# A heading\n\nOne two [three](a.md). Four `five = 5` six!\n\n"
        "- seven eight\n- nine ten, e.g. eleven\n\n```sh\nnot read\n```\n\n"
        "<!-- x:begin -->\nnot written here\n<!-- x:end -->\n\n"
        "| a b | c |\n|---|---|\n| d e. f g | h |\n"
    )
    counted = [len(sentence.split()) for sentence in prose.sentences(page)]
    assert counted == [3, 3, 2, 3]
    assert [s.split() for s in prose.cells(page)] == [
        ["a", "b"],
        ["d", "e."],
        ["f", "g"],
    ]
