"""All pages of the documentation that are generated from the code: `python -m tools.docs_pages` prints their names."""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import typer

from tools.docs_bounds import accountant_page, audit_page
from tools.docs_gallery import gallery_page
from tools.docs_markdown import prose, settings_table, table
from tools.docs_variants import attack_page, defence_page, engine_page, overview
from vflpriv.audits.statistics.power import EXCESS, power_gdp
from vflpriv.cli.main import app
from vflpriv.common import formatting
from vflpriv.common.formatting import percent
from vflpriv.common.registry import available
from vflpriv.config.claims import ClaimConfig
from vflpriv.config.models import (
    AttackConfig,
    AuditConfig,
    Config,
    DataConfig,
    FeatureConfig,
    SystemConfig,
)
from vflpriv.core.canaries import CanaryKind
from vflpriv.core.units import Unit
from vflpriv.data.catalogue import DATASETS

__all__ = ["TRIALS", "filled", "generated_below", "pages", "power_rows"]

_KINDS = {
    "engine": (engine_page, "A training algorithm with what it sends, what it lets out and what its authors claim."),
    "defence": (defence_page, "What a party does to its messages so that they tell less. Most promise no ε."),
    "attack": (attack_page, "What an adversary does with its view. Each says what it needs, and refuses otherwise."),
    "audit": (audit_page, "Ways to find out that a promise or one of its premises does not hold."),
    "accountant": (accountant_page, "Upper bounds on ε from the ledger: what leaves, under which noise, how often."),
}
_SECTIONS = {
    "Top": Config,
    "`[data]`": DataConfig,
    "`[[system]]`": SystemConfig,
    "`[audit]` or `[system.audit]`": AuditConfig,
    "`[[system.claim]]`": ClaimConfig,
    "`[attack]`": AttackConfig,
    "`[attack.features]`": FeatureConfig,
}


@cache
def pages() -> dict[str, str]:
    """Text by path within the documentation."""
    pages = {
        "gallery.md": gallery_page(),
        "reference/configuration.md": _configuration(),
        "reference/commands.md": _commands(),
    }
    for kind, (page, intro) in _KINDS.items():
        pages[f"{kind}s/index.md"] = overview(kind, intro)
        pages |= {f"{kind}s/{name}.md": page(name) for name in available(kind)}
    return pages


def filled(text: str) -> str:
    """A page that is written by hand, with the tables that it has a place for."""
    for name, made in _tables().items():
        text = text.replace(f"<!-- table: {name} -->", made)
    return text


def _tables() -> dict[str, str]:
    units = [
        (f"`{u}`", u.description, ", ".join(f"`{v}`" for v in Unit if v is not u and u.implies(v)) or "–") for u in Unit
    ]
    return {
        "units": table(("unit", "what one neighbouring world changes", "includes"), units),
        "canaries": table(("canary", "what it is"), [(f"`{kind}`", kind.description) for kind in CanaryKind]),
        "power": table(("claimed μ", *(f"2 × {n} trials" for n in TRIALS)), power_rows()),
        "guesses": table(("ε", "the best adversary is right at most", "a coin"), _guesses()),
        "formats": table(
            ("format", "what it is"), [(f"`{n}`", item.summary) for n, item in available("format").items()]
        ),
    }


def _guesses() -> list[tuple[str, str, str]]:
    """How often the best adversary guesses a fair coin under randomised response, the worst that ε permits."""
    return [(f"{epsilon:g}", percent(1 / (1 + math.exp(-epsilon))), percent(0.5)) for epsilon in (0.1, 0.5, 1, 2, 4, 8)]


TRIALS = (100, 400, 1500, 5000)
"""Trials in each world for which the documentation says how much they find."""


def power_rows() -> list[tuple[str, ...]]:
    """How likely a mechanism of 1.2, and of 2, times the claimed μ is called violated at 99.9 %, if it is one test."""
    level = 1 - Config.model_fields["verdict_confidence"].default

    def found(mu: float, trials: int) -> str:
        return ", ".join(percent(power_gdp(mu, trials, level, excess=excess)) for excess in (EXCESS, 2.0))

    return [(formatting.mu(mu), *(found(mu, n) for n in TRIALS)) for mu in (0.25, 0.5, 1.0, 2.0)]


def generated_below() -> dict[str, tuple[str, ...]]:
    """The page of each engine, attack and so on, below the list of its kind."""
    return {f"{kind}s/index.md": tuple(f"{kind}s/{name}.md" for name in available(kind)) for kind in _KINDS}


def _configuration() -> str:
    blocks = [
        "# Configuration",
        "Every field of a configuration file, from the schema that reads it; `vflpriv schema` prints it as JSON. "
        "An engine's own settings are on [its page](../engines/index.md).",
    ]
    for title, model in _SECTIONS.items():
        blocks += [f"## {title}", prose(model.__doc__ or ""), settings_table(model)]
    rows = [(f"`{name}`", dataset.summary) for name, dataset in DATASETS.items()]
    blocks += [
        "## Data sets",
        "`vflpriv data` lists them, `vflpriv data fetch NAME` brings one.",
        table(("name", "what it is"), rows),
    ]
    return "\n\n".join(block.strip() for block in blocks) + "\n"


def _commands() -> str:
    group: Any = typer.main.get_command(app)
    blocks = ["# Commands", prose(group.help or "")]
    for name in sorted(group.commands):
        blocks += _command(name, group.commands[name])
    return "\n\n".join(block for block in blocks if block) + "\n"


def _command(name: str, command: Any) -> list[str]:
    rows = []
    context = command.context_class(command, info_name=name)
    for parameter in (option for option in command.get_params(context) if option.name != "help"):
        if parameter.param_type_name == "option":
            names = ", ".join(f"`{subcommand}`" for subcommand in (*parameter.opts, *parameter.secondary_opts))
            rows.append((names, prose(parameter.help or "")))
        else:
            rows.append((f"`{parameter.name.upper()}`", prose(parameter.help or "")))
    blocks = [f"## vflpriv {name}", prose(command.help or ""), table(("option", "what it is"), rows)]
    for inner, subcommand in sorted(getattr(command, "commands", {}).items()):
        blocks += _command(f"{name} {inner}", subcommand)
    return blocks


if __name__ == "__main__":
    for path in pages():
        print(path)
