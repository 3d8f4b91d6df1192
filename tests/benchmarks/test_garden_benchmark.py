"""The detector's benchmark: its tables, and its step as the TPU takes it."""

import re

import numpy as np
import pytest

from benchmarks.tpu.programs import GIB
from benchmarks.views import studies as views
from benchmarks.views import tpu as tpu_views


def row(network, seed, mask_ap, seconds=None, cpu_seconds=None):
    case = {"pictures": "digits", "network": network, "seed": seed}
    names = views.METRICS.values()
    return {
        "case": {**case, "steps": 800},
        "parameters": 1_000,
        "backbone_parameters": 100,
        "scenes": 250,
        "seconds": seconds,
        "cpu_seconds": cpu_seconds,
        "metrics": {**dict.fromkeys(names, 0.5), "mask_AP": mask_ap},
        "versions": {"tf_keras": "2.20", "tensorflow": "2", "python": "3"},
    }


@pytest.mark.once
def test_networks_are_compared_seed_by_seed():
    rows = [
        row("convolution", 0, 0.50, seconds=600.0, cpu_seconds=900.0),
        row("convolution", 1, 0.40),
        row("convolution", 7, 0.10),  # Its twin has not run.
        row("lambda", 0, 0.51),
        row("lambda", 1, 0.43),
    ]
    text = views.detection({"detection": rows})
    assert "| 10 | 15 |" in text
    (line,) = re.findall("^masks AP, .*$", text, re.MULTILINE)
    assert "+2.0 points on average (+1.0, +3.0;" in line
    assert "±12.7" in line  # 12.706 standard errors, of 1 point


@pytest.mark.once
def test_one_seed_makes_no_interval():
    rows = [row("convolution", 0, 0.5), row("lambda", 0, 0.6)]
    assert "on average" not in views.detection({"detection": rows})


@pytest.mark.garden
@pytest.mark.filterwarnings("ignore")  # The Model Garden's own.
@pytest.mark.slow
def test_the_step_of_a_detector_is_lowered_for_the_compiler(tmp_path):
    pytest.importorskip("lambdanet_tf.garden", exc_type=ImportError)
    garden_tasks = pytest.importorskip("tests.support.garden_tasks")
    from benchmarks.tpu import detection  # noqa: PLC0415

    records = tmp_path / "scenes.tfrecord"
    garden_tasks.write_scenes(records, np.random.default_rng(0), number=1)
    text, facts = detection.lower_step(garden_tasks.detector(records))
    size = garden_tasks.SIZE
    assert facts["parameters"] > 0
    assert f"tensor<1x{size}x{size}x3xf32>" in text
    assert "tensor<?" not in text


@pytest.mark.once
def test_the_table_says_what_does_not_fit():
    fits, large = (
        {
            "status": "ok",
            "arguments": GIB,
            "outputs": GIB,
            "aliases": GIB,
            "temporaries": temporaries * GIB,
            "code_bytes": 0,
        }
        for temporaries in (10, 16)
    )
    refused = {"status": "out of memory", "used": "34.33G of 15.48G"}
    results = {"v3": large, "v5e": fits, "v4": refused}
    rows = [
        {"case": {"experiment": "a", "chip": chip}, **result}
        for chip, result in results.items()
    ]
    text = tpu_views.detection({"detection_tpu": rows})
    assert "| `a` | v3 | does not fit | 1.00 | 16.00 | 17.00 of" in text
    assert "| `a` | v5e | fits | 1.00 | 10.00 | 11.00 of 16 |" in text
    (line,) = [line for line in text.split("\n") if "v4" in line]
    assert "34.33G" in line
