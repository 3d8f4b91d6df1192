"""train.py as people call it, and recipes."""

import functools
import importlib.util
import io
import json
import os
import re
import shlex
import subprocess
import sys
import types
from unittest import mock

import numpy as np
import pytest

from lambdanet_tf import arguments
from lambdanet_tf import cli
from lambdanet_tf import config
from lambdanet_tf import training
from lambdanet_tf.specs import TABLE_20
from lambdanet_tf.training import devices
from lambdanet_tf.training import options
from lambdanet_tf.training import report

pytestmark = pytest.mark.once


def refused(capsys, *command):
    """The line about wrong arguments."""
    assert cli.main(["train", *command]) == 2
    error = capsys.readouterr().err
    assert error.startswith("lambdanet train: ")
    assert error.count("\n") == 1
    return error


def test_each_command_and_each_recipe_is_listed(capsys):
    assert cli.main([]) == 2
    assert cli.main(["--help"]) == 0
    overview = capsys.readouterr().out
    for name in sorted(cli._COMMANDS):
        assert f"\n  {name} " in overview
        with pytest.raises(SystemExit, match="0"):
            cli.main([name, "--help"])
    text = capsys.readouterr().out
    assert "peak learning rate for" in text
    for recipe in training.RECIPES.values():
        assert f"{recipe.name:15}{recipe.summary}" in text
    assert cli.main(["trian"]) == 2
    assert "Did you mean 'train'" in capsys.readouterr().err
    program = "import sys;"
    program += "sys.modules.update(tensorflow=None, keras=None, numpy=None);"
    program += "from lambdanet_tf.cli import main;"
    program += "sys.exit(main(sys.argv[1:]))"
    for flag, code in (("--help", 0), ("--epoch=3", 2)):
        words = [sys.executable, "-c", program, "train", flag]
        assert subprocess.call(words) == code


WRONG = {
    "--recipe smoke --batch-size 1300": r"\(1\) .* images \(1295\).* 1300",
    "--model LambdaResnet50": "Did you mean 'LambdaResNet50'",
    "--recipe smoke --model MobileNetV2 --drop-path-rate .1": "drop_path",
}


@pytest.mark.parametrize("command", WRONG)
def test_wrong_use(capsys, tmp_path, monkeypatch, command):
    """A dry run says the same."""
    monkeypatch.chdir(tmp_path)
    error = refused(capsys, *shlex.split(command))
    assert re.search(WRONG[command], error), error
    assert refused(capsys, *shlex.split(command), "--dry-run") == error
    assert os.listdir(tmp_path) == []


def test_a_fault_keeps_its_traceback():
    """And what speaks of the input, or an interruption, has none."""
    interrupted = mock.Mock(side_effect=KeyboardInterrupt)
    own_check = functools.partial(arguments.positive_int, "steps", 0)
    with pytest.raises(ValueError, match="`steps` must be"):
        config.run(own_check, "mine")
    assert config.run(arguments.users_input()(own_check), "mine") == 2
    assert config.run(interrupted, "mine") == 130
    stopped = mock.Mock(side_effect=training.Stopped("by a signal"))
    assert config.run(stopped, "mine") == 75
    for flags in ("-m", "-um"):  # Buffered, and not.
        name = shlex.join([sys.executable, flags, "lambdanet_tf", "--help"])
        command = f"(sleep 0.5; {name}; echo $? >&2) | true"
        environment = {**os.environ, "PYTHONUNBUFFERED": ""}
        gone = subprocess.run(
            command, shell=True, capture_output=True, env=environment
        )
        assert gone.stderr == b"141\n"


DRY = [
    "Recipe smoke, LambdaResNetSmall at 8 pixels: 2,862 trainable .* 1 CPU",
    "digits: 1,295 training",
    "3 epochs of 20 steps",
    r"operations   4\.08.*e\+05 FLOPs per image",
    "first step   .* s, with compiling",
    r"second step  [\d.]+ s, [\d,.]+ images/s; loss (1.[6-9]|2|3.0)",
    "training     .* per epoch, .* in all",
    r"memory       at most [\d.]+ GiB",
]


