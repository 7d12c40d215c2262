"""Drafted ledgers: what the transcript shows is in them, what a person must decide is refused until it is settled."""

from __future__ import annotations

import re
import tomllib

import numpy as np
import pytest
import torch

import vflpriv
from tests.cli.test_cli import run
from vflpriv.errors import InputError
from vflpriv.recording.ledger_file import load_ledger
from vflpriv.run.drafting import draft_ledger

RECORDS, BATCH, ROUNDS, STD = 40, 10, 24, 0.5


@pytest.fixture(scope="module")
def transcript(tmp_path_factory):
    """Noised rows up, the same exact rows down to both devices, and a kind of its own with whole numbers."""
    folder = tmp_path_factory.mktemp("recorded") / "transcript"
    rng = np.random.default_rng(0)
    signal = rng.standard_normal((RECORDS, 4))
    with vflpriv.record(folder, devices=2, classes=2, labels=np.arange(RECORDS) % 2, name='a "name"\x7f') as wire:
        for t in range(ROUNDS):
            ids = rng.permutation(RECORDS)[:BATCH]
            for m in range(2):
                noised = signal[ids] + STD * rng.standard_normal((BATCH, 4))
                wire.up(t, m, "embeddings", {"embedding": noised}, ids)
                wire.down(t, m, "embedding-gradient", {"gradient": np.outer(signal[ids, 0], [1.0, 2.0])}, ids)
                wire.down(t, m, "own-scores", {"scores": signal[ids, m]}, ids)
        wire.across(0, 0, 1, "hello", {"code": np.array([1, 2, 3])})
    return folder


def settled(draft: str) -> str:
    """The draft as a person would settle it who knows this system."""
    draft = re.sub(r'noise = "DECIDE".*', f'noise = "gaussian"\nscale = {STD}', draft, count=1)
    draft = draft.replace('independent_of = ["DECIDE"]', 'independent_of = ["label"]')
    draft = re.sub(r"# DECIDE: is the server's trained model.*?(?=# A promise)", "", draft, flags=re.DOTALL)
    return draft.replace('noise = "DECIDE"', 'noise = "none"')


def test_a_draft_tells_what_was_recorded(transcript):
    draft = draft_ledger(transcript)
    tree = tomllib.loads(draft)
    assert [release["kind"] for release in tree["release"]] == [
        "embeddings",
        "embedding-gradient",
        "own-scores",
        "hello",
        "top-model",
    ]
    embeddings, gradient, scores, hello, _ = tree["release"]
    assert embeddings["noise"] == "DECIDE"
    assert embeddings["independent_of"] == ["DECIDE"]
    assert gradient["noise"] == "none"
    assert gradient["shared"] is True
    assert "shared" not in embeddings
    assert "shared" not in scores
    assert (hello["noise"], hello["tensors"]) == ("DECIDE", ["code"])
    assert tree["title"] == 'a "name"'
    assert "48 messages to the server, 2 devices, rounds 0 to 23, each about 10 records. embedding: 10 × 4." in draft
    assert "1 messages between devices, 2 devices, rounds 0 to 0, without record ids. code: 3." in draft


def test_the_noise_is_at_most_what_the_draft_says(transcript):
    first = float(re.search(r"its std is at most\s+(?:# )?([\d.]+)", draft_ledger(transcript))[1])
    assert STD <= first <= 1.5 * STD


def test_a_draft_is_refused_until_it_is_settled(monkeypatch, capsys, tmp_path, transcript):
    path = tmp_path / "ledger.toml"
    code, printed, _ = run(monkeypatch, capsys, "ledger", str(transcript), "--out", str(path))
    assert code == 0
    assert f"wrote {path}" in printed
    for command in (["validate", str(path)], ["audit", "--transcript", str(transcript), "--ledger", str(path)]):
        code, _, error = run(monkeypatch, capsys, *command)
        assert code == 2
        assert error.startswith("vflpriv: ledger.release.0.noise = 'DECIDE': expected your decision")
        assert "4 more are open" in error
    assert run(monkeypatch, capsys, "ledger", str(transcript), "--out", str(path))[0] == 2
    code, printed, _ = run(monkeypatch, capsys, "ledger", str(transcript))
    assert printed == path.read_text("utf-8")


def test_a_settled_draft_is_a_ledger(tmp_path, transcript):
    path = tmp_path / "ledger.toml"
    text = settled(draft_ledger(transcript))
    claimed = re.sub(r"^# (\[\[claim\]\]|\w+ = )", r"\1", text[text.index("# A promise") :], flags=re.MULTILINE)
    path.write_text(text[: text.index("# A promise")] + claimed, encoding="utf-8")
    ledger = load_ledger(path)
    assert [(r.kind, r.noise) for r in ledger.release] == [
        ("embeddings", "gaussian"),
        ("embedding-gradient", "none"),
        ("own-scores", "none"),
        ("hello", "none"),
    ]
    assert [c.key for c in ledger.claim] == ["labels"]
    report = vflpriv.audit(transcript=transcript, ledger=path)
    checks = [check for system in report.systems for check in system.checks]
    assert not [check for check in checks if check.verdict != "consistent"]


def test_an_undecided_value_is_named_wherever_it_is(tmp_path):
    path = tmp_path / "ledger.toml"
    path.write_text('[[release]]\nkind = "x"\nnoise = "none"\nleak = { carrier = "DECIDE" }\n', encoding="utf-8")
    with pytest.raises(InputError, match=r"ledger\.release\.0\.leak\.carrier = 'DECIDE'"):
        load_ledger(path)


def test_full_batches_and_a_cut_off_recording_are_noted(tmp_path):
    wire = vflpriv.record(tmp_path / "t", devices=1, records=4, rounds_per_file=1)
    for t in range(3):
        wire.down(t, 0, "own", {"x": torch.ones(4, dtype=torch.bfloat16)}, range(4))
    wire.abandon()
    draft = draft_ledger(tmp_path / "t")
    assert tomllib.loads(draft)["batches"]["batching"] == "full"
    assert "was cut off" in draft


@pytest.mark.parametrize("content", [[b"0123456789abcdef"] * 2, 32])
def test_ciphertext_is_drafted_as_opaque_and_a_person_says_on_what_assumption(tmp_path, content):
    with vflpriv.record(tmp_path / "t", devices=1, classes=2, records=2) as wire:
        wire.down(0, 0, "logit-gradient", vflpriv.opaque(content), [0, 1])
    (tmp_path / "ledger.toml").write_text(draft_ledger(tmp_path / "t").partition("# DECIDE: is the server's")[0])
    (release,) = tomllib.loads((tmp_path / "ledger.toml").read_text())["release"]
    assert (release["noise"], release["assumption"], release["readable_by"]) == ("opaque", "DECIDE", ["DECIDE"])
    with pytest.raises(InputError, match="assumption = 'DECIDE'"):
        load_ledger(tmp_path / "ledger.toml")
