"""The scripts that measure: that each of them runs and appends its records."""

import functools
import importlib
import shlex

import numpy as np
import pytest

from benchmarks import records
from benchmarks.layers import speed
from benchmarks.layers.attention import Case
from benchmarks.layers.speed import Line
from benchmarks.networks import comparison
from benchmarks.studies import fashion
from benchmarks.tpu import programs
from lambdanet_tf import models

pytestmark = pytest.mark.once

# The topic of the records, how many there are at least, what they have, and
# the script with its arguments; {0} is a folder.
SCRIPTS = """\
layers 2 matrix_rate layers.speed --seconds 0
rounding 3 output layers.rounding --only einsum
regret 2 regret layers.regret --number 1 --seconds 0
attention 2 seconds layers.attention --time --only 'axial attention' \
    --batch 2 --seconds 0
networks 10 seconds networks.speed --batch 2 --size 8 --seconds 0
timm 4 seconds networks.timm_speed --batch 1 --only LambdaResNet26T
comparison 2 parameters networks.comparison --batch 2 --seconds 0
runtimes 1 seconds serving.runtimes --only LLLL --batch 8
exports 2 seconds serving.exports --only digits --seconds 0.05
digits 1 accuracy studies.digits --seeds 1 --epochs 1 --runs {0}/runs
fashion 6 accuracy studies.fashion --stage small --runs {0}/runs
mixers 4 score studies.mixers --only 'segmentation, convolution 3x3' \
    --seeds 1 --steps 1
training 2 seconds training.speed
tpu 7 message tpu.compile --only LambdaResNet --chips v3
"""

tiny_network = functools.partial(
    models.LambdaResNetSmall, stages=("L",), widths=(8,), strides=(1,)
)
LINE = Line((3, 3), 16, 3, 1)
TINY = dict.fromkeys(("CCCC", "CCLL", "LLLL"), tiny_network)
DIGITS = ("LambdaResNetSmall28", {"classes": 10}, 28)
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
TOO_LARGE = programs.refusal("CompileTimeHbmOom")
SPEEDS = {"TensorFlow": [2.0], "ONNX Runtime": [1.0]}
# By topic: where something takes too long, what is in its place.
INSTEAD = {
    "layers": {
        "layers.speed.LINES": (LINE,),
        "layers.speed.Line.algorithms": lambda _: ["auto", "einsum"],
        "layers.speed.matrix_rate": lambda: 1e11,
    },
    "rounding": {"layers.rounding.GEOMETRIES": {"3x3": [(3, 5, 1)] * 2}},
    "regret": {"layers.regret.draw_line": lambda generator: LINE},
    "attention": {
        "layers.attention.stages": lambda n: [Case(n, 3, 16, 2)],
    },
    "networks": {"networks.speed.NETWORKS": TINY},
    "timm": {
        "networks.timm_models.missing": lambda: "",
        "timing.worker_turns": lambda them, _: dict.fromkeys(them, [2.0]),
    },
    "comparison": {
        "networks.comparison.NETWORKS": COMPARED,
        "timing.in_child": lambda _, *place: comparison.measure(*place),
    },
    "runtimes": {
        "serving.runtimes.export": lambda name, folder: None,
        "serving.runtimes.measure": lambda *_: {"seconds": SPEEDS},
    },
    "exports": {
        "serving.exports.BATCHES": (1, 8),
        "serving.exports.LEAST": 2,
    },
    "fashion": {
        "studies.fashion.STAGES": {"small": STUDY},
        "studies.fashion.split_data": lambda *_: None,
        "studies.runs.train": lambda recipe, _: {"accuracy": recipe.seed},
    },
    "training": {"timing.in_child": lambda *_: SPEEDS},
    "tpu": {"tpu.compile.compile_in_child": lambda *_: TOO_LARGE},
}
# Others measure nothing in a second run.
AGAIN = ("attention", "networks")
QUICK = ("rounding", "timm", "runtimes", "training", "tpu")
MARKS = {**dict.fromkeys(QUICK, ()), "mixers": pytest.mark.slow}
CASES = [
    pytest.param(x, id=x[0], marks=MARKS.get(x[0], pytest.mark.slow))
    for x in map(shlex.split, SCRIPTS.splitlines())
]


@pytest.mark.parametrize("words", CASES)
def test_a_script_appends_its_records(words, tmp_path, monkeypatch):
    topic, least, measured, script, *arguments = words
    for name, value in INSTEAD.get(topic, {}).items():
        monkeypatch.setattr(f"benchmarks.{name}", value)
    arguments = [word.format(tmp_path) for word in arguments]
    for _ in range(1 if topic in AGAIN else 2):
        module = importlib.import_module(f"benchmarks.{script}")
        module.main([*arguments, "--results", str(tmp_path)])
    rows = records.read(topic, tmp_path)
    cases = {records.key(row["case"]) for row in rows}
    assert int(least) <= len(cases) == len(rows)
    assert measured in rows[-1]


@pytest.mark.slow
def test_two_commits_are_timed_in_turns(monkeypatch, capfd):
    if not (records.ROOT / ".git").exists():
        pytest.skip("no checkout of git")
    monkeypatch.setattr(speed, "LINES", speed.LINES[:1])
    speed.main(["--before", "HEAD", "--seconds", "0"])
    lines = capfd.readouterr().out.splitlines()
    assert [x.rpartition(":")[0] for x in lines] == [
        f"{speed.LINES[0].name}, {phase}" for phase in speed.PHASES
    ]


ARRAYS = ("x_train", "y_train", "x_test", "y_test")


def test_the_search_never_sees_a_test_image(tmp_path, rng):
    arrays = []
    for count in (200, 30):
        images = rng.integers(0, 256, [count, 28, 28])
        images[:, 0, 0] = np.arange(count)  # a number for each image
        arrays += [images, np.arange(count) % 10]
    for name, array in zip(fashion.FILES, arrays, strict=True):
        head = np.array([2048 + array.ndim, *array.shape], ">i4").tobytes()
        (tmp_path / name).write_bytes(head + array.astype("uint8").tobytes())
    fashion.split_data(tmp_path, tmp_path, STUDY)
    search, final = (
        [np.load(tmp_path / f"{x}.npz")[y] for y in ARRAYS]
        for x in ("search", "final")
    )
    assert np.bincount(search[1]).tolist() == [7] * 10
    assert np.bincount(search[3]).tolist() == [2] * 10
    assert not {*search[0][:, 0, 0]} & {*search[2][:, 0, 0]}
    np.testing.assert_array_equal(final[0], search[0])
    for expected, found in zip(arrays[2:], final[2:], strict=True):
        np.testing.assert_array_equal(found, expected)
