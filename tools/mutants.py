"""Changes one thing at a time in modules whose numbers matter, and sees whether their own tests notice.

    python -m tools.mutants                                # all modules of tools/mutants.toml, as far as not yet tried
    python -m tools.mutants accountants/gdp.py             # these alone
    python -m tools.mutants --sample 60 --seed 3           # so many of all, drawn at random
    python -m tools.mutants --missed accountants/gdp.py    # what nobody noticed so far, without trying anything
    python -m tools.mutants --named accountants/gdp.py     # what the tests of its name alone do not notice: quick

A module's own tests are the room that tools/mutants.toml names: the folder of `tests/` that mirrors its own. The room
is collected once; for each change the process forks, puts the changed code into the functions that are loaded, and runs
the tests that cover the changed lines, until one fails. What runs on import is imported anew. Where many changes of a
module are to be tried, the tests in files of its name come first, and the rest of the room only has to look at what
these did not notice. Every answer is stored in build/mutants.jsonl and holds until the module changes, or the test that
noticed it, or for one that nobody noticed any test of its room. Changes that change nothing are listed in
tools/mutants.toml, with the reason.
"""

from __future__ import annotations

import argparse
import gc
import hashlib
import importlib
import importlib.machinery
import itertools
import json
import os
import random
import signal
import sys
import tempfile
import time
import tomllib
import traceback
import types
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest

from tools.mutating import Mutant, code_objects, mutants

__all__ = ["Equivalent", "Room", "Trial", "equivalents", "rooms", "table", "trials"]

ROOT = Path(__file__).resolve().parent.parent
LIST = ROOT / "tools" / "mutants.toml"
STORE = ROOT / "build" / "mutants.jsonl"
_THIRD_PARTY = (
    "numpy", "scipy.optimize", "scipy.signal", "scipy.special", "scipy.stats", "torch", "pydantic",
    "mpmath", "dp_accounting",
)  # fmt: skip
"""Imported before the first fork, so that what is imported anew for a change is the project alone."""

_SECONDS = 12.0
"""How long the tests of one change may take: a change that only a slower test would notice counts as not noticed."""

_HANGS = 3.0
"""A test that takes so many seconds more than three times its own hangs, and counts as failed."""
_MANY = 15
"""So many changes of one module are tried on the tests of its name first."""


@dataclass(frozen=True)
class Room:
    """Modules, which of their functions are changed, and the tests that have to notice."""

    modules: tuple[Path, ...]
    functions: tuple[str, ...]
    tests: tuple[str, ...]
    first: tuple[str, ...] = ()
    """Those that notice most, where they are not in files of a module's name."""

    @cached_property
    def hash(self) -> str:
        """Of all its tests and what they share."""
        return _hash(*(file for test in self.tests for file in _files(ROOT / test)))


@dataclass(frozen=True)
class Trial:
    """One change of one module of a room."""

    room: Room
    module: Path
    source: str
    """The hash of the module as it was read: it may change while its mutants are tried."""
    mutant: Mutant

    @cached_property
    def name(self) -> str:
        return f"{self.module.relative_to(ROOT)} {self.mutant.text}"


@dataclass(frozen=True)
class Equivalent:
    """A change that changes nothing that a test could see, and why."""

    module: str
    change: str
    """What it changes into what; where it ends with "…", whatever follows."""
    why: str

    def covers(self, name: str) -> bool:
        """Whether a change of this name is meant."""
        named = f"{self.module} {self.change}"
        return name.startswith(named[:-1]) if named.endswith("…") else name == named


def rooms() -> list[Room]:
    """Everything that is to be tried."""
    listed = tomllib.loads(LIST.read_text(encoding="utf-8"))["room"]
    return [
        Room(
            modules=tuple(sorted(path for pattern in room["modules"] for path in ROOT.glob(pattern))),
            functions=tuple(room.get("functions", ["*"])),
            tests=tuple(room["tests"]),
            first=tuple(room.get("first", ())),
        )
        for room in listed
    ]


def equivalents() -> list[Equivalent]:
    """What is listed as changing nothing."""
    listed = tomllib.loads(LIST.read_text(encoding="utf-8")).get("equivalent", [])
    return [Equivalent(entry["module"], entry["change"], entry["why"]) for entry in listed]


