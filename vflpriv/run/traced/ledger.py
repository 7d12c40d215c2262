"""A ledger file from a trace: laws, sizes and counts as they were seen; the rest is left to a person."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from textwrap import wrap

import torch

from vflpriv.audits.flow.draws.families import EXPONENTIAL, FAMILIES, LAPLACE, NORMAL
from vflpriv.audits.flow.tracer.events import Choice, Seal
from vflpriv.common.toml import toml_value
from vflpriv.core.kinds import kind_named
from vflpriv.core.units import Unit
from vflpriv.recording.ledger_file import DECIDE
from vflpriv.run.traced.followed import Followed, own_seals
from vflpriv.run.traced.training import SentOnce, TracedScript

__all__ = ["derived_ledger"]

_WIDTH = 118
_LAWS = {NORMAL.name: "gaussian", LAPLACE.name: "laplace"}


def derived_ledger(traced: TracedScript, followed: Sequence[Followed], rounds: int) -> str:
    """The text of a ledger file; `rounds` were followed.

    Of each unit it is about the view that sees most: what is noised by messages that this view saw costs nothing more.
    """
    followed = list({(own.unit, own.device): own for own in followed}.values())
    whole = min(rounds, traced.rounds)
    head = (
        f"Derived by `vflpriv trace {traced.script.name}` from the first {whole} of {traced.rounds} rounds. What one "
        f'run does not show says "{DECIDE}": until that is replaced, `vflpriv validate` names it.'
    )
    full = all(len(ids) == traced.wire.head.records for ids in traced.batches.values())
    parts = [
        *_comments(head),
        f"title = {toml_value(traced.script.name)}",
        'label_holders = ["server"]',
        "",
        "[batches]",
        f'batching = "{"full" if full else "shuffle"}"',
        *_choices(followed),
    ]
    for kind in traced.kinds:
        parts += ["", *_release(kind, [sent for sent in traced.sent if sent.kind == kind], followed)]
    return "\n".join(parts) + "\n"


def _choices(followed: Sequence[Followed]) -> Iterator[str]:
    """Labels that were chosen by draws, once: everything afterwards is made of them."""
    own = next((f for f in followed if f.unit is Unit.LABEL and f.observation.loss.choices > 0), None)
    if own is None or own.observation.trace is None:
        return
    where = sorted({seal.where for seal in own.observation.trace.seals if isinstance(seal, Choice) and seal.where})
    yield from (
        "",
        "[[release]]",
        'kind = "noised-labels"',
        *_comments(f"Chosen at {', '.join(where)}; what is made of them afterwards costs nothing more."),
        'noise = "rr"',
        f"scale = {own.observation.loss.choices:.6g}",
        "sensitivity = { label = 1.0 }",
        "once = true",
    )


def _release(kind: str, sent: Sequence[SentOnce], followed: Sequence[Followed]) -> Iterator[str]:
    yield from ("[[release]]", f"kind = {toml_value(kind)}")
    where = "to the server" if sent[0].receivers == ("server",) else "to devices"
    sizes = sorted({message.records for message in sent if message.records is not None})
    about = f", each about {sizes[0] if len(sizes) == 1 else f'{sizes[0]} to {sizes[-1]}'} records" if sizes else ""
    yield from _comments(f"{len(sent)} messages {where} in {len({m.round for m in sent})} rounds{about}.")
    seals = [(own, seal) for own in followed for seal in own_seals(own, kind) if isinstance(seal, Seal)]
    bare = {own.unit: line for own in followed if (line := _line_of(own, kind, "bare"))}
    open_ = {own.unit: line for own in followed if (line := _line_of(own, kind, "unexplained"))}
    for unit, line in bare.items():
        yield from _comments(f"{line}: bare for the unit {unit}, which is left out below and counts as unprotected.")
    for unit, line in open_.items():
        yield from _comments(f"{line}: not explained for the unit {unit}.")
    yield from _noise(seals)
    units = list(dict.fromkeys(own.unit for own in followed))
    sealed = {own.unit for own, _ in seals}
    yield from _sensitivity(seals, bare)
    free = [str(unit) for unit in units if unit not in sealed and unit not in bare and unit not in open_]
    if free:
        yield f"independent_of = {toml_value(free)}  # as traced: but through other releases"
    if seals:
        yield f'leak = "{DECIDE}"  # "none" if no state that moves without noise changes it'
    if kind_named(kind) is None and sent[0].tensors:
        yield f"tensors = {toml_value(list(sent[0].tensors))}"


def _line_of(own: Followed, kind: str, state: str) -> str:
    """The line of the first message of this kind in this state; empty if there is none."""
    lines = (m.trail.where for m in own.shown if m.trail.message.kind == kind and m.state == state)
    return next(lines, "")


def _noise(seals: Sequence[tuple[Followed, Seal]]) -> Iterator[str]:
    if not seals:
        yield 'noise = "none"'
        return
    names, stds = set(), []
    for own, seal in seals:
        assert own.observation.trace is not None
        families = torch.unique(own.observation.trace.draws.families(seal.rows.used)).tolist()
        names |= {FAMILIES[number].name for number in families}
        stds.append(float(seal.rows.scales.square().sum(1).sqrt().min()))
    if names == {EXPONENTIAL.name}:
        names, stds = {LAPLACE.name}, [std / 2**0.5 for std in stds]
    where = ", ".join(dict.fromkeys(seal.where for _, seal in seals if seal.where))
    law = _LAWS.get(next(iter(names))) if len(names) == 1 else None
    if law is None:
        yield f'noise = "{DECIDE}"  # {" + ".join(sorted(names))}, at {where}'
    else:
        yield f'noise = "{law}"  # {where}'
        yield f"scale = {min(stds):.6g}"


def _sensitivity(seals: Sequence[tuple[Followed, Seal]], bare: dict[Unit, str]) -> Iterator[str]:
    """By unit how far the pair moved a message; how far any pair does is for a person to say."""
    gaps: dict[Unit, float] = {}
    for own, seal in seals:
        if own.unit not in bare:
            gaps[own.unit] = max(gaps.get(own.unit, 0.0), float(seal.gap.norm()))
    if gaps:
        moved = ", ".join(f"{unit} by {gap:.4g}" for unit, gap in gaps.items())
        yield from _comments(
            f"The traced pair moves one message: {moved} (L2). {DECIDE}: how far any pair can, such as twice the clip."
        )
        yield "sensitivity = { " + ", ".join(f'{unit} = "{DECIDE}"' for unit in gaps) + " }"


def _comments(text: str) -> list[str]:
    return [f"# {line}" for line in wrap(text, _WIDTH)]
