"""Markdown: tables and literal texts."""

import re
from collections.abc import Iterable
from typing import Any

_MEANINGFUL = re.compile(r"([\\`*_{}\[\]<>#|~&!])")
_PIPE = re.compile(r"(?<!\\)\|")


def escape(text: str) -> str:
    """Returns Markdown that shows any text literally, in one line."""
    return _MEANINGFUL.sub(r"\\\1", " ".join(text.split()))


def code(text: Any) -> str:
    """Returns Markdown that shows a text as code, in one line."""
    return "`" + " ".join(str(text).replace("`", "'").splitlines()) + "`"


def table(
    rows: Iterable[tuple[Any, ...]], head: tuple[str, ...] = ("", "")
) -> str:
    """Returns a Markdown table, without a line break at its end."""
    lines = [head, ("---",) * len(head), *rows]
    return "\n".join(f"| {' | '.join(map(_cell, line))} |" for line in lines)


def _cell(value):
    return _PIPE.sub(r"\\|", " ".join(str(value).splitlines()))
