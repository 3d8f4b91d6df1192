"""What runs before a change is merged, here and at GitHub."""

import pathlib
import re

import pytest

pytestmark = pytest.mark.once

ROOT = pathlib.Path(__file__).parents[2]


def test_the_workflow_runs_the_steps_of_the_script():
    script = ROOT / ".ci/run"
    if not script.is_file():
        pytest.skip("only in a checkout")
    commands = re.findall(r"^make (.*)$", script.read_text(), re.MULTILINE)
    targets = [word for line in commands for word in line.split()]
    # It installs beside the tests what a job of the workflow has to itself.
    for word in ("--jobs=2", "environments"):
        targets.remove(word)
    steps = [f"make {target}" for target in targets]
    workflow = (ROOT / ".github/workflows/ci.yml").read_text()
    assert re.findall(r"^ +- (make .*)$", workflow, re.MULTILINE) == steps
    assert "run: ${{ matrix.step }}" in workflow
    # As the script says of what it needs.
    assert 'python-version: "3.11"' in workflow
    makefile = (ROOT / "Makefile").read_text()
    everything = re.search(r"^test-all: (.*?)  ##", makefile, re.MULTILINE)[1]
    assert everything.split() == targets
    for target in targets:
        assert f"\n{target}: " in makefile


def test_what_is_imported_is_declared():
    text = (ROOT / "pyproject.toml").read_text()
    (names,) = re.findall(r"^dependencies = \[(.*)\]$", text, re.MULTILINE)
    assert re.findall(r'"(\w+)', names) == ["numpy", "tensorflow"]
