"""The command line: `export.py` and `lambdanet-export`."""

import json
import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

from lambdanet_tf import cli
from lambdanet_tf import data
from lambdanet_tf import models
from lambdanet_tf import serving
from lambdanet_tf.runs import RunFolder
from lambdanet_tf.serving import export
from lambdanet_tf.serving import formats
from tests.support.serving_run import ARGUMENTS
from tests.support.serving_run import CLASSES
from tests.support.serving_run import answer
from tests.support.serving_run import card_of
from tests.support.serving_run import shake
from tests.support.serving_run import write_run

pytestmark = pytest.mark.once

ROOT = pathlib.Path(__file__).parents[2]
SQUARE = {**ARGUMENTS, "input_shape": [8, 8, 1]}


def in_a_shell(*command, folder=ROOT):
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    environment.pop("TF_CPP_MIN_LOG_LEVEL", None)
    return subprocess.run(
        [sys.executable, *command],
        env=environment,
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )


def test_help_needs_no_tensorflow():
    program = """
import sys
sys.modules.update(dict.fromkeys(("tensorflow", "keras", "tf_keras")))
from lambdanet_tf.cli import export
export(["--help"])
"""
    done = in_a_shell("-c", program)
    assert done.returncode == 0, done.stderr
    assert "--weights-dtype" in done.stdout


@pytest.mark.slow
def test_a_run_is_exported_quietly(small_run, tmp_path):
    flags = [f"--runs-dir={small_run[0].parent}", "--tflite"]
    done = in_a_shell(str(ROOT / "export.py"), *flags, folder=tmp_path)
    assert done.returncode == 0
    assert done.stderr == ""
    assert done.stdout.count("  same") == 5
    folder = serving.newest_export(tmp_path / "exported")
    assert folder.parts[-3:] == ("exported", "LambdaResNetSmall", "1")


# Weights files.


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


def flags(folder, to, **changes):
    given = {
        "weights": folder / "net.npz",
        "model": "LambdaResNetSmall",
        "model_arguments": json.dumps(SQUARE),
        "labels": folder / "labels.txt",
        "destination": to,
        **changes,
    }
    return [f"--{k.replace('_', '-')}={v}" for k, v in given.items()]


@pytest.mark.thorough
def test_a_weights_file_is_exported(folder, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    np.savez("examples.npz", images="of something else")
    assert cli.export(flags(folder, tmp_path, evaluation_crop=0.875)) == 0
    assert capsys.readouterr().out.count("  same") == 4
    exported = serving.newest_export(tmp_path)
    images = tf.fill((1, 8, 8, 1), 100.0)
    outputs = answer(exported, images=images)
    labels = {label.decode() for label in outputs["top_labels"][0]}
    assert labels == {*CLASSES}
    model = models.build("LambdaResNetSmall", **SQUARE)
    models.load_weights(model, folder / "net.npz")
    np.testing.assert_allclose(
        outputs["probabilities"], model.predict(images, verbose=0), rtol=1e-4
    )
    options = serving.read_metadata(exported)["options"]
    assert options["evaluation_crop"] == 0.875


NARROW = json.dumps({**SQUARE, "widths": [16]})


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("model", "LambdaResNet", "`name` must be a network of"),
        ("weights", "none.npz", "No such file: none.npz"),
        ("weights", __file__, "`weights` must be a file that"),
        ("weights", "net.weights.h5", "Keras' own `model.load_weights`"),
        ("labels", "none.txt", "Cannot read 'none.txt': "),
        ("labels", __file__, "`labels` must hold 5 names"),
        ("model_arguments", '{"clases": 5}', "`clases` is not an argument of"),
        ("model_arguments", '{"stages": 5}', "`stages` must be tuple"),
        ("model_arguments", NARROW, "`weights` must fit the model"),
        ("evaluation_crop", 0.0, "`evaluation_crop` must lie between"),
        ("weights_dtype", "float16", "`weights_dtype` must be one of"),
        ("device", "TPU", "`device` must be one of"),
        ("version", 0, "`version` must be at least 1"),
    ],
)
def test_what_does_not_fit_leaves_nothing(
    folder, tmp_path, monkeypatch, capsys, name, value, message
):
    monkeypatch.chdir(tmp_path)
    if str(value).endswith(".h5"):
        value = folder / value
    assert cli.export(flags(folder, "to", **{name: value})) == 2
    shown = capsys.readouterr().err
    assert shown.startswith("lambdanet export: ")
    assert message in shown
    assert not [entry for entry in tmp_path.rglob("*") if entry.is_file()]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["--model-arguments=[5]"], "must be a JSON object"),
        (["--model-arguments=classes=5"], "must be a JSON object"),
        (["--weights=net.npz"], "--weights and --model belong together"),
        (
            ["--weights=a", "--model=b", "--run-dir=c"],
            "either --run-dir or --weights",
        ),
        (["--labels=labels.txt"], "--labels belongs to --weights"),
        (["--arguments={}"], "--arguments is --model-arguments now"),
        (["--int8"], "--int8 belongs to --tflite"),
        (["--verify", "--predict"], "not allowed with"),
        (["--verif"], "Did you mean '--verify'?"),
        (["--version=one"], "invalid integer value: 'one'"),
    ],
)
def test_flags_that_are_wrong(given, message, capsys):
    assert cli.export(given) == 2
    shown = capsys.readouterr().err
    assert message in shown
    assert len(shown.splitlines()) == 1


