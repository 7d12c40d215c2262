"""Who may import whom: kernel <- { training, accountants, attacks } <- audits <- surface, read from the files."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ("accountants", "attacks", "audits", "training")
CROSS_CHECKS = ("vflpriv.accountants.cross_checks", "opacus")
SURFACE = (
    *("config*", "cli*", "command*", "library", "run*", "report*", "render*", "plots", "fetch", "testing*"),
    *("__init__", "__main__"),
)
MAY_IMPORT = {
    "kernel": {"kernel"},
    "accountants": {"kernel", "accountants"},
    "attacks": {"kernel", "attacks"},
    "training": {"kernel", "training"},
    "audits": {"kernel", "accountants", "attacks", "training", "audits"},
    "surface": {"kernel", "accountants", "attacks", "training", "audits", "surface"},
}
# What accountants work with; `vflpriv --help` and accounting must not wait for torch.
WITHOUT_TORCH = (
    *("units", "parties", "tradeoff", "releases", "ledger", "schedules", "seeds", "budgets", "claims"),
    *("verdicts", "views", "wire", "errors", "registry"),
)


def layer(module: str) -> str | None:
    """The layer of a dotted name, or None for what is not ours."""
    top, _, rest = module.partition(".")
    if top != "vflpriv":
        return None
    first = rest.split(".")[0] or "__init__"
    if first in FOLDERS:
        return first
    return "surface" if any(fnmatch(first, pattern) for pattern in SURFACE) else "kernel"


def needs_no_torch(module: str) -> bool:
    return layer(module) == "accountants" or module.removeprefix("vflpriv.") in WITHOUT_TORCH


def is_type_checking(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and ast.unparse(node.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING")


def imports(node: ast.AST, *, runtime: bool = True) -> Iterator[tuple[str, int, bool]]:
    """(dotted name, line, imported when the program runs) for each import, in functions and branches too."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import):
            yield from ((name.name, child.lineno, runtime) for name in child.names)
        elif isinstance(child, ast.ImportFrom):
            source = "." * child.level + (child.module or "")
            yield from ((f"{source}.{name.name}", child.lineno, runtime) for name in child.names)
        elif isinstance(child, ast.If) and is_type_checking(child):
            for inner in child.body:
                yield from imports(ast.Module([inner], []), runtime=False)
            yield from imports(ast.Module(child.orelse, []), runtime=runtime)
        else:
            yield from imports(child, runtime=runtime)


def wrong_arrows(module: str, source: str) -> list[str]:
    """One line for each import that this module may not have."""
    own, wrong = layer(module), []
    for name, line, runtime in imports(ast.parse(source)):
        where, top, target = f"{module}:{line} imports {name}", name.split(".")[0], layer(name)
        if name.startswith("."):
            wrong.append(f"{where}: absolute imports only")
        if top in FOLDERS:
            wrong.append(f"{where}: a second copy, import vflpriv.{top}")
        if own is not None and target is not None and target not in MAY_IMPORT[own]:
            wrong.append(f"{where}: {own} may not import {target}")
        # Opacus brings torch along; cross-checks load it only when they are asked for.
        if top in ("torch", "opacus") and runtime and needs_no_torch(module) and (module, top) != CROSS_CHECKS:
            wrong.append(f"{where}: {module} works without torch")
    return wrong


def ours() -> dict[str, Path]:
    """All files of the packages by dotted name, and the files around them by path."""
    found = {}
    for folder in ("vflpriv", *FOLDERS):
        package = folder if folder == "vflpriv" else f"vflpriv.{folder}"
        for path in (ROOT / folder).rglob("*.py"):
            dotted = ".".join((package, *path.relative_to(ROOT / folder).with_suffix("").parts))
            found[dotted.removesuffix(".__init__")] = path
    for folder in ("tests", "benchmarks", "tools", "examples"):
        found |= {str(path.relative_to(ROOT)): path for path in (ROOT / folder).rglob("*.py")}
    return found


def test_no_wrong_arrow_in_this_repository() -> None:
    files = ours()
    assert "vflpriv.core.ledger" in files
    assert any(name.startswith("vflpriv.attacks") for name in files)
    wrong = [line for name, path in sorted(files.items()) for line in wrong_arrows(name, path.read_text("utf-8"))]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    ("module", "source", "complaint"),
    [
        ("vflpriv.core.ledger", "from vflpriv.attacks import norm", "kernel may not import attacks"),
        ("vflpriv.core.ledger", "from vflpriv import cli", "kernel may not import surface"),
        ("vflpriv.data.catalogue", "import vflpriv.data.fetch", "kernel may not import surface"),
        ("vflpriv.core.data", "def f():\n    from vflpriv.report_html import page", "kernel may not import surface"),
        ("vflpriv.training.engines.dpzv", "from vflpriv.attacks.norm import Norm", "training may not import attacks"),
        ("vflpriv.attacks.norm", "from vflpriv import training", "attacks may not import training"),
        ("vflpriv.attacks.norm", "import vflpriv.audits.two_world", "attacks may not import audits"),
        ("vflpriv.accountants.gdp", "from vflpriv.training import dpzv", "accountants may not import training"),
        ("vflpriv.audits.two_world", "from vflpriv.run.audit import run", "audits may not import surface"),
        ("vflpriv.run.audit", "from attacks import norm", "a second copy"),
        ("tests/test_x.py", "import accountants.gdp", "a second copy"),
        ("vflpriv.attacks.norm", "from . import other", "absolute imports only"),
        ("vflpriv.accountants.gdp", "import torch", "works without torch"),
        ("vflpriv.core.ledger", "def f():\n    from torch import Tensor", "works without torch"),
        ("vflpriv.core.wire", "if TYPE_CHECKING:\n    pass\nelse:\n    import torch", "works without torch"),
    ],
)
def test_a_wrong_arrow_is_caught(module: str, source: str, complaint: str) -> None:
    found = wrong_arrows(module, source)
    assert len(found) == 1
    assert complaint in found[0]


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("vflpriv.audits.two_world", "from vflpriv.training import dpzv\nfrom vflpriv.accountants import gdp"),
        ("vflpriv.cli.main", "from vflpriv.audits import verdict\nfrom vflpriv.run.audit import run"),
        (
            "vflpriv.attacks.norm",
            "import torch\nfrom vflpriv.core.views import View\nfrom vflpriv.attacks._base import A",
        ),
        ("vflpriv.core.wire", "if TYPE_CHECKING:\n    from torch import Tensor"),
        ("vflpriv.core.data", "import torch"),
    ],
)
def test_a_right_arrow_passes(module: str, source: str) -> None:
    assert wrong_arrows(module, source) == []


def test_accounting_starts_without_torch() -> None:
    """What the files cannot show: another library that brings torch along."""
    names = [f"vflpriv.{name}" for name in WITHOUT_TORCH] + [n for n in ours() if layer(n) == "accountants"]
    code = f"import importlib, sys\nfor name in {names!r}: importlib.import_module(name)\nprint('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
