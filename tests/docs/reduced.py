"""Which commands of the documentation the tests run only in part: everything else is run as it is written.

`FLAGS` are added to a command, so that it ends soon: fewer trials, rounds or systems. `ONLY_CHECKED` are not run at
all: what they name is looked for instead. `DATA` replaces a data set that would have to be fetched. A command that was
run on the same page before is not run again. `PRELUDE` has pages that go on with the files of another one, and say so.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

from vflpriv.cli.options import assignments
from vflpriv.experiments.frontier.profile import load_frontier
from vflpriv.experiments.reproduce.profile import profile_names

__all__ = ["CPU_WHEELS", "DATA", "FLAGS", "ONLY_CHECKED", "PRELUDE", "check"]

DATA = {"mnist": "digits"}

_UNREAD = ("--quiet", "--format", "json")
"""Pages go unread: `tests/render/` looks at pages, and drawing them takes as long as such an audit."""
_FEW = (*_UNREAD, "--trials", "2")
_SMALL = ("--set", "data.name=digits", "--set", "engine.rounds=8", "--set", "engine.batch_size=16")


def _set(section: str, *texts: str) -> tuple[str, ...]:
    return tuple(word for text in texts for word in ("--set", f"{section}.{text}"))


_UNCHECKED = _set("audit", "sensitivity=false", "noise=false", "state=false", "canaries=['natural']")
_HERE = (*_UNREAD, "--workers", "1")
"""In this process: others would load torch again, and tests/run/ starts them."""
_ONE_ATTACKED = (*_HERE, "--only", "split-sum", "--seeds", "2", "--set", "attack.attacks=['label_direct']")
_FEW_ATTACKS = _set("attack", "attacks=['label_direct', 'label_norm']")
"""For a command that another page has too, where it is run with all attacks."""
_BASELINE = "--baseline baseline.json --tolerance epsilon=0.01 --tolerance success=0.02 --tolerance accuracy=0.02"
_FILES = "--junit junit.xml --sarif vflpriv.sarif --summary summary.md"
_MENDED = "--set engine.server_update=joint --set engine.noise=calibrated --set 'engine.protect=devices(all)'"
_STATE = (
    *(*_FEW, "--set", "data.train=100"),
    *_set("system.dpzv-state.engine", "rounds=4", "batch_size=100"),
    *_set("system.dpzv-state.audit", "noise=false", "sensitivity=false"),
)

FLAGS: dict[str, Sequence[str]] = {
    "vflpriv audit audit.toml": (*_FEW, *_SMALL),
    "vflpriv audit audit.toml --out report": (*_FEW, *_SMALL, *_UNCHECKED),
    f"vflpriv audit audit.toml --out report {_FILES} {_BASELINE}": (*_FEW, *_SMALL, *_UNCHECKED),
    f"vflpriv audit audit.toml --out mended {_MENDED}": (*_FEW, *_SMALL, *_UNCHECKED),
    "vflpriv audit --train private.py:train --ledger private.toml --trials 200 --out report": (
        *(*_UNREAD, "--workers", "1", "--trials", "4"),
    ),
    "vflpriv account audit.toml": ("--set", "data.name=digits"),
    "vflpriv account audit.toml --curves curves": _SMALL,
    "vflpriv train audit.toml --save models": ("--quiet", *_SMALL),
    "vflpriv audit papers --out papers": (
        *(*_FEW, "--only", "dpzv-clip"),
        *_set("system.dpzv-clip.audit", "noise=false", "state=false"),
    ),
    "vflpriv audit papers --only dpzv-state": _STATE,
    "vflpriv audit papers --only dpzv-state --workers 2": _STATE,
    "vflpriv attack --out matrix": (*_ONE_ATTACKED, "--set", "system.split-sum.engine.rounds=8"),
    "vflpriv attack attack.toml": (*_HERE, "--seeds", "1", *_SMALL),
    "vflpriv attack cut.toml --out cut": (*_HERE, "--seeds", "1", "--only", "cut-early", *_SMALL),
    "vflpriv attack attack.toml --malicious": (*_HERE, "--seeds", "1", *_SMALL),
    "vflpriv attack attack.toml --quick --malicious --out malicious": (*_HERE, "--seeds", "2", *_SMALL, *_FEW_ATTACKS),
    "vflpriv attack attack.toml --fail-on 'leakage>0.05'": (*_HERE, "--seeds", "2", *_SMALL),
    "vflpriv attack attack.toml --out attacks --fail-on 'leakage>0.05'": (
        *(*_HERE, "--seeds", "2", *_SMALL, *_FEW_ATTACKS),
    ),
    "vflpriv attack adaptive.toml --out adaptive": (*_HERE, "--seeds", "2", "--set", "engine.rounds=60"),
    "vflpriv attack features.toml --out features": (*_HERE, "--seeds", "1", *_SMALL),
    "vflpriv frontier --data csv --folder my-data --epsilon 1 --epsilon 4": (
        *(*_HERE, "--only", "send-once", "--seeds", "1", "--trials", "0"),
    ),
}

_INSTALLED = "vflpriv audit examples/engine_package/audit.toml"
"""tests/run/test_recorded.py installs the package and runs it."""

_FRAMEWORKS = tuple(
    command.format(name)
    for name in ("flower", "lightning", "huggingface")
    for command in ("python examples/{}/train.py", "vflpriv audit --transcript transcript --ledger examples/{}/")
)
"""Frameworks are seldom installed: tests/recording/adapters runs their examples where they are."""

_BOTH = "vflpriv attack --only split-halves --only split-rare"
"""Fifty trainings; the page has the command for its figures."""

_EXPERIMENTS = ("vflpriv reproduce", "vflpriv frontier")
"""Published tables and searches for the best accuracy; their pages have the commands of committed results."""

REPOSITORY = "https://github.com/vflpriv/vflpriv"
"""Where the package can be installed from until there is a release."""
ONLY_CHECKED = ("make", "pip", "python3.11 -m venv", _INSTALLED, *_FRAMEWORKS, _BOTH, *_EXPERIMENTS)
"""Beginnings of commands that set up environments or run for long, unless `FLAGS` has them: targets, folders, extras,
profiles and candidates are looked for."""

CPU_WHEELS = "https://download.pytorch.org/whl/cpu"
"""Where torch is without CUDA; the one address that an installation may name."""

PRELUDE = {"ci.md": "own-system.md"}


def check(words: Sequence[str], root: Path) -> None:
    """Whether what a command of `ONLY_CHECKED` names is there."""
    if words[0] == "make":
        assert re.search(rf"^{words[1]}:", (root / "Makefile").read_text("utf-8"), re.MULTILINE), words
    elif words[:2] == ["vflpriv", "reproduce"]:
        assert words[2:3] == [] or words[2] in profile_names(), words
    elif words[:2] == ["vflpriv", "frontier"]:
        source = next((root / word for word in words[2:3] if Path(word).suffix), None)
        load_frontier(source, assignments([value for option, value in pairwise(words) if option == "--set"]))
    elif words[0] == "vflpriv" or words[1].startswith("examples/"):
        assert all((root / word).is_file() for word in words if word.startswith("examples/")), words
    elif words[0] == "pip":
        extras = tomllib.loads((root / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
        for word in words[2:]:
            if word in ("--extra-index-url", CPU_WHEELS):
                continue
            name, at, address = word.partition(" @ ")
            assert not at or address == f"git+{REPOSITORY}", words
            path, _, extra = name.removesuffix("]").partition("[")
            assert word in ("-e", "-c") or (path == "vflpriv" and at) or (root / path).exists(), words
            assert not extra or extra in extras, words
