"""Runs the fast tests as other CPUs would, and prints whose asserted numbers differ and how close they come to failing.

    python -m tools.cpus                  # all tests on two kinds of CPU, those that could fail on all kinds
    python -m tools.cpus tests/audits     # of these tests alone
    python -m tools.cpus --all            # all tests on all kinds
    python -m tools.cpus --folder runs    # again, after an interruption: kinds that ended there are read, not run

torch, MKL and oneDNN choose other instructions on other CPUs, and add numbers in another order on more threads, so
that the last bits of matrix products differ; trainings and learned scores enlarge the difference. A margin is the
distance between the two sides of an assertion, as a multiple of how far they moved between kinds. The exit code is 1 if
a test fails on one of them, or comes close and has no line `Margin:` that says why that is far enough.
"""

from __future__ import annotations

import argparse
import ast
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree as ET

import torch

__all__ = ["CLOSE", "FAR", "Kind", "Margin", "kinds", "margins", "unargued", "unexplained"]

ROOT = Path(__file__).resolve().parent.parent
CLOSE = 100.0
"""A test whose assertion comes closer than so many times what it moved says why that is far enough."""
FAR = 1000.0
"""What stays farther than so many times what it moved between the two kinds that differ most holds on the others."""
_CAPABILITIES = ("default", "avx2", "avx512")
_INSTRUCTIONS = {"AVX2": "AVX2", "AVX512": "AVX512_CORE"}
"""As MKL names them, and as oneDNN does."""


_MEASURED = re.compile(r"\b(?:success(?:es)?|accurac(?:y|ies)|p_?values?|advantage|auc|rates?|hits|alarms|refuted)\b")
_SUMMARIES = {"abs", "float", "max", "mean", "min", "sum"}


@dataclass(frozen=True, kw_only=True)
class Kind:
    """One way in which torch computes."""

    capability: str
    instructions: str
    threads: int

    @property
    def name(self) -> str:
        return f"{self.capability}/{self.instructions}/{self.threads}"

    @property
    def environment(self) -> dict[str, str]:
        return {
            "ATEN_CPU_CAPABILITY": self.capability,
            "MKL_ENABLE_INSTRUCTIONS": self.instructions,
            "ONEDNN_MAX_CPU_ISA": _INSTRUCTIONS[self.instructions],
            "OMP_NUM_THREADS": str(self.threads),
            "MKL_NUM_THREADS": str(self.threads),
            # Several workers with two threads each: a thread that waits must not keep a core.
            "OMP_WAIT_POLICY": "PASSIVE",
        }


def kinds() -> list[Kind]:
    """All kinds that this machine can be; first the two that differ most."""
    best = torch.backends.cpu.get_cpu_capability().lower()
    if best not in _CAPABILITIES:
        return [Kind(capability="default", instructions="AVX2", threads=threads) for threads in (1, 2)]
    able = _CAPABILITIES[: _CAPABILITIES.index(best) + 1]
    product = [
        Kind(capability=capability, instructions=instructions, threads=threads)
        for threads in (1, 2)
        for capability in able
        for instructions in list(_INSTRUCTIONS)[: 2 if best == "avx512" else 1]
    ]
    return [product[0], product[-1], *product[1:-1]]


@dataclass(frozen=True, kw_only=True)
class Margin:
    """One assertion over all kinds: how far it moved, and how close it came to failing."""

    test: str
    place: str
    distance: float
    """The least distance between the two sides, as a share of the larger one."""
    spread: float
    """How much that distance differed between the kinds."""
    sides: tuple[float, float]
    """What was compared where the distance was least."""

    @property
    def ratio(self) -> float:
        return self.distance / self.spread

    def __str__(self) -> str:
        sides = f"{self.sides[0]:.4g} < {self.sides[1]:.4g}"
        return f"{self.ratio:9.1f}  {self.distance:<8.3g} {self.spread:<8.2g} {sides:<24} {self.test}  {self.place}"


