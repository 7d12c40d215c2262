"""Merges the transcripts that parties recorded in processes of their own into one of the whole training.

Each party records what it sends and receives. So a message may be in the transcripts of both its ends: it is kept once,
and must be the same in both. Rounds are aligned by their numbers; inside a round, messages are put into an order that
agrees with that of every party. Messages are read from disk as they are written, one after another.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from vflpriv.core.wire import Message, Party
from vflpriv.errors import InputError
from vflpriv.recording.files.checks import row_axis
from vflpriv.recording.files.format import ANSWERS, HEAD, IDS, SHARDS, Entry, Head
from vflpriv.recording.own_folder import Earlier
from vflpriv.recording.recorder import RecordingWire
from vflpriv.recording.sampling import Sample
from vflpriv.recording.transcripts import Answers, Recording, read_answers, read_names, read_transcript

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["Merged", "merge_transcripts"]

_HOLD_IDS = ("records", "canaries", "candidates")
"""Tensors of files for scoring that hold the numbers of records."""
_Key = tuple[Party, Party, str, int]
"""Sender, receiver, kind, and the number of the message among those of a round that have the same."""


@dataclass(frozen=True, kw_only=True)
class Merged:
    """What a merged transcript was made of."""

    rounds: int
    messages: int
    both_ends: int
    """Messages that more than one party recorded."""
    labels_from: Path | None
    cut_off_by: Path | None
    """The unfinished transcript after whose last round no messages were merged."""


@dataclass(frozen=True, eq=False, kw_only=True)
class _Part:
    """One party's transcript; `numbers`, (records,), are those of its records in the merged one, None if the same."""

    folder: Path
    recording: Recording
    names: tuple[str | int, ...] | None
    answers: Answers | None
    numbers: Tensor | None = None

    @property
    def head(self) -> Head:
        return self.recording.head

    def ids(self, records: Tensor | None) -> Tensor | None:
        """Records by their numbers in the merged transcript."""
        return None if records is None else self.numbered(records)

    def numbered(self, records: Tensor) -> Tensor:
        """The same, of records that are known."""
        return records if self.numbers is None else self.numbers[records]


def merge_transcripts(folders: Sequence[Path], out: Path, *, fresh: bool = False) -> Merged:
    """Write the transcript that these make together; `fresh` replaces one that is in the folder."""
    if len(folders) < 2:
        raise InputError("TRANSCRIPTS", [str(folder) for folder in folders], "two or more folders")
    if out.resolve() in {folder.resolve() for folder in folders}:
        raise InputError("--out", str(out), "another folder than those that are merged")
    parts = [_read(folder) for folder in folders]
    scored = [part for part in parts if part.answers is not None]
    base = max(
        scored, key=lambda part: part.answers is not None and part.answers.canaries is not None, default=parts[0]
    )
    classes = _check_heads(parts, base)
    parts = [_renumbered(part, base) for part in parts]
    _check_answers([part for part in parts if part.answers is not None], base)
    unfinished = [part for part in parts if not part.head.finished]
    shortest = min(unfinished, key=lambda part: part.recording.rounds, default=None)
    rounds = max(p.recording.rounds for p in parts) if shortest is None else shortest.recording.rounds
    wire = _opened(parts, base, classes, out, fresh)
    try:
        _copy_scoring([base, *(part for part in parts if part.folder != base.folder)], wire)
        both = _write_messages(wire, parts, rounds)
        wire.finish(cut_off=shortest is not None)
    except BaseException:
        wire.discard()
        raise
    return Merged(
        rounds=rounds,
        messages=sum(wire.head.messages.values()),
        both_ends=both,
        labels_from=base.folder if base.answers is not None else None,
        cut_off_by=None if shortest is None else shortest.folder,
    )


def _read(folder: Path) -> _Part:
    recording = read_transcript(folder)
    names, answers = read_names(folder, recording.head), read_answers(folder, recording.head)
    return _Part(folder=folder, recording=recording, names=names, answers=answers)


