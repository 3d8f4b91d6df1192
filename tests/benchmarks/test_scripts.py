"""The scripts that measure: that each of them runs and appends its records."""

import dataclasses
import shlex
import types

import pytest

from benchmarks import records
from benchmarks.layers import attention
from benchmarks.layers import growth
from benchmarks.layers import regret
from benchmarks.layers import rounding
from benchmarks.layers import speed as layers_speed
from benchmarks.layers import versions
from benchmarks.networks import comparison
from benchmarks.networks import floor
from benchmarks.networks import speed
from benchmarks.networks import timm_speed
from benchmarks.serving import convolutions
from benchmarks.serving import exports
from benchmarks.serving import formats
from benchmarks.serving import runtimes
from benchmarks.studies import digits
from benchmarks.studies import mixers
from benchmarks.studies import norm_defaults
from benchmarks.tpu import choices
from benchmarks.tpu import comparison as comparison_tpu
from benchmarks.tpu import compile as tpu_compile
from benchmarks.tpu import outcome
from benchmarks.tpu import programs
from benchmarks.training import speed as training_speed
from lambdanet_tf import models

pytestmark = pytest.mark.once


def tiny_network(**arguments):
    return models.LambdaResNetSmall(
        stages=("L",), widths=(8,), strides=(1,), **arguments
    )


LINE = layers_speed.Line((3, 3), 16, 3, 1)
TINY = dict.fromkeys(("CCCC", "CCLL", "LLLL"), tiny_network)
COMPARED = [
    comparison.Network("LambdaResNet", "A", 8, 70.0, None, tiny_network),
    comparison.Network("EfficientNet", "B", 12, 75.0, None, tiny_network),
]
COMPARED = {network.key: network for network in COMPARED}


@dataclasses.dataclass(frozen=True)
class Script:
    """A script, how many records it appends at least, and what they have."""

    module: types.ModuleType
    records: int
    measured: str
    arguments: str = ""  # {0}: a folder
    # Where something takes too long, what is in its place.
    instead: dict = dataclasses.field(default_factory=dict)
    remembers: bool = True  # A second run measures nothing.


