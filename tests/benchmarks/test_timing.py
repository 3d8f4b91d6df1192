"""Clocks: functions and processes that take turns, ratios, intervals."""

import itertools
import time

import pytest

from benchmarks import timing

pytestmark = pytest.mark.once

SLEEPER = """
import time
def sleep(seconds):
    return lambda request: lambda: time.sleep(float(seconds))
def twice(number):
    print("not the result")
    return 2 * number
"""


@pytest.fixture
def sleeper(tmp_path, monkeypatch):
    (tmp_path / "sleeper.py").write_text(SLEEPER)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    return "sleeper:sleep"


@pytest.mark.slow
def test_each_process_is_timed_in_each_turn(sleeper):
    commands = {"short": (sleeper, 0.0), "long": (sleeper, 0.05)}
    times = timing.worker_turns(commands, seconds=60, most=3)
    assert {name: len(taken) for name, taken in times.items()} == {
        "short": 3,
        "long": 3,
    }
    assert min(times["long"]) >= 0.05 > min(times["short"])


def test_there_are_enough_turns_for_an_interval_however_long(sleeper):
    times = timing.worker_turns({"a": (sleeper, 0.0)}, seconds=0)
    assert len(times["a"]) == 6


def test_a_process_that_fails_ends_the_comparison(sleeper):
    commands = {"good": (sleeper, 0.0), "bad": (sleeper, "no number")}
    with pytest.raises(RuntimeError, match="sleeper.*failed"):
        timing.worker_turns(commands, seconds=1, most=1)


def test_an_optional_process_may_refuse_to_begin(sleeper):
    commands = {"good": (sleeper, 0.0), "bad": (sleeper, "no number")}
    times = timing.worker_turns(commands, 1, ["bad"], most=1)
    assert list(times) == ["good"]


def test_a_function_is_called_in_a_process_of_its_own(sleeper):
    assert timing.in_child("sleeper:twice", 4, cores=1) == 8


def test_functions_take_turns_until_the_budget_is_spent():
    calls = []
    functions = {name: lambda name=name: calls.append(name) for name in "ab"}
    taken = timing.turns(functions, seconds=0, least=4)
    assert [len(x) for x in taken.values()] == [4, 4]
    assert calls[:2] == ["a", "b"]  # not counted
    assert all(set(calls[i : i + 2]) == {"a", "b"} for i in range(2, 10, 2))
    begin = time.perf_counter()
    taken = timing.turns(functions, seconds=0.3)
    assert time.perf_counter() - begin < 2
    assert len(taken["a"]) == len(taken["b"]) > 3


def test_ratios_are_of_turns():
    # A slow machine in the second half: the medians of either would mislead.
    ours, theirs = [1.0, 1.0, 4.0, 4.0], [2.0, 2.1, 8.0, 8.4]
    assert timing.ratio(ours, theirs) == pytest.approx((2.05, 2.0, 2.1))


def test_a_spread_of_repeats_and_of_what_was_kept():
    assert timing.spread([3.0, 1.0, 2.0]) == (2.0, 1.0, 3.0)
    assert timing.spread({"median": 2.0, "min": 1.0}) == (2.0, 1.0, None)


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
