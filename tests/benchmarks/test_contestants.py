"""Benchmarks whose contestants are processes that take turns."""

import pytest

from benchmarks import contestants

SLEEPER = """
import sys, time
from benchmarks import contestants
contestants.serve(lambda: time.sleep(float(sys.argv[1])))
"""


@pytest.fixture
def sleeper(tmp_path, monkeypatch):
    (tmp_path / "sleeper.py").write_text(SLEEPER)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    return "sleeper"


def test_each_contestant_is_timed_in_each_turn(sleeper):
    commands = {"short": (sleeper, [0.0]), "long": (sleeper, [0.05])}
    times = contestants.take_turns(commands, turns=3, seconds=60)
    assert {name: len(taken) for name, taken in times.items()} == {
        "short": 3,
        "long": 3,
    }
    assert min(times["long"]) >= 0.05 > min(times["short"])


def test_there_are_enough_turns_for_an_interval_however_long(sleeper):
    times = contestants.take_turns({"a": (sleeper, [0.0])}, 50, seconds=0)
    assert len(times["a"]) == 6


def test_a_contestant_that_fails_ends_the_comparison(sleeper):
    commands = {"good": (sleeper, [0.0]), "bad": (sleeper, ["no number"])}
    with pytest.raises(RuntimeError, match="sleeper.*failed"):
        contestants.take_turns(commands, turns=1, seconds=1)


def test_an_optional_contestant_may_refuse_to_begin(sleeper):
    commands = {"good": (sleeper, [0.0]), "bad": (sleeper, ["no number"])}
    times = contestants.take_turns(commands, 1, 1, optional=["bad"])
    assert list(times) == ["good"]
