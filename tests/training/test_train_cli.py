"""train.py as people call it."""

import contextlib
import importlib.util
import io
import itertools
import json
import os
import pathlib
import re
import runpy
import shlex
import shutil
import subprocess
import sys
import types

import numpy as np
import pytest
import tensorflow as tf

from lambdanet_tf import arguments
from lambdanet_tf import cli
from lambdanet_tf import config
from lambdanet_tf import environment
from lambdanet_tf import training
from lambdanet_tf.training import options
from lambdanet_tf.training import pictures
from lambdanet_tf.training import progress
from lambdanet_tf.training import record
from lambdanet_tf.training import resolve
from tests.support.image_sets import write_folder
from tests.support.train_process import Process

pytestmark = pytest.mark.once

ROOT = pathlib.Path(__file__).parents[2]
SMOKE = ["--recipe", "smoke", "--epochs", "1"]


def in_a_shell(*command, **variables):
    """The exit code of a Python program and what it prints."""
    done = subprocess.run(
        [sys.executable, *command],
        cwd=ROOT,
        env={**os.environ, **variables},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout


def refused(capsys, *command):
    """What is printed before wrong arguments, and the line about them."""
    assert cli.train(list(command)) == 2
    output = capsys.readouterr()
    assert output.err.startswith("lambdanet train: ")
    assert output.err.count("\n") == 1
    return output


# Help, without TensorFlow.


def test_help_and_list(capsys):
    """Flags, recipes, commands and results."""
    with pytest.raises(SystemExit) as end:
        cli.train(["--help"])
    assert end.value.code == 0
    text = capsys.readouterr().out
    assert "train.py --recipe cifar10" in text
    for name in ("--learning-rate", "--weight-decay", "--image-size"):
        assert name in text
    assert "peak learning rate for" in text
    assert cli.train(["--list-recipes"]) == 0
    listed = capsys.readouterr().out
    for recipe in training.RECIPES.values():
        assert f"{recipe.name:15}{recipe.summary}" in text
        assert f"{recipe.name:15}{recipe.summary}" in listed
        assert recipe.command in listed
        assert recipe.result in listed


def test_no_tensorflow_is_needed_to_say_so():
    program = """
import sys
sys.modules.update(dict.fromkeys(["tensorflow", "numpy", "keras"]))
from lambdanet_tf.cli import train as main
for arguments, code in (
    (["--help"], 0),
    (["--list-recipes"], 0),
    (["--epoch", "3"], 2),
    (["--recipe", "digit"], 2),
    (["--epochs", "0"], 2),
):
    try:
        found = main(arguments)
    except SystemExit as end:
        found = end.code
    if found != code:
        sys.exit(f"{arguments}: {found}")
"""
    code, said = in_a_shell("-c", program)
    assert code == 0, said
    assert "Traceback" not in said


def test_the_console_command_is_there():
    text = (ROOT / "pyproject.toml").read_text()
    (target,) = re.findall(r'^lambdanet-train = "(.*)"', text, re.MULTILINE)
    module, name = target.split(":")
    assert module == cli.__name__
    assert getattr(cli, name) is cli.train


def test_an_interrupted_import_ends_quietly(tmp_path):
    """Ctrl-C while TensorFlow is being imported."""
    (tmp_path / "tensorflow.py").write_text("raise KeyboardInterrupt")
    path = f"{tmp_path}:{ROOT}"
    ended = in_a_shell("train.py", *SMOKE, PYTHONPATH=path)
    assert ended == (130, "\ntrain.py: interrupted\n")


# Wrong use.


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("--epoch 3", "Unknown argument '--epoch'. Did you mean '--epochs"),
        ("--recipe digit", "Unknown recipe 'digit'. .*'digits'"),
        ("--epochs many", "--epochs: invalid integer value: 'many'"),
        ("--epochs", "--epochs: expected one argument"),
        ("--strategy all", "`strategy` must be one of .*'auto'"),
        ("--steps-per-execution 0", "`steps_per_execution` must be at"),
        ("--recipe-file nothing.json", "Cannot read 'nothing.json': "),
        ("--recipe smoke --recipe-file x", "not both"),
        ("--resume", "`resume` needs the folder of a run"),
        ("--resume --run-dir nothing", "nothing is not the folder of a run"),
        ("--data digit", "`data` must be one of digits"),
        ("--data tfds:cifar11", "cifar11"),  # And nothing is downloaded.
        ("--run-dir caf\udce9", r"must be UTF-8: .* Received: 'caf\\udce9'"),
        ("--run-dir s4://bucket/run", "cannot read or write s4:// paths"),
        ("--recipe smoke --batch-size 1300", "1300 for 1295 images"),
        ("--model LambdaResnet50", "Did you mean 'LambdaResNet50'"),
        ("--recipe smoke --model-arguments '{\"scop\": 7}'", "scop"),
        ("--data folder:nowhere", "nowhere"),
        ("--strategy mirrored --jit-compile", "`jit_compile` is for"),
        ("--recipe smoke --initial-weights no.npz", "No such file: no.npz"),
        (
            "--recipe smoke --model MobileNetV2 --drop-path-rate 0.1",
            "`drop_path_rate` must be 0 for a MobileNet",
        ),
    ],
)
def test_wrong_use(capsys, tmp_path, monkeypatch, command, message):
    """A dry run says the same."""
    monkeypatch.chdir(tmp_path)
    _, error = refused(capsys, *shlex.split(command))
    assert re.search(message, error), error
    assert refused(capsys, *shlex.split(command), "--dry-run").err == error
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("extra", [["--dry-run"], []])
def test_an_unwritable_folder_is_an_error_at_once(capsys, tmp_path, extra):
    (tmp_path / "file").write_text("in the way")
    out, error = refused(capsys, f"--runs-dir={tmp_path}/file/runs", *extra)
    assert out == ""
    assert re.search("Cannot (write to|make) a?.*folder", error)


