"""Clocks that take turns, and statistics of what they and studies found."""

import pytest

from benchmarks import timing
from benchmarks.views import studies

pytestmark = pytest.mark.once

WORKERS = """
def work(number):
    return lambda request: lambda: float(number)
def twice(number):
    print("not the result")
    return 2 * number
"""


def test_processes_of_their_own_take_turns(tmp_path, monkeypatch):
    (tmp_path / "workers.py").write_text(WORKERS)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    assert timing.in_child("workers:twice", 4) == 8
    commands = {"a": ("workers:work", 0.0), "b": ("workers:work", 0.0)}
    times = timing.worker_turns(commands, 0)
    assert [*map(len, times.values())] == [6, 6]
    commands["b"] = "workers:work", "none"
    with pytest.raises(RuntimeError, match="workers.*failed"):
        timing.worker_turns(commands, seconds=1, most=1)


def test_intervals():
    # A slow machine in the second half: the medians of either would mislead.
    ours, theirs = [1.0, 1.0, 4.0, 4.0], [2.0, 2.1, 8.0, 8.4]
    assert timing.ratio(ours, theirs) == pytest.approx((2.05, 2.0, 2.1))
    # By the binomial distribution: from the first to the last of six.
    assert timing.median_interval(range(6)) == (0, 5)
    assert timing.median_interval(range(9)) == (1, 7)
    # Student's own data (1908), extra sleep by two drugs: t = 4.0621 with 9
    # degrees of freedom, p = 0.00283, interval 0.70 to 2.46.
    sleep = [1.2, 2.4, 1.3, 1.3, 0.0, 1.0, 1.8, 0.8, 4.6, 1.4]
    assert studies.p_value(sleep) == pytest.approx(0.00283, abs=1e-5)
    assert studies.interval(sleep) == pytest.approx(0.8799, abs=1e-4)
    found = studies.holm({"a": 0.01, "b": 0.04, "c": 0.03, "d": 0.005})
    expected = {"d": 0.02, "a": 0.03, "c": 0.06, "b": 0.06}
    assert found == pytest.approx(expected)
