"""The pages: code runs, commands parse, links lead somewhere, words are plain.

A comment before a fenced block excuses it:

    <!-- not run: why it cannot run here -->      code, or a command
    <!-- tf_keras: why it needs tf_keras -->      code that Keras 3 cannot run
"""

import argparse
import contextlib
import pathlib
import re
import shlex
import urllib.parse

import pytest

from lambdanet_tf import cli
from lambdanet_tf import config
from lambdanet_tf.environment import KERAS_3

ROOT = pathlib.Path(__file__).parents[2]
FOLDERS = (".", ".github/**", "docs/**", "examples/**", "tests/**")
PAGES = sorted({page for x in FOLDERS for page in ROOT.glob(f"{x}/*.md")})

FENCE = re.compile(
    r"(?:^<!-- (?P<mark>not run|tf_keras):[^>]*-->\n+)?"
    r"^```(?P<language>\w*)\n(?P<source>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
# In a line of its own, or as code inside one.
COMMAND = re.compile(
    r"(?:^|`)(?:\$ |python )*(?:lambdanet[ -](?=\w)|(?=\w+\.py))"
    r"(?P<command>train|export|predict|serve|verify|label|check|summary)(?:\.py)?"
    r"(?P<words>(?: (?:'[^']*'|\"[^\"]*\"|[^`\n|&;#'\"])*)?)(?=$|[`|&;#])",
    re.MULTILINE,
)
LINK = re.compile(
    r"\]\((?P<markdown>[^()\s]+)\)|(?:src|href)=\"(?P<html>[^\"]+)\""
)


def name(page):
    return page.relative_to(ROOT).as_posix()


def snippets(page):
    """Yields the code that is run, each with its line numbers of the page."""
    text = page.read_text(encoding="utf-8")
    excuses = ["not run", "tf_keras"] if KERAS_3 else ["not run"]
    for found in FENCE.finditer(text):
        if found["language"] == "python" and found["mark"] not in excuses:
            line = text.count("\n", 0, found.start("source"))
            yield "\n" * line + found["source"]


# What these pages show is tested under both Kerases elsewhere.
LONG = ("choose", "models", "replace_layers", "serving", "your_images")
MARKS = {f"docs/{page}.md": pytest.mark.once for page in LONG}
# A table is interpolated; TFLite's interpreter has a successor; of KerasHub.
_WARNS = pytest.mark.filterwarnings("ignore::UserWarning")
MARKS |= dict.fromkeys(["docs/layers.md", "docs/streaming.md"], _WARNS)
MARKS["docs/detection.md"] = (pytest.mark.keras_hub, _WARNS)
# The cells of README.md are run, and what they print is compared, in
# tests/layers/test_learning.py.
WITH_CODE = [
    pytest.param(page, marks=MARKS.get(name(page), ()), id=name(page))
    for page in PAGES
    if page != ROOT / "README.md" and any(snippets(page))
]


@pytest.mark.slow
@pytest.mark.parametrize("page", WITH_CODE)
def test_the_code_of_a_page_runs(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    pathlib.Path("docs").symlink_to(ROOT / "docs")  # pictures that are read
    namespace = {"__name__": "__main__"}
    for source in snippets(page):
        try:
            exec(compile(source, name(page), "exec"), namespace)
        except ModuleNotFoundError as error:
            pytest.skip(f"{name(page)} needs {error.name}")


# A command line was understood; what follows is not run.
Parsed = type("Parsed", (BaseException,), {})


@pytest.mark.once
@pytest.mark.filterwarnings("ignore")  # Of what a command imports.
@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_command_is_understood(page, monkeypatch):
    parser = argparse.ArgumentParser
    parse = parser.parse_known_args

    def parse_only(self, *arguments, **options):
        namespace, unknown = parse(self, *arguments, **options)
        if not unknown:
            raise Parsed
        return namespace, unknown

    monkeypatch.setattr(parser, "parse_known_args", parse_only)
    text = page.read_text(encoding="utf-8").replace("\\\n", " ")
    for command, words in COMMAND.findall(text):
        if "--help" in words:
            continue
        with contextlib.suppress(Parsed):
            code = cli.main([command, *shlex.split(words)])
            assert (code, words) == (config.EXIT_USAGE, ""), (command, words)


# What readers stumbled over.
RIDDLES = re.compile(
    r"(?i)\b(?:besides?|(?:held|holds?) [^.|]{0,40}against|geometry|geometries|"
    r"rooms?|lanes?|contestants?|peers?|arms?|stand-ins?|stood in|matrix rate|"
    r"as it stands|in hand|asked to be|relaid|poisoned|spoilt|unasked|witness|"
    r"Kerases|the other Keras(?! version)|errs|(?:upper|lower) floors?|"
    r"draws? alike)\b"
)


@pytest.mark.once
@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_link_leads_somewhere(page):
    """And what people wrote is in plain words."""
    text = FENCE.sub("", page.read_text(encoding="utf-8"))
    text = re.sub(r"`[^`\n]*`", "", text)
    assert not RIDDLES.findall(text)
    for found in LINK.finditer(text):
        link = urllib.parse.urlsplit(found["markdown"] or found["html"])
        if link.scheme:
            assert link.scheme in ("https", "mailto"), found[0]
            continue
        target = page.parent / urllib.parse.unquote(link.path)
        assert target.exists(), found[0]
