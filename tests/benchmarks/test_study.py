"""The study on Fashion-MNIST: its split, its arms and its statistics."""

import dataclasses

import numpy as np
import pytest

from benchmarks import finished_runs
from benchmarks import study
from benchmarks import study_report
from lambdanet_tf import models
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
    assert len(numbers[0]) == 70
    assert not numbers[0] & numbers[1]
    np.testing.assert_array_equal(parts["final"][0], train)
    for file, array in zip(NAMES[2:], parts["final"][2:], strict=True):
        np.testing.assert_array_equal(array, read_idx_file(str(source / file)))


@pytest.mark.slow
@pytest.mark.parametrize("stage", study.STAGES)
def test_the_main_arms_have_as_many_parameters(stage):
    stage = study.STAGES[stage]
    shape = (stage.image_size, stage.image_size, 1)
    counts = {}
    for name, arm in study.MAIN.items():
        arguments = study.model_arguments(arm, stage)
        model = models.LambdaResNetSmall(
            input_shape=shape, classes=10, **arguments
        )
        counts[name] = sum(
            np.prod(weight.shape) for weight in model.trainable_weights
        )
    assert max(counts.values()) < 1.05 * min(counts.values())


def test_searches_come_first_and_seeds_in_pairs():
    searched, final = study.plan(TINY, tuple(TINY.seeds))
    assert searched == ["lambda layers"]
    assert final[:2] == [("lambda layers", 0), ("pixels mixed", 0)]
    searched, _ = study.plan(TINY, ("pixels mixed",))
    assert searched == ["lambda layers"]  # It needs the rate.
    for name, arms in (("small", 4), ("full", 4 + 14)):
        stage = study.STAGES[name]
        searched, final = study.plan(stage, tuple(stage.seeds))
        assert len(searched) == arms
        assert len(final) == 4 * 5 + 17 * 3
        assert study.SEARCH_SEED not in {seed for _, seed in final}


@pytest.mark.slow
@pytest.mark.parametrize("jobs", [1, 2])
def test_a_study_from_front_to_back(source, tmp_path, jobs):
    folder = tmp_path / "runs"
    study.split_data(source, folder / "data", TINY)
    study.study(folder, TINY, tuple(TINY.seeds), jobs)
    rows = [finished_runs.read(path) for path in folder.glob("*-*")]
    assert sorted(row["is_search"] for row in rows) == [False] * 4 + [True] * 2
    assert {row["test_images"] for row in rows} == {20, 30}
    times = {path: path.stat().st_mtime_ns for path in folder.rglob("*")}
    study.study(folder, TINY, tuple(TINY.seeds))  # Nothing is repeated.
    assert times == {path: path.stat().st_mtime_ns for path in times}
    page = tmp_path / study_report.DOCUMENT
    page.write_text("<!-- small:begin -->\n<!-- small:end -->\n")
    against = {name: study.ARMS[name].against for name in TINY.seeds}
    study_report.write("small", rows, study.sizes(TINY), against, tmp_path)
    text = page.read_text()
    assert "| pixels mixed - lambda layers |" in text
    assert (tmp_path / "study_small.png").stat().st_size > 10_000


def rows_of(**accuracies):
    return [
        {"arm": arm, "seed": seed, "accuracy": accuracy / 100}
        for arm, numbers in accuracies.items()
        for seed, accuracy in enumerate(numbers)
    ]


def test_differences_are_taken_seed_by_seed():
    rows = rows_of(one=[90, 91, 93], two=[89, 88, 91])
    rows = [row for row in rows if (row["arm"], row["seed"]) != ("two", 1)]
    differences = study_report.paired(rows, "one", "two")
    assert differences == pytest.approx([1.0, 2.0])


def test_intervals_and_p_values():
    # Student's own data (1908), extra sleep by two drugs: t = 4.0621 with 9
    # degrees of freedom, p = 0.00283, interval 0.70 to 2.46.
    sleep = [1.2, 2.4, 1.3, 1.3, 0.0, 1.0, 1.8, 0.8, 4.6, 1.4]
    assert study_report.p_value(sleep) == pytest.approx(0.00283, abs=1e-5)
    assert study_report.interval(sleep) == pytest.approx(0.8799, abs=1e-4)
    assert study_report.p_value([0.0, 0.0]) == 1.0
    assert study_report.p_value([1.0]) is None


def test_holm_by_hand():
    found = study_report.holm({"a": 0.01, "b": 0.04, "c": 0.03, "d": 0.005})
    expected = {"d": 0.02, "a": 0.03, "c": 0.06, "b": 0.06}
    assert found == pytest.approx(expected)
    assert study_report.holm({"a": 0.7, "b": 0.6}) == {"b": 1.0, "a": 1.0}
