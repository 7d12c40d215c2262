"""Runs `mypy --strict` on all five package folders.

mypy does not read setuptools' `package-dir`, so the packages are mirrored as links in an ignored folder, in the shape
in which they are installed. A wrong shape says "Success" over one file; hence the count.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ("accountants", "attacks", "audits", "training")
MIRROR = ROOT / ".typecheck"


def mirror() -> int:
    """Makes .typecheck/vflpriv look like the installed package; returns how many files it has to check."""
    package = MIRROR / "vflpriv"
    package.mkdir(parents=True, exist_ok=True)
    own = (path for path in (ROOT / "vflpriv").iterdir() if path.name != "__pycache__")
    wanted = {path.name: path for path in own}
    wanted |= {folder: ROOT / folder for folder in FOLDERS}
    for link in package.iterdir():
        if link.name not in wanted or link.readlink() != wanted[link.name]:
            link.unlink()
    for name, target in wanted.items():
        if not (package / name).is_symlink():
            (package / name).symlink_to(target)
    files = (path for folder in ("vflpriv", *FOLDERS) for path in (ROOT / folder).rglob("*"))
    # A folder that is no package holds templates, which are copied and not imported.
    return sum(1 for path in files if path.suffix in (".py", ".pyi") and (path.parent / "__init__.py").exists())


def main() -> int:
    """The exit code of mypy, or 1 when it did not look at every file."""
    files = mirror()
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file", str(ROOT / "pyproject.toml")]
    command += ["--cache-dir", str(ROOT / ".mypy_cache"), "-p", "vflpriv"]
    done = subprocess.run(command, cwd=MIRROR, capture_output=True, text=True, check=False)
    print(done.stdout, done.stderr, sep="", end="")
    counted = re.search(r"(\d+) source files?", done.stdout)
    checked = int(counted.group(1)) if counted else 0
    if checked != files:
        print(f"Expected {files} files to be checked, mypy checked {checked}.", file=sys.stderr)
        return 1
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
