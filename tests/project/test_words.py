"""The pages: short sentences, and none of the words that we have replaced."""

import pathlib
import re
import statistics

import pytest

pytestmark = pytest.mark.once

ROOT = pathlib.Path(__file__).parents[2]
FOLDERS = (".", "docs/**", "examples/**", "tests/**")
PAGES = sorted({page for x in FOLDERS for page in ROOT.glob(f"{x}/*.md")})
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
# Code, formulas, tables that are made of records, comments, pictures.
NO_PROSE = re.compile(
    r"(?ms)^```.*?^```$|^\$\$\n.*?^\$\$$|<!-- (\w+):begin -->.*?<!-- \1:end -->"
    r"|<!--.*?-->|!\[[^]]*\]\([^)]*\)"
)
ROW = re.compile(r"^\|(.*)\|$", re.MULTILINE)
BREAK = re.compile(r"^#+ .*$|^ *(?:[-*]|\d+\.) ", re.MULTILINE)
ABBREVIATION = re.compile(r"\b(?:e\.g|i\.e|vs|cf|et al|p)\. ")
END = re.compile(r"(?<=[a-zA-Z\d)\]%\"'*`_][.!?])\*{0,2}\s+|\n\n+")


def prose(text):
    """What people wrote: of links the texts; inline code is a word."""
    text = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", NO_PROSE.sub("\n\n", text))
    return re.sub(r"``?[^`\n]+``?", "code", text)


def sentences(text):
    """The words of each sentence of paragraphs and lists."""
    text = ABBREVIATION.sub("", BREAK.sub("\n\n", text))
    words = [re.findall(r"\S*\w\S*", sentence) for sentence in END.split(text)]
    return [sentence for sentence in words if len(sentence) > 1]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_page_is_in_short_sentences_and_plain_words(page):
    text = prose(page.read_text(encoding="utf-8"))
    written = sentences(ROW.sub("\n\n", text))
    cells = re.sub(r"(?<!\\)\|", "\n\n", "\n\n".join(ROW.findall(text)))
    for sentence in [*written, *sentences(cells)]:
        assert len(sentence) <= 35, " ".join(sentence)
    assert statistics.mean(map(len, written or [[]])) <= 16
    for word, better in REPLACED.items():
        found = re.search(rf"\b(?:{word})\b", text, re.IGNORECASE)
        assert not found, f"{found[0]!r}, better: {better}"
