"""The recorder: writes the messages of a user's own system to disk as a transcript, while it trains."""

from __future__ import annotations

import json
import secrets
import time
from collections import Counter
from collections.abc import Container, Iterable, Mapping, Sequence
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

from vflpriv.common.files import sealed, signing_key, write_atomically
from vflpriv.errors import InputError
from vflpriv.recording.checked_wire import CheckedWire
from vflpriv.recording.elsewhere import made_elsewhere
from vflpriv.recording.files import ending
from vflpriv.recording.files.arrays import Labels, labels_of
from vflpriv.recording.files.checks import row_axis
from vflpriv.recording.files.columns import Columns
from vflpriv.recording.files.format import (
    ANSWERS,
    HEAD,
    IDS,
    Entries,
    Entry,
    batch_key,
    column_key,
    end_of,
    kept_key,
    shard_name,
)
from vflpriv.recording.files.scoring_files import MEMBERS, feature_tensors, features_name, member_tensors
from vflpriv.recording.files.writing import BackgroundWriter, Chain, write_tensors
from vflpriv.recording.own_folder import Earlier, FolderLock, make_room
from vflpriv.recording.sampling import Sample
from vflpriv.recording.transcripts import Continued, read_continued
from vflpriv.recording.watching.losses import LabelCheck
from vflpriv.recording.watching.outputs import Output

if TYPE_CHECKING:
    from torch import Tensor, nn

    from vflpriv.core.canaries import Canaries, MemberCanaries

__all__ = ["RecordingWire", "record", "watch"]

_FILE_BYTES = 16 << 20
_MOST_BYTES = 64 << 20
"""A file is written at the end of a round when it has so many bytes, and in the middle of one that has more."""
_SECONDS = 1.0
"""A file is written at the end of a round when the last one is older."""


def record(
    folder: str | Path,
    *,
    devices: int,
    records: Any = None,
    classes: int | None = None,
    labels: Any = None,
    canaries: Canaries | None = None,
    name: str = "",
    keep: Sample | None = None,
    precision: Literal["full", "half"] = "full",
    rounds_per_file: int | None = None,
    fresh: bool = False,
    resume: bool = False,
    aside: bool = False,
) -> RecordingWire:
    """Record the messages of a training into a folder: in a `with` block, or until the program ends.

    `records` is how many records there are, or their ids: strings, or whole numbers of any size; it may be left out if
    the `labels` of all records are given (`RecordingWire.labels`). Without `classes` the labels are the targets of a
    regression. `keep=vflpriv.sample(records=2000)` keeps the rows of a sample of the records; `precision="half"` stores
    floating-point values in 16 bits. A folder with a transcript is refused, unless `fresh` deletes it, `aside` moves it
    into a folder `earlier-1`, `earlier-2`, … inside, or `resume` goes on with it. One recording at a time writes to a
    folder.

    Rounds are written in the background, about once a second: a killed training leaves a transcript of the rounds
    before. With `rounds_per_file`, so many are on disk before the next one begins. After an error in the training, or
    SIGTERM or SIGHUP, the unfinished round is left out. With a key in `VFLPRIV_SIGNING_KEY` the transcript is signed.
    """
    if records is None:
        if labels is None:
            raise InputError("record: records", None, "how many records there are, their ids, or the labels of all")
        records = len(labels)
    head = {"devices": devices, "classes": classes, "records": records, "name": name or Path(folder).name}
    options: dict[str, Any] = {"sampled": keep, "precision": precision, "per_file": rounds_per_file}
    traced: RecordingWire | None = made_elsewhere(**head)
    if traced is not None:
        if labels is not None:
            traced.labels(labels, canaries=canaries)
        return traced
    wire = RecordingWire(Path(folder), earlier=_earlier_one(fresh, resume, aside), **options, **head)
    ending.add(wire)
    try:
        if labels is not None:
            wire.labels(labels, canaries=canaries)
    except BaseException:
        wire.abandon()
        raise
    return wire


def _earlier_one(fresh: bool, resume: bool, aside: bool) -> Earlier:
    """What becomes of an earlier transcript."""
    chosen = {Earlier.DELETED: fresh, Earlier.CONTINUED: resume, Earlier.MOVED: aside}
    return next((earlier for earlier, asked in chosen.items() if asked), Earlier.REFUSED)


