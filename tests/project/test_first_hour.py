"""The first hour of a new user, with the commands that pip installs."""

import json
import os
import pathlib
import re
import subprocess
import sys

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


def output_of(home, *words, encoding="utf-8", **changes):
    """What a command prints in a narrow terminal of its user; it succeeds."""
    program = pathlib.Path(sys.executable).with_name("lambdanet")
    tests_own = ("PYTHONPATH", "TF_CPP_MIN_LOG_LEVEL")
    environment = {k: v for k, v in os.environ.items() if k not in tests_own}
    finished = subprocess.run(
        [program, *words],
        cwd=home,
        env={**environment, "COLUMNS": "40", **changes},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
    )
    output = finished.stdout.decode(encoding)
    assert finished.returncode == 0, output
    assert "Traceback" not in output
    return output


def test_own_pictures_from_a_dry_run_to_predictions(tmp_path):
    write_pictures(tmp_path / "flags", ["blue sky", "green", "red"])
    train = tmp_path, "train", "--data=folder:flags", *SMALL
    assert "3 classes" in output_of(*train, "--dry-run")
    assert not list(tmp_path.glob("runs/*/run.json"))
    old = {"encoding": "cp1252", "PYTHONIOENCODING": "cp1252"}
    output = output_of(*train, "--run-dir=runs/one", **old)
    assert re.search(r"accuracy: [\d.]+% on", output)
    for name in ("best.weights.npz", "report.md"):
        assert (tmp_path / "runs" / "one" / name).is_file()

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


def test_the_smoke_recipe(tmp_path):
    pytest.importorskip("sklearn", reason="needs the extra `data`")
    run = ["--recipe=smoke", "--run-dir=runs/smoke"]
    assert "359 test images" in output_of(tmp_path, "train", *run)
    assert "same" in output_of(tmp_path, "export", *run[1:])
