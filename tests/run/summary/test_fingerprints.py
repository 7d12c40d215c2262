"""Hashes of what was audited: the same for the same input, and others where anything that counts differs."""

from __future__ import annotations

from tests.report.examples import dpzv
from vflpriv.run.summary.fingerprints import fingerprints


def prints(config: dict[str, object] | None = None, **own: str | None) -> dict[str, str]:
    found = fingerprints(config or {"seed": 1}, [dpzv()], own=own)
    return {one.name: one.sha256 for one in found}


def test_each_has_a_name_and_all_digits() -> None:
    found = prints(transcript="ab" * 32)
    assert list(found) == ["configuration", "ledger", "transcript", "code"]
    assert {len(digits) for digits in found.values()} == {64}
    assert found == prints(transcript="ab" * 32)


def test_what_cannot_be_told_is_left_out() -> None:
    assert "training function" not in prints(**{"training function": None})


def test_a_change_shows_in_its_own_hash_alone() -> None:
    before, after = prints({"seed": 1}), prints({"seed": 2})
    assert {name for name in before if before[name] != after[name]} == {"configuration"}
    release = dpzv().releases[0].model_copy(update={"noise": "Gaussian(std=1)"})
    changed = dpzv().model_copy(update={"releases": (release, *dpzv().releases[1:])})
    other = {one.name: one.sha256 for one in fingerprints({"seed": 1}, [changed], own={})}
    assert {name for name in before if before[name] != other[name]} == {"ledger"}
