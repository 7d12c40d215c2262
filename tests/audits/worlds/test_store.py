"""The store gives back what was stored, or nothing: damaged, exchanged and foreign files are never used."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file

from tests.support import make_system
from vflpriv.audits.two_world.audit import TwoWorldAudit
from vflpriv.audits.worlds.store import TrialStore
from vflpriv.core.canaries import CanaryKind
from vflpriv.core.views import Adversary
from vflpriv.errors import StoreWarning

SHARD = {"device(0)": torch.tensor([1.5, -2.0, 0.25]), "tokens": torch.tensor([[3], [4], [5]])}


def stored(folder: Path, key: str = "key") -> tuple[TrialStore, Path]:
    store = TrialStore(folder)
    store.save(key, SHARD)
    (path,) = folder.iterdir()
    return store, path


def refused(store: TrialStore, path: Path, **expected: object) -> None:
    with pytest.warns(StoreWarning, match=path.name):
        assert store.load("key", **expected) is None  # type: ignore[arg-type]


def test_what_is_stored_comes_back_with_its_type(tmp_path: Path) -> None:
    store, _ = stored(tmp_path)
    shard = store.load("key", names=list(SHARD), rows=3)
    assert shard is not None
    assert all(torch.equal(shard[name], value) and shard[name].dtype == value.dtype for name, value in SHARD.items())
    assert store.load("another key") is None
    assert TrialStore(None).load("key") is None


@given(place=st.integers(min_value=0), mask=st.integers(1, 255))
@settings(max_examples=300)
def test_a_file_with_one_changed_byte_is_not_used(tmp_path_factory, place, mask) -> None:
    folder = tmp_path_factory.mktemp("store")
    store, path = stored(folder)
    content = bytearray(path.read_bytes())
    content[place % len(content)] ^= mask
    path.write_bytes(content)
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


def test_trials_of_an_engine_without_source_are_not_stored(tmp_path: Path) -> None:
    """Whether the class is the same in the next session cannot be told: it uses an object of unknown content."""
    module = ModuleType("a_notebook")
    sys.modules["a_notebook"] = module
    source = "from vflpriv.training.engines.dpzv import Dpzv\nstate = object()\n"
    exec(source + "class Mine(Dpzv):\n    def limit(self):\n        return state\n", vars(module))  # noqa: S102
    system = make_system("dpzv-joint", rounds=4)
    mine = type(system)(**{**vars(system), "engine": vars(module)["Mine"]})
    assert mine.fingerprint() != type(system)(**{f: getattr(mine, f) for f in mine.__dataclass_fields__}).fingerprint()
    audit, view = TwoWorldAudit(store=TrialStore(tmp_path)), Adversary.parse("device(0)")
    with pytest.warns(StoreWarning, match="Mine"):
        audit.measure(mine, [view], CanaryKind.WORST_CASE, trials=2)
    assert not list(tmp_path.iterdir())
    audit.measure(system, [view], CanaryKind.WORST_CASE, trials=2)
    assert len(list(tmp_path.iterdir())) == 1
