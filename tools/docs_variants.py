"""A page for each engine and attack: docstrings, declarations, and what they do on small data."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any

from tools.docs_markdown import docstrings, fence, join, paper, prose, sentence, settings_table, table
from tools.docs_systems import Applies, applicable, claims_by_setting, system_of
from vflpriv.common import formatting as f
from vflpriv.common.registry import available
from vflpriv.common.toml import toml_file
from vflpriv.core.units import Unit

__all__ = ["attack_page", "defence_page", "engine_page", "overview"]


def overview(kind: str, intro: str) -> str:
    """The list of all of a kind."""
    rows = [(f"[`{name}`]({name}.md)", prose(item.summary)) for name, item in available(kind).items()]
    return f"# {kind.capitalize()}s\n\n{intro}\n\n{table(('name', 'what it is'), rows)}"


def engine_page(name: str) -> str:
    """The page of an engine: what it does, its releases, its claims and its settings."""
    engine = available("engine")[name]
    system = system_of(name)
    releases = [
        (f"`{r.kind}`", r.what, r.noise, _bounds(r), ", ".join(sorted(r.seen_by))) for r in system.ledger.releases
    ]
    claims = [
        (f"`{c.key}`", f"{paper(c.source)}, {prose(c.where)}", prose(c.statement), c.unit, c.adversary, setting)
        for c, setting in claims_by_setting(name)
    ]
    return join(
        f"# {name}",
        f"*{sentence(engine.summary)}* Source: {prose(engine.source)}.",
        docstrings(engine),
        "## Try it",
        fence("toml", _toml(name, audit={"trials": 100})),
        fence("sh", "vflpriv account audit.toml      # budgets, without training\nvflpriv audit audit.toml"),
        "## What leaves its owner",
        "With default settings. A sensitivity is that of one round; a unit that is not named cannot move the message, "
        "but through other releases.",
        table(("kind", "what", "noise", "sensitivity", "seen by"), releases),
        "## What is claimed",
        table(("claim", "where", "what it says", "unit", "seen by", "setting"), claims) or "Nothing.",
        "Claims of your own go into `[[system.claim]]`.",
        "## Attacks that find what they need",
        table(("attack", "what it does", "setting", "seen by"), _attacks_on(name)) or "None of those on labels.",
        "## Settings",
        settings_table(engine.settings_type),
    )


def defence_page(name: str) -> str:
    """The page of a defence: what it does, what it promises, which engines it fits, and its strengths."""
    defence = available("defence")[name]
    fitting = [engine for engine in available("engine") if _fits(defence(), engine)]
    given = {field: value for field, value in defence().model_dump(mode="json").items() if value is not None}
    strengths = ", ".join(f"{field} = {json.dumps(value)}" for field, value in given.items())
    usual = "split" if "split" in fitting else fitting[0]
    data = "breast-cancer" if defence.binary else "digits"
    setting = f"defence = {{ {strengths} }}"
    example = _toml(usual, data, setting, audit={"trials": 100})
    return join(
        f"# {name}",
        f"*{sentence(defence.summary)}* Source: {prose(defence.source)}. Promise: {prose(defence().promise)}.",
        docstrings(defence),
        "## Try it",
        f"{_TEXTS} `{setting}`" if defence.of_texts else fence("toml", example),
        "## Engines whose messages it changes",
        ", ".join(map(_engine, fitting)) + (", with labels of two classes." if defence.binary else "."),
        "## Strengths",
        settings_table(defence) or "None.",
    )


def _fits(defence: Any, engine: str) -> bool:
    system = system_of(engine)
    kinds = {release.kind for release in system.ledger.releases}
    fields = type(system.settings).model_fields
    bottoms = available("engine")[engine].bottoms
    if defence.of_texts and bottoms is not None and "transformer-embedding" not in bottoms:
        return False
    classes, texts = 2 if defence.binary else system.classes, defence.of_texts
    return defence.refusal(kinds=kinds, fields=fields, classes=classes, texts=texts) is None


_TEXTS = (
    'On texts, such as `data.name = "imdb"` with `data.vocabulary`, and with the engine settings `bottom = '
    '"transformer-embedding"`, `top = "transformer"` and `encoder`, the folder of its checkpoint:'
)
"""How devices hold texts: their data and their encoder are files that are not here."""


def _bounds(release: Any) -> str:
    """By unit; those with the same bound together."""
    by_name: dict[str, list[str]] = {}
    for unit in Unit:
        bound = release.sensitivity.get(unit, 0.0)
        if bound > 0:
            by_name.setdefault("unbounded" if math.isinf(bound) else f.exact(bound), []).append(unit.value)
    return "; ".join(f"{bound} for {', '.join(units)}" for bound, units in by_name.items()) or "none"


def _attacks_on(engine: str) -> list[tuple[str, ...]]:
    rows = []
    for name, attack in available("attack").items():
        if attack.target == "labels":
            mine = [place for place in applicable(attack()) if place.engine == engine]
            for views, settings in _together(mine).items():
                cells = (f"[`{name}`](../attacks/{name}.md)", prose(attack.summary))
                rows.append((*cells, settings, views))
    return rows


def _together(places: Sequence[Applies]) -> dict[str, str]:
    """The settings of one engine by the views that are open with them."""
    by_name: dict[str, list[str]] = {}
    for place in places:
        by_name.setdefault(", ".join(place.views), []).append(f"`{place.setting}`" if place.setting else "default")
    return {views: " and ".join(settings) for views, settings in by_name.items()}


def attack_page(name: str) -> str:
    """What an attack reads, is told and does, and where it finds that."""
    attack = available("attack")[name]
    labels = attack.target == "labels"
    told, conduct = [], getattr(attack, "conduct", None)
    if labels and attack.auxiliary:
        told.append("the labels of a few records (`attack.labels_per_class`): counted, not scored")
    devices = "follow the protocol" if conduct is None else _conduct(conduct)
    if attack.target == "integrity":
        devices = "depart from the protocol"
    told += [_KNOWN.get(word, word) for word in sorted(getattr(attack, "knows", ()))]
    facts = [
        ("goes after", attack.target),
        ("reads", ", ".join(f"`{kind}`" for kind in sorted(attack.needs))),
        ("is told", "; ".join(told) or "nothing"),
        ("its devices", devices),
        ("knows the defences", ", ".join(f"`{d}`" for d in sorted(getattr(attack, "adapts_to", ()))) or "none"),
        ("tried", _tried(attack)),
    ]
    if labels:
        places = applicable(attack())
        told_by = {
            engine: [p for p in places if p.engine == engine] for engine in dict.fromkeys(p.engine for p in places)
        }
        rows = [(_engine(e), how, views) for e, mine in told_by.items() for views, how in _together(mine).items()]
        where = table(("engine", "setting", "seen by"), rows)
        first = next((place for place in places if place.engine == "split"), places[0] if places else None)
        example = "" if first is None else _attacked(first, name)
    else:
        senders = _senders(attack.needs)
        where = table(("engine", "messages"), [(_engine(e), kinds) for e, kinds in senders.items()])
        if attack.target == "membership":
            senders, where = {"split": ""}, "All of them: what it reads is asked for after the training."
        column = {"sensitive_column": 3} if {"attribute", "others", "own-trainings"} & attack.knows else {}
        if attack.target == "integrity":
            return _sabotage_page(name, attack, facts, where)
        features = {"attack.features": {"attacks": [name], "known_records": 40, **column}}
        sender = "split" if "split" in senders else next(iter(senders))
        example = "" if attack.target == "tokens" else _toml(sender, attack={"seeds": 2}, **features)
    return join(
        f"# {name}",
        f"*{sentence(attack.summary)}*",
        docstrings(attack),
        table(("this attack", ""), facts),
        *([f'{_TEXTS} `attack.features.attacks = ["{name}"]`.'] if attack.target == "tokens" else _try(example)),
        "## Where it finds what it needs",
        "Found by asking it, with ten classes and with two, through the views of a device, of all devices and of an "
        "eavesdropper."
        if labels
        else "Engines that send what it reads, with default settings.",
        where
        or ("Nowhere, with default settings." if example else "In no engine, but in recorded systems that send it."),
    )


def _sabotage_page(name: str, attack: Any, facts: list[tuple[str, str]], where: str) -> str:
    """The page of an attack by dishonest devices, which a flag asks for."""
    return join(
        f"# {name}",
        f"*{sentence(attack.summary)}*",
        docstrings(attack),
        table(("this attack", ""), facts),
        "## Try it",
        fence("toml", _toml("split", attack={"views": ["device(0)"], "attacks": ["label_direction"], "seeds": 2})),
        fence("sh", "vflpriv attack attack.toml --malicious"),
        "## Where it finds what it needs",
        where,
    )


def _attacked(place: Any, name: str) -> str:
    """A configuration of an engine with one attack."""
    return _toml(place.engine, place.data, place.setting, attack={"attacks": [name], "seeds": 2})


def _try(example: str) -> list[str]:
    """How to try an attack on an engine; nothing if no engine sends what it reads."""
    if not example:
        return []
    return ["## Try it", fence("toml", example), fence("sh", "vflpriv attack attack.toml")]


_KNOWN = {
    "records": "a few records with their features (`attack.features.known_records`): counted, not scored",
    "attribute": "the sensitive column of a few records: counted, not scored",
    "model": "the device's model as it was in each round: a white box",
    "published": "the checkpoint that the device's model started from",
    "others": "a training of its own on held-out records, from the same first parameters, and their sensitive column",
    "own-trainings": "trainings of its own, on draws of the same records (`attack.features.shadow_models`)",
    "start": "the server's model before the first round, which comes from a public seed",
    "shadows": "models that it trains itself, on candidates of its own choice",
    "labels": "the candidates' labels",
    "target": "a few training records of the class that it wants (`attack.labels_per_class`)",
    "membership": "whether a few candidates were trained on (`attack.features.known_records`): counted, not scored",
}


def _tried(attack: Any) -> str:
    if attack.target == "integrity" or getattr(attack, "forges", False):
        return "with `vflpriv attack --malicious`, which sets `attack.malicious`"
    if attack.heavy:
        return "where it is named: it trains models of its own, which takes long"
    if getattr(attack, "adapts_to", ()):
        return "by default where a defence that it knows is in force"
    return "by default" if attack.target == "labels" else "by default, with a section `[attack.features]`"


def _conduct(conduct: Any) -> str:
    ways = ["send something else"] * (conduct.forge is not None) + ["scale their own steps up"] * bool(conduct.gain)
    return f"{' and '.join(ways)} ({conduct.name})"


def _senders(needs: frozenset[str]) -> dict[str, str]:
    """Engines that send what an attack reads."""
    variants = {}
    for engine in available("engine"):
        kinds = [r.kind for r in system_of(engine).ledger.releases]
        # What a trained model says of records is not part of a training: any engine's does.
        kinds += ["predictions"] if needs == {"predictions"} else []
        sent = dict.fromkeys(kind for kind in kinds if kind in needs)
        if sent:
            variants[engine] = ", ".join(f"`{kind}`" for kind in sent)
    return variants


def _engine(name: str) -> str:
    return f"[`{name}`](../engines/{name}.md)"


def _toml(engine: str, data: str = "digits", setting: str = "", **sections: dict[str, object]) -> str:
    """A configuration of one engine."""
    name = "attack.toml" if "attack" in sections else "audit.toml"
    lines = [
        f"# {name}",
        "[data]",
        f'name = "{data}"',
        "",
        "[engine]",
        f'name = "{engine}"',
        "rounds = 200",
        "batch_size = 64",
    ]
    lines += [setting] if setting else []
    for section, values in sections.items():
        lines += ["", f"[{section}]", toml_file(values).rstrip()]
    return "\n".join(lines)
