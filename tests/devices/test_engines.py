"""Every engine on the pretended accelerator: the CPU's numbers, no waiting, and bounds on copies and launches."""

from __future__ import annotations

import pytest
import torch

from tests.devices.pretended import PRETENDED, counted, without_float64
from tests.support import ENGINES, make_system
from vflpriv.audits.twins.probes import in_worlds
from vflpriv.core.canaries import Canary, CanaryKind
from vflpriv.core.wire import Transcript, Wire

ROUNDS = 3
# Noise takes 6 operations for a scalar and 12 for a vector beside those of its draws: value and noise become whole
# steps in float64, a uniform number of steps is added, and their sum is scaled back.
BOUNDS: dict[str, tuple[int, int]] = {
    "dpzv-sgd": (67, 0),
    "dpzv-zo": (83, 0),
    "dpzv-joint": (69, 0),
    "dpzv-dp-sgd": (274, 0),
    "dpzv-dp-zo": (92, 0),
    "dpzv-lean": (5464, 0),
    "zoo-vfl": (62, 0),
    "zoo-vfl-gaussian": (56, 0),
    "zoo-vfl-embedding": (279, 0),
    "zoo-vfl-sum": (36, 0),
    "syn-zoo-vfl-sum": (634, 0),
    "cascaded-sum": (36, 0),
    "czofo-sum": (253, 0),
    "syn-zoo-vfl": (849, 0),
    "syn-zoo-vfl-client": (1500, 0),
    "cascaded": (56, 0),
    "cascaded-embedding": (273, 0),
    "czofo": (270, 0),
    "czofo-gaussian": (267, 0),
    "czofo-embedding": (490, 0),
    "split-concat": (43, 0),
    "split-sum": (18, 0),
    "split-client": (661, 0),
    "split-some": (486, 0),
    "split-alibi": (20, 0),
    "split-rr": (18, 0),
    "split-lp-mst": (70, 0),
    "zoo-vfl-prior": (111, 0),
    "split-guarded": (646, 0),
    "vafl-guarded": (223, 0),
    "vafl-concat": (34, 0),
    "vafl-sum": (23, 0),
    "vafl-weighted": (62, 0),
    "vafl-noise": (456, 0),
    "vafl-unclipped": (229, 0),
    "vafl-inside": (684, 0),
    "vafl-client": (266, 0),
    "vafl-tsync-some": (41, 0),
    "vafl-tsync-all": (44, 0),
    "vafl-tsync-noise": (674, 0),
    "fedbcd": (55, 0),
    "fedbcd-client": (698, 0),
    "fdml": (18, 0),
    "fdml-client": (636, 0),
    "split-embedding": (661, 0),
    "vimadmm": (324, 0),
    "vimadmm-mlp": (902, 0),
    "vimadmm-client": (928, 0),
    "vimadmm-alibi": (323, 0),
    "vimadmm-some": (735, 0),
    "vimadmm-j": (313, 0),
    "vimadmm-j-client": (917, 0),
    "vimadmm-j-rr": (313, 0),
    "linear-admm": (252, 0),
    "linear-admm-client": (856, 0),
    "send-once": (229, 0),
    "noise-once": (445, 0),
    "noise-once-features": (421, 0),
    "send-once-random": (228, 0),
}
"""Of each variant the most launches, and copies to the device, in a round after the first of two replicas.

A draw of random numbers, which is one kernel on CUDA, is some 190 of the launches. Lower a bound when a count has
fallen.
"""


def trained(variant: str, torch_device: str):
    system = make_system(variant, rounds=ROUNDS, torch_device=torch_device)
    engine, transcript, rounds = system.train((0, 3)), Transcript(), []
    for round_ in range(ROUNDS):
        with counted() as counts:
            engine.round(round_, Wire(transcript))
        rounds.append(counts)
    return engine, transcript, rounds


def test_every_variant_has_a_bound():
    assert set(BOUNDS) == set(ENGINES)


@pytest.mark.parametrize("variant", list(ENGINES))
def test_it_computes_what_the_cpu_computes_and_no_round_waits(variant):
    on_cpu, expected, _ = trained(variant, "cpu")
    engine, transcript, rounds = trained(variant, str(PRETENDED))
    assert len(transcript.messages) == len(expected.messages) > 0
    for message, other in zip(transcript.messages, expected.messages, strict=True):
        assert (message.kind, message.round, message.sender) == (other.kind, other.round, other.sender)
        for name, tensor in message.tensors.items():
            assert tensor.device == PRETENDED
            torch.testing.assert_close(tensor.cpu(), other.tensors[name], rtol=1e-5, atol=1e-6)
    for found, wanted in zip(vars(engine.evaluate()).values(), vars(on_cpu.evaluate()).values(), strict=True):
        torch.testing.assert_close(found.cpu(), wanted, rtol=1e-5, atol=1e-6)
    assert [dict(counts.reads) for counts in rounds] == [{}] * ROUNDS
    launches, uploads = BOUNDS[variant]
    assert max(counts.launches for counts in rounds[1:]) <= launches
    assert max(counts.uploads for counts in rounds[1:]) <= uploads


@pytest.mark.parametrize("variant", ["dpzv-joint", "split-client", "vimadmm-client", "linear-admm", "vafl-weighted"])
def test_it_trains_where_there_is_no_float64(variant):
    _, expected, _ = trained(variant, "cpu")
    with without_float64():
        _, transcript, _ = trained(variant, str(PRETENDED))
    for message, other in zip(transcript.messages, expected.messages, strict=True):
        for name, tensor in message.tensors.items():
            torch.testing.assert_close(tensor.cpu(), other.tensors[name], rtol=1e-3, atol=1e-4)


CANARIES = {
    "natural": ("dpzv-joint", {"kind": CanaryKind.NATURAL}),
    "worst-case": ("dpzv-joint", {"kind": CanaryKind.WORST_CASE}),
    "secret batches": ("dpzv-joint", {"kind": CanaryKind.WORST_CASE, "rate": 0.5}),
    "uplink": ("split-client", {"kind": CanaryKind.WORST_CASE}),
}


@pytest.mark.parametrize("name", list(CANARIES))
def test_a_canary_adds_no_copy_and_no_wait_to_a_round(name):
    variant, given = CANARIES[name]
    counts = []
    for torch_device in ("cpu", str(PRETENDED)):
        system = make_system(variant, rounds=ROUNDS, torch_device=torch_device)
        record, world = int(system.schedule.batch(1)[0]), torch.tensor([0, 1])
        engine, probe = in_worlds(system, (0, 0), Canary(record=record, world=world, labels=(0, 1), **given))
        probe.round(engine, 0)
        with counted() as counted_round:
            values = probe.round(engine, 1)
        counts.append([value.released.cpu() for value in values])
    for found, expected in zip(*counts, strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)
    assert not counted_round.reads
    assert counted_round.uploads <= BOUNDS[variant][1]
