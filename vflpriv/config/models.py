"""The models of a configuration: every section, its fields, their defaults and limits."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from vflpriv.common.toml import Section
from vflpriv.config.claims import ClaimConfig
from vflpriv.config.defences import DefenceVariant, defence_variants
from vflpriv.core.canaries import OneRunSettings, TwoWorldSettings
from vflpriv.core.claims import MIN_TRIALS

__all__ = [
    "AttackConfig",
    "AuditConfig",
    "ClaimConfig",
    "Config",
    "DataConfig",
    "FeatureConfig",
    "SystemConfig",
    "TrainConfig",
]


class DataConfig(Section):
    """Which data set, and how it is split over devices."""

    name: str = Field("digits", description="a data set that `vflpriv data` lists")
    devices: int | None = Field(
        None, ge=1, description="how many devices hold a block; if not given 4, for csv as many as there are files"
    )
    partition: str | None = Field(
        None, description="rows, slices, patches, views, first-views or segments; the data set's own if not given"
    )
    overlap: float = Field(
        0.0,
        ge=0,
        le=1,
        description="the share of the next device's part that each device holds too, the last one of the part before",
    )
    kept_devices: tuple[Annotated[int, Field(ge=0)], ...] = Field(
        (), description="devices of the partition that take part, by number from 0; all if empty"
    )
    noisy_devices: tuple[Annotated[int, Field(ge=0)], ...] = Field(
        (), description="devices whose features have Gaussian noise, by number from 0 among those that take part"
    )
    feature_noise: float = Field(
        1.0, gt=0, description="std of the noise of noisy_devices, on features as they are trained on"
    )
    noisy_records: Literal["all", "test"] = Field(
        "all", description="records that the noise of noisy_devices is added to: all, or those of the test alone"
    )
    folder: str | None = Field(
        None, description="where its files are; the user's data folder if not given, which csv does not have"
    )
    alignment: Literal["exact", "common"] = Field(
        "exact",
        description="csv: whether all files must have the same ids (exact), or the records that all of them have are "
        "kept (common)",
    )
    keep_shape: bool = Field(False, description="keep blocks as images, as convolutions need them")
    train: int | None = Field(None, ge=1, description="how many training records to keep; all if not given")
    imbalance: float | None = Field(
        None,
        ge=1,
        description="how many times as many training records the first class keeps as the last one; in between the "
        "numbers fall exponentially (a long tail). Test records stay as they are; so do all if not given",
    )
    validation: float | None = Field(
        None,
        gt=0,
        description="training records that are kept back for validation and not trained on, always the same ones: a "
        "share below 1, or a number of records; none if not given",
    )
    standardise: bool = Field(False, description="mean 0 and deviation 1 over all features of the training records")
    vocabulary: str | None = Field(
        None, description="a folder with the vocab.txt of texts' token ids; ids are hashed if not given"
    )
    tokens: int | None = Field(
        None, ge=1, description="how many tokens of each text are kept, its first; the data set's number if not given"
    )
    ranges: dict[str, tuple[float, float]] = Field(
        default_factory=dict,
        description="public limits of columns of numbers, by name: low and high become -1 and 1, and other values are "
        "moved to them. Other columns are standardised by the training records, which no budget counts",
    )
    values: dict[str, tuple[str, ...]] = Field(
        default_factory=dict,
        description="public values of columns of texts, by name: other values count as none of them. Other columns "
        "have the values of the training records, which no budget counts",
    )


class TrainConfig(Section):
    """When `vflpriv train` stops; audits and attacks train all rounds, and budgets count all of them."""

    patience: int | None = Field(
        None,
        ge=1,
        description="stop after so many evaluations in a row without a better accuracy on the validation records, and "
        "keep the models of the best one; all rounds are trained if not given. Budgets count all rounds, an upper "
        "bound; when a training stops tells something about the validation records, which no budget counts",
    )
    evaluate_every: int = Field(20, ge=1, description="rounds from one evaluation on validation records to the next")


class AuditConfig(TwoWorldSettings):
    """What is audited about a system, and with how many trainings.

    A table `[audit.NAME]` has the settings of one audit, and counts before what stands here; `NAME = false` turns the
    audit off.
    """

    min_trials: int = Field(
        MIN_TRIALS, ge=1, description="trials in each world below which they call no claim violated"
    )
    success_trainings: int = Field(
        8, ge=2, description="independent trainings that test a claim about an attack, where the engine makes one"
    )
    one_run: OneRunSettings | None = Field(
        None, description="many canaries in a single training, as in the table `one-run`; none if neither is given"
    )
    attacks: tuple[str, ...] | None = Field(None, description="attacks to try; all if not given")
    wire: bool = Field(True, description="whether to compare what is sent with the ledger, in two neighbouring worlds")
    sensitivity: bool = Field(True, description="whether to search for sensitivity beyond the declared bounds")
    noise: bool = Field(True, description="whether to test the noise of the releases")
    state: bool = Field(True, description="whether to look for state that carries a record into other rounds")
    claims: tuple[str, ...] | None = Field(None, description="keys of the engine's claims to check; all if not given")
    audits: dict[str, bool | dict[str, Any]] = Field(
        default_factory=dict,
        description="settings of audits by name, which may stand in the section, too; NAME = false turns one off",
    )

    @property
    def tables(self) -> dict[str, bool | dict[str, Any]]:
        """By the name of an audit its settings, with the common ones that it has too; False turns it off."""
        switches = {
            "wire": self.wire,
            "sensitivity": self.sensitivity,
            "noise": self.noise,
            "server-state": self.state,
        }
        common: dict[str, bool | dict[str, Any]] = {
            "two-world": self.model_dump(mode="json", include=set(TwoWorldSettings.model_fields)),
            **({} if self.one_run is None else {"one-run": self.one_run.model_dump()}),
            **{name: False for name, on in switches.items() if not on},
        }
        return common | {name: _merged(common.get(name), table) for name, table in self.audits.items()}


def _merged(common: bool | dict[str, Any] | None, own: bool | dict[str, Any]) -> bool | dict[str, Any]:
    """An audit's own table, with what it leaves open from the common options."""
    if not isinstance(common, dict) or own is False:
        return own
    return common if own is True else common | own


