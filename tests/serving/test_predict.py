"""`lambdanet predict`: image files through an export."""

import csv
import io

import numpy as np
import pytest
import tensorflow as tf

from lambdanet_tf import cli
from lambdanet_tf import serving
from tests.support.serving_run import CLASSES

pytestmark = pytest.mark.once

FORMATS = ("bmp", "gif", "jpg", "png", "tif", "webp")


@pytest.fixture
def pictures(tmp_path, rng):
    """A picture as a file of each format, in two folders, and one no image."""
    pillow = pytest.importorskip("PIL.Image")
    (tmp_path / "below").mkdir()
    pixels = rng.integers(0, 256, (9, 11), np.uint8)
    for name in FORMATS:
        place = tmp_path / "below" if name == "tif" else tmp_path
        pillow.fromarray(pixels).save(place / f"picture.{name}")
    (tmp_path / "notes.txt").write_text("no image")
    (tmp_path / "broken.png").write_bytes(b"\x89PNG no image")
    return tmp_path


def test_files_of_every_format_are_named(small_export, pictures, capsys):
    """The lossless ones alike; a file that cannot be read stops no other."""
    command = ["predict", str(small_export), str(pictures)]
    assert cli.main([*command, "--csv", "--top=2"]) == 1
    printed, errors = capsys.readouterr()
    assert errors.startswith(f"{pictures}/broken.png: ")
    assert errors.count("\n") == 1
    rows = {row[0]: row[1:] for row in csv.reader(io.StringIO(printed))}
    assert len(rows) == len(FORMATS)
    first = rows[f"{pictures}/picture.png"]
    assert len(first) == 4
    assert first[0] in CLASSES
    assert first == rows[f"{pictures}/below/picture.tif"]
    assert first == rows[f"{pictures}/picture.bmp"]
    lossless = f"{pictures}/picture.png", f"{pictures}/picture.bmp"
    assert cli.main([*command[:2], *lossless]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith(f"{lossless[0]}: {first[0]} ")
    assert [line.split(": ")[1] for line in lines] == 2 * [
        lines[0].split(": ")[1]
    ]


def test_the_probabilities_are_those_of_the_signature(small_export, pictures):
    file = str(pictures / "picture.png")
    [found] = serving.predict_files(small_export, [file], top=len(CLASSES))
    serve = tf.saved_model.load(str(small_export)).signatures["serving_bytes"]
    outputs = serve(tf.io.read_file(file)[tf.newaxis])
    [scores] = outputs["probabilities"].numpy()
    assert dict(found.classes) == dict(zip(CLASSES, scores, strict=True))
    assert sorted(scores)[::-1] == [score for _, score in found.classes]
