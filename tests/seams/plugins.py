"""A package of someone else's in a temporary folder: one module, found by an entry point of `vflpriv`."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from subprocess import CompletedProcess
from textwrap import dedent
from typing import Any
from unittest import mock

from tests.program import vflpriv
from vflpriv.common import registry
from vflpriv.core import kinds
from vflpriv.data import catalogue

__all__ = ["Plugin", "command_beside", "installed"]


class Plugin:
    """A module in a folder of its own that Python finds as an installed package with one entry point."""

    def __init__(self, folder: Path, group: str, target: str, source: str) -> None:
        """`group` is `vflpriv.engines` or the like, `target` the name that the entry point loads from the module."""
        self.folder = folder
        info = folder / "plugin_package-1.0.dist-info"
        info.mkdir(parents=True)
        (folder / "plugin_package.py").write_text(dedent(source), encoding="utf-8")
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: plugin-package\nVersion: 1.0\n", encoding="utf-8")
        (info / "entry_points.txt").write_text(f"[{group}]\nplugin = plugin_package:{target}\n", encoding="utf-8")

    def python(self, code: str) -> Any:
        """What this code leaves in `result`, run in the package's folder where the package is installed."""
        names: dict[str, Any] = {}
        with installed(self.folder, self.folder):
            exec(dedent(code), names)  # noqa: S102 (the test's own program)
        return names["result"]

    def command(self, *arguments: str) -> CompletedProcess[str]:
        """`vflpriv` with these arguments, run in the package's folder where the package is installed."""
        return command_beside(self.folder, self.folder, *arguments)

    def process(self, *arguments: str) -> CompletedProcess[str]:
        """`python -m vflpriv` with these arguments: the same in a new interpreter, which takes seconds to start."""
        return subprocess.run(
            [sys.executable, "-m", "vflpriv", *arguments],
            capture_output=True,
            text=True,
            check=False,
            cwd=self.folder,
            env=os.environ | {"PYTHONPATH": str(self.folder), "COLUMNS": "200"},
            timeout=300,
        )


def command_beside(site: Path, folder: Path, *arguments: object) -> CompletedProcess[str]:
    """`vflpriv` with these arguments, in a folder, as if the packages of another were installed."""
    with installed(site, folder):
        return vflpriv(*arguments)


@contextmanager
def installed(site: Path, folder: Path) -> Iterator[None]:
    """Inside the block this interpreter is in `folder`, and finds the packages of `site`, as a new one would."""
    here, loaded, broken = (
        Path.cwd(),
        set(registry._loaded),
        {kind: dict(why) for kind, why in registry._broken.items()},
    )
    with (
        mock.patch.dict(os.environ, COLUMNS="200"),
        mock.patch.object(sys, "path", [str(site), *sys.path]),
        # A file that is changed within the second would be taken for its old compiled form.
        mock.patch.object(sys, "dont_write_bytecode", new=True),
    ):
        try:
            os.chdir(folder)
            registry._loaded.clear()
            _look_again()
            yield
        finally:
            os.chdir(here)
            registry._loaded.update(loaded)
            registry._broken.update(broken)
            _forget(site)
    _look_again()


def _look_again() -> None:
    """The next one to ask for plug-ins finds those that there are then."""
    importlib.invalidate_caches()
    catalogue._plugins.cache_clear()
    kinds._plugins.cache_clear()


def _forget(site: Path) -> None:
    """Unload the modules of a folder, and what they registered."""
    files = {name: getattr(module, "__file__", None) for name, module in sys.modules.items()}
    gone = {name for name, file in files.items() if file is not None and Path(file).is_relative_to(site)}
    for items in registry._registered.values():
        for name in [name for name, item in items.items() if item.__module__ in gone]:
            del items[name]
    for name in gone:
        del sys.modules[name]
