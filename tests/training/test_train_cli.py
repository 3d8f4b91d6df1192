"""train.py as people call it."""

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

import pytest

from lambdanet_tf import arguments
from lambdanet_tf import cli
from lambdanet_tf import config
from lambdanet_tf import training
from lambdanet_tf.training import devices
from lambdanet_tf.training import options
from lambdanet_tf.training import progress
from lambdanet_tf.training import record

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


@pytest.mark.parametrize(("flag", "code"), [("--help", 0), ("--epoch=3", 2)])
def test_no_tensorflow_is_needed_to_say_so(flag, code):
    program = f"""
import sys
sys.modules.update(dict.fromkeys(["tensorflow", "numpy", "keras"]))
from lambdanet_tf.cli import main
sys.exit(main(["train", {flag!r}]))
"""
    assert subprocess.call([sys.executable, "-c", program]) == code


WRONG = {
    "--recipe digit": "Unknown recipe 'digit'. .*'digits'",
    "--epoch 3": "arguments: --epoch 3. Did you mean '--epochs'",
    "--learnng-rate=3": "Did you mean '--learning-rate'",
    "--qqq": r"unrecognized arguments: --qqq\.$",
    "17": r"unrecognized arguments: 17\.$",
    "--learning-rate inf": "`learning_rate` must be finite",
    "--model-arguments=[1]": "invalid json_object value",
    "--strategy all": "`strategy` must be one of .*'auto'",
    "--recipe-file nothing.json": "Cannot read 'nothing.json': ",
    "--recipe smoke --recipe-file x": "not allowed with argument --recipe",
    "--run-dir s4://bucket/run": "TensorFlow knows no s4:// paths",
    "--data records:s4://bucket": "TensorFlow knows no s4:// paths",
    "--recipe smoke --batch-size 1300": "1300 for 1 .* 1295 images",
    "--recipe smoke --epochs 1.5": "--epochs: invalid int value.*1.5",
    "--model LambdaResnet50": "Did you mean 'LambdaResNet50'",
    "--data folder:nowhere": "nowhere",
    "--strategy mirrored --jit-compile": "`jit_compile` is for",
    "--recipe smoke --initial-weights no.npz": "No such file: no.npz",
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
    program = "from lambdanet_tf import config\nimport sys\n"
    program += "sys.exit(config.run(lambda: print('\\xfc', flush=True), 'x'))"
    shell = functools.partial(subprocess.run, shell=True, capture_output=True)
    name = shlex.join([sys.executable, "-c", program])
    gone = shell(f"(sleep 0.5; {name}; echo $? >&2) | true")
    assert gone.stderr == b"141\n"


@pytest.mark.slow
def test_a_run_says_what_it_does_and_is_not_begun_again(
    tmp_path, monkeypatch, capsys
):
    """Without matplotlib; a change is one of the run's recipe, no default's."""
    command = ["train.py", "--recipe=smoke", "--epochs=1", "--run-dir=my run"]
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", command)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert cli.main(["train", *command[1:]]) == 0
    printed = capsys.readouterr().out
    for text in ("1 epoch of 20 steps, 64 images each", "img/s", "1 CPU\n"):
        assert text in printed
    assert "test accuracy: " in printed
    record = json.loads((tmp_path / "my run" / "run.json").read_text())
    assert shlex.split(record["command"]) == ["python", *command]
    assert "![" not in (tmp_path / "my run" / "report.md").read_text()
    monkeypatch.setattr(sys, "argv", ["pytest"])
    assert cli.main(["train", command[-1]]) == 0
    assert "is finished; there is nothing to resume" in capsys.readouterr().out
    for change, message in (
        ("--seed=3", "begun with another recipe: seed is 0, not 3. Resume it"),
        ("--recipe=digits", "augmentation is 'none', not 'affine'"),
    ):
        assert message in refused(capsys, command[-1], change)


@pytest.mark.slow
def test_a_dry_run_takes_two_steps_and_leaves_nothing(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    said = [
        "Recipe smoke, LambdaResNetSmall at 8 pixels: 2,862 trainable .* 1 CPU",
        "digits: 1,295 training",
        "3 epochs of 20 steps",
        r"operations   4\.08.*e\+05 FLOPs an image",
        "first step   .* s, compiling included",
        r"second step  [\d.]+ s, [\d,.]+ images/s; loss (1.[6-9]|2|3.0)",
        "training     .* an epoch, .* in all",
        r"memory       [\d.]+ GiB at most",
    ]
    recipe, lines = training.resolve("smoke", {"epochs": 3}), []
    training.dry_run(recipe, print_fn=lines.append)
    lines = "\n".join(lines).splitlines()
    for pattern, line in zip(said, lines, strict=True):
        assert re.match(pattern, line), line
    assert os.listdir(tmp_path) == []


def cluster(index, kind="worker", **sizes):
    """TF_CONFIG of a process of some machines."""
    members = {name: ["host:1"] * size for name, size in sizes.items()}
    task = {"type": kind, "index": index}
    return json.dumps({"cluster": members, "task": task})


TWO, ONE = cluster(0, worker=2), '{"cluster": {"worker": ["a:1"]}}'
NEEDS = [({"strategy": "tpu"}, "", True), ({"tpu": "my-tpu"}, "", True)]
NEEDS += [({}, TWO, True), ({}, ONE, False)]
NEEDS += [({"strategy": "default"}, TWO, False)]


@pytest.mark.parametrize(("given", "text", "needs_tf_keras"), NEEDS)
def test_tf_keras_is_chosen_where_it_is_needed_and_said(
    monkeypatch, capsys, given, text, needs_tf_keras
):
    monkeypatch.setenv("TF_CONFIG", text)
    for keras in ("", "1"):
        monkeypatch.setenv("TF_USE_LEGACY_KERAS", keras)
        cli.training.choose_keras(training.RunOptions(**given))
        chosen = "1" if needs_tf_keras else keras
        assert os.environ["TF_USE_LEGACY_KERAS"] == chosen
        is_said = "training on tf_keras, not Keras 3" in capsys.readouterr().out
        assert is_said == (chosen != keras)
    monkeypatch.setenv("TF_USE_LEGACY_KERAS", "")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    if needs_tf_keras:
        with pytest.raises(ValueError, match=r"lambdanet-tf\[cluster\]"):
            cli.training.choose_keras(training.RunOptions(**given))


def test_one_process_of_a_cluster_is_the_chief(monkeypatch):
    for kind, index in (("chief", 0), ("worker", 0), ("worker", 1)):
        text = cluster(index, kind, chief=1, worker=2)
        monkeypatch.setenv("TF_CONFIG", text)
        assert options.number_of_workers() == 3
        assert devices.is_chief() == (kind == "chief")


@pytest.mark.parametrize("is_terminal", [False, True])
def test_a_log_has_a_line_every_minute_and_a_terminal_one_that_fits(
    monkeypatch, is_terminal
):
    monkeypatch.setenv("COLUMNS", "40")
    stream, clock = io.StringIO(), types.SimpleNamespace(now=100.0)
    stream.isatty = lambda: is_terminal
    shown = progress.Progress(4, 10, 32, stream, lambda: clock.now)
    assert shown.is_due(1)
    shown.show(1, "loss 1.7000")
    for _ in range(90):
        clock.now += 1
        if shown.is_due(5):
            shown.show(5, "loss 1.6000")
    shown.show(10, "loss 1.5000  accuracy 25.00%", ends_epoch=True)
    written = stream.getvalue()
    if is_terminal:
        assert written.count("\n") == 1
        assert max(map(len, re.split(r"[\r\n]", written))) == 39
    else:
        assert written.splitlines() == [
            "epoch 1/4  step 1/10  loss 1.7000",
            "epoch 1/4  step 5/10  loss 1.6000  8:45 min left  2 img/s",
            "epoch 1/4  loss 1.5000  accuracy 25.00%  5:00 min left  3 img/s",
        ]


def test_files_of_recipes_choose_their_defaults(tmp_path):
    file, own = tmp_path / "file.json", {"data": "folder:mine"}
    for content, flags in (({}, own), (own, {})):
        file.write_text(json.dumps(content))
        asked = training.RunOptions(), None, str(file), flags
        assert record.recipe_to_train(*asked).name == "images"
