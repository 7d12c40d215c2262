"""On a real CUDA device: engines, an attack and an audit agree with the CPU, and no round waits for the host."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch

from tests.contracts.test_audits import context_of
from tests.support import ENGINES, make_system
from vflpriv.audits.scoring.trials import Trials
from vflpriv.common.registry import available, find
from vflpriv.core.canaries import CanaryKind, TwoWorldSettings
from vflpriv.core.views import Adversary
from vflpriv.core.wire import Transcript, Wire

pytestmark = [
    pytest.mark.cuda,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="torch finds no CUDA device here"),
]


@contextmanager
def waiting_raises() -> Iterator[None]:
    """Inside the block torch raises where the host waits for the device."""
    torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode("default")


@pytest.mark.parametrize("variant", list(ENGINES))
def test_an_engine_computes_what_the_cpu_computes_and_no_later_round_waits(variant):
    runs = []
    for torch_device in ("cpu", "cuda"):
        system = make_system(variant, rounds=3, torch_device=torch_device)
        engine, transcript = system.train((0, 3)), Transcript()
        engine.round(0, Wire(transcript))
        with waiting_raises():
            for round_ in (1, 2):
                engine.round(round_, Wire(transcript))
        runs.append((transcript.messages, engine.evaluate()))
    (expected, on_cpu), (messages, on_cuda) = runs
    for message, other in zip(messages, expected, strict=True):
        for name, tensor in message.tensors.items():
            torch.testing.assert_close(tensor.cpu(), other.tensors[name], rtol=1e-2, atol=1e-3)
    torch.testing.assert_close(on_cuda.loss.cpu(), on_cpu.loss, rtol=1e-2, atol=1e-3)


def test_an_attack_reaches_what_it_reaches_on_the_cpu():
    rates = []
    for torch_device in ("cpu", "cuda"):
        system = make_system("split-sum", rounds=8, torch_device=torch_device)
        trials = Trials(system=system, seeds=2, labels_per_class=2, confidence=0.95)
        rates.append(trials.run([find("attack", "label_direct")()], [Adversary.parse("device(0)")])[0].rates)
    assert rates[0] == pytest.approx(rates[1], abs=0.05)


@pytest.mark.parametrize("name", ["wire", "two-world"])
def test_an_audit_comes_to_the_verdicts_of_the_cpu(name):
    found = []
    for torch_device in ("cpu", "cuda"):
        system = make_system("dpzv-sgd", rounds=6, torch_device=torch_device)
        trials = TwoWorldSettings(trials={CanaryKind.NATURAL: 4, CanaryKind.WORST_CASE: 4}, whole_view=0)
        context = context_of(system, settings=trials if name == "two-world" else None)
        findings = available("audit")[name]().run(system, context)
        found.append([(f.subject, f.unit, f.claim, f.verdict) for f in findings])
    assert found[0] == found[1]
