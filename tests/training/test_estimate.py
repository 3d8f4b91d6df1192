"""train.py --dry-run: what it says, what it leaves, what it refuses."""

import dataclasses
import os
import pathlib
import re
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

from lambdanet_tf import analysis
from lambdanet_tf import data
from lambdanet_tf import training
from lambdanet_tf.training import estimate
from lambdanet_tf.training import loop
from lambdanet_tf.training import resolve
from tests.support.train_process import Process
from tests.support.train_process import clusters

pytestmark = pytest.mark.once

ROOT = pathlib.Path(__file__).parents[2]
MIB = 2**20


@pytest.fixture(scope="module")
def said(tmp_path_factory):
    """What a dry run of a tiny network says, by label, and its folder."""
    folder = tmp_path_factory.mktemp("dry")
    lines = []
    options = training.RunOptions(runs_dir=str(folder / "runs"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(estimate, "_SECONDS", 0.2)
        estimate.dry_run(resolve("smoke", {"epochs": 3}), options, lines.append)
    return {line[:16].strip(): line[17:] for line in lines}, folder


COUNTED = {
    "model": "LambdaResNetSmall, images 8x8x1, 10 classes",
    "steps": "20 an epoch, 3 epochs: 60",
    "batch": "64 images",
    "learning rate": "up to 0.25 in 0 steps of warm-up, then cosine until 60",
}
MEASURED = {
    "parameters": r"[\d,]+, trainable",
    "operations": r"[\d.]+ MFLOPs an image",
    "memory": r"about \d.* MiB on each device: weights",
    "images": ".*1,295 training, 143 validation",
    "devices": f".*{re.escape(tf.__version__)}",
    "input pipeline": r"[\d,]+ images/s alone",
    "first step": r"loss ([\d.]+) after",
    "next steps": r"[\d.e-]+ s each, [\d,.]+ images/s",
    "whole run": "about .* for 60 steps, limited by",
}


@pytest.mark.slow
def test_it_says_what_it_counts_and_measures(said):
    rows, _ = said
    assert {label: rows[label] for label in COUNTED} == COUNTED
    for label, pattern in MEASURED.items():
        assert re.match(pattern, rows[label]), rows[label]
    assert "float32" in rows["devices"]
    loss = float(re.match(MEASURED["first step"], rows["first step"])[1])
    assert loss == pytest.approx(np.log(10), abs=0.7)


@pytest.mark.slow
def test_it_leaves_a_picture_and_nothing_else(said):
    _, folder = said
    files = [p for p in folder.rglob("*") if p.is_file()]
    assert files == [folder / "runs" / "dry-run-smoke.png"]
    picture = tf.io.decode_png(files[0].read_bytes())
    assert picture.shape[1] > picture.shape[0] > 300


@pytest.mark.thorough
def test_it_works_without_the_data(tmp_path, monkeypatch):
    """ImageNet is not here, and nothing is downloaded."""
    monkeypatch.setattr(estimate, "_SECONDS", 0.2)
    changes = {
        "model_arguments": {"stages": ["L"], "widths": [8], "strides": [2]},
        "image_size": 32,
        "batch_size": 2,
        "augmentation": "none",
    }
    lines = []
    options = training.RunOptions(
        runs_dir=str(tmp_path), data_dir=str(tmp_path / "data")
    )
    estimate.dry_run(resolve("imagenet_90", changes), options, lines.append)
    text = "\n".join(lines)
    assert "random images in the place of tfds:imagenet2012" in text
    assert "1,000 classes" in text
    assert "whole run" in text
    assert os.listdir(tmp_path) == ["dry-run-imagenet_90.png"]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, "runs/dry-run-smoke.png"),
        ({"runs_dir": "other"}, "other/dry-run-smoke.png"),
        ({"run_dir": "runs/mine"}, "runs/dry-run-mine.png"),
        ({"run_dir": "mine/"}, "./dry-run-mine.png"),
        ({"run_dir": "gs://bucket/runs/a"}, "gs://bucket/runs/dry-run-a.png"),
    ],
)
def test_the_picture_lies_beside_the_run(options, expected):
    path = estimate.picture_path(
        resolve("smoke"), training.RunOptions(**options)
    )
    assert path == expected


@pytest.mark.slow
def test_a_run_that_is_there_is_not_touched(tmp_path):
    """Two replicas; in a process of its own, for the CPU is divided."""
    run = tmp_path / "runs" / "mine"
    run.mkdir(parents=True)
    (run / "notes.txt").write_text("mine")
    code, output = Process(
        tmp_path / "output",
        "--dry-run", "--recipe", "smoke", "--run-dir", str(run),
        "--replicas", "2", "--strategy", "mirrored",
    ).end()  # fmt: skip
    assert code == 0, output
    assert "2 CPU replicas" in output
    assert "64 images, 32 on each replica" in output
    assert "whole run" in output
    files = sorted(p.name for p in tmp_path.rglob("*") if p.is_file())
    assert files == ["dry-run-mine.png", "notes.txt", "output"]