class FeatureConfig(Section):
    """Attacks of `vflpriv attack` and `vflpriv audit` on one device's features, and on membership."""

    attacks: tuple[str, ...] | None = Field(None, description="attacks to try; all but slow ones if not given")
    views: tuple[str, ...] = Field(("server", "device(0)"), min_length=1, description="the adversaries")
    victim: int | None = Field(None, ge=0, description="the device whose features are attacked; the last if not given")
    known_records: int = Field(100, ge=4, description="records whose features an attack may know")
    sensitive_column: int | None = Field(
        None, ge=0, description="column of the victim's block that is guessed as a sensitive attribute"
    )
    candidates: int = Field(
        400, ge=8, description="records whose membership is guessed; half of them are left out of a separate training"
    )
    shadow_models: int = Field(
        32, ge=4, description="models that an adversary who attacks membership trains itself, all at once"
    )
    defences: tuple[str, ...] | None = Field(None, description="names of the defences to try; all if not given")


class AttackConfig(Section):
    """Attacks of `vflpriv attack` on every system."""

    attacks: tuple[str, ...] | None = Field(None, description="attacks to try; all but slow ones if not given")
    views: tuple[str, ...] = Field(
        ("device(0)", "devices(all)", "eavesdropper"), min_length=1, description="the adversaries"
    )
    seeds: int = Field(5, ge=1, description="trainings of each system; intervals are over these")
    labels_per_class: int = Field(4, ge=1, description="records of each class whose label an attack may know")
    defences: dict[str, dict[str, Any]] = Field(
        default_factory=dict,
        description="the engine settings that each defence changes, by its name; `strengths` lists values of some "
        "fields, each of which is tried",
    )
    affordable_loss: float = Field(
        0.05, ge=0, le=1, description="test accuracy that a defence may cost and still be recommended, as a share"
    )
    features: FeatureConfig | None = Field(None, description="attacks on features; none are tried if not given")
    malicious: bool = Field(
        False,
        description="whether parties that depart from the protocol are tried, too: on what the model predicts, by the "
        "devices among `views`, each in a training of its own; and on features, by a server that sends forged answers",
    )

    @property
    def variants(self) -> tuple[DefenceVariant, ...]:
        """Every defence at each of its strengths; an InputError names what is wrong with one."""
        return tuple(v for name, entry in self.defences.items() for v in defence_variants(name, entry))


TuningRuns = Annotated[
    int | None,
    Field(
        ge=0,
        le=1_000_000,
        description="trainings on the same data before this one, which budgets then count; not counted if not given",
    ),
]


class SystemConfig(Section):
    """One system: an engine with its settings."""

    key: str = Field(pattern=r"^[\w.-]+$", description="short name, for --only and for files")
    title: str = ""
    engine: dict[str, Any]
    tuning_runs: TuningRuns = None
    positive_classes: tuple[int, ...] | None = Field(
        None, description="classes that count as 1 and all others as 0; labels stay as they are if not given"
    )
    audit: AuditConfig = AuditConfig()
    claim: tuple[ClaimConfig, ...] = Field((), description="claims to check beside those of the engine")


class Config(Section):
    """A whole configuration. `[engine]` and `[audit]` at the top level are short for a single system."""

    seed: int = Field(0, ge=0, description="the seed from which all random streams are derived")
    device: str = Field("auto", description="auto, cpu, cuda or mps")
    confidence: float = Field(0.95, gt=0.5, lt=1, description="confidence of every interval and lower bound")
    verdict_confidence: float = Field(
        0.999, gt=0.5, lt=1, description="a claim is called violated at a family-wise error of one minus this"
    )
    accountant: str = Field("auto", description="an accountant that `vflpriv accountants` lists")
    data: DataConfig = DataConfig()
    train: TrainConfig = TrainConfig()
    attack: AttackConfig = AttackConfig()
    system: tuple[SystemConfig, ...] = Field(min_length=1)

    @model_validator(mode="after")
    def _distinct(self) -> Config:
        keys = [s.key for s in self.system]
        for key in keys:
            if keys.count(key) > 1:
                raise ValueError(f"systems need distinct keys, found {key!r} twice")
        return self

    @model_validator(mode="after")
    def _verdicts_are_surer(self) -> Config:
        if self.verdict_confidence < self.confidence:
            raise ValueError(f"verdict_confidence >= confidence, found {self.verdict_confidence} < {self.confidence}")
        return self