def watch(
    bottoms: Sequence[nn.Module] | int,
    *,
    labels: Any,
    classes: int | None,
    folder: str | Path = "transcript",
    top: nn.Module | None = None,
    kind: str = "embeddings",
    output: Output | Sequence[Output] | None = None,
    canaries: Canaries | None = None,
    **options: Any,
) -> RecordingWire:
    """Record a training by hooks on its modules: begin each step with `wire.batch(ids)`, or use `wire.ids(loader)`.

    `top`, `kind` and `output` are those of `RecordingWire.watch`.

    Where parties have no PyTorch modules, `bottoms` is how many there are: `wire.up` and `wire.down` then record. The
    recording ends with the program, or with `wire.finish()`. A transcript that is in the folder is moved aside, as in
    `record`, which one line says, unless `fresh=True` deletes it or `resume=True` goes on with it. `options` are those
    of `record`; the records are numbered as the labels are, unless their ids are given.
    """
    devices = bottoms if isinstance(bottoms, int) else len(bottoms)
    wire = record(folder, devices=devices, classes=classes, labels=labels, canaries=canaries, aside=True, **options)
    if not isinstance(bottoms, int):
        wire.watch(bottoms, top=top, kind=kind, output=output)
    return wire


class RecordingWire(CheckedWire):
    """The wire that `record` gives to the training; it writes each message to the transcript."""

    def __init__(
        self,
        folder: Path,
        *,
        sampled: Sample | None = None,
        precision: str = "full",
        per_file: int | None = None,
        earlier: Earlier = Earlier.REFUSED,
        run: str | None = None,
        **head: Any,
    ) -> None:
        super().__init__(**head)
        if precision not in ("full", "half"):
            raise InputError("record: precision", precision, "full or half")
        if per_file is not None and per_file < 1:
            raise InputError("record: rounds_per_file", per_file, "a whole number >= 1")
        self.head = self.head.model_copy(update={"precision": precision})
        self._folder, self._sample = folder, sampled
        self.checks_later = per_file is None
        self._kept: Tensor | None = None
        self._canary_records: set[int] = set()
        self._pending: list[tuple[Entry, int | None]] = []
        self._columns = Columns()
        self._batches: dict[int, tuple[int, Tensor]] = {}
        self._rounds, self._per_file, self._written = 0, per_file, time.monotonic()
        self._key = signing_key()
        self._lock = FolderLock(folder)
        self._shapes: dict[str, dict[str, tuple[int, ...]]] = {}
        try:
            before = self._before(earlier)
            self._files, self._round = before.files, before.rounds - 1
            self._counts: Counter[str] = Counter(before.messages)
            run = before.run or run or secrets.token_hex(16)
            self._writer = BackgroundWriter(Chain(run, files=before.files, last=before.last, key=self._key))
            self.head = self.head.model_copy(update={"run": run, "beside": dict(before.beside)})
            self.checks.before, self._labels_before = before.failed_checks, before.labels
            if self.record_ids.names is not None:
                names = json.dumps(self.record_ids.names).encode()
                write_atomically(folder / IDS, names, durable=True)
                self.head.beside[IDS] = sha256(names).hexdigest()
            self._write_head()
        except BaseException:
            self._lock.release()
            raise

    def _before(self, earlier: Earlier) -> Continued:
        """Make room for the transcript, and return what of it is there already."""
        if earlier is Earlier.CONTINUED and (self._folder / HEAD).exists():
            return read_continued(self._folder, self.head, self.record_ids.names)
        make_room(self._folder, earlier)
        return Continued()

    def write_beside(self, name: str, tensors: Mapping[str, Tensor]) -> None:
        """Write a file without messages, and enter its hash in the head."""
        self.head.beside[name] = write_tensors(self._folder / name, tensors)
        self._write_head()

    @property
    def next_round(self) -> int:
        return self._round + 1

    def labels(self, labels: Any, *, records: Any = None, canaries: Canaries | None = None) -> None:
        """Record the labels trained on, of all records or of these, and the canaries that `plant` returned.

        Attacks are scored by them. They are kept in a file of their own, which no adversary's view includes. Call it
        before the first message if only a sample of the records is kept: canaries are always part of it.
        """
        import torch

        self.check_open("labels", "labels")
        given = labels_of(labels, self.head.classes)
        truth = given.targets if given.classes is None else given.classes
        assert truth is not None
        ids = torch.arange(self.head.records) if records is None else self.checked_ids(records, "labels: records")
        if truth.shape != ids.shape:
            raise InputError("labels", tuple(truth.shape), f"one label for each of {len(ids)} records")
        answers = {"records": ids, "targets" if given.classes is None else "labels": truth}
        if given.classes is not None:
            self._check_classes(truth)
            self.head = self.head.model_copy(update={"class_names": given.names})
        if canaries is not None:
            answers |= self._canaries(canaries)
        self.write_beside(ANSWERS, answers)
        self._compare_labels(given, ids, canaries)

    def _compare_labels(self, given: Labels, ids: Tensor, canaries: Canaries | None) -> None:
        """Losses of a watched training are compared with these labels."""
        import torch

        planted = None if canaries is None else torch.tensor(canaries.records)
        values = given.targets if given.classes is None else given.classes
        assert values is not None
        known = values.new_full((self.head.records,), torch.nan if given.classes is None else -1)
        known[ids] = values
        self.checks.labels = LabelCheck(known, self.head.classes, planted)

    def _check_classes(self, truth: Tensor) -> None:
        classes = self.head.classes or 0
        if len(truth) and not 0 <= int(truth.min()) <= int(truth.max()) < classes:
            raise InputError("labels", [int(truth.min()), int(truth.max())], f"0 to {classes - 1}")

    def _canaries(self, canaries: Canaries) -> dict[str, Tensor]:
        import torch

        if self.head.classes is None:
            raise InputError("labels: canaries", "targets of a regression", "classes: a canary has one of two labels")
        records = torch.tensor(canaries.records)
        self._keep_always(canaries.records)
        labels, worlds = canaries.labels.long(), canaries.worlds[0].long()
        return {"canaries": records, "canary_labels": labels, "worlds": worlds}

    def features(self, device: int, block: Any, *, records: Any = None, sensitive_column: int | None = None) -> None:
        """Record a device's features, of all records or of these: a row for each, of any shape.

        Attacks that reconstruct features are scored by them, and `sensitive_column`, counted in flattened rows, is the
        one that attacks on an attribute guess. They are kept in a file of their own, which no adversary's view
        includes; but the device itself knows its own. Of a sample of the records only its rows are kept.
        """
        import torch

        self.check_open("features", "block")
        number = self._device(device, "features: device")
        ids = torch.arange(self.head.records) if records is None else self.checked_ids(records, "features: records")
        kept = None if self._sample is None else self._mask()
        tensors = feature_tensors(block, ids, sensitive_column=sensitive_column, kept=kept)
        if len(tensors["records"]):
            self.write_beside(features_name(number), tensors)

    def members(self, canaries: MemberCanaries) -> None:
        """Record the canaries that `plant_members` returned: which of them were trained on is what is guessed.

        They are kept in a file of their own, which no adversary's view includes. Train on `members` alone, and after
        the training send `predictions` of all of `canaries.records`, in one round. Call it before the first message if
        only a sample of the records is kept: canaries are always part of it.
        """
        self.check_open("members", "canaries")
        tensors = member_tensors(canaries, self.head.records)
        import torch

        self.checks.left_out = torch.zeros(self.head.records, dtype=torch.bool)
        self.checks.left_out[canaries.candidates[~canaries.trained]] = True
        self._keep_always(canaries.records.tolist())
        self.write_beside(MEMBERS, tensors)

    def accuracy(self, accuracy: float, *, tests: int) -> None:
        """Record the trained model's accuracy on `tests` test records."""
        self.check_open("accuracy", accuracy)
        if not 0 <= accuracy <= 1 or tests < 1:
            raise InputError("accuracy", (accuracy, tests), "a share of at least one test record")
        self.head = self.head.model_copy(update={"accuracy": float(accuracy), "tests": int(tests)})

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: object, traceback: object) -> None:
        try:
            (self.finish if error is None else self.abandon)()
        finally:
            self.close()

    def close(self) -> None:
        """End the recording."""
        super().close()
        self._lock.release()
        ending.remove(self)

    def finish(self, *, cut_off: bool = False) -> None:
        """Write the last messages, and mark the recording as finished, unless later rounds are `cut_off`."""
        if self._over:
            return
        try:
            self.settle()
            self._flush()
        except InputError:
            self.abandon()
            raise
        self._writer.close()
        self.conclude()
        totals = {
            "finished": not cut_off,
            "rounds": self._round + 1,
            "files": self._files,
            "messages": dict(self._counts),
            "last": self._writer.chain.last if self._files else None,
        }
        self.head = self.head.model_copy(update={**totals, **self._checked(), "shapes": self._shapes})
        self._write_head()
        self.close()

    def _checked(self) -> dict[str, Any]:
        """What the head says of the checks."""
        labels, (compared, different) = self.checks.labels, self._labels_before
        return {
            "failed_checks": self.checks.failed,
            "remarks": self.checks.remarks,
            "labels_compared": compared + (0 if labels is None else labels.compared),
            "labels_different": different + (0 if labels is None else labels.different),
        }

    def abandon(self) -> None:
        """Write the complete rounds, and leave the recording unfinished."""
        if self._over:
            return
        with suppress(InputError):  # an error of the training may have left a message that is none
            self.settle()
        self._flush(before=self._round)
        self._writer.close()
        self.head = self.head.model_copy(update=self._checked())
        self._write_head()
        self.close()

    def keep(self, entry: Entry, tensors: Mapping[str, Tensor], records: Tensor | None) -> None:
        if entry.round > self._round:
            if self._is_full():
                self._flush()  # the rounds before are complete
            self._round, self._rounds = entry.round, self._rounds + 1
        elif self._columns.bytes >= _MOST_BYTES:
            self._flush()
        if entry.kind not in self._shapes:
            self._shapes[entry.kind] = {name: tuple(value.shape) for name, value in tensors.items()}
        stored = tensors
        if self.head.precision == "half":
            stored = {name: _half(value, f"{entry.kind}: {name}") for name, value in tensors.items()}
        number = None
        if records is not None:
            number = self._batch(records)
            if self._sample is not None:
                entry, stored = self._cut(entry, stored, records)
        if not self._columns.add({column_key(entry, name): value for name, value in stored.items()}):
            self._flush()  # a file has one shape for each tensor on a link
            return self.keep(entry, tensors, records)
        self._pending.append((entry, number))
        return None

    def store(self, like: Entry, name: str, value: Tensor) -> bool:
        """Copy a watched message's tensor to the end of its column, if values are kept as they are."""
        if self._sample is not None or self.head.precision == "half":
            return False
        return self._columns.append(column_key(like, name), value)

    def enter(self, like: Entry, round_: int, ids: Tensor | None) -> None:
        if round_ > self._round:
            self._round, self._rounds = round_, self._rounds + 1
        self._pending.append((like.at(round_), None if ids is None else self._batch(ids)))

    def between_rounds(self) -> None:
        if self._pending and self._is_full():
            self._flush()

    def _batch(self, records: Tensor) -> int:
        """The number of a batch in the file to come."""
        return self._batches.setdefault(id(records), (len(self._batches), records))[0]

    def _is_full(self) -> bool:
        """Whether the rounds so far are written before the next one begins."""
        if self._per_file is not None:
            return self._rounds >= self._per_file
        return self._columns.bytes >= _FILE_BYTES or time.monotonic() - self._written > _SECONDS

    def _cut(self, entry: Entry, tensors: Mapping[str, Tensor], records: Tensor) -> tuple[Entry, Mapping[str, Tensor]]:
        """The message with the rows of the sample alone."""
        positions = self._sampled()[records].nonzero().flatten()
        axes = {name: row_axis(entry.kind, name, value.shape, len(records)) for name, value in tensors.items()}
        cut = {name: axis for name, axis in axes.items() if axis is not None}
        rows = {n: v.index_select(cut[n], positions) if n in cut else v for n, v in tensors.items()}
        lengths = {name: value.shape[0] if value.dim() else None for name, value in rows.items()}
        return entry.changed({"cut": cut, "rows": lengths}), rows

    def _sampled(self) -> Tensor:
        """(records,) whether each record is part of the sample."""
        mask = self._mask()
        if self.head.sampled is None:
            self.head = self.head.model_copy(update={"sampled": int(mask.sum())})
            self._write_head()
        return mask

    def _mask(self) -> Tensor:
        """The same, before the first message has made it final."""
        assert self._sample is not None
        if self._kept is None:
            self._kept = self._sample.mask(self.head.records, self._canary_records)
        return self._kept

    def _keep_always(self, records: Iterable[int]) -> None:
        """Make these records part of the sample, which the first message makes final."""
        before = len(self._canary_records)
        self._canary_records.update(records)
        if self.head.sampled is not None and len(self._canary_records) > before:
            raise InputError("canaries", "after the first message", "a call before it: the sample must include them")
        self._kept = None

    def _flush(self, *, before: int | None = None) -> None:
        """Hand the messages so far to the writer; with `before`, only those of rounds before that one."""
        with ending.shielded():
            self._hand_over(before)

    def _hand_over(self, before: int | None) -> None:
        entries = [entry.changed({"batch": number}) for entry, number in self._pending]
        flaws = [_entry_at(entries, key, row) for key, row in self._columns.flaws().items()]
        if flaws:
            wrong, name = min(flaws, key=lambda flaw: flaw[0].round)
            if before is None:
                raise InputError(f"{wrong.kind}: {name}", f"NaN or infinity in round {wrong.round}", "finite numbers")
            before = min(before, wrong.round)
        self._written, self._rounds = time.monotonic(), 0
        columns, rooms = self._columns.take()
        if before is not None:
            entries, columns = _earlier(entries, columns, before)
        if entries:
            self._counts.update(entry.kind for entry in entries)
            tensors = columns | self._batch_tensors({entry.batch for entry in entries})
            listed = Entries.model_construct(messages=tuple(entries)).model_dump_json(exclude_defaults=True)
            path = self._folder / shard_name(self._files)
            self._writer.write(path, tensors, {"messages": listed}, done=lambda: self._columns.recycle(rooms))
            self._files += 1
            if self._per_file is not None:
                self._writer.wait()
        self._pending, self._batches = [], {}

    def _batch_tensors(self, used: Container[int | None]) -> dict[str, Tensor]:
        """The record ids of the batches with these numbers, and of a sample the positions that are kept."""
        tensors = {}
        for number, records in self._batches.values():
            if number in used:
                tensors[batch_key(number)] = records.int()
                if self._sample is not None:
                    tensors[kept_key(number)] = self._sampled()[records].nonzero().flatten().int()
        return tensors

    def _write_head(self) -> None:
        parts, _ = sealed(end_of(self._writer.chain.run), self.head.text().encode(), self._key)
        write_atomically(self._folder / HEAD, b"".join(parts), durable=True)


