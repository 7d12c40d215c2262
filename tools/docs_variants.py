"""A page for each engine, attack, audit and accountant: docstrings, declarations, and what they do on small data."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from tools.docs_markdown import docstrings, paper, prose, settings_table, table
from tools.docs_systems import Applies, applicable, claims_by_setting, system_of
from vflpriv import formatting as f
from vflpriv.config import AuditConfig
from vflpriv.ledger import Event, Exposure, Reading, Sampling
from vflpriv.registry import available
from vflpriv.releases import Gaussian, Laplace, RandomizedResponse
from vflpriv.report_files import to_toml
from vflpriv.units import Unit
from vflpriv.views import Adversary

__all__ = ["DELTA", "accountant_page", "attack_page", "audit_page", "engine_page", "overview"]

DELTA = 1e-5
_AUDIT_SETTINGS = {
    "two-world": ("canaries", "trials", "reach", "min_trials", "stop_early"),
    "one-run": ("one_run",),
    "sensitivity": ("sensitivity",),
    "noise": ("noise",),
    "server-state": ("state",),
}


def overview(kind: str, intro: str) -> str:
    """The list of all of a kind."""
    rows = [(f"[`{name}`]({name}.md)", prose(item.summary)) for name, item in available(kind).items()]
    return f"# {kind.capitalize()}s\n\n{intro}\n\n{table(('name', 'what it is'), rows)}"


def engine_page(name: str) -> str:
    """What an engine does, lets out, claims and can be told."""
    engine = available("engine")[name]
    system = system_of(name)
    releases = [
        (f"`{r.kind}`", r.what, r.noise, _bounds(r), ", ".join(sorted(r.seen_by))) for r in system.ledger.releases
    ]
    claims = [
        (f"`{c.key}`", f"{paper(c.source)}, {prose(c.where)}", prose(c.statement), c.unit, c.adversary, setting)
        for c, setting in claims_by_setting(name)
    ]
    return _join(
        f"# {name}",
        f"*{_sentence(engine.summary)}* Source: {prose(engine.source)}.",
        docstrings(engine),
        "## Try it",
        _fence("toml", _toml(name, audit={"trials": 100})),
        _fence("sh", "vflpriv account audit.toml      # budgets, without training\nvflpriv audit audit.toml"),
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


def _bounds(release: Any) -> str:
    """By unit; those with the same bound together."""
    found: dict[str, list[str]] = {}
    for unit in Unit:
        bound = release.sensitivity.get(unit, 0.0)
        if bound > 0:
            found.setdefault("unbounded" if math.isinf(bound) else f.exact(bound), []).append(unit.value)
    return "; ".join(f"{bound} for {', '.join(units)}" for bound, units in found.items()) or "none"


def _attacks_on(engine: str) -> list[tuple[str, ...]]:
    rows = []
    for name, attack in available("attack").items():
        if attack.target == "labels":
            mine = [place for place in applicable(attack()) if place.engine == engine]
            for views, settings in _together(mine).items():
                words = (f"[`{name}`](../attacks/{name}.md)", prose(attack.summary))
                rows.append((*words, settings, views))
    return rows


def _together(places: Sequence[Applies]) -> dict[str, str]:
    """The settings of one engine by the views that are open with them."""
    found: dict[str, list[str]] = {}
    for place in places:
        found.setdefault(", ".join(place.views), []).append(f"`{place.setting}`" if place.setting else "default")
    return {views: " and ".join(settings) for views, settings in found.items()}


def attack_page(name: str) -> str:
    """What an attack reads, is told and does, and where it finds that."""
    attack = available("attack")[name]
    labels = attack.target == "labels"
    told = []
    if labels and attack.auxiliary:
        told.append("the labels of a few records (`attack.labels_per_class`): counted, not scored")
    told += [_KNOWN[word] for word in sorted(getattr(attack, "knows", ()))]
    conduct = getattr(attack, "conduct", None)
    facts = [
        ("goes after", attack.target),
        ("reads", ", ".join(f"`{kind}`" for kind in sorted(attack.needs))),
        ("is told", "; ".join(told) or "nothing"),
        ("its devices", "follow the protocol" if conduct is None else _conduct(conduct)),
        ("tried", _tried(attack)),
    ]
    if labels:
        places = applicable(attack())
        told_by = {
            engine: [p for p in places if p.engine == engine] for engine in dict.fromkeys(p.engine for p in places)
        }
        rows = [(_engine(e), how, views) for e, mine in told_by.items() for views, how in _together(mine).items()]
        where = table(("engine", "setting", "seen by"), rows)
        first = next((place for place in places if place.engine == "split"), places[0])
        example = _toml(first.engine, first.data, first.setting, attack={"attacks": [name], "seeds": 2})
    else:
        senders = _senders(attack.needs)
        where = table(("engine", "messages"), [(_engine(e), kinds) for e, kinds in senders.items()])
        if attack.target == "membership":
            senders, where = {"split": ""}, "All of them: what it reads is asked for after the training."
        column = {"sensitive_column": 3} if "attribute" in attack.knows else {}
        features = {"attack.features": {"attacks": [name], "known_records": 40, **column}}
        sender = "split" if "split" in senders else next(iter(senders))
        example = _toml(sender, attack={"seeds": 2}, **features)
    return _join(
        f"# {name}",
        f"*{_sentence(attack.summary)}*",
        docstrings(attack),
        table(("this attack", ""), facts),
        "## Try it",
        _fence("toml", example),
        _fence("sh", "vflpriv attack attack.toml"),
        "## Where it finds what it needs",
        "Found by asking it, with ten classes and with two, through the views of a device, of all devices and of an "
        "eavesdropper."
        if labels
        else "Engines that send what it reads, with default settings.",
        where or "Nowhere, with default settings.",
    )


_KNOWN = {
    "records": "a few records with their features (`attack.features.known_records`): counted, not scored",
    "attribute": "the sensitive column of a few records: counted, not scored",
    "model": "the device's model as it was in each round: a white box",
    "labels": "the candidates' labels",
    "membership": "whether a few candidates were trained on (`attack.features.known_records`): counted, not scored",
}


def _tried(attack: Any) -> str:
    if attack.heavy:
        return "where it is named: it trains models of its own"
    return "by default" if attack.target == "labels" else "by default, with a section `[attack.features]`"


def _conduct(conduct: Any) -> str:
    ways = ["send something else"] * (conduct.forge is not None) + ["scale their own steps up"] * bool(conduct.gain)
    return f"{' and '.join(ways)} ({conduct.name})"


def _senders(needs: frozenset[str]) -> dict[str, str]:
    """Engines that send what an attack reads."""
    found = {}
    for engine in available("engine"):
        sent = dict.fromkeys(r.kind for r in system_of(engine).ledger.releases if r.kind in needs)
        if sent:
            found[engine] = ", ".join(f"`{kind}`" for kind in sent)
    return found


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
        lines += ["", f"[{section}]", to_toml(values).rstrip()]
    return "\n".join(lines)


def audit_page(name: str) -> str:
    """What an audit looks for, and the settings that steer it."""
    audit = available("audit")[name]
    return _join(
        f"# {name}",
        f"*{_sentence(audit.summary)}*",
        docstrings(audit),
        "## Settings in `[audit]`",
        settings_table(AuditConfig, _AUDIT_SETTINGS.get(name, ())) or "None of its own.",
    )


def accountant_page(name: str) -> str:
    """What an accountant bounds, and its answers to a few questions."""
    accountant = available("accountant")[name]
    rows = []
    for words, exposure in _questions():
        why = accountant().supports(exposure)
        if why is not None:
            rows.append((words, f"no answer: {why}", ""))
            continue
        budget = accountant().budget(exposure, DELTA)
        rows.append((words, f.exact(budget.lower), f.exact(budget.upper)))
    return _join(
        f"# {name}",
        f"*{_sentence(accountant.summary)}*",
        docstrings(accountant),
        f"## What it answers at δ = {f.delta(DELTA)}",
        table(("question", "ε ≥", "ε ≤"), rows),
        _fence("sh", f"vflpriv account papers --accountant {name} --only dpzv-sound"),
    )


def _questions() -> Sequence[tuple[str, Exposure]]:
    gaussian = Event(kind="message", noise=Gaussian(10.0), sensitivity=1.0, count=100)
    sampled = Event(kind="message", noise=Gaussian(1.0), sensitivity=1.0, count=100, sampling=Sampling("poisson", 0.01))
    laplace = Event(kind="message", noise=Laplace(20.0), sensitivity=1.0, count=10)
    rr = Event(kind="label", noise=RandomizedResponse(0.5), sensitivity=1.0, count=1)
    return [
        ("100 Gaussian releases, noise 10 times the sensitivity", _exposed(gaussian)),
        (
            "100 Gaussian releases of secret Poisson batches, rate 0.01, noise as large as the sensitivity",
            _exposed(sampled),
        ),
        ("10 Laplace releases, scale 20 times the sensitivity", _exposed(laplace)),
        ("one label by randomised response, ε = 0.5", _exposed(rr)),
        ("the first and the third together", _exposed(gaussian, laplace)),
    ]


def _exposed(*events: Event) -> Exposure:
    return Exposure(
        unit=Unit.ADD_REMOVE,
        adversary=Adversary("outsider"),
        reading=Reading.RIGOROUS,
        batches="secret",
        events=events,
        unprotected=(),
        assumptions=(),
        not_applicable=None,
    )


def _sentence(summary: str) -> str:
    return prose(f"{summary[:1].upper()}{summary[1:]}.")


def _fence(language: str, text: str) -> str:
    return f"```{language}\n{text.rstrip()}\n```"


def _join(*blocks: str) -> str:
    return "\n\n".join(block.strip() for block in blocks if block.strip()) + "\n"
