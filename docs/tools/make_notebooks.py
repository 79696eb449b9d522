"""Executes the notebooks and stores their outputs in place: ``python docs/tools/make_notebooks.py``.

The site shows the stored outputs. Run it again when a notebook or what it prints has changed; it takes some minutes.
"""

import sys
import tempfile
from pathlib import Path

import nbformat
from nbclient import NotebookClient

FOLDER = Path(__file__).parents[1] / "notebooks"
NAMES = ("measure_my_model", "why_does_it_fail")  # the second continues with the records of the first
SETTINGS = "%config InlineBackend.figure_formats = ['png']\n%config InlineBackend.rc = {'figure.dpi': 70}\n"


def execute(name: str, folder: str) -> None:
    """Run one notebook in a folder and write it back with its outputs."""
    path = FOLDER / f"{name}.ipynb"
    notebook = nbformat.read(path, as_version=4)
    notebook.cells.insert(0, nbformat.v4.new_code_cell(SETTINGS))
    NotebookClient(notebook, timeout=1800, kernel_name="python3", resources={"metadata": {"path": folder}}).execute()
    notebook.cells.pop(0)
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)
        if cell.cell_type == "code":
            cell.execution_count = None
            cell.outputs = [output for output in cell.outputs if not progress(output)]
            for output in cell.outputs:
                output.pop("execution_count", None)
                if output.output_type == "execute_result":
                    output.execution_count = None
    notebook.metadata = {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}}
    path.write_text(nbformat.writes(notebook).rstrip() + "\n", encoding="utf-8")


def progress(output: nbformat.NotebookNode) -> bool:
    """Whether an output is a progress line, which differs from run to run."""
    return output.output_type == "stream" and output.name == "stderr"


def main() -> None:
    """Both notebooks, one after the other."""
    with tempfile.TemporaryDirectory() as folder:
        for name in NAMES:
            execute(name, folder)
            print(name, file=sys.stderr)


if __name__ == "__main__":
    main()
