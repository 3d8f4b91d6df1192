"""Devices, seeds and markers for the whole suite.

Logical devices and threads cannot change once TensorFlow has run something.
"""

import gc
import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import hypothesis
import numpy as np
import pytest
import tensorflow as tf

from lambdanet_tf import serving
from lambdanet_tf.environment import KERAS_3
from lambdanet_tf.environment import is_there
from lambdanet_tf.runs import RunFolder
from tests.support.serving_run import write_run

tf.config.set_logical_device_configuration(
    tf.config.list_physical_devices("CPU")[0],
    [tf.config.LogicalDeviceConfiguration()] * 4,
)
for _gpu in tf.config.list_physical_devices("GPU"):
    tf.config.experimental.set_memory_growth(_gpu, True)
# The tolerances of the tests are those of float32.
tf.config.experimental.enable_tensor_float_32_execution(False)
if "PYTEST_XDIST_WORKER" in os.environ:
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)

# What these import at their top is in the extra `dev`, but not in every lane.
_IMPORTED = {
    "benchmarks/test_scripts.py": "tensorflow_serving",
    "examples/test_notebooks.py": "nbclient",
    "examples/test_serving_clients.py": "tensorflow_serving",
}

# The first call of an example traces and compiles: no time limit.
hypothesis.settings.register_profile(
    "suite", deadline=None, derandomize=True, database=None
)
hypothesis.settings.register_profile(
    "explore", deadline=None, max_examples=500, print_blob=True
)
hypothesis.settings.load_profile("suite")

# What tests with a marker need, and whether it is there.
_NEEDS = [
    ("garden", "TF_USE_LEGACY_KERAS=1", not KERAS_3),
    ("garden", "the extra `garden`", is_there("official")),
    ("keras_hub", "Keras 3", KERAS_3),
    ("once", "Keras 3", KERAS_3),
    ("keras_hub", "the extra `keras_hub`", is_there("keras_hub")),
    ("addons", "`make test-legacy`", is_there("tensorflow_addons")),
]


def pytest_ignore_collect(collection_path):
    for file, module in _IMPORTED.items():
        if collection_path.match(file) and not is_there(module):
            return True
    return None


@pytest.hookimpl(tryfirst=True)  # before `-m` reads the markers
def pytest_collection_modifyitems(items):
    # Long ones first: no process waits at the end for another one's last test.
    items.sort(key=lambda item: item.get_closest_marker("slow") is None)
    for item in items:
        for marker, what, there in _NEEDS:
            if item.get_closest_marker(marker) and not there:
                item.add_marker(pytest.mark.skip(reason=f"needs {what}"))


def pytest_collection_finish():
    """A collector need not read again what is imported by now."""
    gc.freeze()
    gc.set_threshold(20_000)


@pytest.fixture(autouse=True)
def fixed_seed(request):
    tf.keras.utils.set_random_seed(request.config.getoption("seed"))
    yield
    tf.keras.mixed_precision.set_global_policy("float32")


@pytest.fixture
def rng(request):
    return np.random.default_rng(request.config.getoption("seed"))


@pytest.fixture(scope="session")
def two_replicas():
    # The default collectives fail in a process that builds several strategies.
    return tf.distribute.MirroredStrategy(
        ["CPU:0", "CPU:1"],
        cross_device_ops=tf.distribute.ReductionToOneDevice(),
    )


@pytest.fixture(scope="session")
def small_run(tmp_path_factory):
    return write_run(tmp_path_factory.mktemp("runs") / "20250101-000000")


@pytest.fixture(scope="session")
def small_export(small_run, tmp_path_factory):
    """The export of that run with all that it can have. Do not write to it."""
    options = serving.options_for(
        RunFolder(small_run[0]).read(), formats=("tflite", "onnx")
    )
    base = tmp_path_factory.mktemp("exported")
    return serving.export_run(small_run[0], base, options=options)


@pytest.fixture(scope="session")
def finished_run(tmp_path_factory):
    """A finished run of the recipe smoke, to read, with its lines `printed`."""
    training, printed = pytest.importorskip("lambdanet_tf.training"), []
    path = str(tmp_path_factory.mktemp("smoke") / "run")
    options = training.RunOptions(run_dir=path)
    tf.keras.utils.set_random_seed(0)  # That of the recipe.
    folder = training.train(training.resolve("smoke"), options, printed.append)
    folder.printed = printed
    return folder
