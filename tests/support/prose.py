"""Sentences of Markdown pages: what a reader reads, without code and links."""

import re

# A fenced block is no prose, nor is a comment; a table is read by its cells.
_FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
_GENERATED = re.compile(
    r"<!-- (\w+):begin -->.*?<!-- \1:end -->", re.MULTILINE | re.DOTALL
)
_COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
_FORMULA = re.compile(r"^\$\$\n.*?^\$\$$", re.MULTILINE | re.DOTALL)
_IMAGE = re.compile(r"!\[([^]]*)\]\([^)]*\)")
_LINK = re.compile(r"\[([^]]*)\]\([^)]*\)")
_CODE = re.compile(r"``?[^`\n]+``?")
_HEADING = re.compile(r"^#+ .*$", re.MULTILINE)
_RULE = re.compile(r"^\|[-:| ]+\|$", re.MULTILINE)
_ROW = re.compile(r"^\|(.*)\|$", re.MULTILINE)
_ITEM = re.compile(r"^ *(?:[-*]|\d+\.) ", re.MULTILINE)
_END = re.compile(r"(?<=[a-zA-Z\d)\]%\"'*`_][.!?])\*{0,2}\s+|\n\n+")
_ABBREVIATIONS = re.compile(r"\b(?:e\.g|i\.e|vs|cf|et al|p)\. ")


def text_of(page):
    """Returns the words that people wrote: no code, addresses, made tables."""
    text = page.read_text(encoding="utf-8")
    for part in (_FENCE, _FORMULA, _GENERATED, _COMMENT, _IMAGE):
        text = part.sub("\n\n", text)
    return _LINK.sub(r"\1", text)


def source_lines(page):
    """Returns the lines that are not of code, tables, formulas, comments."""
    text = page.read_text(encoding="utf-8")
    for part in (_FENCE, _FORMULA, _GENERATED, _COMMENT, _IMAGE, _ROW):
        text = part.sub("", text)
    return text.splitlines()


def sentences(page):
    """Yields the sentences of paragraphs and lists; inline code is a word."""
    text = _ROW.sub("\n\n", text_of(page))
    yield from _split(text)


def cells(page):
    """Yields the sentences in the cells of tables."""
    text = _RULE.sub("", text_of(page))
    for row in _ROW.findall(text):
        for cell in re.split(r"(?<!\\)\|", row):
            yield from _split(cell)


def _split(text):
    text = _ITEM.sub("\n\n", _HEADING.sub("\n\n", text))
    text = _ABBREVIATIONS.sub("", _CODE.sub("code", text))
    for sentence in _END.split(text):
        words = re.findall(r"\S*\w\S*", sentence)
        if len(words) > 1:
            yield " ".join(words)
