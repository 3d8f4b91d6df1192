"""Which room of the package may import which, read from the sources."""

import ast
import pathlib
import subprocess
import sys

import pytest

pytestmark = pytest.mark.once

ROOT = pathlib.Path(__file__).parents[2]
PACKAGE = ROOT / "lambdanet_tf"

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


def modules(source):
    """Yields every module that a source imports, at any depth."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "relative imports hide the room"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def offences(room, source):
    """The imports of a source that its room may not make."""
    found = []
    for module in modules(source):
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
    for path in PACKAGE.rglob("*.py"):
        room = path.relative_to(PACKAGE).with_suffix("").parts[0]
        assert room in ROOMS, f"give `{room}` a level in {__file__}"
        assert offences(room, path.read_text(encoding="utf-8")) == [], path


@pytest.mark.parametrize(
    ("room", "source"),
    [
        ("layers", "from lambdanet_tf.models.resnet import ResNet"),
        ("ops", "def f():\n    from lambdanet_tf.layers import LambdaLayer"),
        ("layers", "import keras"),
        ("training", "import matplotlib.pyplot as plt"),
        ("ops", "if TYPE_CHECKING:\n    from lambdanet_tf import layers"),
    ],
)
def test_an_import_upwards_is_an_offence(room, source):
    assert len(offences(room, source)) == 1


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