def _earlier(
    entries: Sequence[Entry], columns: Mapping[str, Tensor], before: int
) -> tuple[list[Entry], dict[str, Tensor]]:
    """The messages of rounds before this one, and their part of the columns."""
    import torch

    ends: Counter[str] = Counter()
    parts: dict[str, list[Tensor]] = {}
    for entry in entries:
        for name, rows in entry.rows.items():
            key, start = column_key(entry, name), ends[column_key(entry, name)]
            ends[key] += 1 if rows is None else rows
            if entry.round < before:
                parts.setdefault(key, []).append(columns[key][start : ends[key]])
    return [e for e in entries if e.round < before], {key: torch.cat(values) for key, values in parts.items()}


def _entry_at(entries: Sequence[Entry], key: str, row: int) -> tuple[Entry, str]:
    """The message whose tensor has this row of a column, and the name of the tensor."""
    end = 0
    for entry in entries:
        for name, rows in entry.rows.items():
            if column_key(entry, name) == key:
                end += 1 if rows is None else rows
                if row < end:
                    return entry, name
    raise ValueError(f"Expected a message with row {row} of {key}.")


def _half(value: Tensor, field: str) -> Tensor:
    """The value in 16 bits."""
    if not value.is_floating_point():
        return value
    rounded = value.half()
    if value.numel() and not bool(rounded.isfinite().all()):
        raise InputError(field, float(value.abs().max()), 'values up to 65504 with precision="half"')
    return rounded
