"""Who may import whom: the imports of every module, inside functions too, against the drawing in the documentation."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Iterable, Mapping
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise
from pathlib import Path

import pytest

from tests.tree import FOLDERS, ROOT, imports, modules, packages

DRAWING = (ROOT / "docs" / "architecture.md").read_text("utf-8")


def drawn_layers(page: str) -> dict[str, set[str]]:
    """The layers right below each layer, read off the drawing of the documentation."""
    (drawing,) = (block for block in re.findall(r"```diagram\n(.*?)```", page, re.DOTALL) if "<-" in block)
    layers: dict[str, set[str]] = {}
    for line in drawing.splitlines():
        chain = [name.strip() for name in line.split("<-")]
        for lower, upper in pairwise(chain):
            layers.setdefault(lower, set())
            layers.setdefault(upper, set()).add(lower)
    return layers


MAY_IMPORT = drawn_layers(DRAWING)
WITHOUT_TORCH = (
    "errors",
    "common",
    "core",
    "data",
    "config",
    "recording",
    "training",
    "accountants",
    "report",
    "render",
    "cli",
    "api",
)
"""Layers that start without torch, so that help, accounting and rendering do not wait for it."""
OF_TORCH = tuple(
    f"vflpriv.training.{name}" for name in ("memory", "models.architectures", "models.modules", "models.transformer")
)
"""Modules of these layers that define subclasses of torch's."""
COMMANDS = (
    "validate",
    "account",
    "account papers",
    "account --only dpzv-clip --curves curves",
    "calibrate --epsilon 1 --delta 1e-5 --engine dpzv --records 1000 --devices 2 --rounds 100 --batch-size 50",
    "schema config",
    "engines",
    "init label-dp start",
)
"""Commands that train nothing and attack nothing."""
CROSS_CHECKS = ("vflpriv.accountants.cross_checks", "opacus")


def below(layer: str) -> set[str]:
    """Every layer that a layer may import."""
    return {layer}.union(*(below(other) for other in MAY_IMPORT[layer]))


def layer_of(module: str) -> str | None:
    """The layer of a dotted name; None for other libraries, and for the package itself and its `__main__`."""
    parts = module.split(".")
    return parts[1] if parts[0] == "vflpriv" and len(parts) > 1 and parts[1] in MAY_IMPORT else None


def wrong_arrows(module: str, source: str) -> list[str]:
    """One line for each import that this module may not have."""
    own, wrong = layer_of(module), []
    for found in imports(source):
        where, top, target = (
            f"{module}:{found.line} imports {found.name}",
            found.name.split(".")[0],
            layer_of(found.name),
        )
        if found.name.startswith("."):
            wrong.append(f"{where}: absolute imports only")
        if top in FOLDERS:
            wrong.append(f"{where}: a second copy, import vflpriv.{top}")
        if own is not None and target is not None and target not in below(own):
            wrong.append(f"{where}: {own} may not import {target}")
        # Opacus brings torch along; cross-checks load it only when they are asked for.
        if top in ("torch", "opacus") and found.runtime and own == "accountants" and (module, top) != CROSS_CHECKS:
            wrong.append(f"{where}: {module} works without torch")
    return wrong


def cycle(graph: Mapping[str, Iterable[str]]) -> list[str]:
    """The modules of one import cycle, or none."""
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def import_graph() -> dict[str, set[str]]:
    """What each module imports of ours, wherever the import stands."""
    files, graph = modules(), {}
    for name, path in files.items():
        found = {i.name if i.name in files else i.name.rpartition(".")[0] for i in imports(path.read_text("utf-8"))}
        # A package's `__init__` names what it offers to others; nothing in the package goes through it.
        graph[name] = set() if path.name == "__init__.py" else (found & set(files)) - {name}
    return graph


def test_no_wrong_arrow_in_this_repository() -> None:
    files = {name: path for name, path in modules().items() if layer_of(name) is not None}
    assert {layer_of(name) for name in files} == set(MAY_IMPORT)
    around = [path for folder in ("tests", "benchmarks", "tools", "examples") for path in (ROOT / folder).rglob("*.py")]
    files |= {str(path.relative_to(ROOT)): path for path in around}
    wrong = [line for name, path in sorted(files.items()) for line in wrong_arrows(name, path.read_text("utf-8"))]
    assert not wrong, "\n".join(wrong)


def test_no_cycle_of_imports() -> None:
    assert cycle(import_graph()) == []


def room_cycles(graph: Mapping[str, Iterable[str]]) -> set[tuple[str, str]]:
    """The pairs of rooms of one layer of which each imports the other; a layer's own modules are a room too."""
    arrows = {
        (module.rpartition(".")[0], other.rpartition(".")[0])
        for module, others in graph.items()
        for other in others
        if layer_of(module) is not None and layer_of(module) == layer_of(other)
    }
    return {(room, other) for room, other in arrows if room < other and (other, room) in arrows}


def test_rooms_never_import_each_other_in_both_directions() -> None:
    assert not room_cycles(import_graph())


def test_a_cycle_of_rooms_is_found() -> None:
    graph = {"vflpriv.audits.a.x": ["vflpriv.audits.b.y"], "vflpriv.audits.b.z": ["vflpriv.audits.a.w"]}
    assert room_cycles(graph) == {("vflpriv.audits.a", "vflpriv.audits.b")}
    assert room_cycles({**graph, "vflpriv.audits.b.z": []}) == set()
    parent = {"vflpriv.run.audit": ["vflpriv.run.noise.search"], "vflpriv.run.noise.targets": ["vflpriv.run.systems"]}
    assert room_cycles(parent) == {("vflpriv.run", "vflpriv.run.noise")}