# By the topic of the records.
SCRIPTS = {
    "layers": Script(
        layers_speed,
        records=2,
        measured="mebibytes",
        arguments="--seconds 0",
        instead={
            (layers_speed, "LINES"): (LINE,),
            (layers_speed.Line, "algorithms"): lambda _: ["auto", "einsum"],
            (layers_speed, "matrix_rate"): lambda: 1e11,
            (layers_speed.timing, "in_child"): lambda *_: 5.0,
        },
    ),
    "growth": Script(
        growth,
        records=4,
        measured="seconds",
        arguments="--seconds 0",
        instead={
            (growth, "CURVES"): {"size": [(3, LINE), (4, LINE)]},
        },
    ),
    "rounding": Script(
        rounding,
        records=3,
        measured="output",
        arguments="--only einsum",
        instead={(rounding, "GEOMETRIES"): {"3x3": [(3, 5, 1)] * 2}},
    ),
    "regret": Script(
        regret,
        records=2,
        measured="regret",
        arguments="--number 1 --seconds 0",
        instead={(regret, "draw_line"): lambda generator: LINE},
        remembers=False,
    ),
    "attention": Script(
        attention,
        records=2,
        measured="seconds",
        arguments="--time --only 'axial attention' --batch 2 --seconds 0",
        instead={
            (attention, "image"): lambda n: attention.Case(n, 3, 16),
            (attention, "stages"): lambda n: [attention.Case(n, 3, 16, 2)],
        },
        remembers=False,
    ),
    "versions": Script(
        versions,
        records=2,
        measured="seconds",
        arguments="--before HEAD --only '14x14, d=64, scope 5, k=32' "
        "--seconds 0",
        remembers=False,
    ),
    "networks": Script(
        speed,
        records=10,
        measured="seconds",
        arguments="--batch 2 --size 8 --seconds 0",
        instead={(speed, "NETWORKS"): TINY},
        remembers=False,
    ),
    "floor": Script(
        floor,
        records=1,
        measured="operations",
        arguments="--batch 2 --size 8 --seconds 0",
        instead={
            (speed, "NETWORKS"): TINY,
            (floor.layers_speed, "matrix_rate"): lambda: 1e11,
            (floor, "copy_rate"): lambda: 1e10,
        },
        remembers=False,
    ),
    "timm": Script(
        timm_speed,
        records=4,
        measured="seconds",
        arguments="--batch 1 --only LambdaResNet26T",
        instead={
            (timm_speed.timm_models, "missing"): lambda: "",
            (timm_speed.timing, "worker_turns"): (
                lambda commands, seconds: {name: [2.0] for name in commands}
            ),
        },
    ),
    "comparison": Script(
        comparison,
        records=2,
        measured="parameters",
        arguments="--all --batch 2 --seconds 0",
        instead={
            (comparison, "NETWORKS"): COMPARED,
            (comparison.timing, "in_child"): (
                lambda child, *place: comparison.measure(*place)
            ),
        },
    ),
    "runtimes": Script(
        runtimes,
        records=1,
        measured="seconds",
        arguments="--only LLLL --batch 8",
        instead={
            (runtimes, "export"): lambda name, folder: None,
            (runtimes, "measure"): lambda *_: {
                "seconds": {"TensorFlow": [2.0], "ONNX Runtime": [1.0]}
            },
        },
    ),
    "convolutions": Script(
        convolutions,
        records=1,
        measured="convolutions",
        arguments="--batch 2 --seconds 0.1",
        instead={
            (runtimes, "NETWORKS"): {
                "tiny": ("LambdaResNetSmall28", {"classes": 10}, 28)
            },
            (convolutions, "NETWORKS"): ("tiny",),
            (convolutions, "SIZE"): 28,
        },
    ),
    "formats": Script(
        formats, records=1, measured="accuracies", arguments="--epochs 1"
    ),
    "exports": Script(
        exports,
        records=17,
        measured="percentiles",
        arguments="--only digits --seconds 0.05",
        instead={
            (exports, "BATCHES"): (1, 8),
            (exports, "CLIENTS"): (1, 2),
            (exports, "LEAST"): 2,
        },
        remembers=False,
    ),
    "digits": Script(
        digits,
        records=1,
        measured="accuracy",
        arguments="--seeds 1 --epochs 1 --runs {0}/runs",
    ),
    "norm_defaults": Script(
        norm_defaults,
        records=1,
        measured="epochs",
        arguments="--only 'first text' --seeds 1 --batches 256 --short",
    ),
    "mixers": Script(
        mixers,
        records=4,
        measured="score",
        arguments="--only 'segmentation, convolution 3x3' --seeds 1 --steps 1",
    ),
    "training": Script(
        training_speed,
        records=len(list(training_speed.cases())),
        measured="images_per_second",
        instead={
            (training_speed, "write_files"): lambda folder: None,
            (training_speed.timing, "in_child"): (
                lambda *_, cores: {"images_per_second": 100.0 * cores}
            ),
        },
    ),
    "tpu": Script(
        tpu_compile,
        records=len([x for x in programs.PROGRAMS if "LambdaResNet50" in x]),
        measured="message",
        arguments="--only LambdaResNet50 --chips v3",
        instead={
            (tpu_compile, "compile_in_child"): lambda *_: outcome.refusal(
                "CompileTimeHbmOom: (34.33G) exceeds available HBM (15.48G)"
            ),
        },
    ),
    "tpu_choices": Script(
        choices, records=len(programs.DRAWN), measured="value"
    ),
}
QUICK = {"rounding", "timm", "runtimes", "training", "tpu", "tpu_choices"}
MARKS = {
    **dict.fromkeys(SCRIPTS.keys() - QUICK, pytest.mark.slow),
    "mixers": pytest.mark.thorough,
    "versions": (
        pytest.mark.slow,
        pytest.mark.skipif(
            not (records.ROOT / ".git").exists(), reason="no checkout of git"
        ),
    ),
}


@pytest.mark.parametrize(
    "topic", [pytest.param(name, marks=MARKS.get(name, ())) for name in SCRIPTS]
)
def test_a_script_appends_its_records(topic, tmp_path, monkeypatch):
    script = SCRIPTS[topic]
    for (owner, attribute), value in script.instead.items():
        monkeypatch.setattr(owner, attribute, value)
    arguments = shlex.split(script.arguments.format(tmp_path))
    for _ in range(1 + script.remembers):
        script.module.main([*arguments, "--results", str(tmp_path)])
    rows = records.read(topic, tmp_path)
    cases = {records.key(row["case"]) for row in rows}
    assert script.records <= len(cases) == len(rows)
    assert script.measured in rows[-1]


@pytest.mark.slow
def test_a_step_is_lowered_for_the_compiler(monkeypatch):
    monkeypatch.setattr(comparison, "NETWORKS", COMPARED)
    text, facts = comparison_tpu.lower("B, 12 px", 2)
    assert facts["images"] == 2
    assert "tensor<2x12x12x" in text
    assert "tensor<?" not in text
