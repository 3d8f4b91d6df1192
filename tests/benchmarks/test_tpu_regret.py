"""The choice on TPUs and the estimates of their compiler."""

import pytest

from benchmarks import records
from benchmarks.tpu import choices
from benchmarks.tpu import programs
from benchmarks.views import tpu as views

pytestmark = pytest.mark.once

NAMES = programs.DRAWN_ALGORITHMS


def compiled(milliseconds, cycles, group=programs.DRAWN[0], chip="v3"):
    """Records of a drawn layer, by algorithm."""
    return [
        {
            "case": program.case(chip=chip),
            "status": "ok",
            # Of two operations the compiler does not know the time.
            "optimal_seconds": milliseconds[name] / 1e3 - 2,
            "cycles": cycles[name],
        }
        for name, program in zip(NAMES, group, strict=True)
    ]


def chosen_of(group):
    seconds = dict.fromkeys(NAMES, 1.0)
    return choices.measured(group, seconds).choice(choices.TPU)


def test_drawn_layers_are_programs_like_others():
    for group in programs.DRAWN:
        names = [program.changes["implementation"] for program in group]
        assert tuple(names) == NAMES
        for program in group:
            assert programs.PROGRAMS[program.key] is program
    assert len({group[0].batch for group in programs.DRAWN}) == 3


@pytest.fixture
def appended(tmp_path):
    """Records of all choices."""
    for _ in range(2):  # what is known is not recorded again
        choices.main(["--results", str(tmp_path)])
    return records.read("tpu_choices", tmp_path)


def test_choices_are_appended(appended):
    values = [chosen_of(group) for group in programs.DRAWN]
    assert [row["value"] for row in appended] == values


def test_regret_by_estimate_and_by_cycles(appended):
    chosen = chosen_of(programs.DRAWN[0])
    other, *slower = (name for name in NAMES if name != chosen)
    slowest = dict.fromkeys(slower, 9)
    rows = compiled(
        {chosen: 3.0, other: 2.0, **slowest}, {chosen: 7, other: 8, **slowest}
    )
    found = {"tpu": rows, "tpu_choices": appended}
    for measure, regret in (("estimate", 1.5), ("cycles", 1.0)):
        (row,) = views.drawn(found, measure)["v3"]
        assert row.regret == pytest.approx(regret)


def test_a_layer_counts_when_every_algorithm_was_compiled(appended):
    same = dict.fromkeys(NAMES, 1.0)
    rows = compiled(same, same)
    late = compiled(same, same, programs.DRAWN[1], "v5e")
    late[2] = {**late[2], "status": "timed out", "limit_seconds": 5}
    found = {"tpu": rows + late, "tpu_choices": appended}
    assert list(views.drawn(found, "cycles")) == ["v3"]


@pytest.mark.slow
def test_a_fit_does_not_make_the_regret_larger():
    rows = []
    for group in programs.DRAWN[:3]:
        chosen = chosen_of(group)
        times = {name: 2.0 - (name != chosen) for name in NAMES}
        rows += compiled(times, times, group)
    results = {records.key(row["case"]): row for row in rows}
    rows = list(choices.compiled(results))
    fitted = choices.device_fit.report(rows, choices.TPU)
    _, before, _, after = fitted.splitlines()
    assert before == "mean 2.000, worst 2.00"
    assert float(after.split(",")[0].removeprefix("mean ")) <= 2.0
