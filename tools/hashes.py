"""Writes hashes.txt: what CI installs on Linux with Python 3.11, with the hash of each file that pip would take.

    python -m tools.hashes          # after a change of constraints.txt or of the dependencies in pyproject.toml

`make locked` installs these files with `--require-hashes`, before anything else does. torch is left out with what it
alone needs: its CPU build comes from an index of its own, with other files than the default one.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

__all__ = ["FILE", "PIN", "UNLOCKED", "main", "requirements", "wanted"]

ROOT = Path(__file__).resolve().parent.parent
FILE = ROOT / "hashes.txt"
UNLOCKED = "torch"
EXTRAS = ("dev", "browser", "release", "docs")
"""What the jobs of .github/workflows/ci.yml install."""
PIN = re.compile(r"(?P<name>[\w.-]+)==(?P<version>\S+) --hash=sha256:(?P<hash>[0-9a-f]{64})")
_HEAD = """\
# What CI installs on Linux with Python 3.11, and the hashes of the files; written by `python -m tools.hashes`.
# torch is not here: its CPU build has an index of its own. constraints.txt pins its version.
"""


def requirements(extras: Iterable[str] = EXTRAS) -> list[Requirement]:
    """What the project asks for with these extras, its own extras resolved."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    waiting = [Requirement(line) for line in project["dependencies"]]
    waiting += [Requirement(line) for extra in extras for line in project["optional-dependencies"][extra]]
    asked = []
    while waiting:
        requirement = waiting.pop()
        if requirement.name == project["name"]:
            waiting += [Requirement(line) for e in requirement.extras for line in project["optional-dependencies"][e]]
        else:
            asked.append(requirement)
    return asked


def wanted(asked: Iterable[Requirement], needs: Mapping[str, Iterable[str]]) -> set[str]:
    """The names that these requirements lead to, without torch and what it alone needs."""
    reached: set[str] = set()
    waiting = [(requirement, "") for requirement in asked]
    seen: set[tuple[str, str]] = set()
    while waiting:
        requirement, extra = waiting.pop()
        name = canonicalize_name(requirement.name)
        applies = requirement.marker is None or requirement.marker.evaluate({"extra": extra})
        if not applies or name == UNLOCKED or name not in needs:
            continue
        reached.add(name)
        for own in ("", *requirement.extras):
            if (name, own) not in seen:
                seen.add((name, own))
                waiting += [(Requirement(line), own) for line in needs[name]]
    return reached


def main() -> None:
    """Ask pip what it would install, and write down the hashes."""
    asked = requirements()
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--dry-run", "--ignore-installed", "--report", "-"]
    named = [str(requirement) for requirement in asked]
    answer = subprocess.run([*command, "-c", str(ROOT / "constraints.txt"), *named], capture_output=True, check=True)
    items: list[dict[str, Any]] = json.loads(answer.stdout)["install"]
    by_name = {canonicalize_name(item["metadata"]["name"]): item for item in items}
    needs = {name: item["metadata"].get("requires_dist", []) for name, item in by_name.items()}
    lines = []
    for name in sorted(wanted(asked, needs)):
        item = by_name[name]
        if not item["download_info"]["url"].startswith("https://"):
            sys.exit(f"Expected {name} from an index, found {item['download_info']['url']}.")
        digest = item["download_info"]["archive_info"]["hashes"]["sha256"]
        lines.append(f"{item['metadata']['name']}=={item['metadata']['version']} --hash=sha256:{digest}\n")
    FILE.write_text(_HEAD + "".join(lines), encoding="utf-8")
    print(f"{len(lines)} packages, {FILE.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
