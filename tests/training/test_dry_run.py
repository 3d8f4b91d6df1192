"""train.py --dry-run: what it says, and that it leaves nothing."""

import os
import re

import numpy as np
import pytest
import tensorflow as tf

from lambdanet_tf import training

pytestmark = pytest.mark.once


@pytest.mark.slow
def test_a_dry_run_takes_two_steps_and_leaves_nothing(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    said = {
        "model": r"LambdaResNetSmall, images \(8, 8, 1\)",
        "images": "digits: 1,295 training",
        "devices": f".*float32.*{re.escape(tf.__version__)}",
        "weights": "2,862, trainable",
        "operations": r"4\.08.*e\+05 FLOPs an image",
        "first step": r"loss [\d.]+ after .* compiling included",
        "second step": r"[\d.]+ s, [\d,.]+ images/s",
        "epoch": "20 steps, .* 3 of them: ",
        "memory": r"[\d.]+ GiB at most",
    }
    recipe, lines = training.resolve("smoke", {"epochs": 3}), []
    training.dry_run(recipe, print_fn=lines.append)
    rows = {line[:12].strip(): line[13:] for line in lines}
    for label, pattern in said.items():
        assert re.match(pattern, rows[label]), rows[label]
    loss = float(rows["first step"].split()[1])
    assert loss == pytest.approx(np.log(10), abs=0.7)
    assert os.listdir(tmp_path) == []
