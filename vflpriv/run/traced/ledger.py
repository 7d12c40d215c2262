"""A ledger from a trace: laws, sizes, sensitivities, state and counts as far as one run proves or shows them."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from textwrap import wrap
from typing import Any

from vflpriv.common.toml import toml_value
from vflpriv.core.kinds import kind_named
from vflpriv.core.units import Unit
from vflpriv.recording.ledger_file import DECIDE, LedgerConfig
from vflpriv.run.traced.derived import DerivedKind, MovedKind
from vflpriv.run.traced.training import TracedScript

__all__ = ["derived_config", "derived_ledger"]

_WIDTH = 118


def derived_config(traced: TracedScript, kinds: Sequence[DerivedKind], *, noisier: float = 1.0) -> LedgerConfig:
    """The ledger as accountants read it: what is not known counts as unprotected. Noise may be so many times larger."""
    releases = [_known(_fields(traced, derived)) for derived in kinds]
    for release in releases:
        if "scale" in release:
            release["scale"] = release["scale"] / noisier if release["noise"] == "rr" else release["scale"] * noisier
    return LedgerConfig.model_validate({**_head(traced), "release": releases, "model_follows_releases": True})


def derived_ledger(traced: TracedScript, kinds: Sequence[DerivedKind], rounds: int) -> str:
    """The text of a ledger file; `rounds` were followed."""
    whole = min(rounds, traced.rounds)
    text = (
        f"Derived by `vflpriv trace {traced.script.name}` from the first {whole} of {traced.rounds} rounds. "
        "Sensitivities are proved for all data and all draws by the operations before the noise. What one run does not "
        f'show says "{DECIDE}": until that is replaced, `vflpriv validate` names it.'
    )
    head = _head(traced)
    parts = [*_comments(text), *(f"{name} = {toml_value(head[name])}" for name in ("key", "title", "label_holders"))]
    parts += ["", "[batches]  # known to all who see the messages: no amplification by sampling"]
    parts += [f"batching = {toml_value(head['batches']['batching'])}"]
    for derived in kinds:
        fields = _fields(traced, derived)
        parts += ["", "[[release]]", f"kind = {toml_value(fields.pop('kind'))}", *_counted(traced, derived)]
        parts += [f"{name} = {toml_value(value)}{_remark(derived, name)}" for name, value in fields.items()]
    return "\n".join(parts) + "\n"


def _head(traced: TracedScript) -> dict[str, Any]:
    full = all(len(ids) == traced.wire.head.records for ids in traced.batches.values())
    return {
        "key": re.sub(r"[^\w.-]", "-", traced.script.name),
        "title": traced.script.name,
        "label_holders": ["server"],
        "batches": {"batching": "full" if full else "shuffle"},
    }


def _fields(traced: TracedScript, derived: DerivedKind) -> dict[str, Any]:
    """The fields of a release; what a person has to say is DECIDE."""
    fields: dict[str, Any] = {"kind": derived.kind, "noise": DECIDE if derived.law is None else derived.law}
    noised = derived.sealed if derived.law not in (None, "none") else {}
    if noised:
        fields["scale"] = derived.scale
        fields["sensitivity"] = {unit.value: _finite(derived.sensitivity(unit)) for unit in noised}
        fields |= _counts(noised)
        if not fields.get("once") and derived.law != "rr":
            fields["leak"] = _leak(derived, noised)
    free = [unit.value for unit, moved in derived.units.items() if _is_free(moved)]
    if free:
        fields["independent_of"] = free
    tensors = next((list(sent.tensors) for sent in traced.sent if sent.kind == derived.kind), [])
    if kind_named(derived.kind) is None and tensors:
        fields["tensors"] = tensors
    return fields


def _finite(bound: float) -> Any:
    return bound if math.isfinite(bound) else DECIDE


def _is_free(moved: MovedKind) -> bool:
    """Whether a unit reaches it through other messages alone."""
    return moved.state == "clean" or (moved.state == "sealed" and not moved.lines)


def _counts(noised: Mapping[Unit, MovedKind]) -> dict[str, Any]:
    """Whether noise is drawn once for all rounds, or once a round for all devices."""
    if all(moved.once for moved in noised.values()):
        return {"once": True}
    return {"shared": True} if all(moved.shared for moved in noised.values()) else {}


def _leak(derived: DerivedKind, noised: Mapping[Unit, MovedKind]) -> Any:
    """State that learns from exact values, or "none"."""
    leaks = {unit: leak for unit in noised if (leak := derived.leak(unit)) is not None}
    if not leaks:
        return "none"
    own = set(leaks) == {Unit.FEATURES}
    carrier = "the model of the device" if own else "a model that learns from exact values"
    return {"carrier": carrier, "sensitivity": {u.value: _finite(leak) for u, leak in leaks.items()}, "own": own}


def _known(fields: dict[str, Any]) -> dict[str, Any]:
    """The same release without what is left to a person."""
    if fields["noise"] == DECIDE:
        return fields | {"noise": "none"}
    bounds = dict(fields.get("sensitivity", {}))
    leak = fields.get("leak")
    if isinstance(leak, dict):
        bounds |= {unit: DECIDE for unit, bound in leak["sensitivity"].items() if bound == DECIDE}
        kept = {unit: bound for unit, bound in leak["sensitivity"].items() if bound != DECIDE}
        fields = fields | {"leak": leak | {"sensitivity": kept} if kept else "none"}
    unbounded = {unit: "unbounded" if bound == DECIDE else bound for unit, bound in bounds.items()}
    return fields | ({"sensitivity": unbounded} if unbounded else {})


def _counted(traced: TracedScript, derived: DerivedKind) -> Iterator[str]:
    """Comments: how many messages there are, and what is bare or not explained about them."""
    sent = [message for message in traced.sent if message.kind == derived.kind]
    where = "to the server" if sent[0].receivers == ("server",) else "to devices"
    sizes = sorted({len(message.records) for message in sent if message.records is not None})
    about = f", each about {sizes[0] if len(sizes) == 1 else f'{sizes[0]} to {sizes[-1]}'} records" if sizes else ""
    yield from _comments(f"{len(sent)} messages {where} in {len({m.round for m in sent})} rounds{about}.")
    for unit, moved in derived.units.items():
        if moved.state == "bare":
            said = f"{moved.where}: bare for the unit {unit}, which is left out below and counts as unprotected."
            yield from _comments(said)
        elif moved.state == "unexplained":
            yield from _comments(f"{moved.where}: not explained for the unit {unit}.")
        elif moved.reused:
            yield from _comments(f"{', '.join(moved.lines)}: the same draws are on several values.")
        elif derived.law == "rr":
            yield from _comments(f"{unit}: responses, {moved.laws}; what is made of them costs nothing more.")
        elif moved.lines and math.isinf(moved.ratio):
            moves = f"The traced pair moves one message by {moved.gap:.4g} (L2, {unit}). {DECIDE}: how far any pair can"
            yield from _comments(f"{moves}, such as twice the clip; nothing proves a bound: {moved.why}.")


def _remark(derived: DerivedKind, name: str) -> str:
    """What stands behind a field."""
    lines = ", ".join(dict.fromkeys(line for moved in derived.units.values() for line in moved.lines))
    laws = " + ".join(dict.fromkeys(moved.laws for moved in derived.sealed.values() if moved.laws))
    proved = all(math.isfinite(moved.ratio) for moved in derived.sealed.values())
    remarks = {
        "noise": f"{laws}, at {lines}" if derived.law is None else lines,
        "sensitivity": "proved" if proved and derived.law != "rr" else "",
        "leak": "no state that learns from exact values reaches it" if not derived.stateful else "proved",
        "independent_of": "but through other releases",
    }
    return f"  # {remarks[name]}" if remarks.get(name) else ""


def _comments(text: str) -> list[str]:
    return [f"# {line}" for line in wrap(text, _WIDTH)]
