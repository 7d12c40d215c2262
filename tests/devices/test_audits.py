"""Every audit on the pretended accelerator: what it finds on the CPU, also without float64, with few reads."""

from __future__ import annotations

from contextlib import nullcontext

import pytest
import torch

from tests.contracts.test_audits import SMALL, context_of
from tests.devices.pretended import PRETENDED, counted, without_float64
from tests.support import make_system
from vflpriv.audits.two_world.methods import METHODS
from vflpriv.audits.two_world.scores import Request
from vflpriv.common.registry import available
from vflpriv.core.canaries import Canary, CanaryKind, TwoWorldSettings
from vflpriv.core.views import Adversary

ROUNDS = 4
VARIANTS = ("dpzv-joint", "dpzv-sgd", "split-rr", "split-client")
READS: dict[str, float] = {
    "wire": 9 * ROUNDS,
    "noise": 4 * ROUNDS,
    "float": 2 * ROUNDS,
    "flow": 4,
    "sensitivity": 0,
    "server-state": 8,
    "two-world": 4 * ROUNDS,
    "one-run": 2,
}
"""The most reads of the device by an audit of a training of so many rounds, in all trainings that it makes; by the one
run, one for each unit that claims are about."""
OF_ENGINES = [
    name for name, audit in available("audit").items() if make_system("dpzv-joint").missing(audit.needs) is None
]
"""Audits of trainings; the others read what was recorded, and that lies on the CPU."""
QUICK = {("two-world", "dpzv-sgd"), ("one-run", "dpzv-joint"), ("wire", "split-rr"), ("noise", "split-rr")}
QUICK |= {("server-state", "split-client"), ("sensitivity", "split-client"), ("float", "split-client")}
QUICK |= {("flow", "split-client")}
CASES = [
    pytest.param(name, variant, marks=[] if (name, variant) in QUICK else [pytest.mark.slow])
    for name in OF_ENGINES
    for variant in VARIANTS
]


def found(name: str, variant: str, torch_device: str) -> list[tuple[object, ...]]:
    """What an audit finds in a short training."""
    system = make_system(variant, rounds=ROUNDS, torch_device=torch_device)
    both = {CanaryKind.NATURAL: 2, CanaryKind.WORST_CASE: 2}
    settings = TwoWorldSettings(trials=both, whole_view=0) if name == "two-world" else SMALL.get(name)
    findings = available("audit")[name]().run(system, context_of(system, settings=settings))
    return [(f.subject, f.unit, f.claim, f.verdict, f.figure, f.interval, f.p_value, f.measure) for f in findings]


def test_every_audit_is_here():
    assert set(READS) == set(OF_ENGINES) == {name for name, _ in QUICK}


@pytest.mark.parametrize("float64", [True, False], ids=["float64", "no float64"])
@pytest.mark.parametrize(("name", "variant"), CASES)
def test_it_finds_what_it_finds_on_the_cpu(name, variant, float64):
    expected = found(name, variant, "cpu")
    with counted() as counts, nullcontext() if float64 else without_float64():
        actual = found(name, variant, str(PRETENDED))
    assert len(actual) == len(expected)
    for one, other in zip(actual, expected, strict=True):
        assert one[:4] == other[:4]
        assert one[4] == pytest.approx(other[4], rel=1e-4, nan_ok=True)
        assert (one[6] is None) == (other[6] is None)
        assert one[6] is None or one[6] == pytest.approx(other[6], rel=1e-3)
    if float64:
        assert counts.reads.total() <= READS[name], counts.reads


@pytest.mark.parametrize("float64", [True, False], ids=["float64", "no float64"])
@pytest.mark.parametrize("method", ["learned", "twins", "shadow models", "likelihood ratio"])
def test_scores_of_trials_are_those_of_the_cpu_and_wait_once_a_round(method, float64):
    adversaries = [Adversary.parse(view) for view in ("device(0)", "server", "eavesdropper", "model")]
    scores = []
    for torch_device in ("cpu", str(PRETENDED)):
        system = make_system("dpzv-dp-sgd", rounds=ROUNDS, torch_device=torch_device)
        record = int(system.schedule.batch(1)[0])
        request = Request(
            system=system,
            canary=Canary(kind=CanaryKind.NATURAL, record=record, world=torch.zeros(1), labels=(0, 1)),
            adversaries=adversaries,
            watchers=adversaries,
            replicas=range(2),
        )
        elsewhere = torch_device != "cpu" and not float64
        with counted() as counts, without_float64() if elsewhere else nullcontext():
            scores.append({name: score.cpu() for name, score in METHODS[method].scores(request).items()})
    expected, actual = scores
    assert set(actual) == set(expected)
    for name, score in expected.items():
        torch.testing.assert_close(actual[name], score, rtol=1e-3, atol=1e-4)
    assert counts.reads["nonzero"] <= ROUNDS
