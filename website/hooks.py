"""Hooks of MkDocs: mathematics as MathML, at build time; version and date.

Browsers show MathML themselves, so the site needs no script and no network.
"""

import datetime
import pathlib
import re

from latex2mathml.converter import convert

DISPLAY = re.compile(r"^\$\$\n(.+?)\n\$\$$", re.MULTILINE | re.DOTALL)
PACKAGE = pathlib.Path(__file__).parents[1] / "lambdanet_tf/__init__.py"


def on_config(config, **_):
    """Puts the version and the date of the build below every page."""
    text = PACKAGE.read_text(encoding="utf-8")
    version = re.search(r'^__version__ = "(.+)"$', text, re.MULTILINE)[1]
    today = datetime.date.today().isoformat()
    config.copyright = f"lambdanet_tf {version}, built {today}"
    return config


def on_page_markdown(markdown, page, **_):
    """Replaces formulas between lines of `$$`; the front page has no menu."""
    if page.is_homepage:
        page.meta["hide"] = ["navigation"]
    return DISPLAY.sub(
        lambda found: f"<div>{convert(found[1], display='block')}</div>",
        markdown,
    )