def test_all_missing_packages_are_named_at_once(monkeypatch):
    there = importlib.util.find_spec

    def find_spec(name, *arguments):
        missing = ("tensorflow_datasets", "official", "matplotlib")
        return None if name in missing else there(name, *arguments)

    monkeypatch.setattr(importlib.util, "find_spec", find_spec)
    recipe, said = resolve("imagenet_350"), []
    with pytest.raises(ImportError, match=r"lambdanet-tf\[tfds,garden\]"):
        record.check_prerequisites(
            recipe, training.RunOptions(), print_fn=said.append
        )
    # A dry run does without the images; pictures are never needed.
    smoke = resolve("smoke", {"data": "tfds:cifar10"})
    record.check_prerequisites(smoke, training.RunOptions(), False, said.append)
    assert said == [
        "matplotlib is not installed: the run makes no pictures. It comes with "
        'the extra `plot`: pip install "lambdanet-tf[plot]", in a checkout pip '
        'install ".[plot]".'
    ]


def test_google_cloud_storage_names_its_extra(monkeypatch):
    """Where TensorFlow does not bring it itself."""
    monkeypatch.setattr(
        tf.io.gfile, "get_registered_schemes", lambda: ["", "file"]
    )
    recipe = resolve("smoke", {"data": "records:gs://bucket/imagenet"})
    with pytest.raises(ValueError, match="gs:// paths.*the extra `tpu`"):
        record.check_prerequisites(recipe, training.RunOptions())
    text = (ROOT / "pyproject.toml").read_text()
    tpu = text[text.index("tpu = [") :]
    assert "tensorflow-io-gcs-filesystem" in tpu[: tpu.index("]")]


# Errors and exit codes.


def test_a_fault_keeps_its_traceback():
    """One line is for what this package says about its input."""

    def fault():
        return int("no number")

    def own_fault():
        return list(zip(range(2), range(3), strict=True))

    for action in (fault, own_fault):
        with pytest.raises(ValueError, match="."):
            config.run(action, "mine")


def test_what_this_package_says_is_one_line(capsys):
    assert config.run(lambda: resolve("no recipe"), "mine") == 2
    error = capsys.readouterr().err
    assert error.startswith("mine: Unknown recipe")
    assert error.count("\n") == 1

    def own_check():
        arguments.positive_int("steps", 0)

    with pytest.raises(ValueError, match="must be a positive integer"):
        config.run(own_check, "mine")
    assert config.run(arguments.users_input()(own_check), "mine") == 2


@pytest.mark.slow
def test_images_are_checked_by_a_command(tmp_path, capsys):
    write_folder(tmp_path, classes=("cat", "dog"), number=3)
    assert cli.main(["check", str(tmp_path)]) == 0
    assert "\n0 of 6 images cannot be read." in capsys.readouterr().out
    (tmp_path / "cat" / "2.png").write_bytes(b"a text")
    assert cli.main(["check", f"folder:{tmp_path}"]) == 1
    said = capsys.readouterr().out.splitlines()
    assert f"{tmp_path}/cat/2.png" in said[-2]
    assert said[-1] == "1 of 6 images cannot be read."
    assert cli.main(["check", str(tmp_path / "fish")]) == 2
    assert "fish" in capsys.readouterr().err


