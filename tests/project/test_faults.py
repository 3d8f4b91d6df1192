"""The seeded faults stand, and what chooses the cases of `make test`."""

import ast
import collections
import difflib
import pathlib
import types

import pytest

from tests.faults.catalogue import FAULTS
from tests.faults.catalogue import ROOMS
from tests.support import representatives

pytestmark = pytest.mark.once

ROOT = pathlib.Path(__file__).parents[2]
PAGE = ROOT / "tests/faults/README.md"


def test_faults_are_many_and_of_every_room():
    names = [fault.name for fault in FAULTS]
    assert len(set(names)) == len(names) >= 60
    rooms = collections.Counter(fault.room for fault in FAULTS)
    assert set(rooms) == set(ROOMS)
    assert min(rooms.values()) >= 5


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_a_fault_changes_a_few_lines_of_one_file(fault):
    if not (ROOT / "lambdanet_tf").is_dir():
        pytest.skip("only in a checkout")
    before = fault.path_in(ROOT).read_text(encoding="utf-8")
    after = before.replace(fault.old, fault.new)
    ast.parse(after)
    changed = [
        line
        for line in difflib.ndiff(before.splitlines(), after.splitlines())
        if line.startswith("- ")
    ]
    added = len(after.splitlines()) - len(before.splitlines()) + len(changed)
    assert 1 <= max(len(changed), added) <= 5
    for test in fault.tests:
        assert (ROOT / test.partition("::")[0]).exists(), test


def test_the_page_has_a_row_for_each_fault_with_a_test_that_is_there():
    rows = [
        line.strip("| ").split(" | ")
        for line in PAGE.read_text(encoding="utf-8").splitlines()
        if line.startswith("| ") and "`" in line
    ]
    assert [row[1].strip("`") for row in rows] == [f.name for f in FAULTS]
    for _, name, test in rows:
        path, _, function = test.strip("`").partition("::")
        function = function.partition("[")[0].partition("::")[0]
        text = (ROOT / path).read_text(encoding="utf-8")
        assert f"def {function}(" in text, name


def case(test, **params):
    """What pytest collects, as far as it is looked at."""
    markers = {"representatives": None, "once": None}
    return types.SimpleNamespace(
        callspec=types.SimpleNamespace(params=params),
        function=test,
        get_closest_marker=markers.get,
    )


def test_every_value_of_every_parameter_is_met():
    letters, numbers = ("a", "b", "c", "d"), (1, 2, 3)
    items = [case(case, x=x, y=y) for x in letters for y in numbers]
    found = [item.callspec.params for item in representatives.chosen(items)]
    assert {params["x"] for params in found} == set(letters)
    assert {params["y"] for params in found} == set(numbers)
    assert len(found) == 4
    single = [case(case, x=x) for x in letters]
    assert representatives.chosen(single) == single


def test_evenly_spread_cases_begin_with_the_first_and_end_with_the_last():
    assert representatives.evenly_spread(9, 3) == [0, 4, 8]
    assert representatives.evenly_spread(9, 1) == [0]
    assert representatives.evenly_spread(3, 5) == [0, 1, 2]
