"""The pages of the book about this package, and its notebook, run."""

from __future__ import annotations

import os
import re
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient


def test_the_examples_of_the_page_run(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for page in ("docs/src/python.md", "crates/python/README.md", "README.md"):
        text = (root / page).read_text(encoding="utf-8")
        examples = re.findall(r"^```python\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
        assert examples, page
        names: dict[str, object] = {}
        for example in examples:
            exec(compile(example, page, "exec"), names)


def test_the_notebook_runs(root: Path, tmp_path: Path) -> None:
    path = Path(os.environ.get("NOTEBOOK", root / "docs/src/notebook.ipynb"))
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(tmp_path)}}).execute()
    shown = [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]
    assert sum("text/html" in output.get("data", {}) for output in shown) >= 5
    assert any("image/png" in output.get("data", {}) for output in shown)
