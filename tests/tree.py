"""The modules of this checkout: their dotted names, their files, and what each imports."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ("accountants", "attacks", "audits", "training")
"""Folders beside `vflpriv/` that are installed inside it."""


def modules() -> dict[str, Path]:
    """Every module of the package by its dotted name."""
    files = {}
    for folder in ("vflpriv", *FOLDERS):
        package = folder if folder == "vflpriv" else f"vflpriv.{folder}"
        for path in sorted((ROOT / folder).rglob("*.py")):
            if not (path.parent / "__init__.py").exists():
                continue  # a template, which is copied and not imported
            dotted = ".".join((package, *path.relative_to(ROOT / folder).with_suffix("").parts))
            files[dotted.removesuffix(".__init__")] = path
    return files


def packages() -> list[str]:
    """Every package by its dotted name."""
    return sorted(name for name, path in modules().items() if path.name == "__init__.py")


@dataclass(frozen=True)
class Import:
    """One imported name. `runtime` is false under `if TYPE_CHECKING`, `lazy` is true inside a function."""

    name: str
    line: int
    runtime: bool
    lazy: bool


def imports(source: str) -> list[Import]:
    """Every import of a module, those in functions and branches too."""
    return list(_imports(ast.parse(source), runtime=True, lazy=False))


def _imports(node: ast.AST, *, runtime: bool, lazy: bool) -> Iterator[Import]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import):
            yield from (Import(name.name, child.lineno, runtime, lazy) for name in child.names)
        elif isinstance(child, ast.ImportFrom):
            source = "." * child.level + (child.module or "")
            yield from (Import(f"{source}.{name.name}", child.lineno, runtime, lazy) for name in child.names)
        elif isinstance(child, ast.If) and ast.unparse(child.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING"):
            for inner in child.body:
                yield from _imports(ast.Module([inner], []), runtime=False, lazy=lazy)
            yield from _imports(ast.Module(child.orelse, []), runtime=runtime, lazy=lazy)
        else:
            inside = lazy or isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
            yield from _imports(child, runtime=runtime, lazy=inside)
