"""Studies: that they run and append, their splits and their statistics."""

import dataclasses
import hashlib

import numpy as np
import pytest

from benchmarks import records
from benchmarks.studies import digits
from benchmarks.studies import fashion as study
from benchmarks.studies import fashion_weights
from benchmarks.studies import norm_defaults
from benchmarks.views import studies as views
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
def test_the_main_arms_are_as_large(stage):
    stage = study.STAGES[stage]
    names = [name for name in stage.arms if name not in study.ABLATIONS]
    found = study.sizes(stage, [x for x in names if x not in study.DELFT])
    for name in ("parameters", "flops"):
        values = [facts[name] for facts in found.values()]
        # At 14 pixels the widths were chosen by the parameters alone.
        if name == "parameters" or stage.image_size == 28:
            assert max(values) < 1.05 * min(values), found


def test_searches_come_first_and_seeds_in_pairs():
    searched, final = study.plan(TINY, tuple(TINY.seeds))
    assert searched == ["lambda layers"]
    assert final[:2] == [("lambda layers", 0), ("pixels mixed", 0)]
    searched, _ = study.plan(TINY, ("pixels mixed",))
    assert searched == ["lambda layers"]  # It needs the rate.
    for name, arms, runs in (("small", 4, 4 * 5 + 17 * 3), ("28px", 6, 6 * 3)):
        stage = study.STAGES[name]
        searched, final = study.plan(stage, tuple(stage.seeds))
        assert len(searched) == arms
        assert len(final) == runs
        assert study.SEARCH_SEED not in {seed for _, seed in final}


def test_the_search_goes_on_where_the_best_rate_is_at_an_end():
    grid, tried = (0.05, 0.1, 0.2, 0.4, 0.8), TINY.rates
    assert study.runs.untried(grid, 0.1, tried) == [0.05]
    assert study.runs.untried(grid, 0.2, tried) == [0.4]
    assert study.runs.untried(grid, 0.4, (*tried, 0.4)) == [0.8]
    assert study.runs.untried(TINY.rates, 0.2, tried) == []


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


@pytest.mark.slow
def test_runs_of_a_study_in_two_processes(source, tmp_path, monkeypatch):
    """One of them mixes pixels; those that are done are not trained again."""
    monkeypatch.setenv("TF_NUM_INTRAOP_THREADS", "1")  # Which they set.
    study.split_data(source, tmp_path, TINY)
    data = f"idx:{tmp_path / 'search-fashion'}"
    tasks = [(tmp_path / name, name, TINY, data, 0, 0.1) for name in TINY.seeds]
    plain, mixed = study.run_all(tasks, 2)
    assert plain["test_images"] == mixed["test_images"] == 20
    monkeypatch.setattr(study.runs.training, "train", None)
    assert [*study.run_all(tasks, 1)] == [plain, mixed]


@pytest.mark.slow
def test_a_look_at_the_digits(tmp_path):
    arguments = ["--seeds", "1", "--epochs", "1", "--results", str(tmp_path)]
    for _ in range(2):
        digits.main([*arguments, "--runs", str(tmp_path / "runs")])
    (row,) = records.read("digits", tmp_path)
    assert row["case"] == {"epochs": 1, "seed": 0}
    assert 0 < row["accuracy"] <= 1


@pytest.mark.slow
def test_a_look_at_the_weights(source, tmp_path):
    arguments = ["--epochs", "1", "--data", str(source)]
    arguments += ["--results", str(tmp_path), "--runs", str(tmp_path / "runs")]
    for _ in range(2):
        fashion_weights.main(arguments)
    (row,) = records.read("fashion_weights", tmp_path)
    assert row["case"] == {"epochs": 1, "seed": 0}
    (weights,) = (tmp_path / "runs").glob("*/best.weights.npz")
    found = hashlib.sha256(weights.read_bytes()).hexdigest()
    assert row["sha256"] == found
    assert models.LambdaResNetSmall28(weights=str(weights))


@pytest.mark.slow
def test_averages_are_those_of_the_layer(monkeypatch):
    """The candidate 0.9 validates as the layer with a momentum of 0.9 does."""
    case = "README's cell", 32, 0
    row = norm_defaults.train(*case, short=True)[-1]
    monkeypatch.setattr(norm_defaults, "norms", lambda model: iter(()))
    expected = norm_defaults.train(*case, short=True)[-1]
    assert row["0.9"] == expected["0.9"]
    assert row["training"] == expected["training"]
    assert row["0.9"] != row["exact"]


@pytest.mark.slow
def test_runs_of_defaults_are_appended(tmp_path):
    arguments = ["--only", "first text", "--seeds", "1", "--batches", "256"]
    arguments += ["--short", "--results", str(tmp_path)]
    for _ in range(2):
        norm_defaults.main(arguments)
    (row,) = records.read("norm_defaults", tmp_path)
    assert row["case"]["short"]
    assert norm_defaults.CANDIDATES.keys() < row["epochs"][0].keys()


def rows_of(**accuracies):
    return [
        {"case": {"arm": arm, "seed": seed}, "accuracy": accuracy / 100}
        for arm, numbers in accuracies.items()
        for seed, accuracy in enumerate(numbers)
    ]


def test_differences_are_taken_seed_by_seed():
    rows = rows_of(one=[90, 91, 93], two=[89, 88, 91])
    rows = [row for row in rows if list(row["case"].values()) != ["two", 1]]
    both = [views.accuracies(rows, arm) for arm in ("one", "two")]
    differences = views.seed_by_seed(*both)
    assert differences == pytest.approx([1.0, 2.0])


def test_intervals_and_p_values():
    # Student's own data (1908), extra sleep by two drugs: t = 4.0621 with 9
    # degrees of freedom, p = 0.00283, interval 0.70 to 2.46.
    sleep = [1.2, 2.4, 1.3, 1.3, 0.0, 1.0, 1.8, 0.8, 4.6, 1.4]
    assert views.p_value(sleep) == pytest.approx(0.00283, abs=1e-5)
    assert views.interval(sleep) == pytest.approx(0.8799, abs=1e-4)
    assert views.p_value([0.0, 0.0]) == 1.0
    assert views.p_value([1.0]) is None


def test_holm_by_hand():
    found = views.holm({"a": 0.01, "b": 0.04, "c": 0.03, "d": 0.005})
    expected = {"d": 0.02, "a": 0.03, "c": 0.06, "b": 0.06}
    assert found == pytest.approx(expected)
    assert views.holm({"a": 0.7, "b": 0.6}) == {"b": 1.0, "a": 1.0}
