"""The first hour of a new user, with the commands that pip installs.

One's own pictures from a dry run to predictions through an export, in a folder
without the repository, on a narrow terminal that cannot encode everything.
Every lane walks it: in `make test-newest` with the wheel alone.
"""

import os
import pathlib
import re
import signal
import subprocess
import sys
import time

import pytest
import tensorflow as tf

# The other lanes run it: the pinned one holds each part by a test of its own.
pytestmark = [pytest.mark.every_lane, pytest.mark.slow]

SMALL = [
    "--image-size=16",
    '--model-arguments={"stages": ["L", "C"], "widths": [4, 8], '
    '"strides": [1, 2]}',
    "--epochs=3",
    "--warmup-epochs=1",
    "--batch-size=8",
]

# What the tests set for themselves.
_NOT_A_USERS = ("PYTHONPATH", "TF_CPP_MIN_LOG_LEVEL")


def write_pictures(folder, classes, rng):
    """Writes 12 pictures of each class, each class with a color of its own.

    Two files of the first class cannot be decoded.
    """
    for index, name in enumerate(classes):
        (folder / name).mkdir(parents=True)
        for number in range(12):
            pixels = rng.integers(0, 80, (20 + number, 24, 3))
            pixels[..., index % 3] += 150
            pixels = tf.constant(pixels, tf.uint8)
            jpeg = number % 2
            encode = tf.io.encode_jpeg if jpeg else tf.io.encode_png
            path = folder / name / f"{number}.{'jpg' if jpeg else 'png'}"
            path.write_bytes(encode(pixels).numpy())
    first = folder / classes[0]
    (first / "cut.jpg").write_bytes((first / "1.jpg").read_bytes()[:200])
    (first / "empty.png").write_bytes(b"")
    (first / "notes.txt").write_text("not an image")


def command(home, name, *arguments, **changes):
    """Starts a console command as a user does, in a folder of their own."""
    program = pathlib.Path(sys.executable).with_name(f"lambdanet-{name}")
    environment = {k: v for k, v in os.environ.items() if k not in _NOT_A_USERS}
    return subprocess.Popen(
        [program, *arguments],
        cwd=home,
        env={**environment, "COLUMNS": "40", **changes},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )


def output_of(*words, encoding="utf-8", **changes):
    """What a command prints; it must succeed."""
    process = command(*words, **changes)
    output = process.communicate(timeout=900)[0].decode(encoding)
    assert process.returncode == 0, output
    assert "Traceback" not in output
    return output


def test_own_pictures_from_a_dry_run_to_predictions(tmp_path, rng):
    train_in_two_parts(tmp_path, rng)
    fine_tune(tmp_path, rng)
    export(tmp_path)


def train_in_two_parts(home, rng):
    write_pictures(home / "flags", ["blue sky", "green", "red"], rng)
    train = ["--data=folder:flags", *SMALL]

    output = output_of(home, "train", *train, "--dry-run")
    assert "3 classes" in output
    assert not list(home.glob("runs/*/run.json"))

    # Killed as soon as there is a checkpoint; the same command goes on.
    again = home, "train", *train, "--run-dir=runs/one", "--epochs=30"
    first = command(*again)
    checkpoints = home / "runs" / "one" / "checkpoints"
    deadline = time.monotonic() + 600
    while not list(checkpoints.glob("ckpt-*.index")):
        assert first.poll() is None, first.communicate()[0].decode()
        assert time.monotonic() < deadline
        time.sleep(0.1)
    first.send_signal(signal.SIGKILL)
    first.communicate()
    output = output_of(*again, encoding="cp1252", PYTHONIOENCODING="cp1252")
    assert "Resuming at step" in output
    assert re.search(r"accuracy: [\d.]+% of", output)
    assert "2 images could not be read and were left out" in output
    for name in ("bad_images.txt", "best.weights.npz", "report.md"):
        assert (home / "runs" / "one" / name).is_file()


def fine_tune(home, rng):
    write_pictures(home / "paint", ["matt", "gloss"], rng)
    train = ["--data=folder:paint", *SMALL, "--run-dir=runs/two"]
    output = output_of(home, "train", *train, "--initial-weights=runs/one")
    assert "predictions" in output  # The head that has another size.


def export(home):
    output = output_of(home, "export", "--run-dir=runs/two")
    assert "same" in output
    (version,) = (home / "exported").glob("*/1")
    assert (version / "saved_model.pb").is_file()
    assert "same" in output_of(home, "export", "--verify")
    output = output_of(home, "export", "--predict")
    assert "matt" in output
    assert "gloss" in output


def test_the_smoke_recipe(tmp_path):
    pytest.importorskip("sklearn", reason="needs the extra `data`")
    run = ["--recipe=smoke", "--run-dir=runs/smoke"]
    assert "359 test images" in output_of(tmp_path, "train", *run)
    assert "same" in output_of(tmp_path, "export", *run[1:])
