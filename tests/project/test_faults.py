"""The seeded faults can be made, and their page names tests that are there."""

import ast
import collections
import difflib
import pathlib

import pytest

from tests.faults.catalogue import FAULTS
from tests.faults.catalogue import ROOMS

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
    lines = difflib.ndiff(before.splitlines(), after.splitlines())
    changed = sum(line.startswith("- ") for line in lines)
    added = len(after.splitlines()) - len(before.splitlines()) + changed
    assert 1 <= max(changed, added) <= 5
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
