"""Executes the notebooks of this folder in place: `make notebooks`.

Each runs in a fresh kernel in its own folder, as where a user opens it: it
imports the package as installed and the modules beside it, and writes into
temporary folders. Metadata that differ from machine to machine are removed.

They read the environment variable `LAMBDANET_EXAMPLES`: with the value "short",
which the tests set, they show that every cell runs, and their figures mean
nothing.
"""

import os
import pathlib
import sys

import nbclient
import nbformat

FOLDER = pathlib.Path(__file__).parent
NOTEBOOKS = (
    "train_on_digits.ipynb",
    "fine_tune.ipynb",
    "language_model.ipynb",
    "forecast.ipynb",
    "graphs.ipynb",
    "segmentation.ipynb",
    "reading.ipynb",
)
_SECONDS_PER_CELL = 3600


def execute(name, folder=FOLDER, short=False):
    """Runs a notebook from its first cell to its last.

    Args:
        name: str. Of the file, such as one of `NOTEBOOKS`.
        folder: path. Where the notebook is, and its kernel runs.
        short: bool. Whether the notebook takes its short form.

    Returns:
        The notebook with its outputs.

    Raises:
        nbclient.exceptions.CellExecutionError: if a cell fails.
    """
    notebook = nbformat.read(pathlib.Path(folder, name), as_version=4)
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
    environment = dict(os.environ)
    environment["LAMBDANET_EXAMPLES"] = "short" if short else "full"
    client.execute(env=environment)
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
            if output.get("text", "").startswith("INFO:tensorflow:"):
                continue  # where it wrote temporary files
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
    """Executes the named notebooks, or all, and writes them."""
    for name in sys.argv[1:] or NOTEBOOKS:
        notebook = execute(name)
        nbformat.validate(notebook)
        nbformat.write(notebook, FOLDER / name)
        print(f"{name}: {len(notebook.cells)} cells executed")


if __name__ == "__main__":
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    main()
