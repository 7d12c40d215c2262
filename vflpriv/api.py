"""The program as a library: what the commands do, with objects in place of printed text. The command line calls these.

A configuration is a path, the name of an embedded one (`"papers"`), a mapping as TOML would give it, or a `Config`.
Nothing is printed; progress is shown on a terminal only. Bad input raises `InputError`, which is a `ValueError`.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vflpriv.common.files import writable
from vflpriv.common.store import empty_store
from vflpriv.config.loading import load_config
from vflpriv.config.models import Config
from vflpriv.report.formats import DEFAULT_FORMATS, Context, checked_formats, save_result
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
    from vflpriv.core.budgets import Accountant
    from vflpriv.core.units import Unit
    from vflpriv.core.views import Adversary
    from vflpriv.experiments.frontier.result import FrontierReport
    from vflpriv.experiments.reproduce.result import Reproduction
    from vflpriv.report.account import Accounts
    from vflpriv.report.attacks import AttackReport
    from vflpriv.report.audit import Report
    from vflpriv.report.train import TrainReport
    from vflpriv.run.account import Claimed
    from vflpriv.run.own_training.function import Train

__all__ = ["Accounting", "Source", "account", "accounting", "attack", "audit", "frontier", "reproduce", "train"]

Source = str | Path | Mapping[str, Any] | Config
_TRIALS = "trials"


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

    `config` may also be the folder of a transcript or the place of a training function, beside its `ledger.toml`.
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
    running = _Running(out=out, trials=trials, fresh=fresh, trust_ledger=trust_ledger, quiet=quiet, workers=workers)
    source = Path(config) if isinstance(config, str | Path) else None
    if own is not None and train is not None:
        source, report = own, _audit_training(train, own, running)
    elif recorded is not None:
        source, report = recorded[1], _audit_recording(*recorded, running)
    else:
        report = _audit_config(config, overrides or {}, only, running)
    report = report.model_copy(update={"date": day})
    if out is not None:
        if isinstance(config, Mapping | Config):
            names = tuple(dict.fromkeys((*names, "toml")))
        save_result(report, Path(out), names, _context(source))
    return report


def attack(
    config: Source | None = None,
    *,
    out: str | Path | None = None,
    overrides: Mapping[str, Any] | None = None,
    only: Sequence[str] = (),
    fail_on: Sequence[str] = (),
    correction: str = "holm",
    formats: Sequence[str] = DEFAULT_FORMATS,
    fresh: bool = False,
    quiet: bool | None = None,
    workers: int | str | None = None,
) -> AttackReport:
    """Run attacks on every system under every defence. `fail_on` has limits such as `"leakage>0.05"`.

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
    places(chosen, only)
    folder, running = _folder(out), executor_of(workers)
    store = _store(folder, fresh)
    from vflpriv.run.attack import attack_config

    with running as executor:
        matrix = attack_config(chosen, only=only, store=store, quiet=quiet, executor=executor)
    report = held_to(matrix, limits, corrected)
    if folder is not None:
        save_result(report, folder, names, _context(Path(config) if isinstance(config, str | Path) else None))
    return report


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
        from vflpriv.run.account import accounts_of
        from vflpriv.run.cross_check import with_cross_checks

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
) -> TrainReport:
    """Train every system once: accuracy, traffic, staleness; `save` is a folder for the models (safetensors)."""
    chosen = load_config(config, overrides)
    places(chosen, only)
    folder = _folder(save, "--save")
    from vflpriv.run.train import train_config

    return train_config(chosen, only=only, save=folder, quiet=quiet)


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
    folder, running = _folder(out), executor_of(workers)
    store = _store(folder, fresh)
    from vflpriv.experiments.reproduce.runner import reproduce_profile

    with running as executor:
        report = reproduce_profile(
            profile,
            quick=quick,
            share=rounds,
            seeds=count,
            seed=first or 0,
            only=only,
            device=device or "auto",
            store=store,
            quiet=quiet,
            executor=executor,
        )
    if folder is not None:
        save_result(report, folder, names, Context())
    return report


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
    folder, running = _folder(out), executor_of(workers)
    store = _store(folder, fresh)
    from vflpriv.experiments.frontier.runner import find_frontier

    command = repeated("frontier", config, overrides or {}, only)
    with running as executor:
        report = find_frontier(chosen, command=command, only=only, store=store, quiet=quiet, executor=executor)
    if folder is not None:
        save_result(report, folder, names, Context())
    return report


@dataclass(frozen=True, kw_only=True)
class _Running:
    """How an audit runs, whatever it audits."""

    out: str | Path | None
    trials: object
    fresh: bool
    trust_ledger: bool
    quiet: bool | None
    workers: int | str | None


def _audit_config(
    config: Source | None, overrides: Mapping[str, Any], only: Sequence[str], running: _Running
) -> Report:
    chosen = selected(load_config(config, overrides), only, running.trials)
    folder, executors = _folder(running.out), executor_of(running.workers)
    store = _store(folder, running.fresh)
    from vflpriv.run.audit import audit_config

    command = audit_command(config, folder, overrides, running.trials)
    with executors as executor:
        return audit_config(
            chosen,
            store=store,
            command=command,
            quiet=running.quiet,
            trust_ledger=running.trust_ledger,
            executor=executor,
        )


def _audit_recording(transcript: Path, ledger: Path, running: _Running) -> Report:
    from vflpriv.recording.ledger_file import load_ledger

    config = load_ledger(ledger)
    store = _store(_folder(running.out), running.fresh)
    from vflpriv.run.audit import audit_transcript

    command = shlex.join(["vflpriv", "audit", "--transcript", str(transcript), "--ledger", str(ledger)])
    return audit_transcript(
        transcript,
        config,
        command=command,
        trust_ledger=running.trust_ledger,
        store=store,
        quiet=running.quiet,
    )


def _audit_training(train: str | Train, ledger: Path, running: _Running) -> Report:
    from vflpriv.recording.ledger_file import load_ledger
    from vflpriv.run.own_training.audit import audit_training, trials_of
    from vflpriv.run.own_training.function import find_training

    config = trials_of(load_ledger(ledger), running.trials)
    training = find_training(train)
    folder, executors = _folder(running.out), executor_of(running.workers)
    store = _store(folder, running.fresh)
    named = train if isinstance(train, str) else training.name
    parts = ["vflpriv", "audit", "--train", named, "--ledger", str(ledger)]
    command = shlex.join(parts + ([] if running.trials is None else ["--trials", str(running.trials)]))
    with executors as executor:
        return audit_training(
            training,
            config,
            store=store,
            command=command,
            quiet=running.quiet,
            trust_ledger=running.trust_ledger,
            executor=executor,
        )


def _context(source: Path | None) -> Context:
    """The audited file for formats that point to its lines; an embedded configuration is not one."""
    return Context(config=source if source is not None and source.is_file() else None)


def _folder(out: str | Path | None, field: str = "--out") -> Path | None:
    """The folder, checked before the work to be one that can be written to."""
    if out is None:
        return None
    writable(Path(out), field)
    return Path(out)


def _store(folder: Path | None, fresh: bool) -> Path | None:
    """The folder for finished trials; `fresh` deletes those of an earlier run, and no other file."""
    if folder is None:
        return None
    if fresh:
        empty_store(folder / _TRIALS)
    return folder / _TRIALS
