"""Private names of TensorFlow and Keras stand in two files alone."""

import ast
import pathlib

import pytest

pytestmark = pytest.mark.once

PACKAGE = pathlib.Path(__file__).parents[2] / "lambdanet_tf"
ALLOWED = {PACKAGE / "models/graph.py", PACKAGE / "environment.py"}
TREES = {
    path: ast.parse(path.read_text(encoding="utf-8"))
    for path in sorted(PACKAGE.rglob("*.py"))
}


def is_private(name):
    return name.startswith("_") and not name.startswith("__")


def own(tree):
    """The private names that a file defines: functions, classes, attributes."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(getattr(node, "ctx", None), ast.Store):
            yield getattr(node, "id", getattr(node, "attr", None))


OWN = {name for tree in TREES.values() for name in own(tree)}
OWN.add("_exit")  # `os` documents it.


def foreign(tree):
    """Yields the private names of others that a file uses."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom | ast.Import):
            names = [name.name for name in node.names]
            for module in (getattr(node, "module", None) or "", *names):
                if module.startswith(("tensorflow.python", "keras.src")):
                    yield module
        elif isinstance(node, ast.Attribute) and is_private(node.attr):
            if ast.unparse(node) != "os._exit":  # as the language names it
                yield node.attr
        elif isinstance(node, ast.Call) and node.args[1:]:
            name = getattr(node.args[1], "value", "")
            asked = ast.unparse(node.func) in ("getattr", "hasattr", "setattr")
            if asked and is_private(str(name)):
                yield name


def test_no_private_name_of_a_library():
    for path in TREES.keys() - ALLOWED:
        assert sorted({*foreign(TREES[path])} - OWN) == [], path


@pytest.mark.parametrize(
    "source",
    [
        "from tensorflow.python.eager import context",
        "layer._keras_history",
        "getattr(x, '_keras_mask', None)",
    ],
)
def test_a_private_name_is_found(source):
    assert {*foreign(ast.parse(source))} - OWN
