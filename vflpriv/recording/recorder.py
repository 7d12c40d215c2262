"""The recorder: writes the messages of a user's own system to disk as a transcript, round by round."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vflpriv.common.files import atomically, write_atomically
from vflpriv.errors import InputError
from vflpriv.recording.checked_wire import CheckedWire, host_copy
from vflpriv.recording.format import ANSWERS, HEAD, SHARDS, Entries, Entry, shard_name

if TYPE_CHECKING:
    from torch import Tensor

    from vflpriv.core.canaries import Canaries

__all__ = ["RecordingWire", "record"]


@contextmanager
def record(
    folder: str | Path,
    *,
    devices: int,
    classes: int,
    records: int,
    name: str = "",
    rounds_per_file: int = 1,
    fresh: bool = False,
) -> Iterator[RecordingWire]:
    """Record the messages of a training into a folder without a transcript; `fresh` deletes one that is there.

    Every `rounds_per_file` rounds are written as soon as the next one begins, so that a killed training leaves a
    transcript of all rounds before. After an error in the training the unfinished round is left out.
    """
    head = {"devices": devices, "classes": classes, "records": records, "name": name or Path(folder).name}
    wire = RecordingWire(Path(folder), per_file=rounds_per_file, fresh=fresh, **head)
    try:
        yield wire
    except BaseException:
        wire.abandon()
        raise
    wire.finish()


class RecordingWire(CheckedWire):
    """The wire that `record` gives to the training; it writes each message to the transcript."""

    def __init__(self, folder: Path, *, per_file: int, fresh: bool = False, **head: Any) -> None:
        super().__init__(**head)
        if per_file < 1:
            raise InputError("record: rounds_per_file", per_file, "a whole number >= 1")
        if fresh and (folder / HEAD).exists():
            for path in (*folder.glob(SHARDS), folder / ANSWERS, folder / HEAD):
                path.unlink(missing_ok=True)
        if (folder / HEAD).exists():
            raise InputError("record: folder", str(folder), "a folder without a transcript, or fresh=True")
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError("record: folder", str(folder), f"a folder that can be made ({error.strerror})") from error
        self._folder, self._per_file, self._files = folder, per_file, 0
        self._pending: list[tuple[Entry, dict[str, Tensor]]] = []
        self._counts: Counter[str] = Counter()
        self._shapes: dict[str, dict[str, tuple[int, ...]]] = {}
        self._write_head()

    def labels(self, labels: Any, *, records: Any = None, canaries: Canaries | None = None) -> None:
        """Record the labels trained on, of all records or of these, and the canaries that `plant` returned.

        Attacks are scored by them. They are kept in a file of their own, which no adversary's view includes.
        """
        import torch

        self.check_open("labels", "labels")
        truth = host_copy(labels, "labels")
        if truth.is_floating_point() or truth.is_complex():
            raise InputError("labels", str(truth.dtype), "whole numbers")
        truth = truth.long()
        ids = torch.arange(self.head.records) if records is None else self.checked_ids(records, "labels: records")
        if truth.shape != ids.shape:
            raise InputError("labels", tuple(truth.shape), f"one label for each of {len(ids)} records")
        if len(truth) and not 0 <= int(truth.min()) <= int(truth.max()) < self.head.classes:
            raise InputError("labels", [int(truth.min()), int(truth.max())], f"0 to {self.head.classes - 1}")
        answers = {"records": ids, "labels": truth}
        if canaries is not None:
            answers["canaries"] = self.checked_ids(torch.tensor(canaries.records), "labels: canaries")
            answers |= {"canary_labels": canaries.labels.long(), "worlds": canaries.worlds[0].long()}
        self._write(ANSWERS, answers)

    def accuracy(self, accuracy: float, *, tests: int) -> None:
        """Record the trained model's accuracy on `tests` test records."""
        self.check_open("accuracy", accuracy)
        if not 0 <= accuracy <= 1 or tests < 1:
            raise InputError("accuracy", (accuracy, tests), "a share of at least one test record")
        self.head = self.head.model_copy(update={"accuracy": float(accuracy), "tests": int(tests)})

    def finish(self) -> None:
        """Write the last messages, and mark the recording as finished."""
        self._flush()
        totals = {"finished": True, "rounds": self._round + 1, "files": self._files, "messages": dict(self._counts)}
        self.head = self.head.model_copy(update={**totals, "shapes": self._shapes})
        self._write_head()
        self.close()

    def abandon(self) -> None:
        """Write the complete rounds, and leave the recording unfinished."""
        self._pending = [(entry, tensors) for entry, tensors in self._pending if entry.round < self._round]
        self._flush()
        self.close()

    def keep(self, entry: Entry, tensors: Mapping[str, Tensor], records: Tensor | None) -> None:
        if entry.round // self._per_file != self._round // self._per_file:
            self._flush()  # the rounds before are complete
        self._pending.append((entry, dict(tensors) if records is None else {**tensors, "records": records}))
        self._shapes.setdefault(entry.kind, {name: tuple(value.shape) for name, value in tensors.items()})

    def _flush(self) -> None:
        if not self._pending:
            return
        entries = Entries(messages=tuple(entry for entry, _ in self._pending)).model_dump_json()
        tensors = {f"{i}/{name}": value for i, (_, own) in enumerate(self._pending) for name, value in own.items()}
        self._write(shard_name(self._files), tensors, {"messages": entries})
        self._counts.update(entry.kind for entry, _ in self._pending)
        self._files, self._pending = self._files + 1, []

    def _write(self, name: str, tensors: Mapping[str, Tensor], metadata: dict[str, str] | None = None) -> None:
        from safetensors.torch import save_file  # imports torch, which recording needs and importing does not

        with atomically(self._folder / name) as temporary:
            save_file({key: value.contiguous() for key, value in tensors.items()}, temporary, metadata=metadata)

    def _write_head(self) -> None:
        text = json.dumps(json.loads(self.head.model_dump_json()), indent=2) + "\n"
        write_atomically(self._folder / HEAD, text)