def test_each_command_is_in_the_overview(capsys):
    assert cli.main([]) == 2
    assert cli.main(["--help"]) == 0
    text = capsys.readouterr().out
    for name in ("train", "export", "verify", "label", "check", "summary"):
        assert f"\n  {name} " in text
        with pytest.raises(SystemExit) as end:
            cli.main([name, "--help"])
        assert end.value.code == 0
    assert cli.main(["trian"]) == 2
    assert "Did you mean 'train'" in capsys.readouterr().err


# Runs.


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A finished run, and what was printed; without matplotlib."""
    folder = tmp_path_factory.mktemp("cli") / "run"
    command = ["train.py", *SMOKE, "--run-dir", str(folder)]
    printed = io.StringIO()
    with (
        pytest.MonkeyPatch.context() as patch,
        contextlib.redirect_stdout(printed),
    ):
        patch.setattr(sys, "argv", command)
        patch.setitem(sys.modules, "matplotlib", None)
        with pytest.raises(SystemExit) as end:
            runpy.run_path(str(ROOT / "train.py"), run_name="__main__")
    assert end.value.code == 0
    return folder, printed.getvalue()


def test_a_run_says_what_it_does(run):
    folder, printed = run
    assert "parameters" in printed
    assert "1 epoch of 20 steps, 64 images each" in printed
    assert "compiling the training step ..." in printed
    assert "epoch 1/1" in printed
    assert "img/s" in printed
    assert "test accuracy: " in printed
    assert str(folder) in printed
    record = json.loads((folder / "run.json").read_text())
    assert record["command"].startswith("python train.py --recipe smoke")
    # Without matplotlib there are no pictures.
    assert "matplotlib is not installed: the run makes no pictures" in printed
    assert not list(folder.glob("*.png"))
    assert "![" not in (folder / "report.md").read_text()


def test_a_finished_run_is_not_begun_again(run, capsys):
    assert cli.train(["--run-dir", str(run[0])]) == 0
    assert "is finished; there is nothing to resume" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("--seed=3", "begun with another recipe: seed is 0, not 3. Resume it"),
        ("--recipe=digits", "augmentation is 'none', not 'affine'"),
    ],
)
def test_a_change_of_a_run_is_a_change_of_its_own_recipe(
    run, capsys, change, message
):
    """Not of the default recipe."""
    out, error = refused(capsys, f"--run-dir={run[0]}", change)
    assert out == ""
    assert message in error


@pytest.mark.slow
def test_two_parts_of_the_cpu(tmp_path):
    command = [*SMOKE, "--run-dir", str(tmp_path / "run"), "--replicas", "2"]
    code, output = Process(tmp_path / "output", *command).end()
    assert code == 0, output
    record = json.loads((tmp_path / "run" / "run.json").read_text())
    assert record["metrics"]["device"] == "2 CPU replicas"
    assert record["metrics"]["test_images"] == 359


@pytest.mark.slow
def test_ones_own_images_get_a_recipe_of_their_own(tmp_path, capsys, rng):
    """Trained at 64 pixels, not at the digits' 8."""
    for part, number in (("train", 12), ("test", 3)):
        for label, name in enumerate(("dark", "light")):
            folder = tmp_path / "images" / part / name
            folder.mkdir(parents=True)
            for index in range(number):
                pixels = rng.integers(0, 100, (70, 90, 3)) + 150 * label
                png = tf.io.encode_png(pixels.astype(np.uint8))
                (folder / f"{index}.png").write_bytes(png.numpy())
    small = '{"stages": ["L"], "widths": [8], "strides": [2]}'
    command = ["--epochs=1", "--batch-size=8", f"--model-arguments={small}"]
    command += [f"--data=folder:{tmp_path}/images", f"--run-dir={tmp_path}/run"]
    assert cli.train(command) == 0
    output = capsys.readouterr().out
    assert "Images of your own: the recipe images, at 64 pixels." in output
    assert "Warning: the warm-up of 5 epochs is as long as the run" in output
    record = json.loads((tmp_path / "run" / "run.json").read_text())
    assert record["recipe"]["image_size"] == 64
    assert record["recipe"]["augmentation"] == "random_crop"
    assert record["classes"] == ["dark", "light"]
    assert "top5_accuracy" not in record["metrics"]
    assert (tmp_path / "run" / "predictions.png").exists()
    shutil.rmtree(tmp_path / "run")


