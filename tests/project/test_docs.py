"""The pages: their code runs, their commands parse, their links lead somewhere.

A comment before a fenced block excuses it:

    <!-- not run: why it cannot run here -->      code, or a command
    <!-- tf_keras: why it needs tf_keras -->      code that Keras 3 cannot run
"""

import argparse
import contextlib
import dataclasses
import itertools
import pathlib
import re
import runpy
import shlex
import sys
import urllib.parse

import pytest

from lambdanet_tf import cli
from lambdanet_tf import config
from lambdanet_tf import models
from lambdanet_tf import specs
from lambdanet_tf.environment import KERAS_3
from lambdanet_tf.training import Recipe
from lambdanet_tf.training import resolve
from website import stage

ROOT = pathlib.Path(__file__).parents[2]
PAGES = sorted(
    {
        *ROOT.glob("*.md"),
        *ROOT.glob(".github/**/*.md"),
        *ROOT.glob("docs/**/*.md"),
        *ROOT.glob("examples/**/*.md"),
    }
)
LANGUAGES = {"", "bash", "bibtex", "console", "python", "sh", "text", "toml"}
SHELLS = {"bash", "console", "sh"}
ENDS = {"&&", "||", "|", ";", "&"}

FENCE = re.compile(
    r"(?:^<!-- (?P<mark>not run|tf_keras):(?P<reason>[^>]*)-->\n+)?"
    r"^```(?P<language>\w*)\n(?P<source>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
LINK = re.compile(
    r"\]\((?P<markdown>[^()\s]+)\)|(?:src|href)=\"(?P<html>[^\"]+)\""
)


@dataclasses.dataclass(frozen=True)
class Block:
    """A fenced block of a page."""

    page: pathlib.Path
    line: int
    language: str
    source: str
    mark: str
    reason: str

    @property
    def place(self):
        return f"{name(self.page)}:{self.line}"

    @property
    def is_run(self):
        if self.mark == "tf_keras":
            return not KERAS_3
        return self.mark != "not run"


def name(page):
    return page.relative_to(ROOT).as_posix()


def blocks(page):
    text = page.read_text(encoding="utf-8")
    for found in FENCE.finditer(text):
        yield Block(
            page,
            text.count("\n", 0, found.start("source")) + 1,
            found["language"],
            found["source"],
            found["mark"] or "",
            (found["reason"] or "").strip(),
        )


# What these pages show is tested under both Kerases elsewhere.
LONG = ("choose.md", "models.md", "replace_layers.md", "serving.md")
MARKS = {
    **{f"docs/{page}": pytest.mark.once for page in LONG},
    # These train.
    "docs/your_images.md": (pytest.mark.once, pytest.mark.thorough),
    "docs/what_it_learns.md": pytest.mark.thorough,
    "docs/keras_hub.md": (
        pytest.mark.keras_hub,
        pytest.mark.filterwarnings("ignore::UserWarning"),  # KerasHub's own
    ),
}
# The cells of README.md are run, and what they print is compared, in
# tests/layers/test_learning.py.
WITH_CODE = [
    pytest.param(page, marks=MARKS.get(name(page), ()), id=name(page))
    for page in PAGES
    if page != ROOT / "README.md"
    and any(
        b.language == "python" and b.mark != "not run" for b in blocks(page)
    )
]


@pytest.mark.slow
@pytest.mark.representatives(3)
@pytest.mark.parametrize("page", WITH_CODE)
def test_the_code_of_a_page_runs(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    pathlib.Path("docs").symlink_to(ROOT / "docs")  # pictures that are read
    namespace = {"__name__": "__main__"}
    for block in blocks(page):
        if block.language == "python" and block.is_run:
            # The line numbers of a traceback are those of the page.
            source = "\n" * (block.line - 1) + block.source
            code = compile(source, name(page), "exec")
            try:
                exec(code, namespace)
            except ModuleNotFoundError as error:
                pytest.skip(f"{block.place} needs {error.name}")


@pytest.mark.once
def test_every_block_has_a_language_and_every_excuse_a_reason():
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        found = list(blocks(page))
        assert text.count("```") == 2 * len(found), name(page)
        for block in found:
            assert block.language in LANGUAGES, block.place
            assert not block.mark or len(block.reason) > 10, block.place
        excuses = re.findall(r"<!-- (?:not run|tf_keras)", text)
        marked = [block for block in found if block.mark]
        assert len(excuses) == len(marked), f"{name(page)}: a stray excuse"


class Parsed(BaseException):
    """A command line was understood; what follows is not run."""


@pytest.fixture
def parse_only(monkeypatch):
    """Ends every command as soon as argparse has understood its arguments."""
    parse = argparse.ArgumentParser.parse_known_args
    depth = itertools.count()

    def parse_known_args(self, *arguments, **options):
        is_outermost = next(depth) == 0  # Else it parses a subcommand.
        namespace, unknown = parse(self, *arguments, **options)
        if is_outermost and not unknown:
            raise Parsed
        return namespace, unknown

    monkeypatch.setattr(
        argparse.ArgumentParser, "parse_known_args", parse_known_args
    )


def command_lines(block):
    """Yields the words of each command of a block, without its environment."""
    text = block.source.replace("\\\n", " ")
    if block.language == "console":
        text = "\n".join(re.findall(r"^\$ (.*)$", text, re.MULTILINE))
    line = ""
    for part in text.splitlines():
        line += part + "\n"
        try:
            words = shlex.split(line, comments=True)
        except ValueError:  # A quotation goes on in the next line.
            continue
        line = ""
        for is_end, command in itertools.groupby(words, ENDS.__contains__):
            command = list(command)
            while command and re.match(r"\w+=", command[0]):
                command.pop(0)
            if command and not is_end:
                yield command
    assert not line, f"{block.place}: {line}"


def shell_blocks(page):
    """Yields blocks of commands, and commands inside a line."""
    yield from (block for block in blocks(page) if block.language in SHELLS)
    text = page.read_text(encoding="utf-8")
    # Of the same length, so that the lines are those of the page.
    text = FENCE.sub(lambda found: re.sub(r"[^\n]", " ", found[0]), text)
    for found in re.finditer(r"`((?:python|lambdanet)[ -][^`\n]+)`", text):
        line = text.count("\n", 0, found.start()) + 1
        yield Block(page, line, "sh", found[1], "", "")


def our_commands():
    """Yields each command of the pages that this repository answers for."""
    for block in itertools.chain(*map(shell_blocks, PAGES)):
        if block.mark == "not run":
            continue
        for program, *arguments in command_lines(block):
            program = pathlib.PurePath(program).name
            if program in ("python", "python3") and arguments:
                program, *arguments = arguments
                if program == "-m":
                    program, *arguments = arguments
            known = ("lambdanet", "benchmarks.", "examples.", "tests.")
            # The commands of the Model Garden have absl's flags.
            is_known = program.startswith(known) and "garden" not in program
            if program in TOOLS or is_known:
                yield pytest.param(program, arguments, id=block.place)


def parse_train(arguments):
    if arguments != ["--help"]:
        given = cli.train_parser().parse(arguments)
        resolve(given.recipe, config.given(given, Recipe))


def parse_export(arguments):
    if arguments != ["--help"]:
        cli.export_parser().parse(arguments)


def parse_make(arguments):
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = [word for word in arguments if "=" not in word]
    for target in targets:
        assert re.search(rf"^{target}:.*## ", makefile, re.MULTILINE), target


TOOLS = {
    "train.py": parse_train,
    "export.py": parse_export,
    "lambdanet": cli.main,
    "lambdanet-train": parse_train,
    "lambdanet-export": parse_export,
    "make": parse_make,
}


@pytest.mark.once
@pytest.mark.filterwarnings("ignore")  # Of what a command imports.
@pytest.mark.parametrize(("program", "arguments"), list(our_commands()))
def test_every_command_is_understood(
    program, arguments, parse_only, monkeypatch
):
    if program in TOOLS:
        with contextlib.suppress(Parsed):
            TOOLS[program](arguments)
        return
    monkeypatch.setattr(sys, "argv", [program, *arguments])
    monkeypatch.delitem(sys.modules, program, raising=False)
    with pytest.raises(Parsed):
        run_module(program)


def run_module(program):
    """Runs `python -m program`; skips the test where an extra is missing."""
    try:
        runpy.run_module(program, run_name="__main__", alter_sys=True)
    except ImportError as error:
        if (error.name or "").startswith(("lambdanet_tf", "benchmarks")):
            raise
        pytest.skip(f"{program}: {error}")


def slugs(page):
    """The anchors of a page's headings, as GitHub makes them."""
    text = FENCE.sub("", page.read_text(encoding="utf-8"))
    seen = {}
    for heading in re.findall(r"^#+ (.*)$", text, re.MULTILINE):
        heading = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading)
        slug = re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
        count = seen[slug] = seen.get(slug, -1) + 1
        yield f"{slug}-{count}" if count else slug
    yield from re.findall(r"<a (?:id|name)=\"([^\"]+)\"", text)


@pytest.mark.once
@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_link_leads_somewhere(page):
    text = FENCE.sub("", page.read_text(encoding="utf-8"))
    text = re.sub(r"`[^`\n]*`", "", text)
    for found in LINK.finditer(text):
        link = urllib.parse.urlsplit(found["markdown"] or found["html"])
        if link.scheme:
            assert link.scheme in ("https", "mailto"), found[0]
            continue
        target = page
        if link.path:
            target = page.parent / urllib.parse.unquote(link.path)
        assert target.exists(), found[0]
        assert target.resolve().is_relative_to(ROOT), found[0]
        if link.fragment:
            assert link.fragment in slugs(target), found[0]


@pytest.mark.once
def test_the_site_has_what_its_navigation_names(tmp_path):
    def text_of(page):
        return (tmp_path / "pages" / page).read_text(encoding="utf-8")

    stage.stage(tmp_path / "pages")
    config = (ROOT / "website/mkdocs.yml").read_text(encoding="utf-8")
    named = re.findall(r": (\S+\.(?:md|ipynb))$", config, re.MULTILINE)
    assert len(named) > 30
    for page in named:
        assert (tmp_path / "pages" / page).is_file(), page
    layers = text_of("reference/layers.md")
    assert "::: lambdanet_tf.layers.lambda_layer.LambdaLayer" in layers
    assert layers.index("LambdaLayer") < layers.index("BatchNormalization")
    assert "::: lambdanet_tf.runs" in text_of("reference/runs.md")
    rows = re.findall(
        r"^\| `(\w+)`", text_of("reference/models.md"), re.MULTILINE
    )
    assert set(rows) == set(models.names())
    commands = text_of("reference/commands.md")
    assert all(f"\n## {name}\n" in commands for name in stage.COMMANDS)
    assert "--weight-decay" in commands


@pytest.mark.once
def test_the_table_of_networks_has_their_parameters():
    text = (ROOT / "docs/choose.md").read_text(encoding="utf-8")
    rows = re.findall(
        r"^\| `(\w+)` \| (\d+) \| ([\d,]+) \|", text, re.MULTILINE
    )
    assert len(rows) > 10
    for name, size, parameters in rows:
        preset = specs.PRESETS[name]
        assert int(size) == preset.spec.image_size, name
        assert int(parameters.replace(",", "")) == preset.parameters, name