def _check_heads(parts: Sequence[_Part], base: _Part) -> int | None:
    """The number of classes, after a check that all parts are of one training.

    A party that holds no labels need not say how many classes there are.
    """
    for part in parts:
        for name in ("devices", "records", "precision", "sampled"):
            own, wanted = getattr(part.head, name), getattr(base.head, name)
            if own != wanted:
                _differ(part, name, own, f"{wanted}, as in {base.folder}")
        if (part.names is None) != (base.names is None):
            _differ(part, "records", "numbers" if part.names is None else "ids", f"the same kind as in {base.folder}")
    known = [part for part in parts if part.head.classes is not None or part.answers is not None]
    for part in known:
        if part.head.classes != known[0].head.classes:
            _differ(part, "classes", part.head.classes, f"{known[0].head.classes}, as in {known[0].folder}")
    return known[0].head.classes if known else None


def _differ(part: _Part, field: str, value: object, expected: str) -> None:
    raise InputError(f"{part.folder}: {field}", value, expected)


def _renumbered(part: _Part, base: _Part) -> _Part:
    """The part with the numbers that its records have in the base."""
    import torch

    if part.names is None or base.names is None or part.names == base.names:
        return part
    number_of = {name: number for number, name in enumerate(base.names)}
    unknown = next((name for name in part.names if name not in number_of), None)
    if unknown is not None:
        _differ(part, "records", unknown, f"an id that {base.folder} has, too")
    numbers = torch.tensor([number_of[name] for name in part.names])
    return replace(part, numbers=numbers)


def _check_answers(parts: Sequence[_Part], base: _Part) -> None:
    """Raise an InputError if two parts have different labels, or canaries."""
    for part in parts:
        if part.folder != base.folder and not _same_answers(part, base):
            _differ(part, ANSWERS, "other labels or canaries", f"those of {base.folder}, or none")


def _same_answers(part: _Part, base: _Part) -> bool:
    import torch

    own, wanted = part.answers, base.answers
    assert own is not None
    assert wanted is not None
    every = torch.arange(part.head.records) if part.numbers is None else part.numbers
    if not torch.equal(wanted.labels[every], own.labels) or (own.targets is None) != (wanted.targets is None):
        return False
    if own.targets is not None and wanted.targets is not None:
        return torch.equal(wanted.targets[every].nan_to_num(), own.targets.nan_to_num())
    return own.canaries is None or (
        wanted.canaries is not None
        and tuple(every[list(own.canaries.records)].tolist()) == wanted.canaries.records
        and torch.equal(own.canaries.worlds, wanted.canaries.worlds)
    )


class _MergedWire(RecordingWire):
    """A recording of messages that were recorded before, and have the rows of the sample alone, if there is one."""

    def _cut(self, entry: Entry, tensors: Mapping[str, Tensor], records: Tensor) -> tuple[Entry, Mapping[str, Tensor]]:
        del records
        return entry, tensors

    def discard(self) -> None:
        """Delete what was written: a part of a transcript would pass for one that was cut off."""
        self.abandon()
        for pattern in ("*.safetensors", IDS, HEAD):
            for path in self._folder.glob(pattern):
                path.unlink()

    def note(self, heads: Sequence[Head]) -> None:
        """Take over what the heads of the parts say beside the number of their messages."""
        for head in heads:
            self._shapes |= {kind: dict(shapes) for kind, shapes in head.shapes.items()}
        named = next((head for head in heads if head.class_names), heads[0])
        tested = next((head for head in heads if head.accuracy is not None), heads[0])
        facts = {"class_names": named.class_names, "accuracy": tested.accuracy, "tests": tested.tests}
        self.head = self.head.model_copy(update={**facts, "sampled": heads[0].sampled})
        self.checks.before = tuple(dict.fromkeys(line for head in heads for line in head.failed_checks))
        compared, different = (
            sum(getattr(head, f"labels_{name}") for head in heads) for name in ("compared", "different")
        )
        self._labels_before = compared, different
        for line in (line for head in heads for line in head.remarks):
            self.checks.remark(line, line)


