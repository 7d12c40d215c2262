"""The store gives back what was stored, or nothing: damaged, exchanged and foreign files are never used."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict
from safetensors.torch import load_file, save_file

from tests.support import make_system
from vflpriv.audits.two_world.audit import TwoWorldAudit
from vflpriv.common.files import signing_key
from vflpriv.common.store import Entry, JsonForm, Store, TensorForm, empty_store, foreign_results
from vflpriv.common.tasks import InProcess, NoProgress, Tasks, Worker
from vflpriv.core.canaries import CanaryKind
from vflpriv.core.views import Adversary
from vflpriv.errors import InputError, StoreWarning

SHARD = {"device(0)": torch.tensor([1.5, -2.0, 0.25]), "tokens": torch.tensor([[3], [4], [5]])}


def entry(key: str | None = "key", *, work: int = 0, **expected: Any) -> Entry[dict[str, torch.Tensor]]:
    return Entry(key=key, form=TensorForm(**expected), work=work)


def stored(folder: Path, key: str = "key") -> tuple[Store, Path]:
    store = Store(folder)
    store.save(entry(key), SHARD)
    (path,) = folder.iterdir()
    return store, path


def refused(store: Store, path: Path, **expected: object) -> None:
    with pytest.warns(StoreWarning, match=path.name):
        assert store.load(entry(**expected)) is None


def test_what_is_stored_comes_back_with_its_type(tmp_path: Path) -> None:
    store, _ = stored(tmp_path)
    shard = store.load(entry(names=list(SHARD), rows=3))
    assert shard is not None
    assert all(torch.equal(shard[name], value) and shard[name].dtype == value.dtype for name, value in SHARD.items())
    assert store.load(entry("another key")) is None
    assert store.load(entry(None)) is None
    assert Store(None).load(entry()) is None


def mark_of(content: bytes) -> range:
    """Where the mark of a key is in a file; the checksum before it does not cover it."""
    end = content.index(b'"', content.index(b"vflpriv-seal") + len(b'vflpriv-seal":"'))
    return range(end - 64, end)


@given(place=st.integers(min_value=0), mask=st.integers(1, 255))
@settings(max_examples=300)
def test_a_file_with_one_changed_byte_is_not_used_or_counts_as_a_strangers(tmp_path_factory, place, mask) -> None:
    folder = tmp_path_factory.mktemp("store")
    store, path = stored(folder)
    content = bytearray(path.read_bytes())
    place %= len(content)
    digit = chr(content[place] ^ mask) in "0123456789abcdef"
    in_mark = place in mark_of(content) and digit
    content[place] ^= mask
    path.write_bytes(content)
    if in_mark:
        assert foreign_results(folder) == 1
    else:
        refused(store, path)
    shutil.rmtree(folder)


def _resaved(path: Path, **changes: torch.Tensor) -> None:
    """The file with some tensors exchanged, as a program would write it that knows nothing of checksums."""
    save_file(load_file(path) | changes, path)


def _other_key(path: Path) -> None:
    folder = path.parent / "other"
    _, other = stored(folder, "other")
    shutil.copy(other, path)


@pytest.mark.parametrize(
    "change",
    [
        lambda path: _resaved(path, **{"device(0)": torch.tensor([1.5, 2.0, 0.25])}),
        lambda path: _resaved(path, **{"device(0)": torch.full((3,), torch.nan)}),
        lambda path: _resaved(path, **{"device(0)": torch.tensor([-2.0, 1.5, 0.25])}),
        lambda path: path.write_bytes(path.read_bytes()[: len(path.read_bytes()) // 2]),
        lambda path: path.write_bytes(b""),
        lambda path: path.write_bytes(path.read_bytes() + b"\0"),
        lambda path: path.write_text("my notes", encoding="utf-8"),
        _other_key,
    ],
    ids=["sign", "nan", "swapped", "halved", "empty", "longer", "foreign", "of another key"],
)
def test_other_content_is_not_used(tmp_path: Path, change) -> None:
    store, path = stored(tmp_path)
    change(path)
    refused(store, path)


@pytest.mark.parametrize("expected", [{"names": ["device(1)"]}, {"names": ["device(0)"], "rows": 2}])
def test_a_whole_file_with_other_tensors_than_expected_is_not_used(tmp_path: Path, expected) -> None:
    store, path = stored(tmp_path)
    refused(store, path, **expected)


class Figures(BaseModel):
    model_config = ConfigDict(ser_json_inf_nan="strings")

    name: str
    values: tuple[float, ...]


@pytest.mark.parametrize(
    ("kind", "result"),
    [
        (Figures, Figures(name='{"ε"}', values=(0.1, float("inf"), 1e-300))),
        (list[Figures], [Figures(name="", values=())]),
        (list[int], []),
    ],
    ids=["model", "list", "empty"],
)
def test_json_comes_back_with_every_digit(tmp_path: Path, kind: Any, result: Any) -> None:
    store, cell = Store(tmp_path), Entry(key="key", form=JsonForm(kind))
    store.save(cell, result)
    assert store.load(cell) == result
    (path,) = tmp_path.iterdir()
    assert "results" in json.loads(path.read_text("utf-8"))
    path.write_bytes(path.read_bytes().replace(b"}", b" }"))
    with pytest.warns(StoreWarning, match=path.name):
        assert store.load(cell) is None


def test_a_sealed_file_of_another_type_is_not_used(tmp_path: Path) -> None:
    Store(tmp_path).save(Entry(key="key", form=JsonForm(list[str])), ["a"])
    with pytest.warns(StoreWarning, match="computed again"):
        assert Store(tmp_path).load(Entry(key="key", form=JsonForm(Figures))) is None


class Counted(NoProgress):
    def __init__(self) -> None:
        self.done = 0

    def advance(self, work: int) -> None:
        self.done += work


def _squared(common: int, item: int, worker: Worker) -> int:
    if item == common:
        raise KeyboardInterrupt
    worker.progress.advance(10)
    return item**2


def test_only_what_is_missing_is_computed_and_what_was_finished_before_an_interruption_is_kept(tmp_path: Path) -> None:
    store, asked = Store(tmp_path), []
    entries = [Entry(key=str(n), form=JsonForm(int), work=10) for n in range(4)]

    def run(interrupted_at: int) -> tuple[list[int], int]:
        def tasks(missing: Sequence[int]) -> Tasks[int, int, int]:
            asked.append(list(missing))
            return Tasks(function=_squared, common=interrupted_at, items=list(missing), names=list(map(str, missing)))

        progress = Counted()
        return store.results(entries, tasks, executor=InProcess(), progress=progress), progress.done

    with pytest.raises(KeyboardInterrupt):
        run(2)
    assert run(-1) == ([0, 1, 4, 9], 40)
    assert run(-1) == ([0, 1, 4, 9], 40)
    assert asked == [[0, 1, 2, 3], [2, 3]], "nothing is asked for when nothing is missing"
    next(tmp_path.iterdir()).write_bytes(b"")
    with pytest.warns(StoreWarning, match="computed again"):
        assert run(-1) == ([0, 1, 4, 9], 40)
    assert [len(missing) for missing in asked] == [4, 2, 1]


def test_without_a_folder_everything_is_computed_and_nothing_is_kept() -> None:
    counts: list[int] = []
    for _ in range(2):
        assert Store().result(Entry(key="key", form=JsonForm(int)), lambda: counts.append(1) or len(counts)) > 0
    assert len(counts) == 2


def test_code_that_cannot_be_read_has_no_key_and_its_user_is_told(tmp_path: Path) -> None:
    assert Store(tmp_path).key("code", "Mine", 1, "b") == "code/1/b"
    assert Store().key(None, "Mine") is None
    with pytest.warns(StoreWarning, match="not all code that Mine uses can be read"):
        assert Store(tmp_path).key(None, "Mine") is None


def test_fresh_deletes_the_folder_if_it_is_empty_then(tmp_path: Path) -> None:
    trials = tmp_path / "trials"
    stored(trials)
    empty_store(trials)
    assert not trials.exists()
    empty_store(trials)


def test_trials_of_an_engine_without_source_are_not_stored(tmp_path: Path) -> None:
    """Whether the class is the same in the next session cannot be told: it uses an object of unknown content."""
    module = ModuleType("a_notebook")
    sys.modules["a_notebook"] = module
    source = "from vflpriv.training.engines.dpzv import Dpzv\nstate = object()\n"
    exec(source + "class Mine(Dpzv):\n    def limit(self):\n        return state\n", vars(module))  # noqa: S102
    system = make_system("dpzv-joint", rounds=4)
    mine = replace(system, engine=vars(module)["Mine"])
    assert mine.fingerprint() != replace(mine).fingerprint()
    audit, view = TwoWorldAudit(store=Store(tmp_path)), Adversary.parse("device(0)")
    with pytest.warns(StoreWarning, match="Mine"):
        audit.measure(mine, [view], CanaryKind.WORST_CASE, trials=2)
    assert not list(tmp_path.iterdir())
    audit.measure(system, [view], CanaryKind.WORST_CASE, trials=2)
    assert len(list(tmp_path.iterdir())) == 1


def test_results_of_a_stranger_are_counted_and_with_a_signing_key_not_used(tmp_path, monkeypatch) -> None:
    key = "vflpriv.common.store.own_key"
    monkeypatch.setattr(key, lambda: b"the key of another user or machine")
    store, path = stored(tmp_path)
    assert foreign_results(tmp_path) == 0
    monkeypatch.undo()
    assert foreign_results(tmp_path) == 1
    assert store.load(entry()) is not None
    monkeypatch.setenv("VFLPRIV_SIGNING_KEY", "a key of this test")
    refused(store, path)
    assert foreign_results(tmp_path) == 0
    stored(tmp_path)
    assert store.load(entry()) is not None
    monkeypatch.setenv("VFLPRIV_SIGNING_KEY", "another key of this test")
    refused(store, path)


@pytest.mark.parametrize(
    "values",
    [
        {"VFLPRIV_SIGNING_KEY": "short"},
        {"VFLPRIV_SIGNING_KEY_FILE": "/nowhere"},
        {"VFLPRIV_SIGNING_KEY": "secret of this test", "VFLPRIV_SIGNING_KEY_FILE": "/nowhere"},
    ],
)
def test_a_signing_key_that_cannot_be_used_is_one_line(values) -> None:
    with pytest.raises(InputError, match="VFLPRIV_SIGNING_KEY") as error:
        signing_key(values)
    assert "secret" not in str(error.value)
