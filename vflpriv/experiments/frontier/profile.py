"""What `vflpriv frontier` compares: engines in forms whose budget can be accounted, and settings to try for each.

The embedded candidates are those of `candidates.toml` in this folder; a file of one's own has the same fields.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, field_validator

from vflpriv.common.toml import Section
from vflpriv.config.errors import parse_settings
from vflpriv.config.loading import put, read_tree
from vflpriv.config.models import Config, DataConfig, SystemConfig
from vflpriv.core.units import Unit
from vflpriv.core.views import Adversary

__all__ = ["Candidate", "FrontierConfig", "load_frontier"]

Epsilon = Annotated[float, Field(gt=0, le=1000)]


class Candidate(Section):
    """An engine with settings that are fixed, and some of which the best are taken."""

    key: str = Field(pattern=r"^[\w.-]+$", description="short name, for --only and for plots")
    title: str = Field("", description="what it is, in a few words; the key if not given")
    engine: dict[str, Any] = Field(description="name and settings of the engine; its noise is found for each ε")
    tries: tuple[dict[str, Any], ...] = Field(
        ({},), min_length=1, description="settings of which the best is taken, by the accuracy on validation records"
    )
    units: tuple[Unit, ...] = Field(tuple(Unit), min_length=1, description="the units for which it is tried")
    audit: dict[str, Any] = Field(
        {},
        description="settings that its audits have instead, to be faster: sizes that neither sensitivity nor noise "
        "depends on; a few trials without them have to show the same distance between the worlds",
    )
    images: bool = Field(False, description="whether it needs blocks that are bands of an image's rows")


class FrontierConfig(Section):
    """One question: the best accuracy at each ε, for a unit, a view and a δ, on one data set."""

    seed: int = Field(0, ge=0, description="the seed of the first training; others follow")
    device: str = Field("auto", description="auto, cpu, cuda or mps")
    accountant: str = Field("auto", description="an accountant that `vflpriv accountants` lists")
    confidence: float = Field(0.95, gt=0.5, lt=1, description="confidence of every interval and lower bound")
    data: DataConfig = DataConfig()
    unit: Unit = Field(Unit.RECORD, description="what is protected")
    view: str = Field("devices(all)", description="from whom")
    delta: float = Field(1e-5, gt=0, lt=1, description="δ at which ε is read")
    epsilons: tuple[Epsilon, ...] = Field((0.5, 1.0, 2.0, 4.0, 8.0), min_length=1, description="the budgets")
    seeds: int = Field(3, ge=1, description="trainings of the best candidate at each ε")
    validation: float = Field(0.1, gt=0, description="training records kept back while settings are tried")
    finalists: int = Field(
        3,
        ge=1,
        description="settings at each ε, of all candidates, that are tried with more seeds before one is chosen",
    )
    final_seeds: int = Field(
        3, ge=1, description="trainings of each finalist on validation records, the first included"
    )
    count_tuning: bool = Field(
        False,
        description="count the trainings that settings were tried with against the budget; otherwise the report says "
        "that they are not",
    )
    trials: int = Field(
        2000, ge=0, description="trainings in each world, at most, by which the best candidate is audited; 0 for none"
    )
    tightness: float = Field(
        0.95,
        gt=0,
        lt=1,
        description="measured μ over accounted μ that an audit is to reach on average: no more trials than that takes",
    )
    audit_records: int = Field(
        100, ge=2, description="training records of an audit, or a batch of them; its noise is calibrated for them"
    )
    candidate: tuple[Candidate, ...] = Field(min_length=1)

    @field_validator("view")
    @classmethod
    def _parsed(cls, value: str) -> str:
        return str(Adversary.parse(value))

    @field_validator("epsilons")
    @classmethod
    def _rising(cls, value: tuple[float, ...]) -> tuple[float, ...]:
        return tuple(sorted(set(value)))

    @field_validator("candidate")
    @classmethod
    def _distinct(cls, value: tuple[Candidate, ...]) -> tuple[Candidate, ...]:
        keys = [candidate.key for candidate in value]
        for key in keys:
            if keys.count(key) > 1:
                raise ValueError(f"candidates with distinct keys, found {key!r} twice")
        return value

    def config(
        self,
        candidate: Candidate,
        settings: Mapping[str, Any],
        *,
        seed: int,
        tuning_runs: int | None = None,
        **data: Any,
    ) -> Config:
        """The configuration of one training of a candidate with these settings; `data` are fields of [data]."""
        fields = {**self.data.model_dump(exclude_unset=True), **({"keep_shape": True} if candidate.images else {})}
        system = SystemConfig(
            key=candidate.key,
            title=candidate.title,
            engine={**candidate.engine, **settings},
            tuning_runs=tuning_runs,
        )
        return Config(
            seed=seed,
            device=self.device,
            accountant=self.accountant,
            confidence=self.confidence,
            data=parse_settings(DataConfig, {**fields, **data}, "data"),
            system=(system,),
        )


def load_frontier(source: str | Path | None, overrides: Mapping[str, Any] | None = None) -> FrontierConfig:
    """A file with candidates, the embedded one if none is given, with some fields overridden by dotted path."""
    if source is None:
        tree = tomllib.loads(
            files("vflpriv.experiments.frontier").joinpath("candidates.toml").read_text(encoding="utf-8")
        )
    else:
        tree = read_tree(Path(source), "CONFIG")
    for dotted, value in (overrides or {}).items():
        put(tree, dotted, value)
    return parse_settings(FrontierConfig, tree, "")