def _opened(parts: Sequence[_Part], base: _Part, classes: int | None, out: Path, fresh: bool) -> _MergedWire:
    """The recording to which everything is written."""
    head = base.head
    records: Any = head.records if base.names is None else base.names
    fields: dict[str, Any] = {"devices": head.devices, "classes": classes, "records": records, "name": out.name}
    earlier = Earlier.DELETED if fresh else Earlier.REFUSED
    wire = _MergedWire(out, sampled=_kept(parts), precision=head.precision, earlier=earlier, **fields)
    wire.note([part.head for part in parts])
    return wire


def _kept(parts: Sequence[_Part]) -> Sample | None:
    """The sample whose rows were kept, read off the messages: it must be the same in every part."""
    import torch

    if parts[0].head.sampled is None:
        return None
    kept = torch.zeros(parts[0].head.records, dtype=torch.bool)
    left_out = torch.zeros_like(kept)
    for part in parts:
        for message in part.recording.transcript.messages:
            if message.batch is not None and message.records is not None:
                own, whole = part.numbered(message.records), part.numbered(message.batch)
                kept[own] = True
                left_out[whole[~torch.isin(whole, own)]] = True
        if bool((kept & left_out).any()):
            _differ(part, "sampled", "other records than before it", "the same keep=vflpriv.sample(...) in every party")
    return Sample(records=int(kept.sum()), named=tuple(kept.nonzero().flatten().tolist()))


def _copy_scoring(parts: Sequence[_Part], wire: _MergedWire) -> None:
    """Write the files without messages, by which attacks are scored, each from the first part that has it."""
    import torch
    from safetensors.torch import load_file

    written: dict[str, tuple[_Part, dict[str, Tensor]]] = {}
    for part in parts:
        for path in sorted(path for path in part.folder.glob("*.safetensors") if not path.match(SHARDS)):
            tensors = {n: part.numbered(v) if n in _HOLD_IDS else v for n, v in load_file(path).items()}
            first, known = written.setdefault(path.name, (part, tensors))
            same = known.keys() == tensors.keys() and all(torch.equal(known[name], tensors[name]) for name in known)
            if path.name != ANSWERS and not same:  # answers were compared before
                _differ(part, path.name, "other values", f"those of {first.folder}, or no such file")
    for name, (_, tensors) in written.items():
        wire.write_beside(name, tensors)


def _write_messages(wire: _MergedWire, parts: Sequence[_Part], rounds: int) -> int:
    """Write the messages of all rounds before this one, and return how many of them more than one party recorded."""
    streams = [groupby(part.recording.transcript.messages, key=lambda message: message.round) for part in parts]
    heads = [next(stream, None) for stream in streams]
    both = 0
    while any(heads):
        round_ = min(head[0] for head in heads if head is not None)
        if round_ >= rounds:
            break
        now = [head is not None and head[0] == round_ for head in heads]
        messages = [_by_key(head[1]) if head is not None and at else {} for head, at in zip(heads, now, strict=True)]
        both += _write_round(wire, parts, messages)
        heads = [next(stream, None) if at else head for stream, head, at in zip(streams, heads, now, strict=True)]
    return both


def _by_key(messages: Iterator[Message]) -> dict[_Key, Message]:
    """The messages of a round by their link and kind, in the order in which they were recorded."""
    counts: Counter[tuple[Party, Party, str]] = Counter()
    keyed = {}
    for message in messages:
        like = (message.sender, message.receiver, message.kind)
        keyed[*like, counts[like]] = message
        counts[like] += 1
    return keyed


