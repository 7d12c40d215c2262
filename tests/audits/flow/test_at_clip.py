"""Contributions at the clip under the tracer: the mechanism's own worst pair costs exactly what is accounted."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

from tests.support import make_system
from vflpriv.accountants.auto import AutoAccountant
from vflpriv.audits.flow.audit import FlowAudit, FlowSettings
from vflpriv.audits.flow.engines import loss_draws
from vflpriv.audits.flow.observation import observe
from vflpriv.audits.flow.plain.wire import bits
from vflpriv.audits.flow.sources import TracedPair, traceable
from vflpriv.audits.twins.pairs import plan_twins
from vflpriv.core.audit import AuditContext, Finding
from vflpriv.core.claims import Claim, Verdict
from vflpriv.core.systems import System
from vflpriv.core.units import Unit
from vflpriv.core.views import Adversary

ROUNDS = 3


def claim_of(mu: float, *, unit: Unit = Unit.RECORD, view: str = "devices(all)") -> Claim:
    return Claim.of_mu(mu, 1e-5, key="c", source="s", where="w", statement="", unit=unit, view=view)


def accounted(system: System, claim: Claim) -> float:
    mu = AutoAccountant().budget(system.ledger.exposure(claim.adversary, claim.unit), 1e-5).mu
    assert mu is not None
    return mu


def judged(system: System, claim: Claim, **settings: Any) -> Finding:
    context = AuditContext(claims=(claim,), settings=FlowSettings(**settings) if settings else None)
    (finding,) = FlowAudit().run(system, context)
    return finding


TIGHT = [
    ("dpzv-joint", Unit.LABEL, "eavesdropper"),
    ("dpzv-joint", Unit.RECORD, "devices(all)"),
    ("send-once", Unit.LABEL, "eavesdropper"),
    ("split-client", Unit.CLIENT, "eavesdropper"),
    ("split-client", Unit.CLIENT_ZERO, "server"),
    ("vimadmm-j-client", Unit.CLIENT, "server"),
    ("linear-admm-client", Unit.CLIENT_ZERO, "eavesdropper"),
    ("noise-once-features", Unit.RECORD, "server"),
    ("noise-once-features", Unit.FEATURES, "eavesdropper"),
]


@pytest.mark.parametrize(("variant", "unit", "view"), TIGHT)
def test_the_figure_at_the_clip_is_what_is_accounted(variant: str, unit: Unit, view: str) -> None:
    system, claim = make_system(variant, rounds=ROUNDS), claim_of(1.0, unit=unit, view=view)
    source = traceable(system)
    pair = source.traced_pair(claim, ROUNDS)
    assert isinstance(pair, TracedPair)
    assert pair.at_clip is not None
    observation = observe(pair.at_clip.program(ROUNDS), source.traced_view(claim.adversary), 0)
    assert not observation.unknown
    assert {message.state for message in observation.messages} <= {"clean", "sealed"}
    assert observation.shown.mu == observation.loss.mu == pytest.approx(accounted(system, claim), rel=1e-6)


def test_a_claim_is_kept_at_what_is_accounted_and_refuted_a_little_below() -> None:
    system = make_system("dpzv-joint", rounds=24, noise_std=5.0)
    mu = accounted(system, claim_of(1.0))
    kept = judged(system, claim_of(mu))
    assert kept.verdict is Verdict.CONSISTENT
    assert kept.measurement is not None
    assert kept.measurement.exact
    assert kept.figure == pytest.approx(mu, rel=1e-6)
    assert "at the clip" in kept.sentence
    refuted = judged(system, claim_of(0.999 * mu))
    assert refuted.verdict is Verdict.VIOLATED
    assert "at least 1" in refuted.repair


def test_rounds_that_are_not_followed_leave_a_bound() -> None:
    """Margin: the figure of a pair at the clip is that of all rounds; single precision is 4e-8 off, 1e-6 is allowed."""
    system = make_system("dpzv-joint", rounds=24, noise_std=5.0)
    mu = accounted(system, claim_of(1.0))
    half = judged(system, claim_of(mu), rounds=12)
    assert half.measurement is not None
    assert not half.measurement.exact
    assert half.figure == pytest.approx(mu, rel=1e-6)


def test_a_leak_is_found_whatever_the_figure_at_the_clip_is() -> None:
    finding = judged(make_system("dpzv-sgd", rounds=ROUNDS), claim_of(1e3, unit=Unit.LABEL, view="server"))
    assert finding.is_untested, "the server holds the labels"
    leak = judged(make_system("split-client", rounds=ROUNDS), claim_of(1e6, unit=Unit.LABEL, view="eavesdropper"))
    assert leak.verdict is Verdict.VIOLATED
    assert "without noise" in leak.sentence


def test_what_labels_do_not_reach_is_not_moved_by_a_label_at_the_clip() -> None:
    """The centre of the records' rows is sent with noise, and no label is in it."""
    system = make_system("send-once", rounds=ROUNDS)
    claim = claim_of(1.0, unit=Unit.LABEL, view="eavesdropper")
    assert judged(system, claim_of(accounted(system, claim), unit=Unit.LABEL, view="eavesdropper")).verdict is (
        Verdict.CONSISTENT
    )


