"""Drafts the ledger file of a recorded training: what a transcript shows, and what a person has to decide.

A transcript shows which kinds of messages were sent, by whom and how often, and how much noise they can hold at most.
It does not show which noise was added, what a message depends on, or what was handed over beside the wire. Such values
are drafted as `"DECIDE"`, which the reader of ledgers refuses by name until they are settled.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from textwrap import wrap

from vflpriv.audits.recorded.noise import NoiseLimit, noise_limit
from vflpriv.common.formatting import clean
from vflpriv.common.toml import toml_value
from vflpriv.core.kinds import kind_named
from vflpriv.core.wire import CIPHERTEXT, CIPHERTEXT_BYTES, Message
from vflpriv.recording.files.format import Head
from vflpriv.recording.ledger_file import DECIDE
from vflpriv.recording.transcripts import read_transcript

__all__ = ["draft_ledger"]

_MOST_ROWS = 50_000
"""Rows of a kind by which its noise is estimated, from the first messages on."""
_NOTHING = 1e-3
"""Noise that is at most this share of the values is none to speak of."""
_WIDTH = 118


def draft_ledger(folder: Path) -> str:
    """The text of a ledger file for the transcript in this folder."""
    recording = read_transcript(folder)
    messages = recording.transcript.messages
    facts: dict[str, _Facts] = {}
    for message in messages:
        facts.setdefault(message.kind, _Facts(message.kind)).add(message)
    parts = [_opening(recording.head, folder), _batches(facts.values(), recording.head)]
    for kind, own in facts.items():
        limit = noise_limit(own.first, kind) if own.numeric else None
        parts.append(_release(own, limit))
    return "\n".join([*parts, _HANDED_OVER, _CLAIM])


@dataclass
class _Facts:
    """What the messages of one kind have in common."""

    kind: str
    count: int = 0
    ways: Counter[str] = field(default_factory=Counter)
    links: set[tuple[int, int]] = field(default_factory=set)
    rounds: tuple[int, int] = (0, 0)
    batches: set[int | None] = field(default_factory=set)
    shapes: dict[str, set[tuple[int, ...]]] = field(default_factory=dict)
    numeric: bool = True
    """Whether all values are floating-point numbers, which can hold noise of some size."""
    first: list[Message] = field(default_factory=list)
    _rows: int = 0
    differs: bool = False
    """Whether two devices were sent different values in a round."""

    def add(self, message: Message) -> None:
        """Take one more message into account."""
        way = "across" if message.across else "down" if message.sender.is_server else "up"
        self.rounds = (message.round if not self.count else self.rounds[0], message.round)
        self.count += 1
        self.ways[way] += 1
        self.links.add((message.sender.index, message.receiver.index))
        ids = message.contributors
        self.batches.add(None if ids is None else len(ids))
        for name, value in message.tensors.items():
            self.shapes.setdefault(name, set()).add(tuple(value.shape[1:]))
            self.numeric = self.numeric and value.is_floating_point()
        if self._rows < _MOST_ROWS:
            self._rows += 1 if message.records is None else len(message.records)
            before = self.first[-1] if self.first else message
            self.differs = self.differs or (before.round == message.round and not _same_values(before, message))
            self.first.append(message)

    @property
    def sealed(self) -> bool:
        """Whether only ciphertext was recorded, or its size."""
        return bool(self.shapes) and set(self.shapes) <= {CIPHERTEXT, CIPHERTEXT_BYTES}

    @property
    def shared(self) -> bool:
        """Whether every device was sent the same values in each round, as far as was looked."""
        return set(self.ways) == {"down"} and len(self.links) > 1 and not self.differs

    @property
    def sentence(self) -> str:
        ways = {"up": "to the server", "down": "from the server", "across": "between devices"}
        where = " and ".join(ways[way] for way in sorted(self.ways))
        devices = len({end for link in self.links for end in link if end >= 0})
        about = _about(self.batches)
        shapes = "; ".join(f"{name}: {_shape(all_)}" for name, all_ in self.shapes.items())
        counted = f"{self.count} messages {where}, {devices} device{'s' if devices > 1 else ''}"
        return f"{counted}, rounds {self.rounds[0]} to {self.rounds[1]}, {about}. {shapes or 'No tensors'}."


def _same_values(first: Message, second: Message) -> bool:
    names = set(first.tensors)
    return names == set(second.tensors) and all(first.tensors[name].equal(second.tensors[name]) for name in names)


def _about(batches: set[int | None]) -> str:
    sizes = sorted(size for size in batches if size is not None)
    if None in batches:
        return "some without record ids, which count as about every record" if sizes else "without record ids"
    return f"each about {sizes[0]} records" if len(sizes) == 1 else f"each about {sizes[0]} to {sizes[-1]} records"


def _shape(shapes: Iterable[tuple[int, ...]]) -> str:
    first, *others = sorted(shapes)
    text = " × ".join(map(str, first)) or "a number"
    return f"{text} and other shapes" if others else text


def _opening(head: Head, folder: Path) -> str:
    name = toml_value(clean(head.name or folder.name))
    state = "" if head.finished else " The recording was cut off: rounds that are missing are not counted."
    text = _comment(
        f"A draft for {head.devices} devices and {head.records} records, made by `vflpriv ledger`.{state} Replace "
        f'every "{DECIDE}" by what its comment asks for; until then `vflpriv validate` and `vflpriv audit` refuse the '
        "file and name the first that is open. What is left out counts as unprotected, so that an omission promises "
        "too little. Every field: docs/transcripts.md."
    )
    return f"""{text}
