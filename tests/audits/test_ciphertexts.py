"""What a ledger calls ciphertext: bytes that can be one pass, and systems that lie about it are caught."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import vflpriv
from vflpriv.audits.ciphertexts import Sealed, recorded_ciphertexts
from vflpriv.core.claims import Verdict
from vflpriv.core.views import Adversary
from vflpriv.core.wire import SERVER, Message, device
from vflpriv.laws import Exact
from vflpriv.recording.ledger_file import load_ledger
from vflpriv.recording.system import read_recording

RECORDS, ROUNDS = 40, 3
LEDGER = """
[[release]]
kind = "logit-gradient"
noise = "opaque"
assumption = "a scheme that hides everything, key held by the arbiter"
readable_by = []
"""


def gradients(labels):
    return 0.5 - labels.numpy().astype(np.float32)[:, None] + np.array([[0.0, 0.25]], dtype=np.float32)


def honest(labels, generator):
    return vflpriv.opaque(generator.integers(0, 256, (len(labels), 32), dtype=np.uint8))


def paillier(labels, generator):
    """Whole numbers below n², whose leading byte is far from uniform."""
    return vflpriv.opaque([int.from_bytes(generator.bytes(64), "big") >> 3 for _ in labels])


def size_only(labels, generator):
    return vflpriv.opaque(32 * len(labels))


def in_clear(labels, generator):
    """Says opaque, sends floats."""
    return {"gradient": gradients(labels)}


def float_bytes(labels, generator):
    return vflpriv.opaque(
        (gradients(labels) + generator.normal(size=(len(labels), 2)).astype(np.float32)).view(np.uint8)
    )


def double_bytes(labels, generator):
    return vflpriv.opaque(generator.normal(size=(len(labels), 2)).astype(">f8").view(np.uint8))


def deterministic(labels, generator):
    """Encrypts every label alike in a round."""
    codes = generator.integers(0, 256, (2, 32), dtype=np.uint8)
    return vflpriv.opaque(codes[labels.numpy()])


def hexadecimal(labels, generator):
    return vflpriv.opaque([generator.bytes(32).hex().encode() for _ in labels])


def system_of(folder, send):
    generator, labels = np.random.default_rng(0), torch.arange(RECORDS) % 2
    with vflpriv.record(folder, devices=2, classes=2, records=RECORDS) as wire:
        for round_ in range(ROUNDS):
            tensors = send(labels, generator)
            for m in range(2):  # both are sent the same bytes
                wire.down(round_, m, "logit-gradient", tensors, torch.arange(RECORDS))
    (folder / "ledger.toml").write_text(LEDGER)
    return read_recording(folder, load_ledger(folder / "ledger.toml"))


def judged(folder, send):
    """The one finding, and whether a device reads the messages."""
    system = system_of(folder, send)
    (finding,) = recorded_ciphertexts(system.ledger, system.messages, system.claims)
    sealed = Sealed(system.ledger, [finding])
    return finding, not sealed.hides(system.messages[0], Adversary.parse("device(0)"))


@pytest.mark.parametrize("send", [honest, paillier, size_only])
def test_what_may_be_ciphertext_is_read_by_nobody_and_measured_by_nothing(tmp_path, send):
    finding, is_read = judged(tmp_path, send)
    assert finding.verdict is Verdict.UNMEASURED
    assert not is_read
    assert not finding.measures
    assert finding.undeclared == ()


@pytest.mark.parametrize(
    ("send", "verdict", "sentence"),
    [
        (in_clear, Verdict.VIOLATED, "6 of 6 messages hold float32 values in gradient, which is no ciphertext"),
        (float_bytes, Verdict.VIOLATED, "of its 240 words of 4 bytes are floats"),
        (double_bytes, Verdict.VIOLATED, "of its 240 words of 8 bytes are floats"),
        (deterministic, Verdict.VIOLATED, "228 of 240 ciphertexts occur more than once in a message"),
        (hexadecimal, Verdict.UNSUPPORTED, "4.00 bits of entropy per byte"),
    ],
)
def test_what_cannot_be_ciphertext_counts_as_sent_in_clear(tmp_path, send, verdict, sentence):
    finding, is_read = judged(tmp_path, send)
    assert finding.verdict is verdict
    assert is_read
    assert sentence in finding.sentence
    (release,) = finding.undeclared
    assert isinstance(release.noise, Exact)
    assert finding.decides_alone


def test_uniform_bytes_are_never_taken_for_floats_or_text(tmp_path):
    """Of 60 honest systems with few and many bytes, none is objected to."""
    generator, ledger = np.random.default_rng(7), system_of(tmp_path, honest).ledger
    for number in range(60):
        width = int(generator.choice([1, 4, 8, 33, 256]))
        rows = generator.integers(0, 256, (int(generator.choice([1, 2, 5, 30, 300])), width), dtype=np.uint8)
        tensors = {"ciphertext": torch.from_numpy(rows).unsqueeze(0)}
        message = Message(round=0, sender=SERVER, receiver=device(0), kind="logit-gradient", tensors=tensors)
        (finding,) = recorded_ciphertexts(ledger, [message] * 20, ())  # the same bytes to twenty devices count once
        assert finding.verdict is Verdict.UNMEASURED, (number, rows.shape, finding.sentence)


def test_claims_of_those_who_hold_the_key_do_not_rest_on_it(tmp_path):
    claim = '[[claim]]\nkey = "{0}"\nunit = "label"\nview = "{0}"\nepsilon = 1.0\ndelta = 1e-5\n'
    system_of(tmp_path, in_clear)
    text = LEDGER.replace("readable_by = []", 'readable_by = ["device"]')
    (tmp_path / "ledger.toml").write_text(text + claim.format("device") + claim.format("eavesdropper"))
    system = read_recording(tmp_path, load_ledger(tmp_path / "ledger.toml"))
    (finding,) = recorded_ciphertexts(system.ledger, system.messages, system.claims)
    assert finding.claim_keys == {"eavesdropper"}


def test_links_that_are_encrypted_hide_from_those_who_listen_what_their_ends_read(tmp_path):
    system_of(tmp_path, in_clear)
    (tmp_path / "ledger.toml").write_text(LEDGER.replace("readable_by = []", 'readable_by = ["device", "server"]'))
    system = read_recording(tmp_path, load_ledger(tmp_path / "ledger.toml"))
    (finding,) = recorded_ciphertexts(system.ledger, system.messages, system.claims)
    assert finding.verdict is Verdict.UNMEASURED
    assert "recorded as its two ends read them" in finding.sentence
    sealed, message = Sealed(system.ledger, [finding]), system.messages[0]
    assert not sealed.hides(message, Adversary.parse("device(0)"))
    assert sealed.hides(message, Adversary.parse("eavesdropper"))