def margins(runs: Sequence[Iterable[dict[str, object]]]) -> list[Margin]:
    """The assertions whose numbers differ between runs, the smallest margin first.

    >>> rows = [[{"test": "t", "place": "3: a < 1", "smaller": a, "larger": 1.0}] for a in (0.5, 0.25)]
    >>> [(m.distance, m.spread, m.ratio) for m in margins(rows)]
    [(0.5, 0.25, 2.0)]
    """
    distances: dict[tuple[str, str, int], list[tuple[float, tuple[float, float]]]] = defaultdict(list)
    for run in runs:
        counts: dict[tuple[str, str], int] = defaultdict(int)
        for row in run:
            test, place = str(row["test"]), str(row["place"])
            sides = float(str(row["smaller"])), float(str(row["larger"]))
            scale = max(map(abs, sides)) or 1.0
            # A line may be passed several times in a test, in the same order each time.
            distances[test, place, counts[test, place]].append(((sides[1] - sides[0]) / scale, sides))
            counts[test, place] += 1
    smallest: dict[tuple[str, str], Margin] = {}
    for (test, place, _), pairs in distances.items():
        values = [distance for distance, _ in pairs]
        spread = max(values) - min(values)
        if spread > 0:
            least, sides = min(pairs)
            margin = Margin(test=test, place=place, distance=least, spread=spread, sides=sides)
            known = smallest.get((test, place))
            smallest[test, place] = margin if known is None or margin.ratio < known.ratio else known
    return sorted(smallest.values(), key=lambda margin: margin.ratio)


def unexplained(closest: Iterable[Margin], root: Path = ROOT) -> list[str]:
    """The tests among these that come close and have no line `Margin:`; comparisons of whole arrays need none."""
    tests = {margin.test.partition("[")[0] for margin in closest if margin.ratio < CLOSE and margin.place[0].isdigit()}
    return [test for test in sorted(tests) if "Margin:" not in _source(test, root)]


def unargued(root: Path = ROOT) -> list[str]:
    """The tests that ask for more or less of what is called a success rate, an accuracy or a p-value without a line
    `Margin:` of their own or of their module that says why this holds on every CPU, whether they came close or not."""
    tests = []
    for path in sorted((root / "tests").rglob("test_*.py")):
        text = path.read_text(encoding="utf-8")
        module = ast.parse(text if _MEASURED.search(text) else "")
        if "Margin:" in (ast.get_docstring(module) or ""):
            continue
        functions = [
            node for node in module.body if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
        ]
        asking = [function for function in functions if any(map(_measures, _asked_of(function)))]
        silent = [
            function.name for function in asking if "Margin:" not in (ast.get_source_segment(text, function) or "")
        ]
        tests += [f"{path.relative_to(root)}::{name}" for name in silent]
    return tests


def _asked_of(test: ast.FunctionDef) -> Iterator[ast.Compare]:
    """The comparisons by more or less that a test asserts."""
    for assertion in ast.walk(test):
        for node in ast.walk(assertion) if isinstance(assertion, ast.Assert) else ():
            if isinstance(node, ast.Compare) and any(
                isinstance(op, ast.Lt | ast.LtE | ast.Gt | ast.GtE) for op in node.ops
            ):
                yield node


def _measures(node: ast.AST) -> bool:
    """Whether an expression is called so, or what it is computed from; what a function is given does not count."""
    if isinstance(node, ast.Call):
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        return _measures(node.func) or (name in _SUMMARIES and any(map(_measures, node.args)))
    word = {ast.Name: "id", ast.Attribute: "attr", ast.Constant: "value"}.get(type(node))
    named = word is not None and _MEASURED.fullmatch(str(getattr(node, word))) is not None
    return named or any(map(_measures, ast.iter_child_nodes(node)))


def _source(test: str, root: Path) -> str:
    """The text of a test function."""
    path, _, name = test.partition("::")
    text = (root / path).read_text(encoding="utf-8")
    functions = (node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.FunctionDef) and node.name == name)
    return "\n".join(ast.get_source_segment(text, node) or "" for node in functions)


def _asked(tests: Sequence[str]) -> str:
    """What a run is of: its tests, and the code as it is."""
    digest = hashlib.sha256()
    folders = (path for path in ROOT.iterdir() if path.is_dir() and (path / "__init__.py").exists())
    for path in sorted(path for folder in (*folders, ROOT / "tests") for path in folder.rglob("*.py")):
        digest.update(path.read_bytes())
    return "\n".join([digest.hexdigest(), *tests])


