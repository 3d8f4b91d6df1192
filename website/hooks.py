"""Hooks of MkDocs: mathematics as MathML, at build time.

Browsers show MathML themselves, so the site needs no script and no network.
"""

import re

from latex2mathml.converter import convert

DISPLAY = re.compile(r"^\$\$\n(.+?)\n\$\$$", re.MULTILINE | re.DOTALL)


def on_page_markdown(markdown, **_):
    """Replaces formulas between lines of `$$`."""
    return DISPLAY.sub(
        lambda found: f"<div>{convert(found[1], display='block')}</div>",
        markdown,
    )
