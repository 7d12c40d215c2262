"""What the documentation of files says is what the code reads."""

from __future__ import annotations

from pathlib import Path

from vflpriv.config.claims import AttackClaimConfig, ClaimConfig
from vflpriv.core.kinds import FURTHER, KINDS
from vflpriv.recording.files.format import ANSWERS, HEAD, SCHEMA, Entry, Head, shard_name
from vflpriv.recording.files.scoring_files import MEMBERS, features_name
from vflpriv.recording.ledger_file import BatchesConfig, LeakConfig, LedgerConfig, ReleaseConfig

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "docs" / "transcripts.md").read_text("utf-8")


def test_every_field_kind_and_file_is_documented():
    models = (AttackClaimConfig, BatchesConfig, ClaimConfig, LeakConfig, LedgerConfig, ReleaseConfig, Entry, Head)
    fields = {field.alias or name for model in models for name, field in model.model_fields.items()}
    fields -= {"like", "release", "claim", "attack_claim"}
    names = fields | set(KINDS) | {tensor for kind in KINDS.values() for form in kind.forms for tensor in form}
    assert not [n for n in sorted(names) if not any(f"{q}{n}{e}" in TEXT for q, e in ("``", '""', ("`[", "]`")))]
    files = (HEAD, ANSWERS, MEMBERS, shard_name(0), features_name(0))
    for text in ("[[release]]", "[[claim]]", "[[attack_claim]]", SCHEMA, *files):
        assert text in TEXT


def test_the_table_of_message_kinds_is_the_one_of_the_code():
    rows = [line.split(" | ") for line in TEXT.splitlines() if " | up | " in line or " | down | " in line]
    documented = {}
    for names, way, tensors in rows:
        for name in names.strip("| ").split(", "):
            axes = [
                axis
                for axis in ("batch", FURTHER, "classes", "directions", "features", "bins", "parameters")
                if axis in tensors
            ]
            documented[name.strip("`")] = (way, set(tensors.split("`")[1::2]), set(axes))
    table = {}
    for name, kind in KINDS.items():
        axes = {axis for form in kind.forms for shape in form.values() for axis in shape}
        table[name] = (kind.direction, {tensor for form in kind.forms for tensor in form}, axes)
    assert documented == table


def test_two_lines_are_added_to_the_first_example_of_a_users_system():
    page = (ROOT / "docs" / "own-system.md").read_text("utf-8")
    code = page[page.index("# train.py") :].partition("```")[0].splitlines()
    added = [line for line in code if line.endswith("# +")]
    assert len(added) == 2
    others = [line for line in code if "vflpriv" in line or "wire" in line]
    assert [line.partition("=")[0].strip() for line in others if line not in added] == [
        "import vflpriv",
        "labels, canaries",
    ]
