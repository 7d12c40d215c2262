"""From a configuration to systems, declared or ready to train: data, settings, schedule, noise std, and claims."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, TypeVar

from vflpriv.common.devices import check_device_name, pick_device
from vflpriv.common.registry import available, find
from vflpriv.common.seeds import SecretKey
from vflpriv.config.errors import parse_settings
from vflpriv.config.models import AuditConfig, Config, SystemConfig
from vflpriv.core.canaries import OneRunSettings
from vflpriv.core.claims import Claim
from vflpriv.core.data import BaseData, VerticalData
from vflpriv.core.engine import Engine
from vflpriv.core.schedules import Schedule
from vflpriv.core.systems import DeclaredSystem, System
from vflpriv.data import loading as datasets
from vflpriv.data.noise import check_noisy_devices, with_noisy_devices
from vflpriv.errors import InputError
from vflpriv.run.noise.search import with_noise
from vflpriv.run.registered import check_tables
from vflpriv.training.defence import Defence, named_defence
from vflpriv.training.mechanisms.labels import label_claims

__all__ = [
    "build_system",
    "check_defences",
    "claims_of",
    "declare_system",
    "inapplicable",
    "load_data",
    "load_quiet_data",
    "read_data",
    "read_defence",
    "with_feature_noise",
]

D = TypeVar("D", bound=BaseData)
_AFTER_READING = {"kept_devices", "standardise", "noisy_devices", "feature_noise", "noisy_records"}
_DECLARED = ("key", "engine", "settings", "schedule", "seed", "title", "tuning_runs")


def load_data(config: Config) -> VerticalData:
    """The data set of a configuration."""
    return with_feature_noise(config, load_quiet_data(config))


def load_quiet_data(config: Config) -> VerticalData:
    """The data set of a configuration without the noise of its noisy devices."""
    data = _read(config).tensors()
    return data.standardised() if config.data.standardise else data


def with_feature_noise(config: Config, data: VerticalData, key: SecretKey | None = None) -> VerticalData:
    """The data with the noise of the noisy devices that the configuration names, drawn from a key or from its seed."""
    chosen = config.data
    if not chosen.noisy_devices:
        return data
    std, records = chosen.feature_noise, chosen.noisy_records
    return with_noisy_devices(data, chosen.noisy_devices, std=std, records=records, seed=config.seed, key=key)


def read_data(config: Config) -> BaseData:
    """The data set of a configuration as it is read, checked: enough to declare systems, and without torch."""
    data = _read(config)
    check_noisy_devices(data, config.data.noisy_devices)
    return data.fitted_to_all() if config.data.standardise else data


def _read(config: Config) -> datasets.VerticalArrays:
    data, kept = datasets.read(**config.data.model_dump(exclude=_AFTER_READING)).checked(), config.data.kept_devices
    return data.of_devices(kept) if kept else data


def build_system(config: Config, place: int, data: VerticalData, key: SecretKey | None = None) -> System:
    """One system that is ready to train, on the torch device of the configuration.

    With a key its secret numbers are drawn from that, by a name that holds for this very training alone.
    """
    declared = declare_system(config, place, data, key)
    fields = {name: getattr(declared, name) for name in _DECLARED}
    own, noisy = _labelled(config.system[place], data), bool(config.data.noisy_devices)
    system = System(**fields, data=own, torch_device=pick_device(config.device), noisy_features=noisy)
    return system if key is None else replace(system, secret_key=key.derived("system", system.fingerprint()))


def _labelled(section: SystemConfig, data: D) -> D:
    """The data with the labels of this system."""
    if section.positive_classes is None:
        return data
    try:
        return data.two_classes(section.positive_classes)
    except InputError as error:
        raise InputError(f"system.{section.key}.{error.field}", error.value, error.expected) from error


def declare_system(config: Config, place: int, data: BaseData, key: SecretKey | None = None) -> DeclaredSystem:
    """One system with complete settings: its schedule drawn, its noise a number. With a key, batches are secret."""
    section = config.system[place]
    where = f"system.{section.key}.engine"
    data = _labelled(section, data)
    raw = dict(section.engine)
    name = raw.pop("name", None)
    if not isinstance(name, str):
        raise InputError(f"{where}.name", name, f"one of {', '.join(available('engine'))}")
    try:
        engine: type[Engine] = find("engine", name)
    except InputError as error:
        raise InputError(f"{where}.name", error.value, error.expected) from error
    if raw.get("defence") is not None:
        raw["defence"] = read_defence(raw["defence"], f"{where}.defence").model_dump(mode="json")
    settings: Any = parse_settings(engine.settings_type, engine.settings_type.completed(raw), where)
    _check_audits(section.audit, data, f"system.{section.key}.audit")
    try:
        engine.check(settings, data)
        schedule = engine.draw_schedule(settings, records=data.records, devices=data.devices, seed=config.seed)
        if key is not None:
            schedule = schedule.with_batches_of(key.derived(section.key).generator("batches"))
    except InputError as error:
        raise InputError(f"{where}.{error.field}", error.value, error.expected) from error
    check_device_name(config.device)
    system = DeclaredSystem(
        key=section.key,
        engine=engine,
        settings=settings,
        data=data,
        schedule=schedule,
        seed=config.seed,
        title=section.title,
        tuning_runs=section.tuning_runs,
    )
    try:
        noised = with_noise(system, find("accountant", config.accountant)())
    except InputError as error:
        raise InputError(f"{where}.{error.field}", error.value, error.expected) from error
    _check_defence(engine, noised, schedule, data.classes, where)
    return replace(system, settings=noised)


def _check_audits(audit: AuditConfig, data: BaseData, where: str) -> None:
    """Raise an InputError for what would fail only after trainings; audits are loaded where they have tables alone."""
    for attack in audit.attacks or ():
        if find("attack", attack).target != "labels":
            raise InputError(f"{where}.attacks", attack, "attacks on labels; those on features go into attack.features")
    tables = audit.tables
    check_tables({name: tables[name] for name in audit.audits}, where)
    coins = {} if tables.get("one-run") is True else tables.get("one-run")
    planted = OneRunSettings.model_validate(coins).canaries if isinstance(coins, dict) else 0
    if planted > data.records:
        name = "one-run" if "one-run" in audit.audits else "one_run"
        raise InputError(f"{where}.{name}.canaries", planted, f"at most the {data.records} records")


def check_defences(config: Config) -> None:
    """Raise an InputError if a defence of the attack matrix is not registered, or has no such strength."""
    for variant in config.attack.variants:
        if "defence" in variant.changes:
            read_defence(variant.changes["defence"], f"attack.defences.{variant.section}.defence")


def read_defence(value: Any, where: str) -> Defence:
    """A defence by its name, or by a table with its name and strengths; an error names the field."""
    try:
        kind, strengths = named_defence(value)
    except InputError as error:
        raise InputError(where, error.value, error.expected) from error
    return parse_settings(kind, strengths, where)


def _check_defence(engine: type[Engine], settings: Any, schedule: Schedule, classes: int, where: str) -> None:
    """Raise an InputError if the settings' defence changes nothing that the engine sends."""
    defence = settings.defence
    reason = None if defence is None else inapplicable(defence, engine, settings, schedule, classes)
    if reason is not None:
        raise InputError(f"{where}.defence", defence.name, f"a defence that applies; this one {reason}")