title = {name}
label_holders = ["server"]      # check: "device" or "devices" too, if they hold the labels anyway
model_follows_releases = false  # check: true if the trained model is computed from the messages below alone
public = []                     # check: kinds of messages that hold nothing private, in place of their release
"""


def _batches(facts: Iterable[_Facts], head: Head) -> str:
    sizes = {size for own in facts for size in own.batches}
    full = sizes <= {None, head.records}
    batching = "full" if full and sizes == {head.records} else "shuffle"
    return f"""[batches]
batching = "{batching}"            # check: "poisson" or "fixed", with size = …, if batches were drawn so, in secret
unrecorded_rounds = 0           # check: rounds that are not in the transcript
"""


def _release(facts: _Facts, limit: NoiseLimit | None) -> str:
    noise = _CIPHERTEXT if facts.sealed else _noise(limit)
    lines = ["[[release]]", f"kind = {toml_value(facts.kind)}", *_comments(facts.sentence), *noise]
    if kind_named(facts.kind) is None and facts.shapes:
        lines.append(f"tensors = {toml_value(list(facts.shapes))}")
    if facts.shared:
        lines.append("shared = true                   # every device of a round was sent the same; audits check it")
    lines += _dependence(facts.ways)
    return "\n".join(lines) + "\n"


_CIPHERTEXT = [
    'noise = "opaque"',
    f'assumption = "{DECIDE}"         # {DECIDE}: why it tells nothing without its key, such as the scheme',
    f'readable_by = ["{DECIDE}"]      # {DECIDE}: who holds the key: "server", "device"; [] if nobody of them does',
]
"""The lines about messages of which only ciphertext was recorded."""


def _noise(limit: NoiseLimit | None) -> list[str]:
    """The lines about noise; it is left to a person unless the values have no room for any."""
    if limit is not None and limit.std <= _NOTHING * limit.size:
        estimate = (
            f"No noise to speak of: {limit.entries} entries {limit.question} leave room for a std of at most "
            f"{limit.std:.2g}, and values are {limit.size:.2g} in size."
        )
        return [*_comments(estimate), 'noise = "none"']
    estimate, scale = "Its noise cannot be estimated: no values return, or they are not floating-point numbers.", "…"
    if limit is not None:
        estimate = (
            f"Noise: estimated from {limit.entries} entries {limit.question}, its std is at most {limit.std:.3g} "
            f"(99.9 % confidence, if it is Gaussian and independent); values are {limit.size:.2g} in size. It may be "
            "less, or none: a person must confirm what the sender's code adds."
        )
        scale = f"{limit.std:.3g}"
    return [
        *_comments(estimate),
        f'noise = "{DECIDE}"                # {DECIDE}: "none", "gaussian", "laplace" or "rr", as in the code',
        f"# scale = {scale}   # with noise: the std (gaussian), the scale (laplace) or the ε (rr), as in the code",
        "# sensitivity = { label = … }   # with noise: by unit, how far one message moves at most, such as the clip",
        '# leak = "none"                # with noise: that no state which moves without noise changes later messages',
    ]


def _dependence(ways: Mapping[str, int]) -> list[str]:
    """The lines about what moves a message, and who sees it."""
    lines = []
    if "down" in ways:
        lines.append('# independent_of = ["features"] # if these units cannot move it, but through other messages')
    else:
        lines += _comments(
            f'{DECIDE}: the units that cannot move it, but through other messages. ["label"] if the sender has no '
            "labels but through what it was sent, [] if it may depend on anything."
        )
        lines.append(f'independent_of = ["{DECIDE}"]')
    lines.append('# seen_by = ["server"]           # if others see it than both ends of its link and whoever listens')
    return lines


def _comments(text: str) -> list[str]:
    return [f"# {line}" for line in wrap(clean(text), _WIDTH)]


def _comment(text: str) -> str:
    return "\n".join(_comments(text))


_HANDED_OVER = f"""# {DECIDE}: is the server's trained model, or a part of it, ever handed to a device, say to predict
# by itself? It was trained on labels. If so, noise = "none"; if not, delete this release.
[[release]]
kind = "top-model"
what = "the server's model, handed to the devices"
noise = "{DECIDE}"
once = true
seen_by = ["device", "devices", "model"]
"""

_CLAIM = """# A promise to be checked: what is protected (unit), from whom (view), and how well.
# [[claim]]
# key = "labels"
# statement = "no party learns a customer's label"
# unit = "label"                # or record, features, add-remove, client, client-zero
# view = "device"               # or devices(all), server, eavesdropper, outsider, model
# epsilon = 1.0
# delta = 1e-5
"""
