"""The benchmark of GPUs, on the device that there is."""

import pytest
import tensorflow as tf

from benchmarks import records
from benchmarks.gpu import speed
from benchmarks.views import gpu as views
from lambdanet_tf import models

pytestmark = pytest.mark.once


def tiny_network(**arguments):
    return models.LambdaResNetSmall(
        stages=("L",), widths=(8,), strides=(1,), **arguments
    )


def test_layers_and_networks_are_timed_in_both_precisions(
    tmp_path, monkeypatch
):
    line = speed.layers.Line((3, 3), 16, 3, 1)
    monkeypatch.setattr(speed.layers, "LINES", (line,))
    monkeypatch.setattr(speed.layers, "matrix_rate", lambda: 1e11)
    both = dict.fromkeys(("CCCC", "CCLL"), tiny_network)
    monkeypatch.setattr(speed.networks, "NETWORKS", both)
    before = tf.keras.mixed_precision.global_policy()
    try:
        arguments = ["--batch", "2", "--size", "8", "--seconds", "0"]
        speed.main([*arguments, "--results", str(tmp_path)])
    finally:
        tf.keras.mixed_precision.set_global_policy(before)
    found = records.read("gpu", tmp_path)
    for precision in speed.PRECISIONS:
        rows = [x for x in found if x["case"]["precision"] == precision]
        layers = [x for x in rows if "layer" in x["case"]]
        assert [x["case"]["batch"] for x in layers] == [speed.TIMES] * 2
        assert len(rows) == 2 + 4 + 2  # phases, networks, pairs
    text = views.gpu({"gpu": found})
    assert text.count("3x3, d=16, scope 3, batch 8") == 2
    assert text.count("| CCLL | training |") == 2
