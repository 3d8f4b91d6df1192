"""The budgets of lines hold: `python -m tests.weight`."""

import pytest

from tests import weight


@pytest.mark.once
@pytest.mark.skipif(not weight.PACKAGE.is_dir(), reason="only in a checkout")
def test_no_sum_is_over_its_budget():
    assert weight.over_budget() == []
