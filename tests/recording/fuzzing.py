"""Hostile ledgers and transcripts: valid ones with odd fields, wrong branches, other tensors or damaged bytes."""

from __future__ import annotations

import copy
import json
import struct
import tomllib
from pathlib import Path
from typing import Any

import torch
from hypothesis import strategies as st
from safetensors import safe_open
from safetensors.torch import load_file, save_file

import vflpriv
from tests.cli.fuzzing import mutated, odd_fields, scrambled, to_toml
from tests.recording.transcript_files import unprotected
from vflpriv.config.claims import AttackClaimConfig, ClaimConfig
from vflpriv.recording.files.format import HEAD, Entry, Head
from vflpriv.recording.ledger_file import BatchesConfig, LeakConfig, LedgerConfig, ReleaseConfig

__all__ = ["LEDGER", "damage", "ledgers", "record_small"]

LEDGER = """
key = "mine"
public = ["hello"]
model_follows_releases = true

[batches]
batching = "shuffle"

[[release]]
kind = "logits"
noise = "gaussian"
scale = 2.0
sensitivity = { label = 1.0, record = 1.0 }

[[release]]
kind = "zo-scalar"
noise = "laplace"
scale = 1.5
sensitivity = { label = 0.5, record = "unbounded" }
leak = { carrier = "the server's model", sensitivity = { label = 2.0 } }

[[claim]]
key = "labels"
unit = "label"
view = "device"
epsilon = 1.0
delta = 1e-5

[[attack_claim]]
key = "safe"
unit = "label"
view = "eavesdropper"
attack = "label_direct"
rate = 0.5
"""

_SHAPES = st.lists(st.integers(0, 7), max_size=3).map(tuple)
_DTYPES = st.sampled_from([torch.float32, torch.float64, torch.float16, torch.int64, torch.int8, torch.bool])
_FILL = st.sampled_from([0.0, 1.0, -1.0, 1e30, float("nan"), float("inf"), 3e38, 1e-40])


def record_small(folder: Path) -> Path:
    """Four rounds of two devices, three classes and twelve records, with features, and canaries of both kinds."""
    generator = torch.Generator().manual_seed(5)
    labels, canaries = vflpriv.plant(torch.arange(12) % 3, classes=3, canaries=6, seed=1)
    with vflpriv.record(str(folder), devices=2, classes=3, records=12, rounds_per_file=1) as wire:
        wire.labels(labels, canaries=canaries)
        wire.members(vflpriv.plant_members(records=12, canaries=4, seed=1)[1])
        for m in range(2):
            wire.features(m, torch.randn(12, 3, generator=generator), sensitive_column=0)
        for round_ in range(4):
            ids = torch.arange(6) + 6 * (round_ % 2)
            for m in range(2):
                wire.up(round_, m, "logits", {"embedding": torch.randn(6, 3, generator=generator)}, ids)
                wire.down(round_, m, "zo-scalar", {"delta": torch.randn((), generator=generator)}, ids)
                wire.down(round_, m, "hello", {"x": torch.ones(2)})
    return folder


@st.composite
def ledgers(draw: st.DrawFn) -> bytes:
    """The bytes of a ledger file."""
    kind = draw(st.integers(0, 9))
    if kind == 0:
        return draw(scrambled(LEDGER.encode()))
    tree = tomllib.loads(LEDGER)
    if kind < 7:
        parts: list[tuple[dict[str, Any], Any]] = [(tree, LedgerConfig), (tree["batches"], BatchesConfig)]
        parts += [(one, ReleaseConfig) for one in tree["release"]] * 2
        parts += [(tree["release"][1]["leak"], LeakConfig), (tree["claim"][0], ClaimConfig)]
        draw(odd_fields([*parts, (tree["attack_claim"][0], AttackClaimConfig)]))
    else:
        tree = draw(mutated(tree))
    return to_toml(tree).encode("utf-8", "surrogatepass")


@st.composite
def damage(draw: st.DrawFn, folder: Path) -> None:
    """Change a transcript in its folder: its head, its list of messages, its tensors, a header, or any bytes.

    Most are of version 2: in one with hashes every change is found, whatever it is.
    """
    if draw(st.integers(0, 3)):
        unprotected(folder)
    shards = sorted(folder.glob("*.safetensors"))
    for _ in range(draw(st.integers(1, 2))):
        way = draw(st.sampled_from([_head, _messages, _messages, _tensors, _tensors, _header, _bytes, _files]))
        path = folder / HEAD if way is _head else draw(st.sampled_from(shards))
        if path.is_file():
            draw(way(path))


