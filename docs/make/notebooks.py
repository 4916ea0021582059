"""The notebooks of docs/notebooks: a page of each for the site, and what fills in their outputs.

`python docs/make/notebooks.py` runs all of them and stores their outputs, text alone: minutes. The tests run them, too
(tests/test_notebooks.py), and change no file.
"""

import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import nbformat

NOTEBOOKS = sorted((Path(__file__).resolve().parents[1] / "notebooks").glob("*.ipynb"))


def page(file: Path) -> str:
    """A notebook as Markdown: its text, its code, and what the code gave."""
    parts = []
    for cell in nbformat.read(file, as_version=4).cells:
        if cell.cell_type == "markdown":
            parts.append(cell.source)
            continue
        parts.append(f"```python\n{cell.source}\n```")
        if text := "".join(_texts(cell.outputs)).rstrip():
            parts.append(f"```text\n{text}\n```")
    where = f"[Download this notebook]({file.name}); its code is run by `tests/test_notebooks.py`."
    return "\n\n".join([parts[0], where, *parts[1:]]) + "\n"


def execute(file: Path, folder: Path, first: str = "", timeout_s: int | None = None) -> Any:
    """Run a notebook in a kernel of its own, in an empty folder; returns it with its outputs.

    Args:
        first: Code that the kernel runs before the notebook's.

    Raises:
        CellExecutionError: With the cell and the traceback.
    """
    from nbclient import NotebookClient

    notebook = nbformat.read(file, as_version=4)
    if first:
        notebook.cells.insert(0, nbformat.v4.new_code_cell(first))
    NotebookClient(notebook, timeout=timeout_s, resources={"metadata": {"path": str(folder)}}).execute()
    return notebook


def store(file: Path, executed: Iterable[Any], folder: Path) -> None:
    """Put the outputs of a notebook's cells, as many as it has, into its file: text alone, without paths of this machine or progress."""
    notebook = nbformat.read(file, as_version=4)
    for cell, done in zip(notebook.cells, executed, strict=True):
        if cell.cell_type == "code":
            text = "".join(_texts(done.outputs)).replace(f"{folder}/", "")
            cell.outputs = [nbformat.v4.new_output("stream", name="stdout", text=text)] if text else []
            cell.execution_count = None
    nbformat.write(notebook, file)


def _texts(outputs: Iterable[Any]) -> Iterator[str]:
    """What was printed, and the last line's value; not what was displayed meanwhile, such as progress."""
    for output in outputs:
        if output.output_type == "stream" and output.name == "stdout":
            yield output.text
        elif output.output_type == "execute_result":
            yield output.data["text/plain"] + "\n"


if __name__ == "__main__":
    for file in NOTEBOOKS:
        with tempfile.TemporaryDirectory() as folder:
            store(file, execute(file, Path(folder)).cells, Path(folder))
