"""Gathers the pages of the site in a folder, for MkDocs to build.

    python -m website.stage build/pages

Pages and notebooks keep their places in the repository, so that the links
between them hold, and so do all files that they link to. The reference has a
page for each package, with the public names of its `__init__`, and one with
the help of every command.
"""

import ast
import contextlib
import io
import os
import pathlib
import re
import shutil
import sys
import urllib.parse

from lambdanet_tf import cli

ROOT = pathlib.Path(__file__).parents[1]
PAGES = ("*.md", "docs/*.md", "examples/*.ipynb", "examples/serving/*.md")
LINK = re.compile(r"\]\(([^()\s#]+)(?:#[^()\s]*)?\)|(?:src|href)=\"([^\"#]+)\"")
PACKAGES = {
    "layers": "Layers for your own Keras models.",
    "models": "Networks by name, their weights, and their images.",
    "training": "Recipes, the training loop, and parts for `model.fit`.",
    "data": "Image sources, splits and augmentation.",
    "serving": "Exporting models and verifying exports.",
    "streaming": "Running whole models step by step, and generating text.",
    "analysis": "What a network costs, and what its layers learned.",
    "specs": "The specifications of the networks.",
    "runs": "The folder of a training run.",
    "garden.backbones": "Backbones for the TensorFlow Model Garden.",
    "garden.experiments": "Experiments for the TensorFlow Model Garden.",
    "ops": "Internal: the equations as functions of tensors, and the planner. "
    "Only `planning_for`, `implementations` and `DEVICES` are public.",
}
# Pages that went, below `docs/`, and where their readers find the same.
MOVED = {
    "attention": "comparison",
    "dense_prediction": "detection",
    "keras_hub": "detection",
    "digits": "your_images",
    "engine_in_short": "engine",
    "gpu": "accelerators",
    "graphs": "layers",
    "mixers": "study",
    "serving_speed": "serving",
    "tpu_compile": "accelerators",
    "training_speed": "training",
    "what_it_learns": "analysis",
    "when_not": "choose",
}
REDIRECT = """<!doctype html>
<meta http-equiv="refresh" content="0; url={page}.html">
<link rel="canonical" href="{page}.html">
<a href="{page}.html">This page has moved.</a>
"""
# What a page begins with; all else follows in the order of the alphabet.
FIRST = ("LambdaLayer", "LambdaConv", "build", "names", "Network", "ResNet")
COMMANDS = (
    *("train", "export", "predict", "serve", "verify"),
    *("label", "check", "summary"),
)


def stage(target):
    """Writes all that MkDocs needs below a folder, which is emptied."""
    shutil.rmtree(target, ignore_errors=True)
    pages = sorted({path for each in PAGES for path in ROOT.glob(each)})
    linked = {path for page in pages for path in links(page)}
    for path in sorted({*pages, *linked}):
        copy = target / path.relative_to(ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, copy)
    (target / "website").mkdir(exist_ok=True)
    shutil.copy(ROOT / "website/site.css", target / "website")
    for old, page in MOVED.items():
        stub = target / "docs" / f"{old}.html"
        stub.write_text(REDIRECT.format(page=page), encoding="utf-8")
    folder = target / "reference"
    folder.mkdir()
    for package in PACKAGES:
        page = folder / f"{package}.md"
        page.write_text(reference(package), encoding="utf-8")
    (folder / "commands.md").write_text(commands(), encoding="utf-8")
    (folder / "index.md").write_text(index(), encoding="utf-8")
    return len(pages) + len(PACKAGES) + 2


def index():
    """The page that lists the pages of the reference."""
    lines = ["# Reference", "", "The public names of each package:", ""]
    lines += ["| package | what it contains |", "|---|---|"]
    for package, what in PACKAGES.items():
        lines.append(f"| [`{package}`]({package}.md) | {what} |")
    lines += ["", "[Commands](commands.md) shows the help of every command."]
    return "\n".join([*lines, ""])


def links(page):
    """Yields the files of the repository that a page links to."""
    for groups in LINK.findall(page.read_text(encoding="utf-8")):
        link = urllib.parse.unquote("".join(groups))
        target = (page.parent / link).resolve()
        if re.match(r"\w+:", link) or not target.is_relative_to(ROOT):
            continue
        if target.is_file():
            yield target


def reference(package):
    """The page of a package or module: a section for each public name."""
    lines = [f"# lambdanet_tf.{package}", "", PACKAGES[package], ""]
    names = public_names(package)
    if names is None:
        return "\n".join([*lines, f"::: lambdanet_tf.{package}", ""])
    if package == "models":
        lines += [*networks(names), ""]
    rank = {name: number for number, name in enumerate(FIRST)}
    for name in sorted(names, key=lambda n: (rank.get(n, len(FIRST)), n)):
        lines += [f"::: {names[name]}.{name}", ""]
    return "\n".join(lines)


def networks(names):
    """Yields a table of the named networks, which leave `names`."""
    yield "All networks take the arguments of [Network]("
    yield "#lambdanet_tf.models.network.Network) and the attributes of their"
    yield "spec. Pass all of them by keyword."
    yield from ("", "| network | what it builds | size |", "|---|---|---|")
    path = ROOT / "lambdanet_tf/models/builders.py"
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef) and node.name[0].isupper():
            first, *_ = ast.get_docstring(node).split("\n\n")
            what, _, size = " ".join(first.split()).partition(": ")
            yield f"| `{node.name}` | {what} | {size} |"
            names.pop(node.name)


def commands():
    """The page of the commands: the help of each, with every recipe field."""
    lines = ["# Commands", ""]
    lines += ["Run `lambdanet COMMAND`, or `python -m lambdanet_tf COMMAND`."]
    lines.append("")
    os.environ["COLUMNS"] = "90"
    for name in COMMANDS:
        text = io.StringIO()
        with contextlib.redirect_stdout(text), contextlib.suppress(SystemExit):
            cli.main([name, "--help"])
        lines += [
            f"## {name}",
            "",
            "```text",
            text.getvalue().strip(),
            "```",
            "",
        ]
    return "\n".join(lines)


def public_names(package):
    """The names that a package imports, with their modules; None: a module."""
    folder = ROOT / "lambdanet_tf" / package
    if not folder.is_dir():
        return None
    stub = folder / "__init__.pyi"
    source = stub if stub.exists() else folder / "__init__.py"
    names = {}
    for statement in ast.parse(source.read_text(encoding="utf-8")).body:
        if isinstance(statement, ast.ImportFrom):
            for alias in statement.names:
                names[alias.name] = statement.module
    return {
        name: module
        for name, module in names.items()
        if module.startswith(f"lambdanet_tf.{package}")
    }


if __name__ == "__main__":
    print(f"{stage(pathlib.Path(sys.argv[1]).resolve())} pages")
