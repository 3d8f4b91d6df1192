"""What each room of the package may import or name, read from the sources."""

import ast
import pathlib
import subprocess
import sys

import pytest

pytestmark = pytest.mark.once

ROOT = pathlib.Path(__file__).parents[2]
PACKAGE = ROOT / "lambdanet_tf"
TREES = {
    path: ast.parse(path.read_text(encoding="utf-8"))
    for path in PACKAGE.rglob("*.py")
}

# Every room may import what it names and the rooms of the levels below it.
LEVELS = """
arguments < environment < config files lazy markdown < ops specs < layers <
models < analysis data streaming < runs < serving <
training garden keras_hub < cli < __main__
"""
LEVELS = [{*level.split()} for level in LEVELS.split("<")]
ROOMS = {
    room: set().union(*LEVELS[:level])
    for level, rooms in enumerate(LEVELS)
    for room in rooms
}
# "__init__" is the version of the package, which imports the lower floors.
for room in ("analysis", "runs", "serving", "training", "garden"):
    ROOMS[room].add("__init__")
ROOMS["__init__"] = ROOMS["analysis"] - {"__init__"}
ROOMS["data"] -= {"specs", "layers", "models"}
ROOMS["ops"] = {"arguments", "environment"}
ROOMS["specs"] = ROOMS["config"] = {"arguments"}
ROOMS["lazy"] = set()

TENSORFLOW = {"numpy", "tensorflow"}
PLAIN = ("specs", "arguments", "config", "cli", "__main__", "lazy")
LIBRARIES = dict.fromkeys(ROOMS, TENSORFLOW) | {
    **dict.fromkeys(PLAIN, set()),
    "garden": TENSORFLOW | {"official", "tf_keras"},
    "keras_hub": TENSORFLOW | {"keras", "keras_hub"},
}

# A module of each extra that is imported anywhere.
OPTIONAL = (
    *("sklearn", "PIL", "tensorflow_datasets", "matplotlib", "official"),
    *("keras_hub", "tensorflow_serving", "tf2onnx", "onnxruntime"),
    "safetensors",
)


def modules(tree):
    """Yields every module that a file imports, at any depth."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "relative imports hide the room"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def offences(room, tree):
    """The imports of a file that its room may not make."""
    found = []
    for module in modules(tree):
        top, *inner = module.split(".")
        if top == PACKAGE.name:
            target = inner[0] if inner and inner[0] in ROOMS else "__init__"
            allowed = target == room or target in ROOMS[room]
        else:
            allowed = top in sys.stdlib_module_names or top in LIBRARIES[room]
            allowed |= top == "typing_extensions"  # What type checkers bring.
        if not allowed:
            found.append(module)
    return found


def test_a_room_imports_only_what_its_level_may():
    for path, tree in TREES.items():
        room = path.relative_to(PACKAGE).with_suffix("").parts[0]
        assert room in ROOMS, f"give `{room}` a level in {__file__}"
        assert offences(room, tree) == [], path
    bad = "def f():\n    import keras\n    from lambdanet_tf import layers"
    assert len(offences("ops", ast.parse(bad))) == 2


def is_private(name):
    return str(name).startswith("_") and not name.startswith("__")


def own(tree):
    """The private names that a file defines: functions, classes, attributes."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(getattr(node, "ctx", None), ast.Store):
            yield getattr(node, "id", getattr(node, "attr", None))


def private(tree):
    """Yields the private names that a file uses, and modules of libraries."""
    inside = ("tensorflow.python", "keras.src")
    yield from (name for name in modules(tree) if name.startswith(inside))
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and is_private(node.attr):
            if ast.unparse(node) != "os._exit":  # `os` documents it.
                yield node.attr
        elif isinstance(node, ast.Call) and node.args[1:]:
            name = getattr(node.args[1], "value", "")
            asked = ast.unparse(node.func) in ("getattr", "hasattr", "setattr")
            if asked and is_private(name):
                yield name


def test_private_names_of_libraries_stand_in_two_files():
    known = {name for tree in TREES.values() for name in own(tree)}
    allowed = PACKAGE / "models/graph.py", PACKAGE / "environment.py"
    for path in TREES.keys() - {*allowed}:
        assert {*private(TREES[path])} - known == set(), path
    for path in allowed:
        assert {*private(TREES[path])} - known


def test_the_package_needs_tensorflow_alone():
    program = f"""
import sys
sys.modules.update(dict.fromkeys({OPTIONAL!r}))  # None: cannot be imported
import lambdanet_tf
assert "tensorflow" not in sys.modules
lambdanet_tf.layers, lambdanet_tf.models, lambdanet_tf.ops
for room in ("data", "serving", "training"):
    assert "lambdanet_tf." + room not in sys.modules, room
from lambdanet_tf import serving
serving.export_run, serving.verify_export
"""
    subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=True)
