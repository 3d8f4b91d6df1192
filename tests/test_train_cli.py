"""train.py as people call it."""

import json
import os
import pathlib
import re
import subprocess
import sys

import pytest

from lambdanet_tf.training import command_line

ROOT = pathlib.Path(__file__).parent.parent
SMOKE = ["--recipe", "smoke", "--epochs", "1"]


def train_py(*arguments, **environment):
    """Runs train.py in a process of its own, under this process's Keras."""
    return subprocess.run(
        [sys.executable, str(ROOT / "train.py"), *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
    )


def refused(capsys, *arguments):
    """What is said about wrong arguments."""
    assert command_line.main(list(arguments)) == 2
    output = capsys.readouterr()
    assert output.out == ""
    assert output.err.startswith("train.py: ")
    assert output.err.count("\n") == 1
    return output.err


def test_help_is_readable(capsys):
    with pytest.raises(SystemExit) as end:
        command_line.main(["--help"])
    assert end.value.code == 0
    text = capsys.readouterr().out
    assert "python train.py --recipe cifar10" in text
    for name in ("--learning-rate", "--weight-decay", "--image-size"):
        assert name in text
    assert "peak learning rate of an update" in text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["--epoch", "3"],
            "Unknown argument '--epoch'. Did you mean '--epochs'",
        ),
        (["--lerning_rate=3"], "Did you mean '--learning-rate'"),
        (["--recipe", "digit"], "Unknown recipe 'digit'. .*'digits'"),
        (["--epochs", "many"], "`epochs` must be a whole number"),
        (["--strategy", "all"], "`strategy` must be one of auto"),
        (["--steps-per-execution", "0"], "`steps_per_execution` must be at"),
        (["--recipe-file", "nothing.json"], "There is no file 'nothing.json'"),
        (["--recipe", "smoke", "--recipe-file", "x"], "not both"),
        (["--resume"], "`resume` needs the folder of a run"),
        (
            ["--resume", "--run", "nothing"],
            "nothing is not the folder of a run",
        ),
        (["--data", "digit"], "`data` must be one of digits"),
        (["--model", "LambdaResNet51"], "Did you mean 'LambdaResNet50'"),
    ],
)
def test_wrong_use(capsys, tmp_path, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)
    error = refused(capsys, *arguments)
    assert re.search(message, error), error


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A finished run, and what was printed."""
    folder = tmp_path_factory.mktemp("cli") / "run"
    done = train_py(*SMOKE, "--run", str(folder))
    assert done.returncode == 0, done.stderr
    return folder, done.stdout


def test_a_run_says_what_it_does(run):
    folder, printed = run
    assert "parameters" in printed
    assert "epoch 1/1" in printed
    assert "img/s" in printed
    assert "held-out accuracy" in printed
    assert str(folder) in printed
    assert json.loads((folder / "run.json").read_text())["command"].startswith(
        "python train.py --recipe smoke"
    )


def test_a_finished_run_is_not_begun_again(run, capsys):
    assert command_line.main(["--run", str(run[0])]) == 0
    assert "is finished" in capsys.readouterr().out


def test_a_run_is_not_continued_with_another_recipe(run, capsys):
    error = refused(capsys, "--run", str(run[0]), *SMOKE, "--seed", "3")
    assert "seed is 0, not 3" in error


def test_a_failed_run_is_not_continued(run, capsys, tmp_path):
    record = json.loads((run[0] / "run.json").read_text())
    record.update(status="failed", metrics={"reason": "It was so."})
    (tmp_path / "run.json").write_text(json.dumps(record))
    error = refused(capsys, "--run", str(tmp_path))
    assert "It was so." in error
    assert "--recipe-file" in error


def test_a_run_of_the_other_keras_is_refused(run, capsys, tmp_path):
    record = json.loads((run[0] / "run.json").read_text())
    record["status"] = "stopped"
    legacy = record["versions"]["keras"].startswith("tf_keras")
    record["versions"]["keras"] = "keras 3.0" if legacy else "tf_keras 2.0"
    (tmp_path / "run.json").write_text(json.dumps(record))
    error = refused(capsys, "--run", str(tmp_path))
    assert "TF_USE_LEGACY_KERAS" in error


# Which Keras.


def choose(monkeypatch, capsys, *arguments, cluster=None, keras=""):
    sys.path.insert(0, str(ROOT))
    import train  # noqa: PLC0415

    monkeypatch.setenv("TF_USE_LEGACY_KERAS", keras)
    monkeypatch.setenv("TF_CONFIG", json.dumps(cluster) if cluster else "")
    train.choose_keras(list(arguments))
    said = capsys.readouterr().out
    return os.environ["TF_USE_LEGACY_KERAS"], said


WORKERS = {"cluster": {"worker": ["a:1", "b:2"]}}


@pytest.mark.parametrize(
    ("arguments", "cluster"),
    [
        (["--strategy", "tpu"], None),
        (["--strategy=multiworker"], None),
        (["--epochs", "3", "--tpu", "my-tpu"], None),
        ([], WORKERS),
    ],
)
def test_tf_keras_is_chosen_and_said(monkeypatch, capsys, arguments, cluster):
    keras, said = choose(monkeypatch, capsys, *arguments, cluster=cluster)
    assert keras == "1"
    assert "training on tf_keras, not Keras 3" in said


@pytest.mark.parametrize(
    ("arguments", "cluster"),
    [
        ([], None),
        (["--strategy", "mirrored"], None),
        ([], {"cluster": {"worker": ["a:1"]}}),
        (["--strategy", "default"], WORKERS),
    ],
)
def test_the_users_keras_is_left_alone(monkeypatch, capsys, arguments, cluster):
    assert choose(monkeypatch, capsys, *arguments, cluster=cluster) == ("", "")


def test_nothing_is_said_if_it_is_chosen_already(monkeypatch, capsys):
    chosen = choose(monkeypatch, capsys, "--tpu", "x", keras="1")
    assert chosen == ("1", "")


def test_a_tpu_that_is_not_there(tmp_path):
    done = train_py(
        *SMOKE, "--run", str(tmp_path / "run"), "--tpu", "local",
        TF_USE_LEGACY_KERAS="",
    )  # fmt: skip
    assert done.returncode == 2
    assert "training on tf_keras" in done.stdout
    assert "Cannot use the TPU 'local'" in done.stderr
    assert not (tmp_path / "run").exists()


# Two devices, and a killed process.


def test_two_parts_of_the_cpu(tmp_path):
    done = train_py(*SMOKE, "--run", str(tmp_path / "run"), "--replicas", "2")
    assert done.returncode == 0, done.stderr
    record = json.loads((tmp_path / "run" / "run.json").read_text())
    assert record["metrics"]["device"] == "2 CPU replicas"
    assert record["metrics"]["test_images"] == 359
