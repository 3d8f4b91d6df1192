"""Hooks of MkDocs: mathematics, version and date, the order of a page.

Formulas become MathML at build time. Browsers show it themselves, so the site
needs no script and no network.
"""

import datetime
import itertools
import pathlib
import re

from bs4 import BeautifulSoup
from latex2mathml.converter import convert

DISPLAY = re.compile(r"^\$\$\n(.+?)\n\$\$$", re.MULTILINE | re.DOTALL)
PACKAGE = pathlib.Path(__file__).parents[1] / "lambdanet_tf/__init__.py"
BUTTONS = """[Install](#install){ .md-button .md-button--primary }
[Train on your images](docs/your_images.md){ .md-button }

## Install
"""


def on_config(config, **_):
    """Puts the version and the date of the build below every page."""
    text = PACKAGE.read_text(encoding="utf-8")
    version = re.search(r'^__version__ = "(.+)"$', text, re.MULTILINE)[1]
    today = datetime.date.today().isoformat()
    config.copyright = f"lambdanet_tf {version}, built {today}"
    return config


def on_page_markdown(markdown, page, **_):
    """Replaces formulas between lines of `$$`; gives the front page buttons."""
    if page.is_homepage:
        page.meta["hide"] = ["navigation"]
        markdown = markdown.replace("## Install\n", BUTTONS, 1)
    return DISPLAY.sub(
        lambda found: f"<div>{convert(found[1], display='block')}</div>",
        markdown,
    )


def on_page_content(html, page, **_):
    """Folds the first cell of a notebook; puts examples before signatures."""
    path = page.file.src_uri
    if not path.endswith(".ipynb") and not path.startswith("reference/"):
        return html
    soup = BeautifulSoup(html, "html.parser")
    if cell := soup.find(class_="jp-CodeCell"):
        folded = cell.wrap(soup.new_tag("details"))
        summary = soup.new_tag("summary")
        summary.string = "Imports and set-up"
        folded.insert(0, summary)
    for signature in soup.select(".doc-object > .doc-signature"):
        contents = signature.find_next_sibling(class_="doc-contents")
        first = contents and contents.find("p", recursive=False)
        if first:
            first.insert_after(*_examples(contents), signature.extract())
    return str(soup)


def _examples(contents):
    """Takes the examples, a title and what follows up to code, from a text."""
    titles = contents.select(":scope > p > .doc-section-title")
    title = next((t for t in titles if "Example" in t.get_text()), None)
    if title is None:
        return []
    code = itertools.takewhile(
        lambda part: "highlight" in part.get("class", ()),
        title.parent.find_next_siblings(),
    )
    return [part.extract() for part in (title.parent, *code)]
