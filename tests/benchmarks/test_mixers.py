"""Layers compared by one protocol: the search, the final runs, the cost."""

import dataclasses

import pytest

from benchmarks import records
from benchmarks.studies import mixers
from lambdanet_tf import analysis

pytestmark = [pytest.mark.once, pytest.mark.thorough]


@pytest.fixture
def tiny(monkeypatch):
    """Two layers that learn from a few scenes, from one rate on."""
    task = mixers.TASKS["segmentation"]
    data = {
        part: tuple(array[:20] for array in arrays)
        for part, arrays in mixers.segmentation_data().items()
    }
    starts = {
        "convolution 3x3": mixers.KERNEL,
        "lambda, scope 7": mixers.LAMBDA,
    }
    variants = {
        name: dataclasses.replace(
            task.variants[name], widths=(4, 4, 4), starts=tried
        )
        for name, tried in starts.items()
    }
    task = dataclasses.replace(
        task,
        variants=variants,
        data=lambda: data,
        rates=task.rates[:1],
        steps=1,
        batch=2,
    )
    monkeypatch.setattr(mixers, "TASKS", {"segmentation": task})


def test_a_study_from_front_to_back(tiny, tmp_path):
    arguments = ["--seeds", "2", "--results", str(tmp_path)]
    for _ in range(2):  # Nothing is repeated.
        mixers.main(arguments)
    rows = records.read("mixers", tmp_path)
    cases = [records.key(row["case"]) for row in rows]
    assert len(cases) == len(set(cases))
    final = [row["case"] for row in rows if row["case"]["part"] == "final"]
    assert [case["seed"] for case in final] == [1, 1, 2, 2]
    searched = [row["case"] for row in rows if row["case"]["part"] == "search"]
    assert {case["seed"] for case in searched} == {mixers.SEARCH_SEED}
    assert len(searched) >= 2 * (2 + 1)


def test_the_grid_goes_on_where_its_end_is_best(tiny, tmp_path):
    options = records.parser("").parse_args(["--results", str(tmp_path)])
    study = mixers.Study(
        "segmentation",
        "lambda, scope 7",
        None,
        records.Recorder("mixers", options),
    )
    tried = []

    def score(part, rate, start, seed):
        tried.append(rate)
        return -abs(rate - 1e-1) - (start != 0.1)

    study.score = score
    assert study.choice() == (1e-1, 0.1)
    assert sorted(tried) == [1e-3, 3e-3, 3e-3, 1e-2, 3e-2, 1e-1, 3e-1]


@pytest.mark.slow
@pytest.mark.parametrize("task", mixers.TASKS)
def test_the_layers_cost_the_same(task):
    networks = [
        mixers.TASKS[task].network(variant, variant.starts[0])
        for variant in mixers.TASKS[task].variants.values()
        if variant.rate is None  # no ablation
    ]
    counts = [analysis.trainable_parameters(model) for model in networks]
    assert max(counts) < 1.05 * min(counts)
    if task == "segmentation":
        costs = [mixers.flops(model) for model in networks]
        assert max(costs) < 1.05 * min(costs)