@pytest.mark.slow
def test_of_two_workers_one_speaks(tmp_path):
    command = ["--dry-run", "--recipe", "smoke",
               "--run-dir", str(tmp_path / "run")]  # fmt: skip
    both = [
        Process(tmp_path / f"{i}", *command, TF_CONFIG=config)
        for i, config in enumerate(clusters(2))
    ]
    ends = [one.end() for one in both]
    assert [code for code, _ in ends] == [0, 0], ends
    assert "2 CPU replicas on 2 machines" in ends[0][1]
    assert "whole run" in ends[0][1]
    assert "Dry run" not in ends[1][1]
    assert "images/s" not in ends[1][1]
    assert sorted(os.listdir(tmp_path)) == ["0", "1", "dry-run-run.png"]


# The estimates.


def test_the_slower_of_both_decides_the_whole_run():
    recipe = resolve("smoke", {"batch_size": 50, "epochs": 30})
    text = estimate.whole_run(recipe, 20, step_seconds=0.5, input_rate=25.0)
    assert text.startswith("about 20:00 min for 600 steps")
    assert "limited by the input pipeline (2 s for a batch)" in text
    text = estimate.whole_run(recipe, 20, step_seconds=0.5, input_rate=1000.0)
    assert text.startswith("about 5:00 min for 600 steps, limited by the step;")


@pytest.mark.slow
def test_what_is_kept_is_counted_exactly():
    """Of the activations, that they grow with the batch of a device."""
    recipe = resolve("digits")
    _, state = loop.set_up(
        recipe, training.RunOptions(), tf.distribute.get_strategy()
    )
    counted = analysis.analyze(state.model, executed=False)
    memory = estimate.step_memory(recipe, state, counted)
    trained = sum(int(np.prod(w.shape)) for w in state.model.trainable_weights)
    everything = state.model.count_params()
    assert memory["weights"] == 4 * everything
    assert memory["averages"] == 4 * everything
    assert memory["gradients"] == 4 * trained
    assert 0 <= memory["slots"] - 4 * trained < 64  # Momentum, a few numbers.
    twice = dataclasses.replace(recipe, batch_size=128)
    more = estimate.step_memory(twice, state, counted)
    assert more["activations"] == 2 * memory["activations"] > 10 * MIB


def test_a_step_that_cannot_fit_is_refused():
    strategy = tf.distribute.get_strategy()
    recipe = resolve("smoke")
    estimate.check_memory(
        recipe, {"weights": MIB, "activations": MIB}, strategy
    )
    huge = {"weights": MIB, "activations": 2**50}
    with pytest.raises(ValueError, match="`batch_size` 64 is too large"):
        estimate.check_memory(recipe, huge, strategy)


PEAK = """
import tensorflow as tf
from benchmarks.timing import peak_megabytes
from lambdanet_tf.analysis import analyze
from lambdanet_tf.training import RunOptions, resolve
from lambdanet_tf.training.estimate import step_memory
from lambdanet_tf.training.loop import set_up
from lambdanet_tf.training.steps import training_step
recipe = resolve("digits", {"batch_size": 512, "image_size": 24})
pipeline, state = set_up(recipe, RunOptions(), tf.distribute.get_strategy())
memory = step_memory(recipe, state, analyze(state.model, executed=False))
take = training_step(state, recipe)
batches = iter(pipeline.training(count_bad=True))
zero = tf.constant(0, tf.int64)
arguments = batches, zero, tf.constant(1)
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
    done = subprocess.run(
        [sys.executable, "-c", PEAK],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
    )
    assert done.returncode == 0, done.stderr
    estimated, measured = map(float, done.stdout.split())
    assert measured > 200 * MIB
    assert 1 / 1.6 < estimated / measured < 1.6


# The speed of a pipeline.


@pytest.mark.slow
def test_throughput_counts_the_images_after_the_first_batch():
    batches = tf.data.Dataset.from_tensors((tf.zeros([7, 2, 2, 1]), 0))
    flow = data.throughput(batches.repeat(), 0.6)
    assert flow.images % 7 == 0
    assert flow.images_per_second == flow.images / flow.seconds
    assert flow.seconds >= 0.6
    assert flow.first_seconds > 0

    flow = data.throughput(batches.repeat(4), 60.0)
    assert flow.images == 21


@pytest.mark.parametrize(("number", "received"), [(0, "none"), (1, "one")])
def test_throughput_needs_two_batches(number, received):
    batches = tf.data.Dataset.from_tensors((tf.zeros([7, 2, 2, 1]), 0))
    with pytest.raises(ValueError, match=f"two batches. Received: {received}"):
        data.throughput(batches.repeat(number))