def trials(chosen: Sequence[str] = ()) -> list[Trial]:
    """All changes that are to be noticed, of these modules or of all."""
    nothing: dict[str, list[Equivalent]] = defaultdict(list)
    for entry in equivalents():
        nothing[entry.module].append(entry)
    made = []
    for room in rooms():
        for module in room.modules:
            path, hashed = str(module.relative_to(ROOT)), _hash(module)
            if not chosen or path in chosen:
                changes = [Trial(room, module, hashed, mutant) for mutant in mutants(module, room.functions)]
                made += [trial for trial in changes if not any(entry.covers(trial.name) for entry in nothing[path])]
    return made


class Store:
    """What was found so far: one line for each change that was tried."""

    def __init__(self, path: Path) -> None:
        self.path = path
        lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
        self.found: dict[str, dict[str, str]] = {entry["name"]: entry for entry in map(json.loads, lines)}

    def noticed(self, trial: Trial) -> bool | None:
        """Whether it was noticed; None if that is not known of the files as they are."""
        entry = self.found.get(trial.name)
        if entry is None or entry["module"] != trial.source:
            return None
        tests = [ROOT / entry["by"].partition("::")[0]] if entry["by"] else None
        current = _hash(*tests) if tests and tests[0].is_file() else trial.room.hash
        return bool(entry["by"]) if entry["tests"] == current else None

    def add(self, trial: Trial, by: str) -> None:
        file = ROOT / by.partition("::")[0]
        tests = _hash(file) if by and file.is_file() else trial.room.hash
        entry = {"name": trial.name, "module": trial.source, "by": by, "tests": tests}
        self.found[trial.name] = entry
        self.path.parent.mkdir(exist_ok=True)
        with self.path.open("a", encoding="utf-8") as lines:
            lines.write(json.dumps(entry, ensure_ascii=False) + "\n")


class Runs:
    """A pytest plugin that, in the place of running the tests it collected, runs them once for each change."""

    def __init__(self, waiting: Sequence[Trial], workers: int, finish: Callable[[Trial, str], None]) -> None:
        self.waiting = waiting
        self.workers = workers
        self.finish = finish
        self.failed: str | None = None
        self.seconds: dict[str, float] = defaultdict(float)
        self.again: list[tuple[Trial, list[str], float]] = []
        """What is tried by importing the project anew: the change, the tests in their order, and their seconds."""

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.failed = self.failed or report.nodeid

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        if session.testsfailed:
            raise session.Failed(f"{session.testsfailed} errors during collection")
        self.items = {item.nodeid: item for item in session.items}
        covered = _in_fork(lambda: self._cover(session))
        if covered is None or covered["failed"]:
            sys.exit(f"Without any change, this fails: {covered and covered['failed']}")
        self.seconds.update(covered["seconds"])
        gc.unfreeze()
        functions = _functions({trial.module for trial in self.waiting})
        gc.freeze()
        kills: Counter[tuple[str, str]] = Counter()
        pool = Pool(self.workers)
        for trial in self.waiting:
            lines = covered["lines"].get(str(trial.module), {})
            place = (str(trial.module), trial.mutant.function[0] if trial.mutant.function else "")
            tests = self._ordered(trial, lines, {test: n for (at, test), n in kills.items() if at == place[0]})
            targets = functions.get((str(trial.module), trial.mutant.function), [])
            limit = 3 * sum(self.seconds[test] for test in tests) + _HANGS
            if not tests:
                self.finish(trial, "")
            elif not targets:
                self.again.append((trial, tests, limit))
            else:
                pool.start(
                    lambda trial=trial, tests=tests, targets=targets: self._changed(trial, tests, targets),
                    limit,
                    lambda by, trial=trial, place=place: (kills.update({(place[0], by): 1}), self.finish(trial, by)),
                )
        pool.join()
        return True

    def _ordered(self, trial: Trial, lines: Mapping[str, list[str]], kills: Mapping[str, int]) -> list[str]:
        """The tests that cover the changed lines: first those that noticed most so far, then the fastest."""
        everywhere = {test for tests in lines.values() for test in tests}
        if trial.mutant.function:
            covering = {test for line in trial.mutant.lines for test in lines.get(str(line), ())}
            near = covering
        else:
            # What is declared, such as a default, is read by tests that run no line of the module.
            named = {t for t in self.items if Path(t.partition("::")[0]).stem == f"test_{trial.module.stem}"}
            near = named | {t for line in trial.mutant.mentions for t in lines.get(str(line), ())}
            covering = everywhere | named
        ordered = sorted(covering, key=lambda test: (test not in near, -kills.get(test, 0), self.seconds[test]))
        spent = itertools.accumulate(self.seconds[test] for test in ordered)
        return [test for test, seconds in zip(ordered, spent, strict=True) if seconds <= _SECONDS]

    def _cover(self, session: pytest.Session) -> dict[str, Any]:
        """Which test runs which lines, and how long each takes."""
        import coverage

        modules = sorted({str(trial.module) for trial in self.waiting})
        measured = coverage.Coverage(data_file=None, config_file=False, include=modules)
        measured.start()
        for nodeid in self.items:
            measured.switch_context(nodeid)
            began = time.process_time()  # of the processor: others may want it, too
            self._run([nodeid])
            self.seconds[nodeid] = time.process_time() - began
        measured.stop()
        data = measured.get_data()
        lines = {
            module: {
                str(line): [c for c in contexts if c] for line, contexts in data.contexts_by_lineno(module).items()
            }
            for module in modules
        }
        return {"lines": lines, "seconds": self.seconds, "failed": self.failed}

    def _changed(self, trial: Trial, tests: Sequence[str], targets: Sequence[types.FunctionType]) -> str:
        new = code_objects(trial.mutant.compiled(trial.module))[trial.mutant.function or ("", 0)]
        for function in targets:
            function.__code__ = new
        self.failed = None
        self._run(tests, limited=True)
        return self.failed or ""

    def _run(self, tests: Sequence[str], *, limited: bool = False) -> None:
        """Run these tests until the first failure, each of them for a limited time."""
        items = [self.items[test] for test in tests]
        for item, after in zip(items, [*items[1:], None], strict=True):
            if limited:
                signal.setitimer(signal.ITIMER_PROF, 3 * self.seconds[item.nodeid] + _HANGS)
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=after)
            if self.failed:
                return


