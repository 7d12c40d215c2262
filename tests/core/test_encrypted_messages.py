"""Messages that are encrypted: who reads them, on the wire and in the ledger."""

from __future__ import annotations

from tests.support import make_system
from vflpriv.core.views import Adversary, View
from vflpriv.core.wire import SERVER, Message, Transcript, Wire, device


def test_an_encrypted_message_is_read_by_its_two_parties_alone():
    message = Message(round=0, sender=device(1), receiver=SERVER, kind="x", tensors={}, encrypted=True)
    views = ("server", "device(1)", "devices(all)", "device(0)", "eavesdropper", "outsider", "model")
    assert [view for view in views if Adversary.parse(view).sees(message, 2)] == ["server", "device(1)", "devices(all)"]


def test_an_engine_that_encrypts_its_uplink_says_so_on_the_wire_and_in_the_ledger():
    for encrypted in (False, True):
        system, transcript = make_system("dpzv-joint", rounds=2, encrypted_uplink=encrypted), Transcript()
        system.train([0]).run(Wire(transcript))
        (pairs,) = (r for r in system.ledger.releases if r.kind == "embedding-pair")
        for view in ("eavesdropper", "outsider", "server"):
            seen = View.of(transcript, Adversary.parse(view), devices=3, classes=2)
            assert ("embedding-pair" in seen.kinds) == (view in pairs.seen_by) == (view == "server" or not encrypted)
            assert "zo-scalar" in seen.kinds
