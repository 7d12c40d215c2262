"""Small systems, trained for a few rounds, that pages are computed from: what each engine sends, who can read it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any, get_args

from vflpriv.common.registry import available
from vflpriv.config.loading import load_config
from vflpriv.core.claims import Claim, SuccessClaim
from vflpriv.core.systems import System
from vflpriv.core.views import Adversary, View
from vflpriv.core.wire import Transcript, Wire
from vflpriv.run.systems import build_system, load_data

__all__ = ["SIZE", "Applies", "applicable", "claims_by_setting", "system_of", "variants"]

SIZE = {"rounds": 4, "batch_size": 16}
_TRAIN = 64
_DATA = ("digits", "breast-cancer")
_VIEWS = ("device(0)", "devices(all)", "eavesdropper")


@dataclass(frozen=True)
class Applies:
    """An engine with a setting and data that an attack on labels can be tried on, and through which views."""

    engine: str
    setting: str
    data: str
    views: tuple[str, ...]


def variants(engine: str) -> list[dict[str, Any]]:
    """The settings under which an engine sends other kinds of messages: the default, and summed logits."""
    fields = available("engine")[engine].settings_type.model_fields
    summed = "aggregation" in fields and fields["aggregation"].default != "sum"
    return [{}, *([{"aggregation": "sum"}] if summed else [])]


@cache
def system_of(engine: str, data: str = "digits", aggregation: str | None = None) -> System:
    """A small one, with every other setting as it is by default."""
    settings = {"name": engine, **SIZE, **({} if aggregation is None else {"aggregation": aggregation})}
    config = load_config({"data": {"name": data, "train": _TRAIN, "devices": 2}, "engine": settings})
    return build_system(config, 0, load_data(config))


def claims_by_setting(engine: str) -> list[tuple[Claim | SuccessClaim, str]]:
    """What an engine claims: by default, and with each protection of its uplink that it has."""
    system = system_of(engine)
    field = type(system.settings).model_fields.get("protection")
    choices = [] if field is None else [word for word in get_args(field.annotation) if word != "none"]
    by_key: dict[str, tuple[Claim | SuccessClaim, str]] = {}
    for changes in ({}, *({"protection": word, "noise_std": 1.0} for word in choices)):
        settings = system.settings.model_copy(update=changes)
        setting = f'`protection = "{changes["protection"]}"`' if changes else "default"
        claims = (
            *system.engine.claims(settings, system.schedule),
            *system.engine.success_claims(settings, system.schedule),
        )
        for claim in claims:
            by_key.setdefault(claim.key, (claim, setting))
    return list(by_key.values())


@cache
def _views(engine: str, data: str, aggregation: str | None) -> tuple[View, ...]:
    system, transcript = system_of(engine, data, aggregation), Transcript()
    trained = system.train([0])
    trained.run(Wire(transcript))
    size, own = system.data.devices, {m: trained.belongings(m) for m in range(system.data.devices)}
    return tuple(
        View.of(transcript, Adversary.parse(text), devices=size, classes=system.data.classes, own=own)
        for text in _VIEWS
    )


def applicable(attack: Any) -> list[Applies]:
    """Where an attack on labels finds what it needs, with ten classes or with two."""
    rows = []
    for engine in available("engine"):
        for changes in variants(engine):
            seen = [(data, view) for data in _DATA for view in _views(engine, data, changes.get("aggregation"))]
            open_ = [(data, str(view.adversary)) for data, view in seen if attack.refusal(view) is None]
            if open_:
                setting = ", ".join(f'{name} = "{value}"' for name, value in changes.items())
                rows.append(Applies(engine, setting, open_[0][0], tuple(dict.fromkeys(name for _, name in open_))))
    return rows
