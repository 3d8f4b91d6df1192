"""The figures of the comparison with timm, from times that are given."""

import argparse
import itertools

import pytest

from benchmarks import report
from benchmarks import timing
from benchmarks import timm_report
from benchmarks import timm_speed


def test_figures_are_of_the_ratios_of_turns():
    # A slow machine in the second half: the medians of either would mislead.
    times = {"ours": [1.0, 1.0, 4.0, 4.0], "theirs": [2.0, 2.1, 8.0, 8.4]}
    found = timm_speed.figures(times, batch=8)
    assert found["ratio"] == pytest.approx(2.05)
    assert found["interval"] == pytest.approx((2.0, 2.1))
    assert found["images_per_second"]["ours"] == pytest.approx(8 / 2.5)
    assert found["fastest_images_per_second"]["theirs"] == pytest.approx(4)
    assert found["turns"] == 4


@pytest.mark.parametrize("n", [6, 9, 12])
def test_the_interval_holds_the_median_in_95_of_100_cases(n):
    low, high = timing.median_interval(range(n))
    assert low == n - 1 - high
    # Every way in which n numbers fall below and above the median.
    below = [sum(way) for way in itertools.product((0, 1), repeat=n)]

    def confidence(rank):
        """Of the interval from the number of a rank, from 0, to its mirror."""
        held = [rank < count < n - rank for count in below]
        return sum(held) / len(held)

    assert confidence(low) >= 0.95
    assert confidence(low + 1) < 0.95


def test_a_row_of_the_table():
    row = {
        "network": "LambdaResNet26T",
        "phase": "training",
        "batch": 8,
        "ours": "graph",
        "theirs": "compiled",
        **timm_speed.figures({"ours": [2.0] * 6, "theirs": [3.0] * 6}, 8),
    }
    cells = timm_report.table([row]).splitlines()[-1].split(" | ")
    assert cells[3:] == ["graph", "4.00", "compiled", "2.67"] + [
        "**1.50**",
        "1.50 to 1.50 |",
    ]
    assert "3.00 to" not in timm_speed.line(row)
    assert timm_report.summary([row, {**row, "ratio": 0.5}]) == (
        "- Training, timm compiled: it takes 1.00 times as long (median of 2 "
        "rows; 0.50 to 1.50), and is faster for LambdaResNet26T, batch 8."
    )
    assert "1.50 times as long as ours (graph)" in timm_speed.line(row)


def test_a_comparison_goes_on_where_it_was_stopped(monkeypatch, tmp_path):
    parser = argparse.ArgumentParser()
    timm_speed.add_arguments(parser)
    for name in ("--networks", "--batch", "--size", "--write"):
        parser.add_argument(name)
    arguments = parser.parse_args(["--timm", "--theirs", "eager"])
    arguments.networks, arguments.batch = ["LambdaResNet26T"], [1, 8]
    arguments.write = str(tmp_path)
    (tmp_path / "engine.md").write_text(
        "<!-- timm:begin -->\n<!-- timm:end -->"
    )
    timed = []

    def duel(name, kinds, phase, batch, size, turns, seconds):
        if len(timed) == 3:
            raise KeyboardInterrupt
        timed.append((phase, batch))
        times = {"ours": [2.0] * 6, "theirs": [3.0] * 6}
        row = {"network": name, "phase": phase, "batch": batch, "size": size}
        figures = timm_speed.figures(times, batch)
        return {**row, "ours": kinds[0], "theirs": kinds[1], **figures}

    monkeypatch.setattr(timm_speed, "duel", duel)
    monkeypatch.setattr(timm_speed.timm_networks, "missing", lambda: "")
    with pytest.raises(KeyboardInterrupt):
        timm_speed.measure(arguments)
    assert (
        "| LambdaResNet26T | training | 1 |"
        in (tmp_path / "engine.md").read_text()
    )
    first = timed.copy()
    timed.clear()
    timm_speed.measure(arguments)
    assert first == [("inference", 1), ("inference", 8), ("training", 1)]
    assert timed == [("training", 8)]
    assert len(report.stored(tmp_path / timm_report.FIGURES, [])) == 4
