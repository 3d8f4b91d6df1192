"""The walk through the files of the package."""

import pytest

from benchmarks import walk

pytestmark = pytest.mark.once


def test_stays_and_returns_are_counted():
    calls = [("a", "f"), ("a", "g"), ("b", "h"), ("a", "i")]
    assert walk.stays(calls) == [("a", ["f", "g"]), ("b", ["h"]), ("a", ["i"])]


def test_the_walk_of_a_layer_goes_from_its_call_to_the_numbers(capsys):
    walk.main(["layer", "--list"])
    printed = capsys.readouterr().out.splitlines()
    assert printed[0].startswith("layers/calls.py: __call__")
    assert any(line.startswith("ops/lambdas.py: lambda_") for line in printed)
    assert printed[-2].startswith("layer: ")
    # Whoever reads how the layer gets its numbers opens these files.
    assert printed[-1].startswith("longest chain of calls: ")
    chain = printed[-1].split(" files, ")[1].split(" > ")
    assert "ops/position/fourier.py" in chain
    assert len(chain) <= 8
