"""The most likely errors say what is wrong, what was given, what to do."""

import os
import re

import pytest

from tests import messages


@pytest.mark.once
@pytest.mark.parametrize(("row", "parts"), messages.ROWS)
def test_a_message_says_what_to_do(row, parts, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    pattern = ".*".join(map(re.escape, parts.split(" ... ")))
    text = messages.message(row)
    assert re.search(pattern, text), text
    assert os.listdir(tmp_path) == []
