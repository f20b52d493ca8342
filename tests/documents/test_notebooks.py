"""The course and the tutorials are notebooks as they stand: Markdown that Jupytext opens.

Their blocks run in test_documents.py. Here: that a notebook has the same cells, and that one of
them runs in a kernel from the first to the last.
"""

import re
import textwrap
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
EXERCISES = sorted((DOCS.parent / "examples").glob("course*/*.py"))
NOTEBOOKS = [DOCS / "learn.md", *sorted((DOCS / "tutorials").glob("*.md"))]


def notebook(path):
    return pytest.importorskip("jupytext", reason="the extra `notebooks`").read(path)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_the_cells_are_the_blocks(path):
    blocks = re.findall(r"^```python\n(.*?)^```", path.read_text(), re.MULTILINE | re.DOTALL)
    cells = [cell.source for cell in notebook(path).cells if cell.cell_type == "code"]
    assert cells == [textwrap.dedent(block).rstrip("\n") for block in blocks]
    assert cells


@pytest.mark.parametrize("path", EXERCISES, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_an_exercise_is_a_notebook_whose_cells_are_its_code(path):
    cells = notebook(path).cells
    assert [cell.cell_type for cell in cells][:2] == ["markdown", "code"]
    assert cells[0].source.startswith(f"# {path.stem[0]}. ")
    assert "**Your task:**" in cells[0].source
    code = "\n".join(cell.source for cell in cells if cell.cell_type == "code")
    plain = re.sub(r"^#.*\n", "", path.read_text(), flags=re.MULTILINE)
    assert code.split() == plain.split()


def test_the_course_runs_in_a_kernel(tmp_path):
    client = pytest.importorskip("nbclient", reason="the extra `notebooks`")
    course = notebook(DOCS / "learn.md")
    course.metadata["kernelspec"] = {"name": "python3", "display_name": "Python"}
    client.NotebookClient(course, resources={"metadata": {"path": tmp_path}}).execute()
    cells = [cell for cell in course.cells if cell.cell_type == "code"]
    assert all(cell.execution_count for cell in cells)
    assert any(cell.outputs for cell in cells)
