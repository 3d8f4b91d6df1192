"""train.py --dry-run: what it says, what it leaves, what it refuses."""

import pathlib
import re
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

from lambdanet_tf import data
from lambdanet_tf import training
from lambdanet_tf.training import estimate

pytestmark = pytest.mark.once

MIB = 2**20


@pytest.mark.slow
def test_a_dry_run_says_what_it_measures_and_draws(tmp_path, monkeypatch):
    monkeypatch.setattr(estimate, "_SECONDS", 0.2)
    said = {
        "model": "LambdaResNetSmall, images 8x8x1, 10 classes",
        "memory": r"about \d.* MiB on each device: weights",
        "learning rate": "up to 0.25 in 0 steps of warm-up, then cosine",
        "devices": f".*float32.*{re.escape(tf.__version__)}",
        "input pipeline": r"[\d,]+ images/s alone",
        "first step": r"loss [\d.]+ after",
        "whole run": "about .* for 60 steps, limited by",
    }
    recipe, lines = training.resolve("smoke", {"epochs": 3}), []
    options = training.RunOptions(runs_dir=str(tmp_path / "runs"))
    estimate.dry_run(recipe, options, lines.append)
    rows = {line[:16].strip(): line[17:] for line in lines}
    for label, pattern in said.items():
        assert re.match(pattern, rows[label]), rows[label]
    loss = float(rows["first step"].split()[1])
    assert loss == pytest.approx(np.log(10), abs=0.7)
    (file,) = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert file == tmp_path / "runs" / "dry-run-smoke.png"


def test_the_picture_lies_beside_the_run():
    recipe, options = training.resolve("smoke"), training.RunOptions()
    assert estimate.picture_path(recipe, options) == "runs/dry-run-smoke.png"
    options = training.RunOptions(run_dir="gs://bucket/a/")
    assert estimate.picture_path(recipe, options) == "gs://bucket/dry-run-a.png"


def test_the_slower_of_both_decides_the_whole_run():
    recipe = training.resolve("smoke", {"batch_size": 50, "epochs": 30})
    text = estimate.whole_run(recipe, 20, step_seconds=0.5, input_rate=25.0)
    assert text.startswith("about 20:00 min for 600 steps")
    assert "limited by the input pipeline (2 s for a batch)" in text
    text = estimate.whole_run(recipe, 20, step_seconds=0.5, input_rate=1000.0)
    assert text.startswith("about 5:00 min for 600 steps, limited by the step;")


def test_a_step_that_cannot_fit_is_refused():
    recipe, strategy = training.resolve("smoke"), tf.distribute.get_strategy()
    estimate.check_memory(recipe, {"weights": MIB}, strategy)
    with pytest.raises(ValueError, match="`batch_size` 64 is too large"):
        estimate.check_memory(recipe, {"activations": 2**50}, strategy)


PEAK = """
import tensorflow as tf
from benchmarks.timing import peak_megabytes
from lambdanet_tf import analysis, training
from lambdanet_tf.training import estimate, loop, steps
recipe = training.resolve("digits", {"batch_size": 512, "image_size": 24})
options, strategy = training.RunOptions(), tf.distribute.get_strategy()
pipeline, state = loop.set_up(recipe, options, strategy)
counted = analysis.analyze(state.model, executed=False)
memory = estimate.step_memory(recipe, state, counted)
take = steps.training_step(state, recipe)
batches = iter(pipeline.training())
arguments = batches, tf.constant(0, tf.int64), tf.constant(1)
take.get_concrete_function(*arguments)
class Step:
    get_concrete_function = staticmethod(lambda: None)
    __call__ = staticmethod(lambda: take(*arguments))
print(memory["gradients"] + memory["activations"])
print(peak_megabytes(Step()) * 2**20)
"""


@pytest.mark.slow
def test_the_estimate_is_near_the_measured_peak():
    """What the step adds at its peak, by the kernel's own mark."""
    command = [sys.executable, "-c", PEAK]
    root = pathlib.Path(__file__).parents[2]
    output = subprocess.check_output(command, text=True, cwd=root)
    estimated, measured = map(float, output.split())
    assert measured > 200 * MIB
    assert 1 / 1.6 < estimated / measured < 1.6


def test_throughput_counts_the_images_after_the_first_batch():
    batches = tf.data.Dataset.from_tensors((tf.zeros([7, 2, 2, 1]), 0))
    assert data.throughput(batches.repeat(4), 60.0).images == 21
    for number, received in enumerate(["none", "one"]):
        with pytest.raises(ValueError, match=f"batches. Received: {received}"):
            data.throughput(batches.repeat(number))