class Pool:
    """So many forked processes at a time, each of which answers with one value before its limit."""

    def __init__(self, workers: int) -> None:
        self.workers = workers
        self.running: dict[int, tuple[Path, Callable[[Any], object]]] = {}

    def start(self, work: Callable[[], Any], seconds: float, then: Callable[[Any], object]) -> None:
        while len(self.running) >= self.workers:
            self._wait()
        pid, answer = _fork(work, seconds)
        self.running[pid] = (answer, then)

    def join(self) -> None:
        while self.running:
            self._wait()

    def _wait(self) -> None:
        pid, status = os.waitpid(-1, 0)
        answer, then = self.running.pop(pid)
        text = answer.read_text(encoding="utf-8")
        answer.unlink()
        if os.WIFSIGNALED(status):
            then("time" if os.WTERMSIG(status) in (signal.SIGPROF, signal.SIGALRM) else "crash")
        elif status:
            sys.exit("A fork broke.")
        else:
            then(json.loads(text))


def _fork(work: Callable[[], Any], seconds: float, *, quiet: bool = True) -> tuple[int, Path]:
    """Run something in a fork: its process, and the file that its answer goes into."""
    sys.stdout.flush()
    sys.stderr.flush()
    descriptor, name = tempfile.mkstemp()
    os.close(descriptor)
    pid = os.fork()
    if pid:
        return pid, Path(name)
    status = 1
    try:
        nothing = os.open(os.devnull, os.O_RDWR)
        for descriptor in (0, 1, 2) if quiet else (0,):
            os.dup2(nothing, descriptor)
        signal.setitimer(signal.ITIMER_PROF, seconds)
        signal.setitimer(signal.ITIMER_REAL, 20 * seconds)  # others may want the processors too
        Path(name).write_text(json.dumps(work()), encoding="utf-8")
        status = 0
    except BaseException:  # noqa: BLE001 - whatever it was, a fork must not go on where its parent does
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        os._exit(status)