# Which Keras.


def cluster(kind, index, **members):
    """TF_CONFIG of a process of some machines."""
    task = {"type": kind, "index": index}
    return json.dumps({"cluster": members, "task": task})


WORKER = cluster("worker", 0, worker=["a:1", "b:2"])
ALONE = json.dumps({"cluster": {"worker": ["a:1"]}})


@pytest.mark.parametrize(
    ("given", "text", "needs_tf_keras"),
    [
        ({"strategy": "tpu"}, "", True),
        ({"strategy": "multiworker"}, "", True),
        ({"tpu": "my-tpu"}, "", True),
        ({}, WORKER, True),
        ({}, "", False),
        ({"strategy": "mirrored"}, "", False),
        ({}, ALONE, False),
        ({"strategy": "default"}, WORKER, False),
    ],
)
def test_tf_keras_is_chosen_where_it_is_needed_and_said(
    monkeypatch, capsys, given, text, needs_tf_keras
):
    def choose(keras):
        monkeypatch.setenv("TF_USE_LEGACY_KERAS", keras)
        cli.choose_keras(training.RunOptions(**given))
        return os.environ["TF_USE_LEGACY_KERAS"], capsys.readouterr().out

    monkeypatch.setenv("TF_CONFIG", text)
    keras, said = choose("")
    if needs_tf_keras:
        assert keras == "1"
        assert "training on tf_keras, not Keras 3" in said
        assert choose("1") == ("1", "")
    else:
        assert (keras, said) == ("", "")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "TF_CONFIG must be JSON like .* Received: '{'"),
        ("[1]", "TF_CONFIG must be JSON like"),
        ('{"cluster": {"worker": 3}}', "TF_CONFIG must be JSON like"),
        (
            cluster("worker", 0, worker=["a:1"], evaluator=["c:3"]),
            "TF_CONFIG must name workers, .*Received: evaluator",
        ),
        (
            cluster("evaluator", 0, worker=["a:1", "b:2"]),
            "must be one of its workers. Received: evaluator 0",
        ),
        (
            cluster("worker", 2, worker=["a:1", "b:2"]),
            "must be one of its workers. Received: worker 2",
        ),
    ],
)
def test_a_cluster_that_cannot_train_is_one_line(
    tmp_path, monkeypatch, capsys, text, message
):
    monkeypatch.setenv("TF_CONFIG", text)
    out, error = refused(capsys, *SMOKE, f"--runs-dir={tmp_path}")
    assert out == ""
    assert re.search(message, error)
    assert os.listdir(tmp_path) == []


def test_one_process_of_a_cluster_is_the_chief(monkeypatch):
    for kind, index in (("chief", 0), ("worker", 0), ("worker", 1)):
        text = cluster(kind, index, chief=["a:1"], worker=["b:2", "c:3"])
        monkeypatch.setenv("TF_CONFIG", text)
        assert options.number_of_workers() == 3
        assert options.is_chief() == (kind == "chief")


@pytest.mark.thorough
def test_a_tpu_that_is_not_there(tmp_path):
    command = [*SMOKE, "--run-dir", str(tmp_path / "run"), "--tpu", "local"]
    code, output = in_a_shell("train.py", *command, TF_USE_LEGACY_KERAS="")
    assert code == 2
    assert "training on tf_keras" in output
    assert "Cannot use the TPU 'local'" in output
    assert not (tmp_path / "run").exists()


# The progress line.


class Stream(io.TextIOWrapper):
    """A terminal or a file with an encoding of its own."""

    def __init__(self, encoding, is_terminal):
        super().__init__(io.BytesIO(), encoding=encoding, newline="")
        self._is_terminal = is_terminal

    def isatty(self):
        return self._is_terminal

    def text(self):
        self.flush()
        return self.buffer.getvalue().decode(self.encoding)


def started(encoding="utf-8", is_terminal=True):
    """A progress, where it writes, and its clock, which is set by hand."""
    stream = Stream(encoding, is_terminal)
    clock = types.SimpleNamespace(now=100.0)
    shown = progress.Progress(4, 10, 32, stream, lambda: clock.now)
    shown.write("compiling the training step ...")
    assert shown.is_due(1)
    return shown, stream, clock