@st.composite
def _head(draw: st.DrawFn, path: Path) -> None:
    try:
        tree = json.loads(path.read_bytes())
    except ValueError:
        return
    if isinstance(tree, dict):
        path.write_text(json.dumps(draw(_changed(tree, [(tree, Head)]))), encoding="utf-8")


@st.composite
def _changed(draw: st.DrawFn, tree: Any, parts: list[tuple[dict[str, Any], Any]]) -> Any:
    if draw(st.booleans()):
        draw(odd_fields(parts))
        return tree
    return draw(mutated(copy.deepcopy(tree)))


@st.composite
def _messages(draw: st.DrawFn, path: Path) -> None:
    held = _held(path)
    if held is None or "messages" not in held[1]:
        return
    tensors, words = held
    tree = json.loads(words["messages"])  # written by us, or changed by the lines below
    entries = tree["messages"] if isinstance(tree, dict) and isinstance(tree.get("messages"), list) else []
    entries = [entry for entry in entries if isinstance(entry, dict)]
    if not entries:
        return
    if draw(st.integers(0, 3)) == 0:
        entries.insert(draw(st.integers(0, len(entries))), entries.pop(draw(st.integers(0, len(entries) - 1))))
        tree["messages"] = entries
    else:
        tree = draw(_changed(tree, [(entry, Entry) for entry in entries]))
    save_file(tensors, path, metadata={"messages": json.dumps(tree)})


@st.composite
def _tensors(draw: st.DrawFn, path: Path) -> None:
    held = _held(path)
    if held is None or not held[0]:
        return
    tensors, words = held
    name = draw(st.sampled_from(sorted(tensors)))
    what = draw(st.sampled_from(["other", "other", "entry", "entry", "entry", "type", "drop", "name"]))
    old = tensors.pop(name)
    if what == "other":
        tensors[name] = torch.full(draw(_SHAPES), draw(_FILL)).to(draw(_DTYPES))
    elif what == "entry" and old.numel():
        flat = old.clone().flatten()
        place = draw(st.integers(0, flat.numel() - 1))
        odd = [-1, 0, 1, 12, 2**40, -(2**63)] if flat.dtype == torch.int64 else [0, 1]
        flat[place] = draw(_FILL) if flat.dtype == torch.float32 else draw(st.sampled_from(odd))
        tensors[name] = flat.reshape(old.shape)
    elif what == "type":
        tensors[name] = old.to(draw(_DTYPES))
    elif what == "name":
        tensors[draw(st.sampled_from(["0/x", "batch/0", "batch/99", "kept/0", "labels", "../x", "\x1b[2J"]))] = old
    save_file(tensors, path, metadata=words)


@st.composite
def _header(draw: st.DrawFn, path: Path) -> None:
    """The JSON at the start of a safetensors file: types, shapes and places of its tensors."""
    content = path.read_bytes()
    (length,) = struct.unpack("<Q", content[:8]) if len(content) >= 8 else (0,)
    try:
        tree = json.loads(content[8 : 8 + length])
    except ValueError:
        return
    header = json.dumps(draw(mutated(tree))).encode("utf-8", "ignore")
    path.write_bytes(struct.pack("<Q", len(header)) + header + content[8 + length :])


@st.composite
def _bytes(draw: st.DrawFn, path: Path) -> None:
    path.write_bytes(draw(scrambled(path.read_bytes())))


@st.composite
def _files(draw: st.DrawFn, path: Path) -> None:
    what = draw(st.sampled_from(["gone", "empty", "another", "copy", "folder"]))
    if what == "copy":
        path.with_name("round-00000009.safetensors").write_bytes(path.read_bytes())
        return
    others = {p.name: p.read_bytes() for p in path.parent.glob("*.safetensors") if p.is_file()}
    path.unlink()
    if what == "folder":
        path.mkdir()
    elif what != "gone":
        path.write_bytes(b"" if what == "empty" else draw(st.sampled_from([others[name] for name in sorted(others)])))


def _held(path: Path) -> tuple[dict[str, torch.Tensor], dict[str, str]] | None:
    """The tensors and words of a file that is still whole."""
    try:
        with safe_open(path, framework="pt") as file:
            words = dict(file.metadata() or {})
        return load_file(path), words
    except Exception:  # noqa: BLE001 (whatever was damaged before)
        return None
