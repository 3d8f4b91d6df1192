"""The scripts that measure: that each of them runs and appends its records."""

import functools
import importlib

import numpy as np
import pytest
import tensorflow as tf

from benchmarks import records
from benchmarks.layers.attention import Case
from benchmarks.layers.speed import Line
from benchmarks.networks import comparison
from benchmarks.studies import fashion
from benchmarks.tpu import compile
from benchmarks.tpu import programs
from benchmarks.tpu.operations import audit
from lambdanet_tf import layers
from lambdanet_tf import models
from lambdanet_tf import ops

pytestmark = pytest.mark.once

# The topic of the records, how many there are, what they have, and the script
# with its arguments; {0} is a folder.
SCRIPTS = """
rounding 3 output layers.rounding --only einsum
timm 4 seconds networks.timm_speed --batch 1 --only LambdaResNet26T
runtimes 1 seconds serving.runtimes --only LLLL --batch 8
training 2 seconds training.speed
layers 2 matrix_rate layers.speed --seconds 0
regret 2 regret layers.regret --number 1 --seconds 0
attention 2 seconds layers.attention --time --only axial --seconds 0
networks 10 seconds networks.speed --batch 2 --size 8 --seconds 0
comparison 2 parameters networks.comparison --batch 2 --seconds 0
exports 1 seconds serving.exports --only digits --seconds 0.05
digits 1 accuracy studies.digits --seeds 1 --epochs 1 --runs {0}/runs
fashion 6 accuracy studies.fashion --runs {0}/runs
mixers 8 score studies.mixers --only equal --seeds 1 --steps 1
"""
SCRIPTS = dict(line.split(maxsplit=1) for line in SCRIPTS.split("\n")[1:-1])
LINE = Line((3, 3), 16, 3, 1)
TINY = functools.partial(
    models.LambdaResNetSmall, stages=("L",), widths=(8,), strides=(1,)
)
COMPARED = {
    "A": comparison.Network("LambdaResNet", "LambdaResNetSmall", 8, 70.0),
    "B": comparison.Network("EfficientNet", "LambdaResNetSmall", 12, 75.0),
}
STUDY = fashion.STAGES["small"]._replace(
    arms={x: fashion.SMALL[x] for x in ("lambda layers", "convolutions")},
    train_images=70,
    validation_images=20,
    rates=(0.1, 0.2),
    searched=("lambda layers",),
    seeds={"lambda layers": 2, "convolutions": 2},
)
SPEEDS = {"TensorFlow": [2.0], "ONNX Runtime": [1.0]}
# What would take too long, and what is in its place.
INSTEAD = {
    "layers.speed.LINES": (LINE,),
    "layers.speed.Line.algorithms": lambda _: ["auto", "einsum"],
    "layers.rounding.GEOMETRIES": {"3x3": [(3, 5, 1)] * 2},
    "layers.regret.draw_line": lambda generator: LINE,
    "layers.attention.stages": lambda n: [Case(n, 3, 16, 2)],
    "networks.speed.NETWORKS": dict.fromkeys(("CCCC", "CCLL", "LLLL"), TINY),
    "networks.timm_models.missing": lambda: "",
    "timing.worker_turns": lambda them, _: dict.fromkeys(them, [2.0]),
    "networks.comparison.NETWORKS": COMPARED,
    "networks.comparison.Network.model": lambda network: TINY(
        input_shape=(network.image_size, network.image_size, 3)
    ),
    "serving.runtimes.export": lambda name, folder: None,
    "serving.runtimes.measure": lambda *_: {"seconds": SPEEDS},
    "serving.exports.BATCHES": (1,),
    "serving.exports.LEAST": 2,
    "studies.fashion.STAGES": {"small": STUDY},
    "studies.fashion.split_data": lambda *_: None,
    # Those of segmentation: which is best after a step is no matter.
    "studies.protocol.RATES": (3e-3, 1e-2, 3e-2),
    "training.speed.overhead": lambda _: SPEEDS,
}


