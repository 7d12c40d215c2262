"""Published tables and figures as profiles: the data, the settings and the figures of each row, as they are printed.

A profile is a TOML file of the folder `profiles`, or a reader's own.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from vflpriv.common.toml import Section
from vflpriv.config.errors import parse_settings
from vflpriv.config.loading import read_tree
from vflpriv.config.models import Config, DataConfig, SystemConfig
from vflpriv.errors import InputError

__all__ = ["Measure", "Profile", "ProfileRow", "Protected", "Quick", "load_profile", "profile_names"]

_FOLDER = "profiles"
Measure = Literal["accuracy", "auc", "rises", "megabytes", "mebibytes", "seconds"]
"""What is compared: shares in percent at the end of a training, rounds in which an ADMM training's Lagrangian rose, or
what it cost until the target was reached."""
_COSTS = {"megabytes", "mebibytes", "seconds"}
Percent = Annotated[float, Field(ge=0, le=100)]
Printed = Annotated[float, Field(ge=0, allow_inf_nan=True)]


class Quick(Section):
    """What `--quick` trains instead: its figures show the shape, not the last digits."""

    rounds: float = Field(0.1, gt=0, le=1, description="share of each row's rounds")
    data: dict[str, Any] = Field(default_factory=dict, description="fields of [data] that are smaller, for all rows")
    engine: dict[str, Any] = Field(default_factory=dict, description="engine settings that are smaller, for all rows")
    test: int | None = Field(
        None, ge=1, description="test records that accuracy is measured on, the first; all if not given"
    )
    seeds: int = Field(1, ge=1, description="trainings of each row")


class Protected(Section):
    """The guarantee that is printed beside a row: its ε, and of what under which view it is accounted here."""

    claimed: float = Field(gt=0, description="ε as it is printed")
    unit: str = Field(description="what is protected: label, record, features, client, …")
    view: str = Field(description="from whom: device, devices(all), server, …")


class ProfileRow(Section):
    """One training of a table: settings that differ from those of all rows, and the printed figures."""

    key: str = Field(pattern=r"^[\w.-]+$", description="short name, for --only and for plots")
    title: str = Field("", description="what the paper calls it; the key if not given")
    engine: dict[str, Any] = Field(description="name and settings of the engine")
    tries: tuple[dict[str, Any], ...] = Field(
        (),
        description="settings of the engine of which the best is taken, by the accuracy on validation records with "
        "another seed",
    )
    like: str = Field(
        "", description="the key of an earlier row whose chosen settings this one takes, instead of tries"
    )
    data: dict[str, Any] = Field(default_factory=dict, description="fields of [data] that differ for this row")
    paper: dict[Measure, Printed] = Field(
        default_factory=dict,
        description="printed figures: accuracy and auc in percent; rises, the rounds in which the augmented Lagrangian "
        "of an ADMM training rose; megabytes (10⁶ bytes), mebibytes (2²⁰ bytes) or simulated seconds until the target, "
        "inf where it is printed that the target was never reached",
    )
    protected: Protected | None = Field(None, description="the guarantee that is printed beside it")
    explained: str = Field("", description="why ours differs by more than a point, in one line")


class Profile(Section):
    """One table or figure of a paper."""

    name: str = ""
    title: str
    source: str = Field(description="the paper, and the number of its table or figure")
    setting: str = Field("", description="what is as published and what is not, in plain words")
    chosen: str = Field(description="where settings come from that the paper does not print")
    data: DataConfig = DataConfig()
    engine: dict[str, Any] = Field(default_factory=dict, description="settings that all rows share")
    target: Percent | None = Field(None, description="test accuracy, in percent, that traffic and time are counted to")
    measures: tuple[Measure, ...] = Field((), description="shown for all rows, also where the paper prints no figure")
    validation: float = Field(0.1, gt=0, description="data.validation while settings are tried")
    tried: float = Field(1.0, gt=0, le=1, description="share of a row's rounds that its settings are tried for")
    evaluations: int = Field(20, ge=1, description="points of each curve")
    stop: Literal["validation"] | None = Field(
        None,
        description="report the evaluation that is best on validation records, which [data] has to name, and end a "
        "training early by them (validation); if not given, all rounds are trained and the last one is reported",
    )
    drop: Percent = Field(
        2.0, description="with stop: points below the best accuracy on validation records at which a training ends"
    )
    seeds: int = Field(5, ge=1, description="trainings of each row")
    quick: Quick = Quick()
    row: tuple[ProfileRow, ...] = Field(min_length=1)

    @model_validator(mode="after")
    def _consistent(self) -> Profile:
        keys = [row.key for row in self.row]
        if self.stop is not None and self.data.validation is None:
            raise ValueError("stop: data.validation must name the records that trainings are stopped by")
        for place, row in enumerate(self.row):
            if keys.count(row.key) > 1:
                raise ValueError(f"rows need distinct keys, found {row.key!r} twice")
            if self.target is None and {*row.paper, *self.measures} & _COSTS:
                raise ValueError(f"target: row {row.key!r} counts what was needed to reach it")
            if row.like and (row.tries or row.like not in keys[:place]):
                raise ValueError(f"row {row.key!r}: like must be the key of an earlier row, without tries beside it")
        return self

    def tried_by(self, row: ProfileRow) -> ProfileRow:
        """The row whose tries decide the settings of this one: itself, or the one that it is like."""
        return next(self.tried_by(other) for other in self.row if other.key == row.like) if row.like else row

    def config(
        self,
        row: ProfileRow,
        settings: Mapping[str, Any],
        *,
        seed: int,
        quick: bool,
        device: str,
        share: float | None = None,
        validated: bool = False,
    ) -> Config:
        """The configuration of one training of a row with these settings; `validated`, one that they are tried by.

        `share` of its rounds are trained; if not given, all, or as many as a quick look takes.
        """
        fields = {**self.data.model_dump(exclude_unset=True), **row.data}
        engine = {**self.engine, **row.engine, **settings}
        if share is None:
            share = self.quick.rounds if quick else 1.0
        if validated:
            fields["validation"] = self.validation
            share *= self.tried
        if isinstance(engine.get("rounds"), int):
            engine["rounds"] = max(1, round(share * engine["rounds"]))
        if quick:
            fields |= self.quick.data
            engine |= self.quick.engine
        data = parse_settings(DataConfig, fields, f"row.{row.key}.data")
        system = SystemConfig(key=row.key, title=row.title, engine=engine)
        return Config(seed=seed, device=device, data=data, system=(system,))


def profile_names() -> list[str]:
    """The profiles that come with the package, in alphabetical order."""
    folder = files("vflpriv.experiments.reproduce").joinpath(_FOLDER)
    return sorted(file.name.removesuffix(".toml") for file in folder.iterdir() if file.name.endswith(".toml"))


def load_profile(source: str | Path) -> Profile:
    """A profile by its name, or from a TOML or YAML file."""
    name = str(source)
    if name in profile_names():
        text = files("vflpriv.experiments.reproduce").joinpath(_FOLDER, f"{name}.toml").read_text(encoding="utf-8")
        return _checked(tomllib.loads(text), name)
    path = Path(source)
    if not path.is_file():
        raise InputError("NAME", name, f"a file, or one of {', '.join(profile_names())}")
    return _checked(read_tree(path, "NAME"), path.stem)


def _checked(tree: Mapping[str, Any], name: str) -> Profile:
    return parse_settings(Profile, {**tree, "name": name}, "")
