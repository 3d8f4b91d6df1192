"""The detector's benchmark: its tables, and its step as the TPU takes it."""

import re

import numpy as np
import pytest

from benchmarks.tpu.programs import GIB

pytest.importorskip("lambdanet_tf.garden", exc_type=ImportError)
detection_report = pytest.importorskip("benchmarks.detection_report")
detection_tpu = pytest.importorskip("benchmarks.detection_tpu")
garden_tasks = pytest.importorskip("tests.support.garden_tasks")

pytestmark = [
    pytest.mark.garden,
    pytest.mark.filterwarnings("ignore"),  # The Model Garden's own.
]


def row(network, seed, mask_ap, **times):
    names = detection_report.METRICS.values()
    return {
        "pictures": "digits",
        "network": network,
        "seed": seed,
        "parameters": 1_000,
        "backbone_parameters": 100,
        "steps": 800,
        "metrics": {**dict.fromkeys(names, 0.5), "mask_AP": mask_ap},
        "versions": {"keras": "tf_keras", "tensorflow": "2", "python": "3"},
        **times,
    }


def test_networks_are_compared_seed_by_seed():
    rows = [
        row("convolution", 0, 0.50, seconds=600.0, cpu_seconds=900.0),
        row("convolution", 1, 0.40),
        row("convolution", 7, 0.10),  # Its twin has not run.
        row("lambda", 0, 0.51),
        row("lambda", 1, 0.43),
    ]
    text = detection_report.table(rows)
    assert "| 10 | 15 |" in text
    (line,) = re.findall("^masks AP, .*$", text, re.MULTILINE)
    assert "+2.0 points on average (+1.0, +3.0;" in line
    assert "±12.7" in line  # 12.706 standard errors, of 1 point


def test_one_seed_makes_no_interval():
    rows = [row("convolution", 0, 0.5), row("lambda", 0, 0.6)]
    assert detection_report.differences(rows) == []


@pytest.mark.slow
def test_the_step_of_a_detector_is_lowered_for_the_compiler(tmp_path):
    records = tmp_path / "scenes.tfrecord"
    garden_tasks.write_scenes(records, np.random.default_rng(0), number=1)
    text, facts = detection_tpu.lower(garden_tasks.detector(records))
    size = garden_tasks.SIZE
    assert facts["parameters"] > 0
    assert f"tensor<1x{size}x{size}x3xf32>" in text
    assert "tensor<?" not in text


def test_the_table_says_what_does_not_fit():
    fits, large = (
        {
            "status": "ok",
            "arguments": GIB,
            "outputs": GIB,
            "aliases": GIB,
            "temporaries": temporaries * GIB,
            "code": 0,
        }
        for temporaries in (10, 16)
    )
    name = detection_tpu.EXPERIMENTS[0]
    refused = {"status": "out of memory", "used": "34.33G of 15.48G"}
    text = detection_tpu.table(
        {f"{name} on v3": large, f"{name} on v5e": fits,
         f"{name} on v4": refused}
    )  # fmt: skip
    assert f"| `{name}` | v3 | does not fit | 1.00 | 16.00 | 17.00 of" in text
    assert f"| `{name}` | v5e | fits | 1.00 | 10.00 | 11.00 of 16 |" in text
    (line,) = [line for line in text.split("\n") if "v4" in line]
    assert "34.33G" in line