def _in_fork(work: Callable[[], Any]) -> Any:
    """The answer of something that runs in a fork, and may print; None if it broke."""
    pid, answer = _fork(work, 36000.0, quiet=False)
    _, status = os.waitpid(pid, 0)
    text = answer.read_text(encoding="utf-8")
    answer.unlink()
    return json.loads(text) if status == 0 else None


def _functions(modules: Iterable[Path]) -> dict[tuple[str, tuple[str, int] | None], list[types.FunctionType]]:
    """The functions that are loaded, by file, qualified name and first line."""
    files = {str(module) for module in modules}
    loaded: dict[tuple[str, tuple[str, int] | None], list[types.FunctionType]] = defaultdict(list)
    for thing in gc.get_objects():
        if type(thing) is types.FunctionType and thing.__code__.co_filename in files:
            code = thing.__code__
            loaded[code.co_filename, (code.co_qualname, code.co_firstlineno)].append(thing)
    return loaded


def _try_on(
    tests: Sequence[str], waiting: Sequence[Trial], workers: int, finish: Callable[[Trial, str], None]
) -> list[tuple[int, list[str], float]]:
    """Try these changes on these tests, in a fork that imports the project; what is to be imported anew is returned."""
    numbers = {trial.name: number for number, trial in enumerate(waiting)}
    with tempfile.TemporaryDirectory() as folder:
        runs = Runs(waiting, workers, finish)
        code = pytest.main([*_options(folder), *tests], plugins=[runs])
        if code not in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
            sys.exit(f"The tests of {', '.join(tests)} did not run: pytest ended with {code}.")
    return [(numbers[trial.name], tests, limit) for trial, tests, limit in runs.again]


def _options(folder: str) -> list[str]:
    quiet = ["-o", "addopts=--import-mode=importlib -p no:logging", "-p", "no:terminal", "-p", "no:cacheprovider"]
    return [*quiet, "-x", "-m", "not slow and not cuda", "--capture=sys", f"--basetemp={folder}/tests"]


def _imported_anew(trial: Trial, tests: Sequence[str]) -> str:
    """Import the project with the change in it, and run these tests until one fails."""
    changed, path = trial.mutant.compiled(trial.module), str(trial.module)
    loader = importlib.machinery.SourceFileLoader
    get_code = loader.get_code
    loader.get_code = lambda self, name: changed if self.get_filename(name) == path else get_code(self, name)  # type: ignore[method-assign]
    first = First()
    with tempfile.TemporaryDirectory() as folder:
        code = pytest.main([*_options(folder), *tests], plugins=[first])
    return "" if code == pytest.ExitCode.OK else first.failed or "import"


class First:
    """A pytest plugin that keeps the name of the first test that fails."""

    failed: str | None = None

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.failed = self.failed or report.nodeid


def _hash(*files: Path) -> str:
    digest = hashlib.sha256()
    for file in sorted(files):
        digest.update(file.read_bytes())
    return digest.hexdigest()[:16]


def _files(path: Path) -> list[Path]:
    return [path] if path.is_file() else sorted(path.rglob("*.py"))


_HEAD = """\
# Changes that a module's own tests notice

Written by `python -m tools.mutants --missed --table benchmarks/results/mutants.md` from the answers of earlier runs.
Modules of `tools/mutants.toml` that are not here have not been tried; a module may have changed since. Changes that
were not tried are some that tests of the module's name did not notice, of which the rest of its room was not asked, or
that a run which was ended early did not come to.

"""


