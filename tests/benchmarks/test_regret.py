"""The draw of `benchmarks.regret`: what is kept, and what is measured anew."""

import json

import pytest

from benchmarks import regret


@pytest.fixture
def measured(monkeypatch):
    """Lines that were measured; each with the algorithm that `auto` takes."""
    lines = []

    def instead(line, repetitions):
        lines.append(line.name)
        times = dict.fromkeys(regret.ops.candidates(regret.CPU, 2), 1.0)
        row = {"layer": regret._fields(line)}
        for phase in regret.PHASES:
            row[phase] = {"milliseconds": times, "regret": 1.0}
            chosen = regret.measured(row, phase).choice(regret.CPU)
            row[phase] |= {"auto": chosen, "best": chosen}
        return row

    monkeypatch.setattr(regret, "time_line", instead)
    return lines


def test_a_draw_goes_on_and_measures_what_is_chosen_otherwise(
    measured, tmp_path
):
    file = tmp_path / "regret.json"
    first = regret.draw(3, 2, 1, file)
    rows = regret.draw(3, 4, 1, file)
    assert len(measured) == len(rows) == 4
    assert rows[:2] == json.loads(json.dumps(first))
    rows[1]["training"]["auto"] = "einsum"  # as if by an earlier model
    file.write_text(json.dumps(rows))
    again = regret.draw(3, 4, 1, file)
    assert measured[4:] == [rows[1]["line"]]
    assert again[1]["training"]["auto"] != "einsum"
    assert [row["line"] for row in again] == [row["line"] for row in rows]


def test_another_draw_is_refused(measured, tmp_path):
    file = tmp_path / "regret.json"
    regret.draw(3, 1, 1, file)
    with pytest.raises(SystemExit, match="another draw"):
        regret.draw(4, 1, 1, file)
