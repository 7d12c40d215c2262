"""`with vflpriv.trace(...)` in a script: what leaves inside the block is followed.

`vflpriv trace train.py` runs the script and gives the block its wire. Started by itself, the script is traced when the
block ends: its file is run again, and what was found is printed.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from vflpriv.errors import InputError
from vflpriv.recording.checked_wire import CheckedWire, MemoryWire
from vflpriv.recording.elsewhere import made_elsewhere

__all__ = ["trace"]


@contextmanager
def trace(
    *,
    labels: Any = None,
    features: Sequence[Any] = (),
    bottoms: Sequence[Any] = (),
    top: Any = None,
    devices: int | None = None,
    classes: int | None = None,
    rounds: int = 20,
) -> Iterator[Any]:
    """Follow what a script sends: the labels are private, and so are the features, a block for each device.

    Messages are what `wire.up` and `wire.down` are told, or what the `bottoms`, and `top`, are seen to send: then each
    step begins with `wire.batch(ids)`. Without `classes` the labels are the targets of a regression.
    """
    records = labels if labels is not None else next(iter(features), None)
    count = devices or len(bottoms) or len(features)
    if records is None or not count:
        raise InputError("trace", "no labels or devices", "labels or features, and bottoms, features or devices")
    head: dict[str, Any] = {"devices": count, "classes": classes, "records": len(records)}
    made = made_elsewhere(**head, name="")
    wire: CheckedWire = MemoryWire(**head) if made is None else made
    if labels is not None:
        wire.labels(labels)  # type: ignore[attr-defined]
    for device, block in enumerate(features):
        wire.features(device, block)  # type: ignore[attr-defined]
    if bottoms:
        wire.watch(bottoms, top=top)
    yield wire
    wire.close()
    if made is None:
        _print_trace(rounds)


def _print_trace(rounds: int) -> None:
    """Trace the file that is running, and print what was found."""
    from vflpriv.run.traced.script import find_script
    from vflpriv.run.traced.trace import trace_script

    path = getattr(sys.modules["__main__"], "__file__", None)
    if path is None:
        raise InputError("trace", "no file", "a script: what runs here has no file that could be run again")
    script = find_script(path, tuple(sys.argv[1:]))
    report = trace_script(script, rounds=rounds, units=(), delta=1e-5)
    print(report._repr_markdown_(), report, sep="\n")  # noqa: T201
