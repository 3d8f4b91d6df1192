"""The choice on TPUs beside the estimates of their compiler."""

import json

import pytest

from benchmarks import tpu_programs
from benchmarks import tpu_regret

pytestmark = pytest.mark.once

NAMES = ("query_first", "lambda_first", "fourier_tpu")


def compiled(milliseconds, cycles, group=tpu_programs.DRAWN[0], chip="v3"):
    """Results of a drawn layer, by algorithm."""
    return {
        f"{program.key} on {chip}": {
            "status": "ok",
            # Of two operations the compiler does not know the time.
            "optimal_seconds": milliseconds[name] / 1e3 - 2,
            "cycles": cycles[name],
        }
        for name, program in zip(NAMES, group, strict=True)
    }


def expected_choice(group):
    results = compiled(
        dict.fromkeys(NAMES, 1.0), dict.fromkeys(NAMES, 5), group
    )
    row = tpu_regret.measured(group, "v3", results, "estimate")
    return row.choice(tpu_regret.TPU)


def test_drawn_layers_are_programs_like_others():
    for group in tpu_programs.DRAWN:
        names = [program.changes["implementation"] for program in group]
        assert tuple(names) == NAMES
        for program in group:
            assert tpu_programs.PROGRAMS[program.key] is program
    assert len({group[0].batch for group in tpu_programs.DRAWN}) == 3


def test_regret_by_estimate_and_by_cycles(tmp_path):
    group = tpu_programs.DRAWN[0]
    chosen = expected_choice(group)
    other, *slower = (name for name in NAMES if name != chosen)
    slowest = dict.fromkeys(slower, 9)
    results = compiled(
        {chosen: 3.0, other: 2.0, **slowest}, {chosen: 7, other: 8, **slowest}
    )
    text = tpu_regret.sentences(results)
    assert "v3, by the estimate: the choice is the fastest in 0 of 1" in text
    assert f"worst 1.50 ({chosen} for {other}, batch {group[0].batch})" in text
    assert "v3, by the cycles: the choice is the fastest in 1 of 1" in text
    (line,) = tpu_regret.table(results, "v3").splitlines()[2:]
    assert line.startswith(f"| {group[0].image_size} | {group[0].batch} | d=")
    assert line.endswith(f"| {chosen} | 1.50 |")
    (tmp_path / "tpu_compile.json").write_text(json.dumps(results))
    page = tmp_path / tpu_regret.DOCUMENT
    page.write_text("a\n<!-- regret:begin -->old<!-- regret:end -->\nb\n")
    tpu_regret.main(["--write", str(tmp_path)])
    assert line in page.read_text()
    assert "old" not in page.read_text()
    assert (tmp_path / "tpu_regret.png").stat().st_size > 5_000


def test_a_layer_counts_when_every_algorithm_was_compiled():
    same = dict.fromkeys(NAMES, 1.0)
    results = compiled(same, same) | compiled(
        same, same, tpu_programs.DRAWN[1], "v5e"
    )
    key = f"{tpu_programs.DRAWN[1][2].key} on v5e"
    results[key] = {"status": "timed out", "limit_seconds": 5}
    assert list(tpu_regret.all_measured(results, "cycles")) == ["v3"]


def test_a_fit_does_not_make_the_regret_larger():
    groups = tpu_programs.DRAWN[:3]
    results = {}
    for group in groups:
        chosen = expected_choice(group)
        times = {name: 2.0 - (name != chosen) for name in NAMES}
        results |= compiled(times, times, group)
    *_, before, after = tpu_regret.fit(results).splitlines()
    assert before == "mean 2.000, worst 2.00"
    assert float(after.split(",")[0].removeprefix("mean ")) <= 2.0


def test_nothing_compiled_is_an_error(tmp_path, capsys):
    (tmp_path / "tpu_compile.json").write_text("{}")
    with pytest.raises(SystemExit):
        tpu_regret.main(["--write", str(tmp_path)])
    assert "none of the drawn layers" in capsys.readouterr().err
