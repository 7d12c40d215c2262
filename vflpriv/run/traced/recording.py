"""One recorded run of a script, in a folder of this tool's own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from vflpriv.audits.flow.plain.twins import seeded
from vflpriv.errors import InputError
from vflpriv.recording.recorder import RecordingWire
from vflpriv.run.traced.script import Script

__all__ = ["record_script"]


def record_script(script: Script, folder: Path, seed: int) -> None:
    """Run a script, and keep what it sends in a folder."""
    wires: list[RecordingWire] = []

    def maker(**head: Any) -> RecordingWire:
        if wires:
            raise InputError("script", script.name, "a script that makes one wire; this one makes several")
        wires.append(RecordingWire(folder, **head | {"name": script.name}))
        return wires[0]

    try:
        with seeded(seed):
            script.run(maker)
        for wire in wires:
            wire.finish()
    finally:
        for wire in wires:
            wire.abandon()