# 8-bit integers.


@pytest.fixture(scope="module")
def digits_run(tmp_path_factory):
    """A run of a small network that tells digits apart.

    Only its classifier is trained, by least squares on random features.
    """
    path, model = write_run(
        tmp_path_factory.mktemp("digits") / "run",
        arguments={**SQUARE, "classes": 10, "widths": [16]},
        classes=tuple("0123456789"),
        image={"height": 8, "width": 8, "channels": 1},
        recipe={"name": "digits", "data": "digits"},
    )
    images, labels = digits("train", 1000)
    head = model.layers[-1]
    body = tf.keras.Model(model.inputs, head.input)
    features = body.predict(images, verbose=0)
    inputs = np.concatenate([features, np.ones((len(features), 1))], axis=1)
    ridge = inputs.T @ inputs + 10 * np.eye(inputs.shape[1])
    solution = np.linalg.solve(ridge, inputs.T @ np.eye(10)[labels])
    head.set_weights([10 * solution[:-1], 10 * solution[-1]])
    models.save_weights(model, path / "best.weights.npz")
    RunFolder(path).write_examples(images[:4], labels[:4])
    return path


def digits(split, count):
    """Images and labels of the digits, in random order."""
    source = getattr(data.load_images("digits"), split)
    return export.sample(source, data.EvaluationCrop((8, 8)), count)


@pytest.mark.thorough
def test_integers_are_nearly_as_accurate(digits_run, tmp_path, capsys):
    command = [f"--run-dir={digits_run}", f"--destination={tmp_path}"]
    assert cli.export([*command, "--tflite", "--int8"]) == 0
    shown = capsys.readouterr().out
    folder = serving.newest_export(tmp_path)
    images, labels = digits("test", 512)
    accuracy, size = {}, {}
    for name in ("tflite", "tflite_int8"):
        logits = formats.load(folder, name)(images)["logits"]
        accuracy[name] = np.mean(logits.argmax(-1) == labels)
        size[name] = (folder / formats.FORMATS[name]).stat().st_size
        assert f"{name} {accuracy[name]:.2%}" in shown
    assert accuracy["tflite"] > 0.8
    assert accuracy["tflite"] - accuracy["tflite_int8"] < 0.03
    assert size["tflite_int8"] < 0.8 * size["tflite"]
    assert shown.count("  close") == 1
    assert f"accuracy on {len(labels)} test images: Keras" in shown
    fact = "| ranges of int8 chosen by | 256 training images |"
    assert fact in card_of(folder)


@pytest.mark.slow
def test_a_data_set_that_is_not_here_is_named(small_run, tmp_path, capsys):
    command = [f"--run-dir={small_run[0]}", f"--destination={tmp_path}"]
    command += ["--tflite", "--int8", "--data=folder:nowhere"]
    assert cli.export(command) == 2
    assert "nowhere" in capsys.readouterr().err
    assert os.listdir(tmp_path) == []


@pytest.mark.slow
def test_integers_of_a_weights_file_need_a_data_set(folder, tmp_path, capsys):
    command = [*flags(folder, tmp_path / "to"), "--tflite", "--int8"]
    assert cli.export(command) == 2
    assert "`data_set` must be given for a weights" in capsys.readouterr().err
    assert not (tmp_path / "to").exists()
