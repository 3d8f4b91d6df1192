"""Executes the notebooks of this folder in place: `make notebooks`.

Each runs in a fresh kernel and an empty folder, so what it writes is not kept;
what it shows is. Metadata that differ from machine to machine are removed.
"""

import os
import pathlib
import tempfile

import nbclient
import nbformat

FOLDER = pathlib.Path(__file__).parent
NOTEBOOKS = ("train_on_digits.ipynb", "fine_tune.ipynb")
_SECONDS_PER_CELL = 900


def execute(name, folder):
    """Runs a notebook of this folder from its first cell to its last.

    Args:
        name: str. One of `NOTEBOOKS`.
        folder: path. Where the kernel runs.

    Returns:
        The notebook with its outputs.

    Raises:
        nbclient.exceptions.CellExecutionError: if a cell fails.
    """
    notebook = nbformat.read(FOLDER / name, as_version=4)
    # The kernel is this interpreter, wherever else kernels are installed.
    notebook.metadata["kernelspec"] = {
        "name": "python3",
        "display_name": "Python 3",
        "language": "python",
    }
    client = nbclient.NotebookClient(
        notebook,
        timeout=_SECONDS_PER_CELL,
        kernel_name="python3",
        resources={"metadata": {"path": str(folder)}},
    )
    client.execute()
    return clean(notebook)


def clean(notebook):
    """Removes what says more about a machine than about the notebook."""
    spec = notebook.metadata["kernelspec"]
    notebook.metadata = {
        "kernelspec": spec,
        "language_info": {"name": "python"},
    }
    for number, cell in enumerate(notebook.cells, start=1):
        cell["id"] = f"cell-{number}"
        cell["metadata"] = {}
        outputs = []
        for output in cell.get("outputs", []):
            output.get("metadata", {}).clear()
            if outputs and _same_stream(outputs[-1], output):
                outputs[-1]["text"] += output["text"]
            else:
                outputs.append(output)
        if "outputs" in cell:
            cell["outputs"] = outputs
    return notebook


def _same_stream(first, second):
    """Whether two outputs are text that was printed in a row."""
    return (
        first["output_type"] == second["output_type"] == "stream"
        and first["name"] == second["name"]
    )


def main():
    """Executes all notebooks and writes them."""
    for name in NOTEBOOKS:
        with tempfile.TemporaryDirectory() as folder:
            notebook = execute(name, folder)
        nbformat.validate(notebook)
        nbformat.write(notebook, FOLDER / name)
        print(f"{name}: {len(notebook.cells)} cells executed")


if __name__ == "__main__":
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    main()
