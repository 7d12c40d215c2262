"""A package of someone else's in a temporary folder: one module, found by an entry point of `vflpriv`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from textwrap import dedent


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

    def python(self, code: str) -> object:
        """What this code leaves in `result`, as JSON, run by a new interpreter that sees the package."""
        program = f"{dedent(code)}\nimport json\nprint('\\n' + json.dumps(result))"
        done = self._run([sys.executable, "-c", program])
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout.rsplit("\n", 2)[-2])

    def command(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """`vflpriv` with these arguments, run in the package's folder."""
        return self._run([sys.executable, "-m", "vflpriv", *arguments])

    def _run(self, command: list[str]) -> subprocess.CompletedProcess[str]:
        environment = os.environ | {"PYTHONPATH": str(self.folder), "COLUMNS": "200"}
        environment.pop("GITHUB_STEP_SUMMARY", None)
        return subprocess.run(
            command, capture_output=True, text=True, check=False, cwd=self.folder, env=environment, timeout=300
        )
