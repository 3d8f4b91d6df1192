"""Gathers the pages of the site in a folder, for MkDocs to build.

    python -m website.stage build/pages

Pages and notebooks keep their places in the repository, so that the links
between them hold, and so do all files that they link to. The reference has a
page for each package, with the public names of its `__init__`.
"""

import ast
import pathlib
import re
import shutil
import sys
import urllib.parse

ROOT = pathlib.Path(__file__).parents[1]
PAGES = ("*.md", "docs/*.md", "examples/*.ipynb", "examples/serving/*.md")
LINK = re.compile(r"\]\(([^()\s#]+)(?:#[^()\s]*)?\)|(?:src|href)=\"([^\"#]+)\"")
ROOMS = {
    "layers": "The layers, for Keras models of your own.",
    "ops": "The equations as functions of tensors, and the planner.",
    "models": "Networks by name, weights, images.",
    "specs": "The networks as rows of tables.",
    "analysis": "What networks cost and what layers learned.",
    "data": "Files to batches.",
    "training": "Recipes, the loop, and parts for `model.fit`.",
    "runs": "The folder of a training run.",
    "serving": "Exports, and verifying them.",
    "streaming": "Whole models piece by piece, and text that they write.",
    "convert": "The command that converts weights of timm.",
}


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
    shutil.copy(ROOT / "website/tables.css", target / "website")
    folder = target / "reference"
    folder.mkdir()
    for room in ROOMS:
        (folder / f"{room}.md").write_text(reference(room), encoding="utf-8")
    return len(pages) + len(ROOMS)


def links(page):
    """Yields the files of the repository that a page links to."""
    for groups in LINK.findall(page.read_text(encoding="utf-8")):
        link = urllib.parse.unquote("".join(groups))
        target = (page.parent / link).resolve()
        if re.match(r"\w+:", link) or not target.is_relative_to(ROOT):
            continue
        if target.is_file():
            yield target


def reference(room):
    """The page of a package or module: a section for each public name."""
    lines = [f"# lambdanet_tf.{room}", "", ROOMS[room], ""]
    names = public_names(room)
    if names is None:
        return "\n".join([*lines, f"::: lambdanet_tf.{room}", ""])
    for name, module in sorted(names.items()):
        lines += [f"::: {module}.{name}", ""]
    return "\n".join(lines)


def public_names(room):
    """The names that a package imports, with their modules; None: a module."""
    package = ROOT / "lambdanet_tf" / room
    if not package.is_dir():
        return None
    stub = package / "__init__.pyi"
    source = stub if stub.exists() else package / "__init__.py"
    names = {}
    for statement in ast.parse(source.read_text(encoding="utf-8")).body:
        if isinstance(statement, ast.ImportFrom):
            for alias in statement.names:
                names[alias.name] = statement.module
    return {
        name: module
        for name, module in names.items()
        if module.startswith(f"lambdanet_tf.{room}")
    }


if __name__ == "__main__":
    print(f"{stage(pathlib.Path(sys.argv[1]).resolve())} pages")
