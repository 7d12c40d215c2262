"""Programs are run plainly in both worlds."""

from __future__ import annotations

import torch

from vflpriv.audits.flow.plain.wire import FlowWire, PlainWire


def program(wire: FlowWire) -> None:
    labels = wire.private(torch.zeros(3), torch.tensor([0.0, 1.0, 0.0]))
    received = wire.send("gradients", {"values": labels + torch.randn(3)}, round_=0)
    wire.send("update", received["values"] * 2, sender=0, receiver="server", records=torch.arange(3))


def test_a_plain_wire_runs_one_world_and_forces_what_was_received() -> None:
    torch.manual_seed(0)
    program(first := PlainWire(0))
    torch.manual_seed(0)
    program(second := PlainWire(1, first.sent))
    gaps = [second.sent[0].tensors["values"] - first.sent[0].tensors["values"]]
    assert torch.allclose(gaps[0], torch.tensor([0.0, 1.0, 0.0]))
    assert torch.equal(first.sent[1].tensors[""], second.sent[1].tensors[""])
    assert first.sent[1].seen_by("eavesdropper")
    assert first.sent[1].seen_by(0)
    assert not first.sent[1].seen_by(1)
