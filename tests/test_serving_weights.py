"""`export.py --weights`: exports of which no run knows anything."""

import json
import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

import export
from lambdanet_tf import models
from lambdanet_tf import serving
from tests.serving_run import ARGUMENTS
from tests.serving_run import CLASSES
from tests.serving_run import shake

ROOT = pathlib.Path(__file__).parents[1]
SQUARE = {**ARGUMENTS, "input_shape": [8, 8, 1]}
FILES = ("net.npz", "net.weights.h5")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Weights in both formats, and class names."""
    folder = tmp_path_factory.mktemp("weights")
    model = models.LambdaResNetSmall(**{**SQUARE, "input_shape": (8, 8, 1)})
    shake(model, np.random.default_rng(1))
    models.save_weights(model, folder / FILES[0])
    model.save_weights(folder / FILES[1])
    (folder / "labels.txt").write_text("\n".join(CLASSES) + "\n")
    return folder


def arguments(folder, target, file=FILES[0], **changes):
    given = {
        "weights": folder / file,
        "model": "LambdaResNetSmall",
        "arguments": json.dumps(SQUARE),
        "labels": folder / "labels.txt",
        "to": target,
        **changes,
    }
    return [f"--{k.replace('_', '-')}={v}" for k, v in given.items()]


def answer(to):
    place = serving.newest_export(to)
    images = tf.fill((1, 8, 8, 1), 100.0)
    loaded = tf.saved_model.load(str(place))
    return place, loaded.signatures["serving_default"](images=images)


@pytest.mark.slow
def test_both_formats_of_weights_in_a_shell(folder, tmp_path, capsys):
    finished = subprocess.run(
        [
            sys.executable,
            str(ROOT / "export.py"),
            *arguments(folder, "exported", evaluation_crop=0.875),
        ],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert finished.returncode == 0, finished.stderr
    assert finished.stdout.count("  same") == 4
    place, of_npz = answer(tmp_path / "exported")
    assert place.parts[-3:] == ("exported", "LambdaResNetSmall", "1")
    assert set(of_npz["top_labels"][0].numpy()) == {n.encode() for n in CLASSES}
    options = serving.read_description(place)["options"]
    assert options["evaluation_crop"] == 0.875

    assert export.main(arguments(folder, tmp_path / "h5", FILES[1])) == 0
    assert capsys.readouterr().out.count("  same") == 4
    _, of_h5 = answer(tmp_path / "h5")
    np.testing.assert_array_equal(of_npz["logits"], of_h5["logits"])

    # The check needs the weights and the folder alone.
    assert export.main(["--check", f"--to={tmp_path / 'exported'}"]) == 0
    shown = capsys.readouterr().out
    for size in (1, 8, 32):
        assert f"ms/image at {size}" in shown
    assert "size on disk" in shown


@pytest.mark.filterwarnings("ignore:Skipping nested container:UserWarning")
@pytest.mark.parametrize("file", FILES)
def test_weights_of_another_architecture(folder, tmp_path, capsys, file):
    other = json.dumps({**SQUARE, "widths": [16]})
    given = arguments(folder, tmp_path / "to", file, arguments=other)
    assert export.main(given) == 2
    assert "export.py: `weights` must fit" in capsys.readouterr().err
    assert not (tmp_path / "to").exists()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model": "LambdaResNet"}, "`builder` must be a function"),
        ({"weights": "none.npz"}, "There is no none.npz"),
        ({"weights": __file__}, "`weights` must be a file that"),
        ({"labels": "none.txt"}, "none.txt"),
        ({"labels": __file__}, "`labels` must hold 5 names"),
        ({"arguments": '{"clases": 5}'}, "`clases` is not an argument of"),
        ({"arguments": '{"stages": 5}'}, "`arguments` must be those of"),
        ({"evaluation_crop": 0.0}, "`evaluation_crop` must be above 0"),
        ({"evaluation_crop": 1.5}, "`evaluation_crop` must be above 0"),
        ({"to": "gs://bucket/models"}, "`to` must be a path of this machine"),
        ({"weights": "gs://bucket/net.npz"}, "`weights` must be a path of"),
        ({"version": 0}, "`version` must be a positive integer"),
    ],
)
def test_what_does_not_fit_leaves_nothing(
    folder, tmp_path, monkeypatch, capsys, changes, message
):
    monkeypatch.chdir(tmp_path)
    assert export.main(arguments(folder, "to", **changes)) == 2
    assert message in capsys.readouterr().err
    assert not [entry for entry in tmp_path.rglob("*") if entry.is_file()]
    assert not (tmp_path / "gs:").exists()


@pytest.mark.parametrize("text", ["[5]", "classes=5"])
def test_arguments_that_are_no_object(folder, tmp_path, capsys, text):
    with pytest.raises(SystemExit, match="2"):
        export.main(arguments(folder, tmp_path, arguments=text))
    assert "not a JSON object" in capsys.readouterr().err


def test_runs_in_a_store_are_refused(capsys):
    for flag in ("run", "runs"):
        assert export.main([f"--{flag}=gs://bucket/runs"]) == 2
        assert f"`{flag}` must be a path of" in capsys.readouterr().err
