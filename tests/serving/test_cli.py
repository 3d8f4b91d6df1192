"""The command line: `export.py` and `lambdanet-export`."""

import json

import numpy as np
import pytest
import tensorflow as tf

from lambdanet_tf import cli
from lambdanet_tf import models
from lambdanet_tf import serving
from tests.support.serving_run import ARGUMENTS
from tests.support.serving_run import CLASSES
from tests.support.serving_run import answer
from tests.support.serving_run import shake

pytestmark = pytest.mark.once

SQUARE = {**ARGUMENTS, "input_shape": [8, 8, 1]}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Weights and class names."""
    folder = tmp_path_factory.mktemp("weights")
    model = models.build("LambdaResNetSmall", **SQUARE)
    shake(model, np.random.default_rng(1))
    models.save_weights(model, folder / "net.npz")
    model.save_weights(folder / "net.weights.h5")
    (folder / "labels.txt").write_text("\n".join(CLASSES) + "\n")
    return folder


def flags(folder, **changes):
    given = {
        "weights": folder / "net.npz",
        "model": "LambdaResNetSmall",
        "model_arguments": json.dumps(SQUARE),
        "labels": folder / "labels.txt",
        **changes,
    }
    return [f"--{k.replace('_', '-')}={v}" for k, v in given.items()]


@pytest.mark.slow
def test_a_weights_file_is_exported(folder, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert cli.export(flags(folder)) == 0
    assert capsys.readouterr().out.count("  same") == 3
    exported = serving.newest_export("exported")
    images = tf.fill((1, 8, 8, 1), 100.0)
    outputs = answer(exported, images=images)
    assert {label.decode() for label in outputs["top_labels"][0]} == {*CLASSES}
    model = models.build("LambdaResNetSmall", **SQUARE)
    models.load_weights(model, folder / "net.npz")
    found, wanted = outputs["probabilities"], model.predict(images, verbose=0)
    np.testing.assert_allclose(found, wanted, rtol=1e-4)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"model": "LambdaResNet"}, "`name` must be a network of"),
        (
            {"weights": "{}/net.weights.h5"},
            "read by Keras' `model.load_weights`",
        ),
        ({"labels": "none.txt"}, "Cannot read 'none.txt': "),
        ({"model_arguments": '{"clases": 5}'}, "`clases` is not an argument"),
        ({"version": 0}, "`version` must be at least 1"),
        (["--model-arguments=classes=5"], "must be a JSON object"),
        (["--weights=net.npz"], "--weights and --model belong together"),
        (["--weights=a", "--model=b", "--run-dir=c"], "either --run-dir or"),
        (["--labels=labels.txt"], "--labels belongs to --weights"),
        (["--formats=tflit"], "invalid choice: 'tflit'"),
    ],
)
def test_what_does_not_fit_leaves_nothing(
    folder, tmp_path, monkeypatch, capsys, given, message
):
    monkeypatch.chdir(tmp_path)
    if isinstance(given, dict):  # Changes of what fits.
        given = [x.replace("{}", str(folder)) for x in flags(folder, **given)]
    assert cli.export(given) == 2
    shown = capsys.readouterr().err
    assert shown.startswith("lambdanet export: ")
    assert message in shown
    assert not [entry for entry in tmp_path.rglob("*") if entry.is_file()]
