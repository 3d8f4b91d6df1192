"""Clocks: functions and processes that take turns, ratios, intervals."""

import pytest

from benchmarks import timing

pytestmark = pytest.mark.once

WORKERS = """
def work(number):
    return lambda request: lambda: float(number)
def twice(number):
    print("not the result")
    return 2 * number
"""


@pytest.fixture
def workers(tmp_path, monkeypatch):
    (tmp_path / "workers.py").write_text(WORKERS)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))


def test_processes_of_their_own_take_turns(workers):
    assert timing.in_child("workers:twice", 4, cores=1) == 8
    commands = {"a": ("workers:work", 0.0), "bad": ("workers:work", "none")}
    times = timing.worker_turns(commands, 0, ["bad"])
    assert {name: len(taken) for name, taken in times.items()} == {"a": 6}
    with pytest.raises(RuntimeError, match="workers.*failed"):
        timing.worker_turns(commands, seconds=1, most=1)


def test_functions_take_turns():
    calls = []
    functions = {name: lambda name=name: calls.append(name) for name in "ab"}
    taken = timing.turns(functions, seconds=0, least=4)
    assert [len(x) for x in taken.values()] == [4, 4]
    assert calls[:2] == ["a", "b"]  # not counted
    assert all(set(calls[i : i + 2]) == {"a", "b"} for i in range(2, 10, 2))


def test_ratios_are_of_turns():
    # A slow machine in the second half: the medians of either would mislead.
    ours, theirs = [1.0, 1.0, 4.0, 4.0], [2.0, 2.1, 8.0, 8.4]
    assert timing.ratio(ours, theirs) == pytest.approx((2.05, 2.0, 2.1))


def test_an_interval_of_the_median():
    """By the binomial distribution: from the first to the last of six."""
    assert timing.median_interval(range(6)) == (0, 5)
    assert timing.median_interval(range(9)) == (1, 7)
