"""The audit of a user's training function: the audit of one recorded training, and tests of its claims by trials."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from vflpriv.common.machine import single_threaded
from vflpriv.common.registry import find
from vflpriv.common.tasks import Executor
from vflpriv.errors import InputError
from vflpriv.recording.ledger_file import LedgerConfig
from vflpriv.recording.system import read_recording
from vflpriv.recording.transcripts import read_hash
from vflpriv.recording.worlds_file import TrialsConfig
from vflpriv.report.audit import Report
from vflpriv.run.build import build_report
from vflpriv.run.kept import recorded_steps
from vflpriv.run.own_training.function import OwnTraining
from vflpriv.run.own_training.reference import Reference
from vflpriv.run.own_training.source import TrainingFunction
from vflpriv.run.own_training.trials import training_seed
from vflpriv.run.progress import Task, progress_bar
from vflpriv.run.recorded import audit_recorded
from vflpriv.run.registered import check_tables

__all__ = ["audit_training", "trials_of"]

_REFERENCES = 4


def trials_of(config: LedgerConfig, trials: object) -> LedgerConfig:
    """The ledger with so many trials in each world; an error if it does not say what the worlds differ in."""
    if config.trials is None:
        expected = "a section [trials] with unit, record, devices, records and classes: what the two worlds differ in"
        raise InputError("ledger.trials", "nothing", expected)
    if trials is None:
        return config
    if isinstance(trials, bool) or not isinstance(trials, int) or not 0 <= trials <= 1_000_000:
        raise InputError("--trials", trials, "a whole number from 0 to 1000000")
    return config.model_copy(update={"trials": config.trials.model_copy(update={"per_world": trials})})


@single_threaded()
def audit_training(
    training: OwnTraining,
    config: LedgerConfig,
    *,
    store: Path | None,
    command: str,
    quiet: bool | None,
    trust_ledger: bool = False,
    executor: Executor | None = None,
) -> Report:
    """Audit a training: one is recorded and audited as a transcript is, and many in two worlds test its claims."""
    find("accountant", config.accountant)
    check_tables(config.audit, "ledger.audit")
    worlds = trials_of(config, None).trials
    assert worlds is not None
    code = training.code()
    with TemporaryDirectory(prefix="vflpriv-") as folder, progress_bar(quiet) as bar:
        first = Task(bar, None)
        first.stage(f"{training.name}: one training in each world")
        seeds = [training_seed(config.seed, -1 - place) for place in range(_REFERENCES)]
        reference = Reference.of(training, worlds, Path(folder), seeds)
        source = TrainingFunction.of(
            read_recording(Path(folder), config),
            training=training,
            worlds=worlds,
            reference=reference,
            code=code,
            progress_of=partial(Task, bar),
        )
        steps = recorded_steps(store, Path(folder), config, first, first.expect)
        audited = audit_recorded(source, steps=steps, store=store, executor=executor)
        first.stage("accounting")
        notes = (*_notes(reference, worlds), *audited.not_tested)
        whole = replace(audited, not_tested=notes, min_trials=worlds.min_trials)
        own = {"training function": code, "transcript": read_hash(Path(folder))}
        return build_report([whole], config, reproduce=command, select=False, trust_ledger=trust_ledger, own=own)


def _notes(reference: Reference, worlds: TrialsConfig) -> list[str]:
    """What the trials did not test, and what they take for granted."""
    where = "" if worlds.record is None else f", record {worlds.record}"
    lines = [
        f"other worlds than the two of train() ({worlds.unit.description}{where}): another record, device or value may "
        "show more"
    ]
    if not reference.repeats:
        lines.append(
            "whether trainings are independent: two with the same seed in the same world sent other bits, so train() "
            "has randomness that `seed` does not decide, or keeps state from one call to the next; this report cannot "
            "be repeated bit by bit, and a stopped audit starts again"
        )
    return lines
