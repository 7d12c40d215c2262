"""A page for each audit and accountant: docstrings, the settings that steer them, and their answers."""

from __future__ import annotations

from collections.abc import Sequence

from tools.docs_markdown import docstrings, fence, join, sentence, settings_table, table
from vflpriv.common import formatting as f
from vflpriv.common.registry import available
from vflpriv.core.ledger import Event, Exposure, Reading, Sampling
from vflpriv.core.units import Unit
from vflpriv.core.views import Adversary
from vflpriv.laws import Gaussian, Laplace, RandomizedResponse

__all__ = ["DELTA", "accountant_page", "audit_page"]

DELTA = 1e-5


def audit_page(name: str) -> str:
    """What an audit looks for, and the settings that steer it."""
    audit = available("audit")[name]
    return join(
        f"# {name}",
        f"*{sentence(audit.summary)}*",
        docstrings(audit),
        f"## Settings in `[audit.{name}]`",
        settings_table(audit.settings_type) if audit.settings_type.model_fields else "It has none.",
        f"`{name} = false` turns it off."
        + (f" It runs where the section has its table, or `{name} = true`." if audit.on_request else ""),
    )


def accountant_page(name: str) -> str:
    """What an accountant bounds, and its answers to a few questions."""
    accountant = available("accountant")[name]
    rows = []
    for question, exposure in _questions():
        why = accountant().supports(exposure)
        if why is not None:
            rows.append((question, f"no answer: {why}", ""))
            continue
        budget = accountant().budget(exposure, DELTA)
        rows.append((question, f.exact(budget.lower), f.exact(budget.upper)))
    return join(
        f"# {name}",
        f"*{sentence(accountant.summary)}*",
        docstrings(accountant),
        f"## What it answers at δ = {f.delta(DELTA)}",
        table(("question", "ε ≥", "ε ≤"), rows),
        fence("sh", f"vflpriv account papers --accountant {name} --only dpzv-sound"),
    )


def _questions() -> Sequence[tuple[str, Exposure]]:
    gaussian = Event(kind="message", noise=Gaussian(10.0), sensitivity=1.0, count=100)
    sampled = Event(kind="message", noise=Gaussian(1.0), sensitivity=1.0, count=100, sampling=Sampling("poisson", 0.01))
    laplace = Event(kind="message", noise=Laplace(20.0), sensitivity=1.0, count=10)
    rr = Event(kind="label", noise=RandomizedResponse(0.5), sensitivity=1.0, count=1)
    return [
        ("100 Gaussian releases, noise 10 times the sensitivity", _exposed(gaussian)),
        (
            "100 Gaussian releases of secret Poisson batches, rate 0.01, noise as large as the sensitivity",
            _exposed(sampled),
        ),
        ("10 Laplace releases, scale 20 times the sensitivity", _exposed(laplace)),
        ("one label by randomised response, ε = 0.5", _exposed(rr)),
        ("the first and the third together", _exposed(gaussian, laplace)),
    ]


def _exposed(*events: Event) -> Exposure:
    return Exposure(
        unit=Unit.ADD_REMOVE,
        adversary=Adversary("outsider"),
        reading=Reading.RIGOROUS,
        batches="secret",
        events=events,
        unprotected=(),
        assumptions=(),
        not_applicable=None,
    )
