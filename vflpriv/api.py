"""The program as a library: what the commands do, with objects in place of printed text. The command line calls these.

A configuration is a path, the name of an embedded one (`"papers"`), a mapping as TOML would give it, or a `Config`.
Nothing is printed; progress is shown on a terminal only. Bad input raises `InputError`, which is a `ValueError`.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from vflpriv.common.files import SIGNING_KEY, writable
from vflpriv.common.store import empty_store, foreign_results
from vflpriv.config.loading import load_config
from vflpriv.config.models import Config
from vflpriv.errors import InputError
from vflpriv.report.formats import DEFAULT_FORMATS, Context, Saved, checked_formats, save_result
from vflpriv.run.executors.table import executor_of
from vflpriv.run.selection import (
    as_options,
    audit_command,
    checked_date,
    named_source,
    places,
    recorded_paths,
    repeated,
    selected,
    share_of,
    training_ledger,
    whole_number,
)

if TYPE_CHECKING:
    from vflpriv.common.tasks import Executor
    from vflpriv.core.budgets import Accountant
    from vflpriv.core.units import Unit
    from vflpriv.core.views import Adversary
    from vflpriv.experiments.frontier.result import FrontierReport
    from vflpriv.experiments.reproduce.result import Reproduction
    from vflpriv.report.account import Accounts
    from vflpriv.report.attacks import AttackReport
    from vflpriv.report.audit import Report
    from vflpriv.report.trace import TraceReport
    from vflpriv.report.train import TrainReport
    from vflpriv.run.account import Claimed
    from vflpriv.run.own_training.function import Train

__all__ = [
    "Accounting",
    "Source",
    "account",
    "accounting",
    "attack",
    "audit",
    "frontier",
    "reproduce",
    "trace",
    "train",
]

Source = str | Path | Mapping[str, Any] | Config
S = TypeVar("S", bound=Saved)


def audit(
    config: Source | None = None,
    *,
    transcript: str | Path | None = None,
    train: str | Train | None = None,
    ledger: str | Path | None = None,
    out: str | Path | None = None,
    overrides: Mapping[str, Any] | None = None,
    trials: object = None,
    only: Sequence[str] = (),
    formats: Sequence[str] = DEFAULT_FORMATS,
    fresh: bool = False,
    trust_ledger: bool = False,
    date: str = "",
    quiet: bool | None = None,
    workers: int | str | None = None,
) -> Report:
    """Audit the systems of a configuration (the embedded one if none is given), a recorded training, or your own.

    `config` may also be the folder of a transcript, the place of a training function, or a script that records (it is
    recorded and traced), beside its `ledger.toml`.
    `transcript` and `ledger` take the place of a configuration, and so do `train` and `ledger`: `train(wire, world,
    seed)`, the function or its place (`"train.py:train"`), is recorded once, and trained `trials` times in each world.
    `out` is a folder for the report, in these `formats`, and for finished trials, which the same call uses after an
    interruption (`fresh` discards them); without it nothing is written. `overrides` are fields by dotted path, `trials`
    the trainings in each world, `only` the keys of the systems to audit. A configuration that is not a file is written
    beside the report. With `trust_ledger`, a claim that rests on the ledger alone, with nothing measured, does not
    change the exit code. `date` (YYYY-MM-DD) is printed beside the hashes of what was audited. `workers` is how many
    trainings run at a time on this machine (one per core or GPU if None), `"ray"` or `"ray://HOST:PORT"`; the report
    does not depend on it.
    """
    config, transcript, train, ledger = named_source(config, transcript, train, ledger)
    beside: dict[str, object] = {"CONFIG": config, **as_options(overrides or {}), "--only": only}
    own = training_ledger(train, transcript, ledger, beside)
    counts = {"--trials": trials, "--workers": workers}
    recorded = recorded_paths(transcript, ledger, beside | counts) if own is None else None
    names, day = checked_formats(formats, "report"), checked_date(date)
    if own is not None and train is not None:
        source: object = own
        work = _training_audit(train, own, trials)
    elif recorded is not None:
        source, work = recorded[1], _recording_audit(*recorded)
    else:
        source, work = config, _config_audit(config, overrides or {}, only, trials, out)
    running = _Running.of(out=out, fresh=fresh, quiet=quiet, workers=workers)
    trusted = _trusted(running.store)
    report = running.result(partial(work, trust_ledger=trust_ledger))
    report = report.model_copy(update={"date": day, "not_tested": (*report.not_tested, *trusted)})
    written = (*names, "toml") if isinstance(config, Mapping | Config) else names
    return running.saved(report, written, source)


def trace(
    script: str | Path,
    *,
    arguments: Sequence[str] = (),
    rounds: int = 20,
    units: Sequence[str] = (),
    delta: float = 1e-5,
    against: str | Path | None = None,
    quiet: bool | None = None,
) -> TraceReport:
    """Run a script, and follow its first `rounds` operation by operation: what leaves, under which noise, at what ε.

    It needs no ledger and no canaries. `units` are `"label"` and `"features"`, the former if none is given. The claims
    of a ledger file, `against`, stand beside what is accounted, and what it declares better than was seen is named.
    """
    from vflpriv.recording.ledger_file import load_ledger
    from vflpriv.run.calibrate import parse_unit
    from vflpriv.run.traced.script import find_script
    from vflpriv.run.traced.trace import trace_script

    if not 0 < delta < 1:
        raise InputError("--delta", delta, "a number above 0 and below 1")
    chosen = [parse_unit(unit) for unit in units]
    count = whole_number(rounds, "--rounds", least=1) or 1
    own = find_script(script, tuple(arguments))
    declared = None if against is None else load_ledger(Path(against))
    return trace_script(own, rounds=count, units=chosen, delta=delta, declared=declared, quiet=quiet)


def attack(
    config: Source | None = None,
    *,
    out: str | Path | None = None,
    overrides: Mapping[str, Any] | None = None,
    only: Sequence[str] = (),
    fail_on: Sequence[str] = (),
    correction: str = "holm",
    quick: bool = False,
    formats: Sequence[str] = DEFAULT_FORMATS,
    fresh: bool = False,
    quiet: bool | None = None,
    workers: int | str | None = None,
) -> AttackReport:
    """Run attacks on every system under every defence. `fail_on` has limits such as `"leakage>0.05"`.

    `quick` leaves defences out and caps seeds, rounds and candidates, so that a system takes about a CPU minute.

    A limit is broken by a mean over seeds that lies above it with the configured confidence; `correction` is for the
    number of such tests, `"holm"` or `"none"`.
    With a folder `out`, the same call continues after an interruption with the system and defence it had reached.
    `workers` is how many of them are attacked at a time, as for `audit`.
    """
    from vflpriv.run.limits import Limit, check_correction, held_to

    limits, corrected = [Limit.parse(text) for text in fail_on], check_correction(correction)
    names = checked_formats(formats, "attacks")
    embedded = Path(str(files("vflpriv.config").joinpath("attack.toml")))
    chosen = load_config(embedded if config is None else config, overrides)
    if quick:
        from vflpriv.config.quick import quickly_attacked

        chosen = quickly_attacked(chosen)
    places(chosen, only)
    running = _Running.of(out=out, fresh=fresh, quiet=quiet, workers=workers)
    from vflpriv.run.attack import attack_config

    matrix = running.result(partial(attack_config, chosen, only=only)).model_copy(update={"quick": quick})
    return running.saved(held_to(matrix, limits, corrected), names, config)


def account(
    config: Source | None = None,
    *,
    transcript: str | Path | None = None,
    ledger: str | Path | None = None,
    delta: float | None = None,
    accountant: str | None = None,
    overrides: Mapping[str, Any] | None = None,
    only: Sequence[str] = (),
    cross_check: bool = False,
) -> Accounts:
    """The budgets of a configuration, or of a recorded training: all views, all units, claimed beside accounted.

    With `cross_check`, opacus, prv-accountant and dp-accounting are asked about the budgets of the claims, too.
    """
    systems = accounting(
        config, transcript=transcript, ledger=ledger, accountant=accountant, overrides=overrides, only=only
    )
    return systems.accounts(delta, cross_check=cross_check)


def accounting(
    config: Source | None = None,
    *,
    transcript: str | Path | None = None,
    ledger: str | Path | None = None,
    accountant: str | None = None,
    overrides: Mapping[str, Any] | None = None,
    only: Sequence[str] = (),
) -> Accounting:
    """The systems that `account` is about, built but not trained; `accountant` replaces that of the configuration."""
    from vflpriv.run.account import accounted_recording, accounted_systems

    recorded = recorded_paths(transcript, ledger, {"CONFIG": config, "--set": overrides or None, "--only": only})
    if recorded is not None:
        return Accounting(*accounted_recording(*recorded, accountant))
    fields = ({} if accountant is None else {"accountant": accountant}) | dict(overrides or {})
    return Accounting(*accounted_systems(load_config(config, fields), only))


@dataclass(frozen=True)
class Accounting:
    """Systems with their claims, and the accountant that they are accounted for by."""

    systems: Sequence[Claimed]
    accountant: Accountant

    def accounts(self, delta: float | None = None, *, cross_check: bool = False) -> Accounts:
        """All budgets at `delta` (each system's own if None); with `cross_check`, other libraries' beside them."""
        from vflpriv.run.account import accounts_of, with_cross_checks

        accounts = accounts_of(self.systems, self.accountant, delta)
        return with_cross_checks(accounts, self.systems) if cross_check else accounts

    def write_curves(
        self, folder: Path, chosen: tuple[Adversary, Unit] | None = None, delta: float | None = None
    ) -> Iterator[Path]:
        """Write the curves of the claims' budgets, or of the chosen view and unit, and yield the path of each file."""
        from vflpriv.render.plots.curves import write_curves
        from vflpriv.run.account import claim_curves, curves_of

        writable(folder, "--curves")
        for system, claims in self.systems:
            if chosen is None:
                curves = claim_curves(system, self.accountant, claims)
            else:
                exposure = system.ledger.exposure(*chosen)
                at = system.delta if delta is None else delta
                curves = curves_of(system, exposure, chosen[0], self.accountant, at)
            for curve in curves:
                yield from write_curves(curve, folder)


def train(
    config: Source | None = None,
    *,
    overrides: Mapping[str, Any] | None = None,
    only: Sequence[str] = (),
    save: str | Path | None = None,
    quiet: bool | None = None,
    reproducible: bool = False,
) -> TrainReport:
    """Train every system once: accuracy, traffic, staleness; `save` is a folder for the models (safetensors).

    Noise, noised labels and secret batches come from the operating system's entropy. Those of a `reproducible` training
    come from the seed, with which anyone can subtract the noise.
    """
    chosen = load_config(config, overrides)
    places(chosen, only)
    folder = _folder(save, "--save")
    from vflpriv.run.train import train_config

    return train_config(chosen, only=only, save=folder, quiet=quiet, reproducible=reproducible)


def reproduce(
    name: str | Path,
    *,
    quick: bool = False,
    share: object = None,
    seeds: object = None,
    seed: object = None,
    only: Sequence[str] = (),
    out: str | Path | None = None,
    device: str | None = None,
    formats: Sequence[str] = DEFAULT_FORMATS,
    fresh: bool = False,
    quiet: bool | None = None,
    workers: int | str | None = None,
) -> Reproduction:
    """Train the rows of a published table again: `name` is one that `vflpriv reproduce` lists, or a file like those.

    `quick` trains fewer rounds and records, and `share` a share of the rounds. With a folder `out`, the same call
    continues after an interruption with the training it had reached.
    """
    from vflpriv.experiments.reproduce.profile import load_profile

    profile, names = load_profile(name), checked_formats(formats, "reproduction")
    count, first = whole_number(seeds, "--seeds", least=1), whole_number(seed, "--seed", least=0)
    rounds = share_of(share, "--share")
    running = _Running.of(out=out, fresh=fresh, quiet=quiet, workers=workers)
    from vflpriv.experiments.reproduce.runner import reproduce_profile

    work = partial(
        reproduce_profile,
        profile,
        quick=quick,
        share=rounds,
        seeds=count,
        seed=first or 0,
        only=only,
        device=device or "auto",
    )
    return running.saved(running.result(work), names)


def frontier(
    config: str | Path | None = None,
    *,
    out: str | Path | None = None,
    overrides: Mapping[str, Any] | None = None,
    only: Sequence[str] = (),
    formats: Sequence[str] = DEFAULT_FORMATS,
    fresh: bool = False,
    quiet: bool | None = None,
    workers: int | str | None = None,
) -> FrontierReport:
    """The best accuracy at each accounted ε for a unit and a view: `config` is a file with candidates to compare.

    With a folder `out`, the same call continues after an interruption with the training it had reached.
    """
    from vflpriv.experiments.frontier.profile import load_frontier

    chosen, names = load_frontier(config, overrides), checked_formats(formats, "frontier")
    running = _Running.of(out=out, fresh=fresh, quiet=quiet, workers=workers)
    from vflpriv.experiments.frontier.runner import find_frontier

    command = repeated("frontier", config, overrides or {}, only)
    return running.saved(running.result(partial(find_frontier, chosen, command=command, only=only)), names)


@dataclass(frozen=True, kw_only=True)
class _Running:
    """Where a run stores and computes, which is checked before its work."""

    folder: Path | None
    store: Path | None
    """The folder for finished trials."""
    quiet: bool | None
    executors: AbstractContextManager[Executor]

    @classmethod
    def of(cls, *, out: str | Path | None, fresh: bool, quiet: bool | None, workers: object) -> _Running:
        """`fresh` deletes the finished trials of an earlier run, and no other file."""
        folder, executors = _folder(out), executor_of(workers)
        store = None if folder is None else folder / "trials"
        if store is not None and fresh:
            empty_store(store)
        return cls(folder=folder, store=store, quiet=quiet, executors=executors)

    def result(self, work: Callable[..., S]) -> S:
        """What the work finds, which is told where it runs."""
        with self.executors as executor:
            return work(store=self.store, quiet=self.quiet, executor=executor)

    def saved(self, report: S, formats: Sequence[str], source: object = None) -> S:
        """The report, written if there is a folder; formats may point to lines of the `source`, if it is a file."""
        if self.folder is not None:
            path = Path(source) if isinstance(source, str | Path) else None
            # An embedded configuration is no file.
            context = Context(config=path if path is not None and path.is_file() else None)
            save_result(report, self.folder, dict.fromkeys(formats), context)
        return report


def _trusted(store: Path | None) -> tuple[str, ...]:
    """What is said of stored results that this user of this machine has not made."""
    results = foreign_results(store)
    if not results:
        return ()
    whose = "another user or machine made them"
    return (
        f"{results} stored results in the folder trials: {whose}, and they are trusted; {SIGNING_KEY} or --fresh "
        "would not",
    )


def _config_audit(
    config: Source | None, overrides: Mapping[str, Any], only: Sequence[str], trials: object, out: str | Path | None
) -> Callable[..., Report]:
    chosen = selected(load_config(config, overrides), only, trials)
    command = audit_command(config, None if out is None else Path(out), overrides, trials)

    def work(**running: Any) -> Report:
        from vflpriv.run.audit import audit_config

        return audit_config(chosen, command=command, **running)

    return work


def _recording_audit(transcript: Path, ledger: Path) -> Callable[..., Report]:
    from vflpriv.recording.ledger_file import load_ledger

    config = load_ledger(ledger)
    command = shlex.join(["vflpriv", "audit", "--transcript", str(transcript), "--ledger", str(ledger)])

    def work(**running: Any) -> Report:
        from vflpriv.run.audit import audit_transcript

        return audit_transcript(transcript, config, command=command, **running)

    return work


def _training_audit(train: str | Train, ledger: Path, trials: object) -> Callable[..., Report]:
    from vflpriv.recording.ledger_file import load_ledger
    from vflpriv.run.own_training.audit import audit_training, trials_of
    from vflpriv.run.own_training.function import find_training

    if isinstance(train, str) and train.endswith(".py"):
        return _script_audit(train, ledger, trials)
    config, training = trials_of(load_ledger(ledger), trials), find_training(train)
    parts = ["vflpriv", "audit", "--train", train if isinstance(train, str) else training.name, "--ledger", str(ledger)]
    command = shlex.join(parts + ([] if trials is None else ["--trials", str(trials)]))
    return partial(audit_training, training, config, command=command)


def _script_audit(script: str, ledger: Path, trials: object) -> Callable[..., Report]:
    from vflpriv.recording.ledger_file import load_ledger
    from vflpriv.run.traced.audit import audit_script
    from vflpriv.run.traced.script import find_script

    if trials is not None:
        raise InputError("--trials", trials, "nothing beside a script; a function train(wire, world, seed) has trials")
    command = shlex.join(["vflpriv", "audit", script, "--ledger", str(ledger)])
    return partial(audit_script, find_script(script), load_ledger(ledger), command=command)


def _folder(out: str | Path | None, field: str = "--out") -> Path | None:
    """The folder, checked before the work to be one that can be written to."""
    if out is None:
        return None
    writable(Path(out), field)
    return Path(out)
