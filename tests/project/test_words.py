"""The pages have none of the words that readers stumbled over."""

import pathlib
import re

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


def prose(text):
    """What people wrote: of links the texts; inline code is a word."""
    text = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", NO_PROSE.sub("\n\n", text))
    return re.sub(r"``?[^`\n]+``?", "code", text)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_page_is_in_plain_words(page):
    text = prose(page.read_text(encoding="utf-8"))
    for word, better in REPLACED.items():
        found = re.search(rf"\b(?:{word})\b", text, re.IGNORECASE)
        assert not found, f"{found[0]!r}, better: {better}"
