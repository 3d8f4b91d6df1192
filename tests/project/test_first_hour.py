"""The first hour of a new user, with the commands that pip installs.

One's own pictures from a dry run to predictions through an export, in a folder
without the repository; every lane walks it.
"""

import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from tests.support.image_sets import jpeg
from tests.support.image_sets import png
from tests.support.image_sets import write_files

pytestmark = [pytest.mark.every_lane, pytest.mark.slow]

NETWORK = {"stages": ["L", "C"], "widths": [4, 8], "strides": [1, 2]}
SMALL = [
    *("--image-size=16", f"--model-arguments={json.dumps(NETWORK)}"),
    *("--epochs=3", "--warmup-epochs=1", "--batch-size=8"),
]


def write_pictures(folder, classes):
    """12 pictures of each class, of one color; two files are no pictures."""
    for index, name in enumerate(classes):
        color = np.roll([230, 40, 40], index)
        for i in range(12):
            encode, ending = (jpeg, "jpg") if i % 2 else (png, "png")
            picture = encode(color, size=(20 + i, 24))
            write_files(folder / name, {f"{i}.{ending}": picture})
    others = {"empty.png": b"", "notes.txt": b"not an image"}
    write_files(folder / classes[0], others)


def command(home, *words, **changes):
    """Starts a command as a user does, in a narrow terminal."""
    program = pathlib.Path(sys.executable).with_name("lambdanet")
    tests_own = ("PYTHONPATH", "TF_CPP_MIN_LOG_LEVEL")
    environment = {k: v for k, v in os.environ.items() if k not in tests_own}
    environment |= {"COLUMNS": "40", **changes}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    return subprocess.Popen(
        [program, *words], cwd=home, env=environment, **pipes
    )


def output_of(*words, encoding="utf-8", **changes):
    """What a command prints; it must succeed."""
    process = command(*words, **changes)
    output = process.communicate(timeout=900)[0].decode(encoding)
    assert process.returncode == 0, output
    assert "Traceback" not in output
    return output


def test_own_pictures_from_a_dry_run_to_predictions(tmp_path):
    train_in_two_parts(tmp_path)

    write_pictures(tmp_path / "paint", ["matt", "gloss"])
    train = ["--data=folder:paint", *SMALL, "--run-dir=runs/two"]
    output = output_of(tmp_path, "train", *train, "--initial-weights=runs/one")
    assert "predictions" in output  # The head that has another size.

    assert "same" in output_of(tmp_path, "export", "--run-dir=runs/two")
    (version,) = (tmp_path / "exported").glob("*/1")
    assert (version / "saved_model.pb").is_file()
    assert "same" in output_of(tmp_path, "verify")
    output = output_of(tmp_path, "predict")
    assert "matt" in output
    assert "gloss" in output


def train_in_two_parts(home):
    write_pictures(home / "flags", ["blue sky", "green", "red"])
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
    for name in ("best.weights.npz", "report.md"):
        assert (home / "runs" / "one" / name).is_file()


def test_the_smoke_recipe(tmp_path):
    pytest.importorskip("sklearn", reason="needs the extra `data`")
    run = ["--recipe=smoke", "--run-dir=runs/smoke"]
    assert "359 test images" in output_of(tmp_path, "train", *run)
    assert "same" in output_of(tmp_path, "export", *run[1:])