@pytest.mark.slow
def test_a_run_says_what_it_does_and_is_not_begun_again(
    tmp_path, monkeypatch, capsys
):
    """Without matplotlib; a dry run takes two steps and leaves nothing."""

    def said(*flags):
        monkeypatch.setattr(sys, "argv", ["train.py", *flags])
        assert cli.main(["train", *flags]) == 0
        return capsys.readouterr().out

    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    printed = said("--recipe=smoke", "--dry-run", "--epochs=3").splitlines()
    for pattern, line in zip(DRY, printed, strict=True):
        assert re.match(pattern, line), line
    assert os.listdir(tmp_path) == []
    words = ["--recipe=smoke", "--epochs=1", "--no-flip", "--run-dir=my run"]
    printed = said(*words)
    for text in ("1 epoch of 20 steps, 64 images each", "img/s", "1 CPU\n"):
        assert text in printed
    assert "Test accuracy: " in printed
    record = json.loads((tmp_path / "my run" / "run.json").read_text())
    assert shlex.split(record["command"]) == ["python", "train.py", *words]
    assert "![" not in (tmp_path / "my run" / "report.md").read_text()
    assert "has finished, so there is nothing to resume" in said(words[-1])
    # A change is one of the run's recipe, and of no default.
    monkeypatch.setattr(sys, "argv", ["pytest"])
    for change, message in (
        ("--seed=3", "began with another recipe: seed is 0, not 3. Resume it"),
        ("--recipe=digits", "augmentation is 'none', not 'affine'"),
    ):
        assert message in refused(capsys, words[-1], change)


ONE = '{"cluster": {"worker": ["a:1"]}}'
TWO = '{"cluster": {"worker": ["a:1", "b:1"]}}'
NEEDS = [({"strategy": "tpu"}, "", True), ({"tpu": "my-tpu"}, "", True)]
NEEDS += [({}, TWO, True), ({"strategy": "default"}, TWO, False)]
NEEDS += [({}, ONE, False)]


@pytest.mark.parametrize(("given", "text", "needs_tf_keras"), NEEDS)
def test_tf_keras_is_chosen_where_it_is_needed_and_said(
    monkeypatch, capsys, given, text, needs_tf_keras
):
    monkeypatch.setenv("TF_CONFIG", text)
    monkeypatch.setenv("TF_USE_LEGACY_KERAS", "")
    for is_said in (needs_tf_keras, False):  # Once it is chosen.
        options.choose_keras(training.RunOptions(**given))
        assert os.environ["TF_USE_LEGACY_KERAS"] == "1" * needs_tf_keras
        said = capsys.readouterr().out
        assert ("Using tf_keras" in said) == is_said
    monkeypatch.setenv("TF_USE_LEGACY_KERAS", "")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    if needs_tf_keras:
        with pytest.raises(ValueError, match=r"lambdanet-tf\[cluster\]"):
            options.choose_keras(training.RunOptions(**given))


def test_one_process_of_a_cluster_is_the_chief(monkeypatch):
    members = {"chief": ["host:1"], "worker": ["host:2", "host:3"]}
    for kind, index in (("chief", 0), ("worker", 0), ("worker", 1)):
        task = {"type": kind, "index": index}
        text = json.dumps({"cluster": members, "task": task})
        monkeypatch.setenv("TF_CONFIG", text)
        assert options.number_of_workers() == 3
        assert devices.is_chief() == (kind == "chief")


def test_a_log_has_a_line_every_minute_and_a_terminal_one_that_fits(
    monkeypatch,
):
    def shown_on(is_terminal):
        stream, clock = io.StringIO(), types.SimpleNamespace(now=100.0)
        stream.isatty = lambda: is_terminal
        shown = report.Progress(4, 10, 32, stream, lambda: clock.now)
        assert shown.is_due(1)
        shown.show(1, "loss 1.7000")
        for _ in range(90):
            clock.now += 1
            if shown.is_due(5):
                shown.show(5, "loss 1.6000")
        shown.show(10, "loss 1.5000  accuracy 25.00%", ends_epoch=True)
        return stream.getvalue()

    assert shown_on(False).splitlines() == [
        "epoch 1/4  step 1/10  loss 1.7000",
        "epoch 1/4  step 5/10  loss 1.6000  8:45 min left  2 img/s",
        "epoch 1/4  loss 1.5000  accuracy 25.00%  5:00 min left  3 img/s",
    ]
    monkeypatch.setenv("COLUMNS", "40")
    written = shown_on(True)
    assert written.count("\n") == 1
    assert max(map(len, re.split(r"[\r\n]", written))) == 39