def _write_round(wire: _MergedWire, parts: Sequence[_Part], recorded: Sequence[Mapping[_Key, Message]]) -> int:
    """Write the messages of one round, each once, and return how many of them more than one party recorded."""
    batches: list[Tensor] = []
    both = 0
    for key in _in_order([list(messages) for messages in recorded]):
        holders = [(part, messages[key]) for part, messages in zip(parts, recorded, strict=True) if key in messages]
        for other in holders[1:]:
            _check_same(*holders[0], *other)
        both += len(holders) > 1
        part, message = holders[0]
        kept, whole = part.ids(message.records), part.ids(message.contributors)
        tensors = {name: value[0] for name, value in message.tensors.items()}
        wire.keep(_entry(message, tensors, kept), tensors, _shared(whole, batches))
    return both


def _in_order(parts: Sequence[Sequence[_Key]]) -> Iterator[_Key]:
    """Every key once, in an order that agrees with that of each part as far as the parts agree, and by turns.

    >>> sender, other = Party(0), Party(1)
    >>> first, second, reply = (sender, Party(-1), "up", 0), (other, Party(-1), "up", 0), (Party(-1), sender, "down", 0)
    >>> list(_in_order([[first, reply], [second], [first, second, reply]])) == [first, second, reply]
    True
    """
    waiting = [deque(keys) for keys in parts]
    while any(waiting):
        stuck = True
        for queue in waiting:
            if queue and all(other[0] == queue[0] for other in waiting if queue[0] in other):
                stuck = False
                yield _taken(queue[0], waiting)
        if stuck:  # the parts disagree on what came first
            yield _taken(next(queue[0] for queue in waiting if queue), waiting)


def _taken(key: _Key, waiting: Sequence[deque[_Key]]) -> _Key:
    for queue in waiting:
        if key in queue:
            queue.remove(key)
    return key


def _check_same(first: _Part, message: Message, second: _Part, copy: Message) -> None:
    """Raise an InputError if the two ends of a link recorded different messages."""
    import torch

    where = f"round {message.round}: {message.kind} from {message.sender} to {message.receiver}"
    expected = f"what {first.folder} recorded at the other end"
    for own, others in ((message.records, copy.records), (message.contributors, copy.contributors)):
        if not _same_ids(first.ids(own), second.ids(others)):
            raise InputError(where, f"other records in {second.folder}", expected)
    if set(message.tensors) != set(copy.tensors):
        raise InputError(where, f"{sorted(copy.tensors)} in {second.folder}", f"{sorted(message.tensors)}, {expected}")
    for name, value in message.tensors.items():
        other = copy.tensors[name]
        if value.dtype != other.dtype or value.shape != other.shape:
            types = f"{name}: {other.dtype} {tuple(other.shape[1:])} in {second.folder}"
            raise InputError(where, types, f"{value.dtype} {tuple(value.shape[1:])}, {expected}")
        if not torch.equal(value, other):
            apart = float((value.double() - other.double()).abs().max())
            raise InputError(where, f"{name}: values that differ by up to {apart:.3g} in {second.folder}", expected)


def _same_ids(own: Tensor | None, others: Tensor | None) -> bool:
    return own is others if own is None or others is None else own.equal(others)


def _entry(message: Message, tensors: Mapping[str, Tensor], kept: Tensor | None) -> Entry:
    """The message's entry in the list of its file."""
    way: Literal["up", "down", "across"] = "down" if message.sender.is_server else "up"
    axes: dict[str, int | None] = {}
    if message.batch is not None and kept is not None:
        axes = {name: row_axis(message.kind, name, value.shape, len(kept)) for name, value in tensors.items()}
    return Entry(
        round=message.round,
        way="across" if message.across else way,
        device=message.sender.index if message.across else message.device.index,
        to=message.receiver.index if message.across else None,
        kind=message.kind,
        rows={name: value.shape[0] if value.dim() else None for name, value in tensors.items()},
        cut={name: axis for name, axis in axes.items() if axis is not None},
    )


def _shared(records: Tensor | None, batches: list[Tensor]) -> Tensor | None:
    """The record ids, as the same object for all messages of a round about one batch: they are stored once."""
    import torch

    if records is None:
        return None
    known = next((batch for batch in batches if torch.equal(batch, records)), None)
    if known is None:
        batches.append(known := records)
    return known
