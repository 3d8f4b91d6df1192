"""Studies: their splits, their searches and their statistics."""

import dataclasses

import numpy as np
import pytest

from benchmarks import records
from benchmarks.studies import fashion as study
from benchmarks.views import studies as views
from lambdanet_tf.data.arrays import read_idx_file

pytestmark = pytest.mark.once

NAMES = [
    f"{part}-{kind}-ubyte"
    for part in ("train", "t10k")
    for kind in ("images-idx3", "labels-idx1")
]
TINY = dataclasses.replace(
    study.STAGES["small"],
    widths=dict.fromkeys("LCAS", (4, 4, 8)),
    train_images=70,
    validation_images=20,
    epochs=1,
    rates=(0.1, 0.2),
    searched=("lambda layers",),
    seeds={"lambda layers": (0, 1), "pixels mixed": (0, 1)},
)


@pytest.fixture
def source(tmp_path, rng):
    """A set of 10 classes like Fashion-MNIST, as IDX files."""
    folder = tmp_path / "fashion"
    folder.mkdir()
    for part, count in (("train", 200), ("t10k", 30)):
        images = rng.integers(0, 256, [count, 28, 28])
        labels = np.arange(count) % 10
        images[:, 0, 0] = np.arange(count)  # a number for each image
        names = [name for name in NAMES if name.startswith(part)]
        for name, array in zip(names, (images, labels), strict=True):
            study.write_idx(folder / name, array)
    return folder


def test_the_search_never_sees_a_test_image(source, tmp_path):
    study.split_data(source, tmp_path / "data", TINY)
    parts = {}
    for name in ("search", "final"):
        folder = tmp_path / "data" / f"{name}-fashion"
        parts[name] = [read_idx_file(str(folder / file)) for file in NAMES]
    train, labels, validation, validation_labels = parts["search"]
    assert np.bincount(labels).tolist() == [7] * 10
    assert np.bincount(validation_labels).tolist() == [2] * 10
    numbers = [{*images[:, 0, 0].tolist()} for images in (train, validation)]
    assert not numbers[0] & numbers[1]
    np.testing.assert_array_equal(parts["final"][0], train)
    for file, array in zip(NAMES[2:], parts["final"][2:], strict=True):
        np.testing.assert_array_equal(array, read_idx_file(str(source / file)))


@pytest.mark.slow
def test_a_study_from_front_to_back(source, tmp_path, monkeypatch):
    """The higher rate learns better, so it is that of the final runs."""
    trained = []

    def instead(recipe, folder):
        trained.append(folder)
        part = recipe.data.removeprefix("idx:")
        number = len(read_idx_file(f"{part}/{NAMES[2]}"))
        found = dict.fromkeys(study.runs.METRICS, 1.0)
        accuracy = recipe.learning_rate + 0.01 * len(trained)
        return {**found, "accuracy": accuracy, "test_images": number}

    monkeypatch.setattr(study.runs, "train", instead)
    monkeypatch.setitem(study.STAGES, "small", TINY)
    arguments = ["--data", str(source), "--stage", "small"]
    arguments += ["--runs", str(tmp_path / "runs")]
    for _ in range(2):  # Nothing is repeated.
        study.main([*arguments, "--results", str(tmp_path)])
    rows = records.read("fashion", tmp_path)
    cases = [row["case"] for row in rows]
    assert [x["part"] for x in cases] == ["search"] * 2 + ["final"] * 4
    assert [x["rate"] for x in cases] == [*TINY.rates] + [max(TINY.rates)] * 4
    assert [row["test_images"] for row in rows] == [20] * 2 + [30] * 4
    assert len({*trained}) == len(trained) == len(rows)


def test_intervals_and_p_values():
    # Student's own data (1908), extra sleep by two drugs: t = 4.0621 with 9
    # degrees of freedom, p = 0.00283, interval 0.70 to 2.46.
    sleep = [1.2, 2.4, 1.3, 1.3, 0.0, 1.0, 1.8, 0.8, 4.6, 1.4]
    assert views.p_value(sleep) == pytest.approx(0.00283, abs=1e-5)
    assert views.interval(sleep) == pytest.approx(0.8799, abs=1e-4)
    found = views.holm({"a": 0.01, "b": 0.04, "c": 0.03, "d": 0.005})
    expected = {"d": 0.02, "a": 0.03, "c": 0.06, "b": 0.06}
    assert found == pytest.approx(expected)