def test_a_figure_that_follows_the_transcript_is_tested_by_draws_of_the_loss() -> None:
    """Margin: 200 losses refute the published clip at p below 1e-20; 1e-6 is asked for."""
    system = make_system("dpzv-joint", rounds=12, noise_std=5.0, clip_rule="paper")
    refuted = judged(system, claim_of(0.5, unit=Unit.LABEL, view="eavesdropper"))
    assert refuted.verdict is Verdict.VIOLATED
    assert refuted.measurement is not None
    assert (refuted.measurement.method, refuted.trials) == ("draws of the loss", 200)
    assert refuted.p_value is not None
    assert refuted.p_value < 1e-6
    assert refuted.figure > 0.5
    # What is hidden from the adversary, and differs, is no part of the loss in its view.
    device = judged(system, claim_of(0.5, unit=Unit.LABEL, view="device"))
    assert device.measurement is None or device.measurement.method != "draws of the loss"


@pytest.mark.parametrize(
    ("variant", "unit", "view", "changes"),
    [
        ("dpzv-joint", Unit.LABEL, "eavesdropper", {"noise_std": 2.0}),
        ("split-client", Unit.FEATURES, "server", {"noise_std": 10.0}),
    ],
)
def test_draws_of_the_loss_are_log_likelihood_ratios(
    variant: str, unit: Unit, view: str, changes: dict[str, float]
) -> None:
    """One over the likelihood ratio is 1 on average in the first world, however distances follow what was sent.

    Margin: the mean of 1,000 lies within 5 standard errors of 1, and 6 or more away, where 3 are
    asked for, if noise is told to be √2 times as large.
    """
    system = make_system(variant, rounds=4, **changes)
    canary = next(canary for canary in plan_twins(system, [unit]) if canary.unit is unit)
    losses = loss_draws(system, canary, Adversary(view), 4, 1000)
    assert losses is not None
    inverse = np.exp(-losses)
    assert losses.std() > 0.1
    assert abs(inverse.mean() - 1) < 5 * inverse.std() / math.sqrt(len(losses))
    wrong = np.exp(-losses / 2)
    assert 1 - wrong.mean() > 3 * wrong.std() / math.sqrt(len(losses))


def test_a_single_element_of_any_stride_has_bytes() -> None:
    wide = torch.arange(128.0).reshape(2, 64)[:1, :1]
    assert bits(wide).tolist() == bits(torch.zeros(1)).tolist()
    assert bits(torch.arange(128.0).reshape(2, 64)[1:, 3:4]).tolist() == bits(torch.tensor([67.0])).tolist()