def test_the_line_of_an_epoch():
    shown, stream, clock = started("ascii", is_terminal=False)
    clock.now += 9
    shown.show(5, "loss 1.6000")
    row = {"step": 10, "loss": 1.5, "accuracy": 0.25, "bad_images": 1}
    shown.end_epoch(row)
    assert stream.text().splitlines()[1:] == [
        "epoch 1/4  step 5/10  loss 1.6000  1:19 min left  14 img/s",
        "epoch 1/4  loss 1.5000  accuracy 25.00%  1 bad image  30 s left  "
        "32 img/s",
    ]


def test_a_log_has_a_line_at_the_start_and_every_minute():
    shown, stream, clock = started(is_terminal=False)
    assert stream.text() == "compiling the training step ...\n"
    for second in range(1, 151):
        clock.now = 100.0 + second
        if shown.is_due(1 + second // 10):
            shown.show(1 + second // 10, "loss 1.5000")
    lines = stream.text().splitlines()
    assert len(lines) == 3
    assert "epoch 1/4" in lines[1]
    assert "img/s" in lines[1]
    assert "\r" not in stream.text()


@pytest.mark.parametrize("columns", [20, 40, 60, 80, 200])
def test_a_line_fits_the_terminal(monkeypatch, columns):
    monkeypatch.setenv("COLUMNS", str(columns))
    shown, stream, clock = started()
    for step in range(2, 11):
        clock.now += 1
        assert shown.is_due(step)
        shown.show(step, "loss 1.5000")
    metrics = "loss 1.5000  accuracy 50.00%  validation 52.00%"
    shown.show(10, metrics, ends_epoch=True)
    written = stream.text()
    assert written.count("\n") == 1
    for line in re.split(r"[\r\n]", written):
        assert len(line) < columns
    assert "epoch 1/4" in written


def test_numbers_of_things():
    assert progress.count(1, "epoch") == "1 epoch"
    assert progress.count(0, "step") == "0 steps"
    assert progress.count(1295, "image") == "1,295 images"


# The pictures.


@pytest.fixture
def drawn(monkeypatch):
    """The figures that are saved, with the renderer that measures them."""
    figure_module = environment.require("matplotlib.figure", "plot")
    agg = environment.require("matplotlib.backends.backend_agg", "plot")
    save, figures = figure_module.Figure.savefig, []

    def keep(figure, *arguments, **options):
        save(figure, *arguments, **options)
        canvas = agg.FigureCanvasAgg(figure)
        canvas.draw()
        figures.append((figure, canvas.get_renderer()))

    monkeypatch.setattr(figure_module.Figure, "savefig", keep)
    return figures


@pytest.mark.slow
@pytest.mark.parametrize(
    "names",
    [
        ("0", "1", "2"),
        ("a dog", "golden retriever puppy", "Cavalier King Charles spaniel"),
    ],
)
def test_titles_of_predictions_never_overlap(drawn, rng, names):
    images = rng.uniform(0, 255, (60, 8, 8, 3))
    labels = np.arange(60) % 3
    probabilities = rng.dirichlet(np.ones(3), 60)
    pictures.predictions(images, labels, probabilities, names)
    ((figure, renderer),) = drawn
    boxes = [
        axes.title.get_window_extent(renderer)
        for axes in figure.axes
        if axes.title.get_text()
    ]
    assert len(boxes) >= 30
    for box, other in itertools.combinations(boxes, 2):
        assert not box.overlaps(other)


@pytest.mark.slow
@pytest.mark.parametrize("epochs", [1, 3, 12])
def test_curves_count_whole_epochs_beside_their_legends(drawn, epochs):
    rows = [
        {
            "epoch": e,
            "loss": 2 / e,
            "accuracy": 1 - 0.5 / e,
            "validation_loss": 1.5 / e,
            "validation_accuracy": 1 - 0.4 / e,
            "learning_rate": 0.1,
        }
        for e in range(1, epochs + 1)
    ]
    pictures.learning_curves(rows, epochs, 0.9, label_smoothing=0.1)
    ((figure, renderer),) = drawn
    for axes in figure.axes:
        ticks = axes.get_xticks()
        np.testing.assert_array_equal(ticks, np.round(ticks))
        legend = axes.get_legend()
        if legend is not None:
            box = legend.get_window_extent(renderer)
            assert not box.overlaps(axes.get_window_extent(renderer))
    losses, accuracies, _ = figure.axes
    labels = [text.get_text() for text in losses.get_legend().get_texts()]
    assert labels[0] == "training (augmented, labels smoothed by 0.1)"
    assert labels[1] == "validation"
    labels = [text.get_text() for text in accuracies.get_legend().get_texts()]
    assert "test: 90.00%" in labels