def inapplicable(defence: Defence, engine: type[Engine], settings: Any, schedule: Schedule, classes: int) -> str | None:
    """Why a defence does not apply to an engine with these settings; None if it does."""
    releases = engine.ledger(settings, schedule).releases
    return defence.refusal(
        kinds=frozenset(release.kind for release in releases),
        fields=type(settings).model_fields,
        classes=classes,
        noised=frozenset(release.kind for release in releases if not release.noise.exact),
        texts=getattr(settings, "encoder", None) is not None,
    )


def claims_of(system: DeclaredSystem, section: SystemConfig) -> tuple[Claim, ...]:
    """The claims of the engine and of its label protection that are to be tested, and the configuration's own."""
    wanted = section.audit.claims
    published = (*system.claims, *label_claims(system.engine, system.settings))
    keys = [claim.key for claim in published]
    for key in wanted or ():
        if key not in keys:
            expected = f"one of {', '.join(keys)}" if keys else "nothing: the engine makes no claim here"
            raise InputError(f"system.{section.key}.audit.claims", key, expected)
    extra = [c.claim({claim.key: claim for claim in published}) for c in section.claim]
    claims = (*(c for c in published if wanted is None or c.key in wanted), *extra)
    for claim in extra:
        if [c.key for c in claims].count(claim.key) > 1:
            raise InputError(f"system.{section.key}.claim", claim.key, "a key that no other claim of the system has")
    return claims
