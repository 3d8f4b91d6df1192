"""The commands `export`, `verify`, `predict` and `serve`."""

import csv
import io
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

from lambdanet_tf import cli
from lambdanet_tf import serving
from tests.support.serving_run import CLASSES
from tests.support.serving_run import answer

pytestmark = pytest.mark.once

FORMATS = ("bmp", "gif", "jpg", "png", "tif", "webp")


@pytest.mark.slow
def test_a_run_is_exported_and_served_as_its_readme_says(
    small_run, tmp_path, capsys
):
    command = f"--run-dir={small_run[0]}", f"--destination={tmp_path}"
    assert cli.main(["export", *command, "--name=m", "--top=2"]) == 0
    assert capsys.readouterr().out.count("  same") == 3
    exported = serving.newest_export(tmp_path)
    assert exported == tmp_path / "m" / "1" == serving.newest_export(exported)
    readme = (exported / "README.txt").read_text()
    assert readme.count("\n") == 12
    assert "--model_name=m " in readme
    lines = [x.strip() for x in readme.splitlines() if "serve" in x]
    program = "\n".join(x for x in lines if "(" in x and "http" not in x)
    image = "THIS_FOLDER/assets.extra/example.png"
    program = program.replace("photo.jpg", image)
    program = program.replace("THIS_FOLDER", str(exported))
    exec(program, {"tf": tf})  # noqa: S102
    assert any(name in capsys.readouterr().out for name in CLASSES)
    words = [sys.executable, "-m", "lambdanet_tf", "serve", str(exported)]
    with subprocess.Popen(
        [*words, "--port=0"], stdout=-1, stderr=subprocess.STDOUT, text=True
    ) as process:
        said = process.stdout.readline()
        process.kill()
        assert process.stdout.read() == ""  # It says nothing else.
    assert said.startswith(f"Serving {exported} at http://localhost:")


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("export --top=0 --run-dir={run}", "`top` must be at least 1"),
        ("predict {export} empty", "empty must be a folder with images"),
        ("predict {export} . --top=0", "`top` must be a positive integer"),
        ("serve {export} --port=65536", "Cannot serve on port 65536"),
    ],
)
def test_wrong_use_is_one_line_and_leaves_nothing(
    small_run, small_export, tmp_path, monkeypatch, capsys, command, message
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    (tmp_path / "some.png").write_bytes(b"")
    words = command.format(run=small_run[0], export=small_export).split()
    assert cli.main(words) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"lambdanet {words[0]}: ")
    assert message in error
    assert error.count("\n") == 1
    assert not (tmp_path / "exported").exists()


def test_files_of_every_format_are_named(
    small_export, tmp_path, rng, capsys, caplog
):
    """The lossless ones alike; a file that cannot be read stops no other."""
    pillow = pytest.importorskip("PIL.Image")
    (tmp_path / "below").mkdir()
    pixels = rng.integers(0, 256, (9, 11), np.uint8)
    for name in FORMATS:
        place = tmp_path / "below" if name == "tif" else tmp_path
        pillow.fromarray(pixels).save(place / f"picture.{name}")
    (tmp_path / "notes.txt").write_text("no image")
    (tmp_path / "broken.png").write_bytes(b"\x89PNG no image")
    command = ["predict", str(small_export)]
    assert cli.main([*command, str(tmp_path), "--csv", "--top=2"]) == 1
    printed, errors = capsys.readouterr()
    assert errors.startswith(f"{tmp_path}/broken.png: ")
    assert errors.count("\n") == 1
    rows = {row[0]: row[1:] for row in csv.reader(io.StringIO(printed))}
    assert len(rows) == len(FORMATS)
    png, bmp = (f"{tmp_path}/picture.{name}" for name in ("png", "bmp"))
    assert rows[png] == rows[f"{tmp_path}/below/picture.tif"]
    assert cli.main([*command, png, bmp]) == 0
    assert not caplog.records
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith(f"{png}: {rows[png][0]} ")
    assert lines[0].split(": ")[1] == lines[1].split(": ")[1]
    # They are the probabilities of the signature.
    encoded = [(tmp_path / "picture.png").read_bytes()]
    outputs = answer(small_export, "serving_bytes", image_bytes=encoded)
    [scores] = outputs["probabilities"].tolist()
    best = sorted(zip(scores, CLASSES, strict=True), reverse=True)[:2]
    assert rows[png] == [f"{x}" for score, name in best for x in (name, score)]
