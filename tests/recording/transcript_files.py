"""Transcripts as other programs write them: without the hashes of version 3."""

from __future__ import annotations

import json

from safetensors import safe_open
from safetensors.torch import load_file, save_file

from vflpriv.recording.files.format import HEAD, SHARDS

__all__ = ["unprotected"]

_PROTECTION = ("run", "last", "beside", "seal", "signature")


def unprotected(folder):
    """The same transcript in version 2, which anybody may change: what is inside is checked all the same."""
    path = folder / HEAD
    head = json.loads(path.read_text("utf-8"))
    kept = {name: value for name, value in head.items() if name not in _PROTECTION}
    path.write_text(json.dumps(kept | {"schema_version": "vflpriv-transcript/2"}), encoding="utf-8")
    for shard in folder.glob(SHARDS):
        with safe_open(shard, framework="pt") as file:
            messages = file.metadata()["messages"]
        save_file(load_file(shard), shard, metadata={"messages": messages})
    return folder
