"""Verdicts, ε and attack success of an audit, written where a training keeps its figures."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Any

from vflpriv.core.claims import Verdict
from vflpriv.errors import InputError
from vflpriv.report.audit import Report

__all__ = ["figures", "log", "words"]

_PASSED = (Verdict.CONSISTENT, Verdict.NOT_APPLICABLE)
_UNUSUAL = re.compile(r"[^\w./ -]+")
_MOST = 500
"""Characters of a tag; MLflow allows as many."""


def log(report: Report, to: Any) -> None:
    """Write a report's figures and verdicts to the run of `"mlflow"` or `"wandb"` that is active, or to a TensorBoard
    `SummaryWriter`.

    Figures are `system/claim/epsilon_claimed`, `…/epsilon_accounted` (where it is finite), `…/epsilon_measured` (where
    something was), `…/holds` (1 for claims that are consistent or do not apply) and `system/attack/view`, the share of
    right guesses. Verdicts and their reasons are tags, or texts.
    """
    if to == "mlflow":
        mlflow = _library("mlflow")
        mlflow.log_metrics(figures(report))
        mlflow.set_tags({name: text[:_MOST] for name, text in words(report).items()})
    elif to == "wandb":
        run = _library("wandb").run
        if run is None:
            raise InputError("log: to", "wandb", "a run that is active: wandb.init() before")
        run.log(figures(report))
        run.summary.update(words(report))
    elif hasattr(to, "add_scalar") and hasattr(to, "add_text"):
        for name, figure in figures(report).items():
            to.add_scalar(name, figure)
        for name, text in words(report).items():
            to.add_text(name, text)
    else:
        raise InputError("log: to", to, '"mlflow", "wandb" or a SummaryWriter of TensorBoard')


def _library(name: str) -> Any:
    try:
        return import_module(name)
    except ImportError as error:
        raise InputError("log: to", name, f'{name} installed: pip install "vflpriv[{name}]"') from error


def figures(report: Report) -> Mapping[str, float]:
    """All figures that are finite, by name."""
    return {_UNUSUAL.sub("_", name): float(f) for name, f in _figures(report) if f is not None and math.isfinite(f)}


def _figures(report: Report) -> Iterator[tuple[str, float | None]]:
    for system in report.systems:
        for claim in system.claims:
            name, deciding = f"{system.key}/{claim.key}", claim.deciding
            yield f"{name}/epsilon_claimed", claim.epsilon
            yield f"{name}/epsilon_accounted", claim.accounted.epsilon_upper
            yield f"{name}/epsilon_measured", None if deciding is None else deciding.epsilon
            yield f"{name}/holds", claim.verdict in _PASSED
        for success in system.success_claims:
            yield f"{system.key}/{success.key}/holds", success.verdict in _PASSED
        for attempt in system.attacks:
            yield f"{system.key}/{attempt.attack}/{attempt.adversary}", attempt.success


def words(report: Report) -> Mapping[str, str]:
    """The verdict on each claim, and why."""
    claims = [(system.key, claim) for system in report.systems for claim in system.all_claims]
    return {_UNUSUAL.sub("_", f"{key}/{c.key}/verdict"): f"{c.verdict}: {c.reason}" for key, c in claims}