def table(known: Iterable[tuple[Trial, bool]], chosen: Iterable[Trial]) -> str:
    """One line for each module that was tried: how many changes there are, how many were tried, how many noticed."""
    rows: dict[str, list[bool]] = defaultdict(list)
    for trial, noticed in known:
        rows[str(trial.module.relative_to(ROOT))].append(noticed)
    there = Counter(str(trial.module.relative_to(ROOT)) for trial in chosen)
    listed = Counter(entry.module for entry in equivalents())
    lines = ["| module | changes | tried | noticed | of those tried | listed reasons |", "|---|---|---|---|---|---|"]
    for name, seen in sorted(rows.items()):
        share = f"{sum(seen) / len(seen):.1%}"
        lines.append(f"| {name} | {there[name]} | {len(seen)} | {sum(seen)} | {share} | {listed[name] or ''} |")
    tried, noticed = sum(map(len, rows.values())), sum(map(sum, rows.values()))
    total = f"{sum(there[name] for name in rows)} | {tried} | {noticed} | {noticed / max(1, tried):.1%}"
    lines.append(f"| all | {total} | {sum(listed[name] for name in rows)} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("modules", nargs="*", help="paths from the root of the checkout")
    parser.add_argument("--workers", type=int, default=2, help="processes at a time")
    parser.add_argument("--sample", type=int, help="try so many, drawn at random")
    parser.add_argument("--seed", type=int, default=0, help="of the sample")
    parser.add_argument("--missed", action="store_true", help="list what nobody noticed so far, and try nothing")
    parser.add_argument("--named", action="store_true", help="try the tests in files of a module's name alone")
    parser.add_argument("--store", type=Path, default=STORE, help="the file of the answers")
    parser.add_argument("--table", type=Path, help="write the table of what is known into this file")
    arguments = parser.parse_args()
    os.chdir(ROOT)
    chosen = trials(arguments.modules)
    if arguments.sample:
        chosen = random.Random(arguments.seed).sample(chosen, min(arguments.sample, len(chosen)))
    store = Store(arguments.store)
    if not arguments.missed:
        attempt(chosen, store, arguments.workers, named=arguments.named)
    known = [(trial, noticed) for trial in chosen if (noticed := store.noticed(trial)) is not None]
    for trial, noticed in known:
        if not noticed:
            print(f"not noticed: {trial.name}  (line {trial.mutant.lines.start})")
    for trial in chosen if arguments.named else ():
        if store.noticed(trial) is None:
            print(f"not by tests of its name: {trial.name}  (line {trial.mutant.lines.start})")
    print(table(known, chosen), end="")
    if arguments.table is not None:
        arguments.table.write_text(_HEAD + table(known, chosen), encoding="utf-8")


def attempt(chosen: Sequence[Trial], store: Store, workers: int, *, named: bool = False) -> None:
    """Try all changes whose answers are not known; `named` leaves alone what is not noticed by tests of its name."""
    for name in _THIRD_PARTY:
        importlib.import_module(name)
    by_room: dict[Room, list[Trial]] = defaultdict(list)
    for trial in chosen:
        if store.noticed(trial) is None:
            by_room[trial.room].append(trial)
    for room, waiting in by_room.items():
        for module, number in Counter(trial.module for trial in waiting).items():
            near = _named_after(module, room)
            if near and (named or number >= _MANY):
                mine = [trial for trial in waiting if trial.module == module]
                _attempt_on(near, mine, store, workers, lambda trial, by: store.add(trial, by) if by else None)
        left = [trial for trial in waiting if store.noticed(trial) is None]
        if left and not named:
            _attempt_on(room.tests, left, store, workers, store.add)


def _named_after(module: Path, room: Room) -> list[str]:
    """The tests of a room in files of a module's name, or else those that the room names for all its modules."""
    files, name = {file for test in room.tests for file in _files(ROOT / test)}, f"test_{module.stem.strip('_')}"
    named = {str(file.relative_to(ROOT)) for file in files if f"{file.stem}_".startswith(f"{name}_")}
    return sorted(named) or list(room.first)


def _attempt_on(
    tests: Sequence[str], waiting: Sequence[Trial], store: Store, workers: int, finish: Callable[[Trial, str], None]
) -> None:
    began = time.monotonic()
    print(f"{len(waiting)} changes, {' '.join(tests)}", flush=True)
    anew = _in_fork(lambda: _try_on(tests, waiting, workers, finish))
    if anew is None:
        sys.exit(f"The tests of {' '.join(tests)} do not pass, or did not run: see `python -m pytest`.")
    pool = Pool(workers)
    for number, covering, limit in anew:
        pool.start(
            lambda trial=waiting[number], covering=covering: _imported_anew(trial, covering),
            limit + 60,
            lambda by, trial=waiting[number]: finish(trial, by),
        )
    pool.join()
    store.__init__(store.path)  # type: ignore[misc]
    print(f"  {time.monotonic() - began:.0f} s", flush=True)


if __name__ == "__main__":
    main()
