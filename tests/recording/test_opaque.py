"""Messages that were sent encrypted: recorded in any kind, counted in bytes, and declared by an assumption."""

from __future__ import annotations

import math

import numpy as np
import pytest

import vflpriv
from vflpriv.config.errors import parse_settings
from vflpriv.core.units import Unit
from vflpriv.core.views import Adversary
from vflpriv.errors import InputError
from vflpriv.recording.checked_wire import MemoryWire
from vflpriv.recording.ledger_file import LedgerConfig
from vflpriv.recording.system import read_recording
from vflpriv.recording.transcripts import read_transcript

SEALED = {"kind": "logit-gradient", "noise": "opaque", "assumption": "Paillier", "readable_by": ["server"]}


def recorded(folder, *contents):
    with vflpriv.record(folder, devices=1, classes=2, records=4) as wire:
        for round_, content in enumerate(contents):
            wire.down(round_, 0, "logit-gradient", vflpriv.opaque(content), [0, 1])
    return read_transcript(folder).transcript.messages


def test_ciphertexts_are_stored_byte_by_byte_in_a_kind_that_has_other_tensors_in_clear(tmp_path):
    rows = np.arange(8, dtype=np.uint8).reshape(2, 4)
    listed, numbers, array = recorded(tmp_path / "t", [b"abcd", b"ef"], [2**31, 255], rows)
    assert [m.is_ciphertext for m in (listed, numbers, array)] == [True] * 3
    assert listed.tensors["ciphertext"][0].numpy().tobytes() == b"abcd\0\0ef"
    assert numbers.tensors["ciphertext"][0].tolist() == [[128, 0, 0, 0], [0, 0, 0, 255]]
    assert array.tensors["ciphertext"][0].numpy().tolist() == rows.tolist()


def test_a_size_alone_is_counted_as_so_many_bytes(tmp_path):
    (message,) = recorded(tmp_path / "t", 4096)
    assert message.is_ciphertext
    assert message.payload_bytes == 4096


@pytest.mark.parametrize(
    ("content", "found"),
    [
        (-1, "opaque = -1"),
        (np.zeros((2, 2)), "opaque = 'float64 (2, 2)'"),
        ([0.5], "opaque = 0.5"),
        ("text", "opaque = 'str'"),
        ([True], "opaque = True"),
        ([-3], "opaque = -3"),
    ],
)
def test_numbers_in_clear_are_no_ciphertext(content, found):
    with pytest.raises(InputError, match="expected") as error:
        vflpriv.opaque(content)
    assert str(error.value).startswith(found)


@pytest.mark.parametrize(
    ("tensors", "expected"),
    [
        ({"ciphertext": np.zeros((2, 2))}, "ciphertext = 'float64': expected uint8: vflpriv.opaque makes it"),
        ({"ciphertext": np.zeros(2, np.uint8)}, "ciphertext = (2,): expected ciphertexts × bytes"),
        ({"ciphertext-bytes": 0.5}, "ciphertext-bytes = 'float64': expected int64"),
        ({"ciphertext-bytes": -5}, "ciphertext-bytes = -5: expected 0 or more"),
    ],
)
def test_tensors_of_these_names_hold_bytes(tensors, expected):
    wire = MemoryWire(devices=1, classes=2, records=4)
    with pytest.raises(InputError) as error:
        wire.up(0, 0, "embeddings", tensors, [0, 1])
    assert expected in str(error.value)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"assumption": None}, "assumption with noise = 'opaque' and with no other, found none"),
        ({"readable_by": None}, "readable_by with noise = 'opaque' and with no other, found none"),
        ({"noise": "none"}, "assumption with noise = 'opaque' and with no other, found it with noise = 'none'"),
        ({"scale": 1.0}, "a scale > 0 with noise, and no scale without noise, found 1.0"),
        ({"readable_by": ["everyone"]}, "server"),
    ],
)
def test_a_ledger_says_on_what_assumption_and_who_holds_the_key(change, expected):
    release = {name: value for name, value in (SEALED | change).items() if value is not None}
    with pytest.raises(InputError) as error:
        parse_settings(LedgerConfig, {"release": [release]}, "ledger")
    assert expected in str(error.value)


@pytest.fixture
def ledger(tmp_path):
    recorded(tmp_path / "t", [b"ab", b"cd"])

    def of(**change):
        config = LedgerConfig.model_validate({"release": [SEALED | change], "model_follows_releases": True})
        return read_recording(tmp_path / "t", config).ledger

    return of


def exposure(ledger, view, unit=Unit.LABEL):
    return ledger.exposure(Adversary.parse(view), unit)


@pytest.mark.parametrize("view", ["device", "devices(all)", "eavesdropper", "outsider"])
def test_without_the_key_a_ciphertext_tells_nothing_under_its_assumption(ledger, view):
    found = exposure(ledger(), view)
    assert (found.events, found.unprotected) == ((), ())
    assert found.assumed == ("logit-gradient is ciphertext, protected by assumption and not measured (Paillier)",)
    assert any(line.startswith(found.assumed[0]) for line in found.assumptions)


def test_whoever_holds_the_key_or_the_model_reads_it_in_clear(ledger):
    seen = {"readable_by": ["device"], "seen_by": ["device", "devices", "model"]}
    for view, reader in (("device", "with its key"), ("devices(all)", "with its key"), ("model", "was decrypted")):
        found = exposure(ledger(**seen), view)
        assert reader in found.unprotected[0]
        assert found.assumed == ()


def test_no_assumption_is_needed_about_units_that_cannot_move_it(ledger):
    apart = ledger(independent_of=["label"])
    assert exposure(apart, "device").assumed == ()
    assert exposure(apart, "device", Unit.FEATURES).assumed != ()
    assert exposure(ledger(), "server").assumed == ()


def test_an_opaque_uplink_does_not_let_blocks_leave_noised(tmp_path):
    """What the server decrypts moves other devices' messages without noise: every device's messages count."""
    with vflpriv.record(tmp_path / "up", devices=2, classes=2, records=4) as wire:
        for m in range(2):
            wire.up(0, m, "embeddings", vflpriv.opaque([b"ab", b"cd"]), [0, 1])
            wire.down(0, m, "embedding-gradient", {"gradient": np.ones((2, 3))}, [0, 1])
    noised = {"kind": "embedding-gradient", "noise": "gaussian", "scale": 1.0, "sensitivity": {"features": 1.0}}
    config = LedgerConfig.model_validate({"release": [SEALED | {"kind": "embeddings"}, noised]})
    releases = read_recording(tmp_path / "up", config).ledger.releases
    assert all(release.senders is None for release in releases)
    assert math.isinf(max(releases[0].sensitivity.values()))
