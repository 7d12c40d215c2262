"""The example notebook, cell by cell; and in a kernel of its own where Jupyter's is installed."""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import Any

import pytest

from tests.docs.blocks import ROOT

NOTEBOOK = ROOT / "examples" / "notebook" / "audit.ipynb"


def cells() -> list[str]:
    """The code in it; a notebook is committed without what it printed."""
    found = [cell for cell in json.loads(NOTEBOOK.read_text("utf-8"))["cells"] if cell["cell_type"] == "code"]
    assert not any(cell["outputs"] for cell in found)
    return ["".join(cell["source"]) for cell in found]


def last_value(code: str, names: dict[str, Any]) -> Any:
    """What a notebook would show: the value of the last line, if that is an expression."""
    tree = ast.parse(code)
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, "cell", "exec"), names)  # noqa: S102
    return None if last is None else eval(compile(ast.Expression(last.value), "cell", "eval"), names)  # noqa: S307


def test_every_cell_runs_and_results_show_themselves(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    values = [last_value(code, names) for code in cells()]
    shown = [value._repr_html_() for value in values if hasattr(value, "_repr_html_")]
    assert len(shown) == 4
    assert "consistent" in shown[0]
    assert "label_direct" in shown[3]
    assert (Path("audited") / "config.toml").is_file()
    assert capsys.readouterr() == ("", "")


@pytest.mark.slow
def test_a_kernel_shows_the_same(tmp_path):
    nbformat = pytest.importorskip("nbformat", reason="needs pip install 'vflpriv[docs]'")
    nbclient = pytest.importorskip("nbclient", reason="needs pip install 'vflpriv[docs]'")
    pytest.importorskip("ipykernel", reason="needs pip install 'vflpriv[docs]'")
    book = nbformat.read(NOTEBOOK, as_version=4)
    nbclient.NotebookClient(book, timeout=600, resources={"metadata": {"path": str(tmp_path)}}).execute()
    outputs = [out for cell in book.cells if cell.cell_type == "code" for out in cell.outputs]
    assert {out.output_type for out in outputs} == {"execute_result"}  # no progress, no warning
    assert [("text/html" in out.data, "text/markdown" in out.data) for out in outputs[:4]] == [(True, True)] * 4
    assert outputs[0].data["text/plain"].startswith("<Report: 1 claim checked: ")
