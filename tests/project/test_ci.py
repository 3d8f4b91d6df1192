"""What runs before a change is merged, here and at GitHub."""

import pathlib
import re

import pytest

pytestmark = pytest.mark.once

ROOT = pathlib.Path(__file__).parents[2]


def test_the_workflow_and_the_makefile_have_the_steps_of_the_script():
    script = ROOT / ".ci/run"
    if not script.is_file():
        pytest.skip("only in a checkout")
    words = " ".join(re.findall(r"(?m)^make (.*)$", script.read_text())).split()
    # It installs beside the tests what a job of the workflow has to itself.
    steps = [x for x in words if x not in ("--jobs=2", "environments")]
    workflow = (ROOT / ".github/workflows/ci.yml").read_text()
    assert re.findall(r"(?m)^ +- make (.*)$", workflow) == steps
    assert "run: ${{ matrix.step }}" in workflow
    makefile = (ROOT / "Makefile").read_text()
    assert f"\ntest-all: {' '.join(steps)}  ##" in makefile
