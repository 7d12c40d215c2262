"""The program as a library: what the commands do, with objects in place of printed text. The command line calls these.

A configuration is a path, the name of an embedded one (`"papers"`), a mapping as TOML would give it, or a `Config`.
Nothing is printed; progress is shown on a terminal only. Bad input raises `InputError`, which is a `ValueError`.
"""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vflpriv.common.files import writable
from vflpriv.config.models import Config, load_config
from vflpriv.run.selection import recorded_paths

if TYPE_CHECKING:
    from vflpriv.report.account import Accounts
    from vflpriv.report.attacks import AttackReport
    from vflpriv.report.audit import Report
    from vflpriv.report.train import TrainReport

__all__ = ["Source", "account", "attack", "audit", "train"]

Source = str | Path | Mapping[str, Any] | Config
_TRIALS = "trials"
_FORMATS = ("json", "html", "md")


def audit(
    config: Source | None = None,
    *,
    transcript: str | Path | None = None,
    ledger: str | Path | None = None,
    out: str | Path | None = None,
    overrides: Mapping[str, Any] | None = None,
    trials: object = None,
    only: Sequence[str] = (),
    formats: Sequence[str] = _FORMATS,
    fresh: bool = False,
    quiet: bool | None = None,
) -> Report:
    """Audit the systems of a configuration (the embedded one if none is given), or a recorded training.

    `transcript` and `ledger` go together and stand in place of a configuration. `out` is a folder for the report, in
    these `formats`, and for finished trials, with which the same call goes on after an interruption (`fresh` forgets
    them); without it nothing is written. `overrides` are fields by dotted path, `trials` the trainings in each world,
    `only` the keys of the systems that are wanted. A configuration that is no file is written beside the report.
    """
    from vflpriv.render.files import write_report

    recorded = recorded_paths(
        transcript, ledger, {"CONFIG": config, "--set": overrides, "--trials": trials, "--only": only}
    )
    if recorded is not None:
        report = _recorded(*recorded, out)
    else:
        from vflpriv.run.selection import audit_command, selected

        chosen = selected(load_config(config, overrides), only, trials)
        folder = _folder(out)
        store = _store(folder, fresh)
        from vflpriv.run.audit import audit_config

        command = audit_command(config, folder, overrides or {}, trials)
        report = audit_config(chosen, store=store, command=command, quiet=quiet)
    if out is not None:
        given = isinstance(config, Mapping | Config) and "toml" not in formats
        write_report(report, Path(out), [*formats, "toml"] if given else formats)
    return report


def attack(
    config: Source | None = None,
    *,
    out: str | Path | None = None,
    overrides: Mapping[str, Any] | None = None,
    only: Sequence[str] = (),
    fail_on: Sequence[str] = (),
    correction: str = "holm",
    formats: Sequence[str] = _FORMATS,
    fresh: bool = False,
    quiet: bool | None = None,
) -> AttackReport:
    """Try attacks on every system under every defence. `fail_on` has limits such as `"leakage>0.05"`.

    A limit is broken by a mean over seeds that is sure to lie above it; `correction` is for the number of such tests,
    `"holm"` or `"none"`.
    With a folder `out`, the same call goes on after an interruption with the system and defence it was at.
    """
    from vflpriv.render.files import write_attacks
    from vflpriv.run.limits import Limit, check_correction, held_to
    from vflpriv.run.selection import places

    limits, corrected = [Limit.parse(text) for text in fail_on], check_correction(correction)
    embedded = Path(str(files("vflpriv.config").joinpath("attack.toml")))
    chosen = load_config(embedded if config is None else config, overrides)
    places(chosen, only)
    folder = _folder(out)
    store = _store(folder, fresh)
    from vflpriv.run.attack import attack_config

    report = held_to(attack_config(chosen, only=only, store=store, quiet=quiet), limits, corrected)
    if folder is not None:
        write_attacks(report, folder, formats)
    return report


def account(
    config: Source | None = None,
    *,
    transcript: str | Path | None = None,
    ledger: str | Path | None = None,
    delta: float | None = None,
    overrides: Mapping[str, Any] | None = None,
    only: Sequence[str] = (),
) -> Accounts:
    """The budgets of a configuration, or of a recorded training: all views, all units, claimed beside accounted."""
    from vflpriv.run.account import accounted_recording, accounted_systems, accounts_of

    beside = {"CONFIG": config, "--set": overrides, "--only": only}
    recorded = recorded_paths(transcript, ledger, beside)
    if recorded is not None:
        return accounts_of(*accounted_recording(*recorded), delta)
    return accounts_of(*accounted_systems(load_config(config, overrides), only), delta)


def train(
    config: Source | None = None,
    *,
    overrides: Mapping[str, Any] | None = None,
    only: Sequence[str] = (),
    save: str | Path | None = None,
    quiet: bool | None = None,
) -> TrainReport:
    """Train every system once: accuracy, traffic, staleness; `save` is a folder for the models (safetensors)."""
    from vflpriv.run.selection import places

    chosen = load_config(config, overrides)
    places(chosen, only)
    folder = _folder(save, "--save")
    from vflpriv.run.train import train_config

    return train_config(chosen, only=only, save=folder, quiet=quiet)


def _recorded(transcript: Path, ledger: Path, out: str | Path | None) -> Report:
    from vflpriv.recording.ledger_file import load_ledger

    config = load_ledger(ledger)
    _folder(out)
    from vflpriv.run.audit import audit_transcript

    command = shlex.join(["vflpriv", "audit", "--transcript", str(transcript), "--ledger", str(ledger)])
    return audit_transcript(transcript, config, command=command)


def _folder(out: str | Path | None, field: str = "--out") -> Path | None:
    """A folder that can be written to, checked before the work."""
    if out is None:
        return None
    writable(Path(out), field)
    return Path(out)


def _store(folder: Path | None, fresh: bool) -> Path | None:
    """Where finished trials lie."""
    if folder is None:
        return None
    if fresh:
        shutil.rmtree(folder / _TRIALS, ignore_errors=True)
    return folder / _TRIALS
