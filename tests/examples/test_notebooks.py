"""The example notebooks run from their first cell to their last."""

import re
import shutil

import nbformat
import pytest

from examples import notebooks

# What only the machine of whoever ran them knows.
FOREIGN = r"/(?:root|home|tmp|work|Users|var)/|site-packages|ipykernel_\d"


# With the wheel alone, in `make test-newest`: it imports what a user has.
@pytest.mark.slow
@pytest.mark.every_lane
@pytest.mark.parametrize("name", notebooks.NOTEBOOKS)
def test_every_cell_runs_in_its_own_folder(name, tmp_path, monkeypatch):
    for variable in ("TMPDIR", "IPYTHONDIR"):
        (tmp_path / variable).mkdir()
        monkeypatch.setenv(variable, str(tmp_path / variable))
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    monkeypatch.delenv("PYTHONPATH", raising=False)
    examples = tmp_path / "examples"
    shutil.copytree(notebooks.FOLDER, examples)
    before = {*examples.rglob("*")}
    notebook = notebooks.execute(name, examples, short=True)
    assert {*examples.rglob("*")} == before
    kept = nbformat.read(notebooks.FOLDER / name, as_version=4)
    for now, then in zip(notebook.cells, kept.cells, strict=True):
        kinds = [output["output_type"] for output in now.get("outputs", [])]
        wanted = [output["output_type"] for output in then.get("outputs", [])]
        assert kinds == wanted, now["source"]


@pytest.mark.parametrize("name", notebooks.NOTEBOOKS)
def test_the_kept_outputs_are_complete_and_of_no_machine(name):
    notebook = nbformat.read(notebooks.FOLDER / name, as_version=4)
    nbformat.validate(notebook)
    cells = [c for c in notebook.cells if c["cell_type"] == "code"]
    counts = [cell["execution_count"] for cell in cells]
    assert counts == list(range(1, len(cells) + 1))
    outputs = [output for cell in cells for output in cell["outputs"]]
    pictures = [x for x in outputs if "image/png" in x.get("data", {})]
    assert pictures or name == "language_model.ipynb"  # It shows its text.
    shown = re.sub(r'"image/png": "[^"]*"', "", nbformat.writes(notebook))
    assert not re.search(FOREIGN, shown)
