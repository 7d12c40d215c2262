"""What the documentation of files says is what the code reads."""

from __future__ import annotations

from pathlib import Path

from vflpriv.config.claims import AttackClaimConfig, ClaimConfig
from vflpriv.recording.ledger_file import BatchesConfig, LeakConfig, LedgerConfig, ReleaseConfig
from vflpriv.recording.transcripts import ANSWERS, HEAD, KINDS, SCHEMA, Entry, Head, shard_name

TEXT = (Path(__file__).resolve().parents[2] / "docs" / "transcripts.md").read_text("utf-8")


def test_every_field_kind_and_file_is_documented():
    models = (AttackClaimConfig, BatchesConfig, ClaimConfig, LeakConfig, LedgerConfig, ReleaseConfig, Entry, Head)
    fields = {name for model in models for name in model.model_fields} - {"like", "release", "claim", "attack_claim"}
    names = fields | set(KINDS) | {tensor for wanted in KINDS.values() for tensor in wanted}
    assert not [n for n in sorted(names) if not any(f"{q}{n}{e}" in TEXT for q, e in ("``", '""', ("`[", "]`")))]
    for text in ("[[release]]", "[[claim]]", "[[attack_claim]]", SCHEMA, HEAD, ANSWERS, shard_name(0)):
        assert text in TEXT
