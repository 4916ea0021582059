"""The notebooks of docs/notebooks: each runs from its first cell to its last, and what is stored of them can be read."""

import json
import sys
from pathlib import Path
from types import ModuleType

import nbformat
import pytest
from IPython.core.interactiveshell import InteractiveShell
from traitlets.config import Config

from docs.make.notebooks import NOTEBOOKS, execute, page, store
from tests.notebooks import InProcessEngine
from tests.pages import ROOT

IN_PROCESS = f"""import os, sys
sys.path.insert(0, {str(ROOT)!r})
os.environ["XDG_CACHE_HOME"] = os.getcwd() + "/cache"
from tests.notebooks import in_this_process
in_this_process(1)"""
names = [file.stem for file in NOTEBOOKS]
IN_A_KERNEL = "client"


def test_there_is_one_for_each_way_in() -> None:
    assert names == ["bytes", "client", "institutions", "quick_start", "strategies"]


def finished_well(folder: Path) -> None:
    runs = [json.loads(about.read_text())["status"] for about in folder.glob("runs/*/run.json")]
    assert runs
    assert set(runs) == {"completed"}


def test_a_notebook_runs_to_its_end_in_a_kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every cell in a kernel of its own, with the real server and sites, but in one process and one round: Flower's own processes take
    half a minute a run. One notebook, since a kernel loads everything anew: ten seconds of CPU."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    (file,) = (each for each in NOTEBOOKS if each.stem == IN_A_KERNEL)
    done = execute(file, tmp_path, IN_PROCESS)
    assert [cell.execution_count for cell in done.cells if cell.cell_type == "code"] != []
    finished_well(tmp_path)


@pytest.mark.parametrize("name", [name for name in names if name != IN_A_KERNEL])
def test_a_notebook_runs_to_its_end(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same with IPython in this process."""
    (file,) = (each for each in NOTEBOOKS if each.stem == name)
    for key in ("PYTHONPATH", "IPYTHONDIR"):
        monkeypatch.setenv(key, str(tmp_path))  # and back again, whatever the notebook makes of it
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr("fedlingua.desk.cli.run.Engine", InProcessEngine)
    monkeypatch.setattr(InProcessEngine, "most_rounds", 1)
    known = set(sys.modules)
    shell = InteractiveShell(user_module=ModuleType("notebook"), config=Config({"HistoryManager": {"enabled": False}}))
    try:
        for cell in nbformat.read(file, as_version=4).cells:
            if cell.cell_type == "code":
                shell.run_cell(cell.source, store_history=False).raise_error()
    finally:
        for written in tmp_path.glob("*.py"):
            if written.stem not in known:
                sys.modules.pop(written.stem, None)
    finished_well(tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("file", NOTEBOOKS, ids=names)
def test_a_notebook_runs_with_flower(file: Path, tmp_path: Path) -> None:
    """The same with a SuperLink and Ray: half a minute of CPU for each of ten runs."""
    execute(file, tmp_path)


@pytest.mark.parametrize("file", NOTEBOOKS, ids=names)
def test_what_is_stored_is_short_text_of_no_machine(file: Path) -> None:
    notebook = nbformat.read(file, as_version=4)
    nbformat.validate(notebook)
    outputs = [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]
    assert {output.output_type for output in outputs} == {"stream"}
    assert max(len(output.text.splitlines()) for output in outputs) <= 12
    assert [
        output.text for output in outputs if "/home" in output.text or "/tmp" in output.text or str(ROOT) in output.text
    ] == []
    assert all(cell.execution_count is None for cell in notebook.cells if cell.cell_type == "code")


@pytest.mark.parametrize("file", NOTEBOOKS, ids=names)
def test_a_page_has_the_notebooks_text_code_and_outputs(file: Path) -> None:
    text, cells = page(file), nbformat.read(file, as_version=4).cells
    assert text.startswith("# ")
    assert all(cell.source in text for cell in cells)
    assert f"({file.name})" in text
    assert text.count("```python\n") == sum(cell.cell_type == "code" for cell in cells)


def test_progress_and_paths_are_not_stored(tmp_path: Path) -> None:
    file = tmp_path / "one.ipynb"
    new = nbformat.v4
    cells = [new.new_markdown_cell("# One"), new.new_code_cell("print(here)")]
    nbformat.write(new.new_notebook(cells=cells), file)
    shown = new.new_output("display_data", {"text/plain": "round 1/2"})
    printed = new.new_output("stream", name="stdout", text=f"{tmp_path}/runs/one\n")
    loud = new.new_output("stream", name="stderr", text="a warning\n")
    value = new.new_output("execute_result", {"text/plain": "7", "text/html": "<b>7</b>"})
    done = new.new_code_cell("print(here)", outputs=[shown, loud, printed, value])
    store(file, [cells[0], done], tmp_path)
    stored = nbformat.read(file, as_version=4).cells[1]
    assert [(output.name, output.text) for output in stored.outputs] == [("stdout", "runs/one\n7\n")]
