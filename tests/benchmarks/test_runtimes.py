"""Other runtimes beside TensorFlow: what they are given and what is told."""

import numpy as np
import pytest

from benchmarks import runtimes
from benchmarks import timing
from tests.support import checks

pytestmark = pytest.mark.once


def test_runtimes_compute_the_same(small_export, small_run, rng):
    pytest.importorskip("onnxruntime")
    shape = small_run[1].input_shape[1:]
    images = rng.uniform(0, 255, (2, *shape)).astype(np.float32)
    expected = runtimes.tensorflow(small_export, 2)(images)
    assert expected.sum(-1) == pytest.approx(1.0)
    found = runtimes.onnx_runtime(small_export, 2)(images)
    checks.assert_close(found, expected, 1e-5)


def row(network, **ratios):
    rates = {"TensorFlow": 10.0, **{k: 10 / v[0] for k, v in ratios.items()}}
    return {
        "network": network,
        "batch": 8,
        "images_per_second": rates,
        "ratios": ratios,
    }


def test_the_text_says_who_wins():
    rows = [
        row("LLLL", OpenVINO=(0.5, 0.4, 0.6)),
        row("CCCC", OpenVINO=(2.0, 1.9, 2.2)),
    ]
    text = runtimes.text(rows)
    assert "| LLLL | 8 | 10.00 | 20.00 | **0.50** (0.40 to 0.60) |" in text
    assert "1.25 times as long as TensorFlow (median of 2 rows; 0.50" in text
    assert text.endswith("is faster in 1 of them.")


def test_a_runtime_that_refuses_a_network_is_named():
    ratios = {"ONNX Runtime": (1.0, 1.0, 1.0), "OpenVINO": (0.5, 0.5, 0.5)}
    rows = [row("LLLL", **ratios), row("CCCC")]
    text = runtimes.text(rows)
    assert "| CCCC | 8 | 10.00 | refused | refused |  |  |" in text
    assert (
        "OpenVINO takes 0.50 times as long as TensorFlow (median of 1" in text
    )


def test_ratios_are_those_of_turns():
    # A machine that slows down in the middle: 2.0 in every turn.
    first, second = [1.0, 1.0, 5.0, 5.0], [2.0, 2.0, 10.0, 10.0]
    assert timing.ratio(first, second) == (2.0, 2.0, 2.0)
