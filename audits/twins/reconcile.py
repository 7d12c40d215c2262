"""What is on the wire, compared with the ledger: every tensor of every message has a release that covers it.

It reads the names, the links and the rounds of messages, of a training or of a transcript. A tensor that no release
covers is counted as an exact release of everything, so that no claim rests on it.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from vflpriv.core.audit import Finding
from vflpriv.core.claims import Verdict
from vflpriv.core.kinds import kind_named
from vflpriv.core.ledger import Ledger
from vflpriv.core.releases import Release
from vflpriv.core.schedules import Schedule
from vflpriv.core.units import Unit
from vflpriv.core.views import Adversary
from vflpriv.core.wire import Message, Party
from vflpriv.laws import Exact

__all__ = [
    "AUDIT",
    "Outline",
    "Sightings",
    "covered",
    "exactly",
    "is_open",
    "link",
    "outline",
    "reconcile",
    "reconcile_run",
    "viewers",
]

AUDIT = "wire"
"""The name of the audit whose findings these are."""
_ONLOOKERS = frozenset({"eavesdropper", "outsider"})
_HOW = "list its tensors under `tensors` of a release"


_EXTRA = "that a training sends beyond those of its rounds"


class Outline(NamedTuple):
    """The form of a message of one replica, without its values and its record ids."""

    kind: str
    sender: Party
    receiver: Party
    round: int
    encrypted: bool
    tensors: tuple[tuple[str, tuple[int, ...], torch.dtype], ...]


def outline(message: Message) -> Outline:
    """The form of a message, whatever the number of replicas."""
    tensors = tuple((name, tuple(t.shape[1:]), t.dtype) for name, t in message.tensors.items())
    return Outline(message.kind, message.sender, message.receiver, message.round, message.encrypted, tensors)


def link(message: Message) -> str:
    """The two ends of a message, as findings name them."""
    return f"{message.sender} → {message.receiver}"


def viewers(message: Message) -> tuple[Adversary, ...]:
    """The adversaries to whom a message tells something: not its sender, and nobody on the wire if it is encrypted."""
    end = message.receiver
    receiver = Adversary("server") if end.is_server else Adversary("device", (end.index,))
    return (receiver,) if message.encrypted else (receiver, *(Adversary(kind) for kind in sorted(_ONLOOKERS)))


def _observers(message: Message) -> frozenset[str]:
    """The kinds of adversaries that see a message."""
    receivers = frozenset({"server"} if message.receiver.is_server else {"device", "devices"})
    return receivers | (frozenset() if message.encrypted else _ONLOOKERS)


def is_open(ledger: Ledger, adversary: Adversary, unit: Unit) -> bool:
    """Whether the ledger itself says that this adversary sees the unit without protection."""
    observed = [r.observed_by(adversary.kind) for r in ledger.releases if adversary.kind in r.seen_by]
    for release in observed:
        if release is None or not release.sensitivity.get(unit, 0.0) or release.protects(unit):
            continue
        rounds = release.rounds
        if adversary.is_device and not (release.reaches_all or release.carried):
            rounds = rounds & ledger.schedule.visible(adversary.members(ledger.schedule.devices))
        if rounds.any():
            return True
    return False


@dataclass(eq=False, kw_only=True)
class _Sighting:
    """All messages that hold one tensor of one kind."""

    first: Message
    ways: set[str] = field(default_factory=set)
    seen_by: set[str] = field(default_factory=set)
    rounds: set[int] = field(default_factory=set)
    messages: int = 0


class Sightings:
    """Collects the tensors that pass, by kind and name."""

    def __init__(self) -> None:
        self.tensors: dict[tuple[str, str], _Sighting] = {}
        self.received: dict[str, set[tuple[int, int]]] = {}
        """By kind, the (round, device) of messages to devices."""
        self.repeated: dict[str, list[Message]] = {}
        """By kind, messages on a link that has had another one of the kind in the round."""
        self.sent: Counter[Outline] = Counter()
        """All messages by their form."""
        self._last: dict[tuple[str, int, int, int], Message] = {}
        self.messages = 0

    def record(self, message: Message) -> None:
        """Note a message."""
        self.messages += 1
        self.sent[outline(message)] += 1
        way = "up" if message.receiver.is_server else "down"
        for name in message.tensors:
            if (message.kind, name) not in self.tensors:
                self.tensors[message.kind, name] = _Sighting(first=replace(message, tensors={}))
            sighting = self.tensors[message.kind, name]
            sighting.ways.add(way)
            sighting.seen_by |= _observers(message)
            sighting.rounds.add(message.round)
            sighting.messages += 1
        if way == "down":
            self.received.setdefault(message.kind, set()).add((message.round, message.device.index))
        place = (message.kind, message.round, message.sender.index, message.receiver.index)
        known = self._last.get(place)
        if known is not None and not _equal(known.tensors, message.tensors):
            self.repeated.setdefault(message.kind, []).append(replace(message, tensors={}))
        self._last = {key: m for key, m in self._last.items() if key[1] == message.round} | {place: message}

    def extend(self, messages: Iterable[Message]) -> Sightings:
        """Note all these messages."""
        for message in messages:
            self.record(message)
        return self

    @property
    def names(self) -> dict[str, set[str]]:
        """The names of the tensors of each kind."""
        names: dict[str, set[str]] = {}
        for kind, name in self.tensors:
            names.setdefault(kind, set()).add(name)
        return names


def _same(first: Tensor, second: Tensor) -> bool:
    return first is second or (first.shape == second.shape and bool(torch.equal(first, second)))


def _equal(first: Mapping[str, Tensor], second: Mapping[str, Tensor]) -> bool:
    return first.keys() == second.keys() and all(_same(first[name], second[name]) for name in first)


def reconcile(ledger: Ledger, seen: Sightings, *, kinds: Collection[str] | None = None, trained: bool) -> list[Finding]:
    """What the ledger leaves out of the messages that were seen; of `kinds` alone if they are given.

    With `trained` the messages are those of an engine: the ledger's rounds are those of its schedule, and noise leaves
    through release points. One finding for each tensor, link or round that is left out, or one that nothing is.
    """
    chosen = {kind: names for kind, names in seen.names.items() if kinds is None or kind in kinds}
    findings: list[Finding] = []
    for kind, names in sorted(chosen.items()):
        releases = [r for r in ledger.releases if r.kind == kind]
        sightings = {name: seen.tensors[kind, name] for name in sorted(names)}
        for name, sighting in sightings.items():
            findings += _tensor(ledger.schedule, kind, name, sighting, releases, names, trained=trained)
        findings += _links(kind, sightings, releases)
        if trained:
            findings += _rounds(ledger.schedule, kind, sightings, releases, seen)
    if not findings and chosen:
        total = f"{seen.messages} messages, {len(chosen)} kinds and {sum(map(len, chosen.values()))} tensors"
        findings.append(_finding("all messages", Verdict.CONSISTENT, f"the ledger lists all of {total}", 0))
    return findings


def reconcile_run(ledger: Ledger, rounds: Counter[Outline], run: Counter[Outline]) -> list[Finding]:
    """What a whole training sends beyond its rounds run one by one, and what it does not send of them."""
    findings: list[Finding] = []
    extra, missing = run - rounds, rounds - run
    for kind in sorted({form.kind for form in extra}):
        findings += _beyond(ledger, kind, {form: n for form, n in extra.items() if form.kind == kind})
    for kind in sorted({form.kind for form in missing}):
        lacking = {form: n for form, n in missing.items() if form.kind == kind}
        first, count = min(form.round for form in lacking), sum(lacking.values())
        sentence = (
            f"a training does not send {count} {kind} messages that its rounds send one by one (first in round "
            f"{first}): what is measured in rounds is another training"
        )
        findings.append(_finding(kind, Verdict.UNSUPPORTED, sentence, count))
    return findings


def _beyond(ledger: Ledger, kind: str, extra: Mapping[Outline, int]) -> list[Finding]:
    """Messages of one kind that only a whole training sends: counted once more in their rounds, or as exact."""
    schedule, releases = ledger.schedule, [r for r in ledger.releases if r.kind == kind]
    names = {name for form in extra for name, _, _ in form.tensors}
    listed = frozenset[str]().union(*covered(releases, kind, names).values())
    private = [r for r in releases if r.sensitivity]
    if not private and releases and names <= listed:
        return []  # it is declared public, and compared as everything is
    ways = {"up" if form.receiver.is_server else "down" for form in extra}
    outside = {form for form in extra if not 0 <= form.round < schedule.rounds}
    unknown = sorted(names if outside or not releases else names - listed)
    every = range(schedule.rounds)
    undeclared = [r for name in unknown for r in exactly(schedule, kind, name, f"{name} {_EXTRA}", every, ways)]
    for times in range(max(extra.values())):
        again = _mask(schedule, {form.round for form, n in extra.items() if n > times})
        undeclared += [replace(r, rounds=again, what=f"{r.what}; messages {_EXTRA}") for r in private if again.any()]
    count, first = sum(extra.values()), min(extra, key=lambda form: form.round)
    how = "counted as exact, of everything" if unknown else "counted once more there"
    ends = f"{first.sender} → {first.receiver}"
    sentence = f"there are {count} {kind} messages {_EXTRA} (first in round {first.round}, {ends}): {how}"
    return [_finding(kind, Verdict.UNSUPPORTED, sentence, count, undeclared)]


def covered(releases: Sequence[Release], kind: str, names: Collection[str]) -> dict[Release, frozenset[str]]:
    """The tensors that each release of a kind covers, of those on the wire."""
    table = kind_named(kind)
    listed = frozenset(name for form in table.forms for name in form) if table is not None else frozenset()
    usual = frozenset(names) if len(names) == 1 else listed & frozenset(names)
    everything = frozenset(names) if table is not None and table.open else usual
    return {r: r.tensors if r.tensors is not None else everything if r.noise.exact else usual for r in releases}


def _tensor(
    schedule: Schedule,
    kind: str,
    name: str,
    sighting: _Sighting,
    releases: Sequence[Release],
    names: Collection[str],
    *,
    trained: bool,
) -> list[Finding]:
    """Whether some release covers one tensor."""
    covering = [r for r, own in covered(releases, kind, names).items() if name in own]
    where = f"first in round {sighting.first.round}, {link(sighting.first)}"
    if not covering:
        what = f"tensor {name}: on the wire, but not in the ledger"
        sentence = (
            f"tensor {name} of {sighting.messages} {kind} messages ({where}) is not in the ledger: counted as exact, "
            f"of everything; {_HOW} if it is declared"
        )
        # The turns of a transcript's schedule are not its rounds: there, every one counts.
        rounds = sighting.rounds if trained else range(schedule.rounds)
        undeclared = exactly(schedule, kind, name, what, rounds, sighting.seen_by)
        return [_finding(f"{kind}/{name}", Verdict.UNSUPPORTED, sentence, sighting.messages, undeclared)]
    return []


def _links(kind: str, sightings: Mapping[str, _Sighting], releases: Sequence[Release]) -> list[Finding]:
    """Whether the ledger knows everyone who sees a kind."""
    ways = set[str]().union(*(s.ways for s in sightings.values()))
    observers = frozenset[str]().union(*(s.seen_by for s in sightings.values()))
    lacking = [(r, observers - r.seen_by) for r in releases if r.sensitivity and observers - r.seen_by]
    if not lacking:
        return []
    missing = sorted(frozenset[str]().union(*(kinds for _, kinds in lacking)))
    directions = " and ".join("to devices" if way == "down" else "to the server" for way in sorted(ways))
    sentence = (
        f"{kind} messages go {directions}, so that {', '.join(missing)} see them, and the ledger leaves them out: "
        "counted as seen by them too"
    )
    undeclared = [
        replace(r, seen_by=kinds, what=f"{r.what}; seen by more than the ledger says") for r, kinds in lacking
    ]
    count = max(s.messages for s in sightings.values())
    return [_finding(kind, Verdict.UNSUPPORTED, sentence, count, undeclared)]


def _rounds(
    schedule: Schedule,
    kind: str,
    sightings: Mapping[str, _Sighting],
    releases: Sequence[Release],
    seen: Sightings,
) -> list[Finding]:
    """Whether the ledger counts every round and every device that has a message, and each message once."""
    private = [r for r in releases if r.sensitivity]
    if not private:
        return []
    counted = np.logical_or.reduce([r.rounds for r in private])
    sent = _mask(schedule, set[int]().union(*(s.rounds for s in sightings.values())))
    findings = _more(kind, "in rounds that the ledger does not count", sent & ~counted, private)
    own = [r for r in private if "device" in r.seen_by and not (r.reaches_all or r.carried)]
    extra = {t for t, m in seen.received.get(kind, ()) if t < schedule.rounds and not schedule.active[t, m]}
    if own:
        everyone = [replace(r, reaches_all=True) for r in own]
        where = "to devices in rounds in which the schedule has them inactive"
        findings += _more(kind, where, _mask(schedule, extra), everyone)
    noised = [r for r in private if not r.noise.exact]
    if noised:
        again = _mask(schedule, {m.round for m in seen.repeated.get(kind, ())})
        findings += _more(kind, "beyond the first on the same link in a round, with other values", again, noised)
    return findings


def _more(kind: str, where: str, rounds: NDArray[np.bool_], releases: Sequence[Release]) -> list[Finding]:
    count = int(np.count_nonzero(rounds))
    if not count:
        return []
    first = int(np.flatnonzero(rounds)[0])
    sentence = f"there are {kind} messages {where}, in {count} rounds (first in round {first}): counted once more there"
    undeclared = [replace(r, rounds=rounds, what=f"{r.what}; messages {where}") for r in releases]
    return [_finding(kind, Verdict.UNSUPPORTED, sentence, count, undeclared)]


def _mask(schedule: Schedule, rounds: Iterable[int]) -> NDArray[np.bool_]:
    mask = np.zeros(schedule.rounds, dtype=np.bool_)
    mask[[t for t in rounds if 0 <= t < schedule.rounds]] = True
    return mask


def exactly(
    schedule: Schedule, kind: str, name: str, what: str, rounds: Collection[int], seen_by: Collection[str]
) -> list[Release]:
    """A tensor as an exact release of everything, to everyone who sees it."""
    return [
        Release(
            kind=kind,
            what=what,
            noise=Exact(),
            sensitivity=dict.fromkeys(Unit, math.inf),
            rounds=_mask(schedule, rounds),
            seen_by=frozenset(seen_by),
            reaches_all=True,
            tensors=frozenset({name}),
        )
    ]


def _finding(
    subject: str,
    verdict: Verdict,
    sentence: str,
    count: int,
    undeclared: Sequence[Release] = (),
    units: frozenset[Unit] | None = frozenset(),
) -> Finding:
    """No claim rests on what is accounted for as undeclared; a broken ledger counts by itself."""
    consistent = verdict is Verdict.CONSISTENT
    return Finding(
        audit=AUDIT,
        subject=subject,
        verdict=verdict,
        sentence=sentence,
        figure=count,
        measure="messages outside the ledger",
        claim_units=None if consistent else units,
        decides_alone=not consistent,
        measures=False,
        undeclared=tuple(undeclared),
    )