def called(function, *arguments):
    """What `timing.in_child` returns, in this process."""
    module, _, name = function.partition(":")
    return getattr(importlib.import_module(module), name)(*arguments)


@pytest.mark.slow
@pytest.mark.parametrize("topic", SCRIPTS)
def test_a_script_appends_its_records(topic, tmp_path, monkeypatch):
    count, measured, script, *arguments = SCRIPTS[topic].split()
    for name, value in (INSTEAD | {"timing.in_child": called}).items():
        monkeypatch.setattr(f"benchmarks.{name}", value)
    if topic == "fashion":
        train = "benchmarks.studies.runs.train"
        monkeypatch.setattr(train, lambda recipe, _: {"accuracy": recipe.seed})
    arguments = [word.format(tmp_path) for word in arguments]
    module = importlib.import_module(f"benchmarks.{script}")
    for _ in range(1 if topic in ("attention", "networks") else 2):
        module.main([*arguments, "--results", str(tmp_path)])
    rows = records.read(topic, tmp_path)
    cases = {records.key(row["case"]) for row in rows}
    assert int(count) == len(cases) == len(rows)
    assert measured in rows[-1]


def test_a_program_that_is_too_large_is_recorded(tmp_path, monkeypatch):
    refused = programs.refusal("CompileTimeHbmOom")
    monkeypatch.setattr(compile, "compile_in_child", lambda *_: refused)
    compile.main(["--only", "LambdaResNet50, 1", "--results", str(tmp_path)])
    rows = records.read("tpu", tmp_path)
    assert [row["status"] for row in rows] == ["out of memory"] * 2


def test_the_search_never_sees_a_test_image(tmp_path, rng):
    arrays = []
    for count in (200, 30):
        images = rng.integers(0, 256, [count, 28, 28])
        images[:, 0, 0] = np.arange(count)  # a number for each image
        arrays += [images, np.arange(count) % 10]
    for name, x in zip(fashion.FILES, arrays, strict=True):
        head = np.array([2048 + x.ndim, *x.shape], ">i4").tobytes()
        (tmp_path / name).write_bytes(head + x.astype("uint8").tobytes())
    fashion.split_data(tmp_path, tmp_path, STUDY)
    search, final = (
        np.load(tmp_path / f"{name}.npz") for name in ("search", "final")
    )
    assert np.bincount(search["y_train"]).tolist() == [7] * 10
    assert np.bincount(search["y_test"]).tolist() == [2] * 10
    seen, scored = (search[x][:, 0, 0] for x in ("x_train", "x_test"))
    assert not {*seen} & {*scored}
    np.testing.assert_array_equal(final["x_train"], search["x_train"])
    np.testing.assert_array_equal(final["x_test"], arrays[2])
    np.testing.assert_array_equal(final["y_test"], arrays[3])


@pytest.mark.slow
@pytest.mark.parametrize("implementation", ops.implementations(2))
def test_every_implementation_of_a_layer_has_kernels(implementation):
    tf.keras.mixed_precision.set_global_policy("mixed_bfloat16")
    layer = layers.LambdaLayer(8, scope=3, implementation=implementation)
    layer.build((2, 8, 8, 8))

    @tf.function(input_signature=[tf.TensorSpec([2, 8, 8, 8], tf.bfloat16)])
    def gradient(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            loss = tf.reduce_sum(tf.cast(layer(x, training=True), tf.float32))
        return tape.gradient(loss, [x, *layer.trainable_variables])

    with ops.planning_for("tpu"):
        found = audit(gradient.get_concrete_function())
    assert (found.without_kernel, found.dynamic, found.double) == ((), (), ())


def test_what_a_tpu_cannot_compute_is_found():
    @tf.function(input_signature=[tf.TensorSpec([4], tf.float32)])
    def bad(x):
        doubled = tf.cast(x, tf.float64) * 2.0
        return doubled, tf.strings.as_string(x), tf.unique(x)[0]

    found = audit(bad.get_concrete_function())
    assert found.without_kernel == ("AsString",)
    assert found.dynamic == ("Unique",)
    assert any("mul" in name for name in found.double)