def test_the_drawing_is_read() -> None:
    layers = drawn_layers("```diagram\na <- b <- c\na <- d\n```")
    assert layers == {"a": set(), "b": {"a"}, "c": {"b"}, "d": {"a"}}


def test_every_folder_is_described() -> None:
    rooms = {path.parent.name for name, path in modules().items() if path.name == "__init__.py" and layer_of(name)}
    assert not [room for room in sorted(rooms) if f"{room}/" not in DRAWING]


def test_no_folder_is_a_drawer() -> None:
    """A folder holds what a person can take in; `engines/` is a list of these."""
    counts = Counter(path.parent for path in modules().values() if path.name != "__init__.py")
    crowded = {str(folder.relative_to(ROOT)): n for folder, n in counts.items() if n > 17}
    assert set(crowded) <= {"training/engines"}, crowded


def test_a_cycle_is_found() -> None:
    assert set(cycle({"a": ["b"], "b": ["c"], "c": ["a"]})) == {"a", "b", "c"}


def test_every_folder_is_installed() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["setuptools"]
    assert sorted(settings["packages"]) == packages()
    outside = {name for name in packages() if name.split(".")[1:2] and name.split(".")[1] in FOLDERS}
    expected = {name: name.removeprefix("vflpriv.").replace(".", "/") for name in outside}
    assert settings["package-dir"] == expected


@pytest.mark.parametrize(
    ("module", "source", "complaint"),
    [
        ("vflpriv.core.ledger", "from vflpriv.attacks import norm", "core may not import attacks"),
        ("vflpriv.core.ledger", "from vflpriv.cli import main", "core may not import cli"),
        ("vflpriv.core.data", "def f():\n    from vflpriv.render.html import page", "core may not import render"),
        ("vflpriv.report.audit", "def f():\n    from vflpriv.render import files", "report may not import render"),
        ("vflpriv.report.audit", "from vflpriv.run.audit import audit_config", "report may not import run"),
        ("vflpriv.training.engines.dpzv", "from vflpriv.attacks.norm import Norm", "training may not import attacks"),
        ("vflpriv.training.engine", "from vflpriv.audits import worlds", "training may not import audits"),
        ("vflpriv.attacks.norm", "from vflpriv import training", "attacks may not import training"),
        ("vflpriv.attacks.norm", "import vflpriv.audits.two_world", "attacks may not import audits"),
        ("vflpriv.accountants.gdp", "from vflpriv.training.engines import dpzv", "accountants may not import training"),
        ("vflpriv.audits.two_world", "from vflpriv.run.audit import run", "audits may not import run"),
        ("vflpriv.run.audit", "from attacks import norm", "a second copy"),
        ("tests/test_x.py", "import accountants.gdp", "a second copy"),
        ("vflpriv.attacks.norm", "from . import other", "absolute imports only"),
        ("vflpriv.accountants.gdp", "import torch", "works without torch"),
        ("vflpriv.accountants.gdp", "def f():\n    from torch import Tensor", "works without torch"),
    ],
)
def test_a_wrong_arrow_is_caught(module: str, source: str, complaint: str) -> None:
    (found,) = wrong_arrows(module, source)
    assert complaint in found


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("vflpriv.audits.two_world", "from vflpriv.training import engine\nfrom vflpriv.accountants import gdp"),
        ("vflpriv.cli.main", "from vflpriv.audits import verdict\nfrom vflpriv.run import audit"),
        ("vflpriv.attacks.norm", "import torch\nfrom vflpriv.core.views import View"),
        ("vflpriv.accountants.gdp", "if TYPE_CHECKING:\n    from torch import Tensor"),
    ],
)
def test_a_right_arrow_passes(module: str, source: str) -> None:
    assert wrong_arrows(module, source) == []


def without_torch(code: str, folder: Path | None = None) -> None:
    """Run a program whose last line sees whether torch, or scikit-learn, was loaded."""
    check = "sys.exit(' '.join({'torch', 'sklearn', 'scipy.stats'} & set(sys.modules)) or None)"
    program = [sys.executable, "-c", f"import sys\n{code}\n{check}"]
    done = subprocess.run(program, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{done.stdout[-500:]} {done.stderr.strip()} is loaded"


def test_help_accounting_and_rendering_start_without_torch() -> None:
    """What the files cannot show: another library, or another layer, that brings torch along."""
    names = [name for name in modules() if layer_of(name) in WITHOUT_TORCH and name not in OF_TORCH]
    without_torch(
        "import importlib\n"
        f"for name in {names!r}:\n"
        "    importlib.import_module(name)\n"
        "    if 'torch' in sys.modules: sys.exit(name)"
    )


def test_commands_that_do_not_train_run_without_torch(tmp_path: Path) -> None:
    without_torch(
        "from vflpriv.cli.main import run\n"
        f"for command in {COMMANDS!r}:\n"
        "    code = run(command.split())\n"
        "    if code or 'torch' in sys.modules: sys.exit(f'{command}: {code}')",
        tmp_path,
    )
    assert list((tmp_path / "curves").iterdir())


@pytest.mark.slow
def test_an_audit_loads_no_compiler_and_no_computer_algebra(tmp_path: Path) -> None:
    """torch brings both where it is asked in the usual way: together they are half of a small audit."""
    program = (
        "import sys\n"
        "from vflpriv.cli.main import run\n"
        "run('audit --only dpzv-joint --set system.0.engine.rounds=8 --set system.0.audit.trials=50'.split())\n"
        "heavy = {'torch._dynamo', 'sympy', 'scipy.stats', 'sklearn.base'}\n"
        "sys.exit(' '.join(heavy & set(sys.modules)) or None)"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{done.stdout[-500:]} {done.stderr[-500:]}"