def _run(kind: Kind, tests: Sequence[str], folder: Path, workers: int) -> None:
    """Run the tests on this kind, unless they ended there before."""
    written, asked = folder / kind.name.replace("/", "-"), _asked(tests)
    ended = written / "ended"
    if ended.exists() and ended.read_text(encoding="utf-8") == asked:
        return
    shutil.rmtree(written, ignore_errors=True)
    written.mkdir(parents=True)
    (written / "tests").write_text("\n".join(tests), encoding="utf-8")
    environment = os.environ | kind.environment | {"VFLPRIV_MARGINS": str(written / "rows")}
    # Modules whose assertions call the hook are compiled into a place of their own.
    environment |= {
        "PYTHONPYCACHEPREFIX": str(folder / "compiled"),
        "PYTHONPATH": str(ROOT),
        "PYTHONDONTWRITEBYTECODE": "",
    }
    command = [sys.executable, "-m", "pytest", "-q", "-m", "not slow", "-n", str(workers), "--dist", "loadfile"]
    command += ["-p", "tools.margins", "-o", "enable_assertion_pass_hook=true", "-p", "no:cacheprovider"]
    with (written / "log").open("w", encoding="utf-8") as log:
        command += [f"--junitxml={written / 'junit.xml'}", f"@{written / 'tests'}"]
        done = subprocess.run(command, cwd=ROOT, env=environment, stdout=log, stderr=subprocess.STDOUT, check=False)
    # 1 says that tests failed; with any other code some of them, or all, were not run.
    if done.returncode not in (0, 1):
        raise SystemExit(f"pytest did not end well as {kind.name}: see {written / 'log'}")
    ended.write_text(asked, encoding="utf-8")


def _found(kind: Kind, folder: Path) -> tuple[list[str], list[dict[str, object]]]:
    """The tests that failed on this kind, and what the plug-in wrote."""
    written = folder / kind.name.replace("/", "-")
    cases = ET.parse(written / "junit.xml").iter("testcase")
    failed = [
        f"{case.get('classname') or case.get('name')}::{case.get('name')}"
        for case in cases
        if any(case.find(outcome) is not None for outcome in ("failure", "error"))
    ]
    rows = [
        json.loads(line)
        for path in sorted((written / "rows").glob("*.jsonl"))
        for line in path.read_text(encoding="utf-8").splitlines()
    ]
    return failed, rows


def main(arguments: Sequence[str] | None = None) -> int:
    """Run, compare, print."""
    parser = argparse.ArgumentParser(prog="python -m tools.cpus", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("tests", nargs="*", default=["tests"])
    parser.add_argument("--all", action="store_true", help="all tests on all kinds, not only those that could fail")
    parser.add_argument("--show", type=int, default=40, help="how many margins to print")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--folder", type=Path, help="where logs and rows are kept")
    options = parser.parse_args(arguments)
    folder = options.folder or Path(tempfile.mkdtemp(prefix="vflpriv-cpus-"))
    tests, runs, failures = list(options.tests), [], {}
    for place, kind in enumerate(kinds()):
        if place == 2 and not options.all:
            moved = margins(runs)
            tests = sorted({margin.test for margin in moved if margin.ratio < FAR} | _files(failures))
            between = " and ".join(known.name for known in kinds()[:2])
            print(f"{len({m.test for m in moved})} tests differ between {between}, {len(tests)} could fail", flush=True)
        if not tests:
            break
        _run(kind, tests, folder, options.workers)
        failed, rows = _found(kind, folder)
        runs.append(rows)
        failures[kind.name] = failed
        print(f"{kind.name:20} {len(failed)} failed", *(f"  {name}" for name in failed), sep="\n", flush=True)
    smallest = margins(runs)
    print(f"\n{len(smallest)} assertions differ between kinds; the smallest margins (folder {folder}):")
    print(f"{'margin':>9}  {'distance':<8} {'moved':<8} {'compared':<24} assertion")
    print(*smallest[: options.show], sep="\n")
    silent = unexplained(smallest)
    if silent:
        print(f"\nCloser than {CLOSE:g} times what they moved, without a line `Margin:`", *silent, sep="\n")
    return int(any(failures.values()) or bool(silent))


def _files(failures: dict[str, list[str]]) -> set[str]:
    """The files of tests that failed: these may have no number to compare."""
    modules = {name.partition("::")[0] for names in failures.values() for name in names}
    return {f"{module.replace('.', '/')}.py" for module in modules}


if __name__ == "__main__":
    sys.exit(main())