def test_recipes_are_read_back_from_files_and_runs():
    """NumPy's numbers and tuples, too; a file may have changes alone."""
    recipes = {name: training.resolve(name) for name in training.RECIPES}
    given = {"widths": (np.int64(9),)}  # The others are those of the recipe.
    changes = {"batch_size": np.int64(8), "model_arguments": given}
    recipes["smoke"] = training.resolve("smoke", changes)
    given = {"stages": ["L"], "widths": [9], "strides": [1]}
    assert recipes["smoke"].model_arguments == given
    recipes["mine"] = training.Recipe(name="mine", epochs=7)
    for name, recipe in recipes.items():
        assert recipe.name == name
        fields = recipe.to_dict()
        for content in (fields, {"recipe": fields}):
            text = json.dumps(content)
            assert training.read_recipe("file", text) == recipe
    text = '{"name": "smoke", "epochs": 7, "summary": "as in recipes.json"}'
    recipe = training.read_recipe("file", text)
    assert recipe == training.resolve("smoke", {"epochs": 7})
    own = training.read_recipe("file", "{}", {"data": "folder:mine"})
    assert own.name == "images"


def test_what_the_paper_states():
    """For 90 epochs, and in Table 20 for 350."""
    stated = {"epochs": 90, "batch_size": 4096, "image_size": 224}
    stated |= {"learning_rate": 0.1, "base_batch_size": 256, "momentum": 0.9}
    stated |= {"warmup_epochs": 5.0, "schedule": "cosine", "weight_decay": 1e-4}
    stated |= {"norm_momentum": 0.9999, "ema_decay": 0.9999}
    stated |= {"label_smoothing": 0.1}
    assert stated.items() <= training.resolve("imagenet_90").to_dict().items()
    changes = {"model": "ResNetRS350", "image_size": 288}
    recipe = training.resolve("imagenet_350", changes)
    (row,) = [r for r in TABLE_20 if (r.depth, r.image_size) == (350, 288)]
    assert recipe.randaugment_magnitude == row.randaugment_magnitude
    assert (recipe.dropout_rate, recipe.drop_path_rate) == (0.3, 0.2)
    assert (recipe.epochs, recipe.weight_decay) == (350, 4e-5)
    given = {"model": "LambdaResNet50", "dropout_rate": 0.1}
    with pytest.raises(ValueError, match=r"one of \[128, 160\]"):
        training.resolve("imagenet_350", given)
    given |= {"randaugment_magnitude": 5, "drop_path_rate": 0.2}
    assert training.resolve("imagenet_350", given).dropout_rate == 0.1


OWN = "classes.*classifier_activation.*dropout_rate.*endpoints.*"
OWN += "include_preprocessing.*include_top.*input_shape.*"
OWN += "kernel_regularizer.*name"
REFUSED = [
    ({"epoch": 3}, r"Unknown field 'epoch'\. Did you mean 'epochs'"),
    ({"epochs": "many"}, "`epochs` must be int.*'many'"),
    ({"epochs": 0}, "`epochs` must be .*at least 1"),
    ({"dropout_rate": 1.0}, "`dropout_rate` must be below 1"),
    ({"zoom": 2.0}, r"`zoom` must be at most 0\.9"),
    ({"flip": 1}, "`flip` must be bool"),
    ({"model_arguments": dict.fromkeys(OWN.split(".*"))}, OWN),
    *[(text, "must contain one JSON object") for text in ("{", [1])],
    *[({"recipe": x}, "contain one") for x in ("digits", ["digits"], None)],
]


@pytest.mark.parametrize(("content", "message"), REFUSED)
def test_what_is_refused(content, message):
    text = content if isinstance(content, str) else json.dumps(content)
    with pytest.raises(ValueError, match=message):
        training.read_recipe("file", text)


def test_strides_for_own_images_leave_a_map_of_seven():
    """Those of a network that is named are its own."""
    strides = {8: 1, 28: 4, 32: 4, 64: 8, 96: 8, 112: 16, 224: 16}
    for size, stride in strides.items():
        given = {"data": "folder:mine", "image_size": size}
        found = training.resolve(None, given).model_arguments
        assert np.prod([*found["strides"], *found["stem_strides"]]) == stride
        assert size // stride >= 7
    named = training.resolve(None, {**given, "model": "LambdaResNetSmall28"})
    assert named.model_arguments == {}
    given["model_arguments"] = {"strides": [1, 1, 1]}
    changed = training.resolve(None, given)
    assert changed.model_arguments["strides"] == [1, 1, 1]
