"""The JSON Schemas that `vflpriv schema` prints: of a configuration, of a ledger, and of each result."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema

from vflpriv.common.registry import available
from vflpriv.config.loading import OF_A_SYSTEM
from vflpriv.config.models import Config
from vflpriv.core.canaries import OneRunSettings, TwoWorldSettings
from vflpriv.errors import InputError
from vflpriv.recording.ledger_file import LedgerConfig
from vflpriv.report.attacks import AttackReport
from vflpriv.report.audit import Report
from vflpriv.report.compare import Comparison
from vflpriv.report.rows import Row

__all__ = ["SCHEMAS", "schema_text"]

_DRAFT = "https://json-schema.org/draft/2020-12/schema"


def schema_text(name: str) -> str:
    """One schema by its name."""
    if name not in SCHEMAS:
        raise InputError("schema", name, f"one of {', '.join(SCHEMAS)}")
    return json.dumps({"$schema": _DRAFT, **SCHEMAS[name]()}, indent=2, ensure_ascii=False)


class _WithInfinities(GenerateJsonSchema):
    """Numbers of a report may be infinite, which its JSON has as text."""

    def float_schema(self, schema: core_schema.FloatSchema) -> JsonSchemaValue:
        return {"anyOf": [super().float_schema(schema), {"enum": ["Infinity", "-Infinity", "NaN"]}]}


def _result_schema(model: type[Row]) -> Callable[[], dict[str, Any]]:
    return lambda: model.model_json_schema(mode="serialization", schema_generator=_WithInfinities)


def _config_schema() -> dict[str, Any]:
    """A configuration as a file may have it: one system at the top level or a list, keys that may be left out."""
    schema = Config.model_json_schema()
    parts, system = schema["$defs"], schema["$defs"]["SystemConfig"]
    engines = []
    for name, engine in available("engine").items():
        settings = engine.settings_type.model_json_schema(ref_template=f"#/$defs/{name}.{{model}}")
        parts |= {f"{name}.{key}": value for key, value in settings.pop("$defs", {}).items()}
        settings["properties"] = {"name": {"const": name, "description": engine.summary}, **settings["properties"]}
        settings["required"] = ["name", *settings.get("required", [])]
        parts[f"engine.{name}"] = settings | {"title": name}
        engines.append({"$ref": f"#/$defs/engine.{name}"})
    parts["Engine"] = {"description": "An engine by its name, with its settings.", "oneOf": engines}
    system["properties"]["engine"] = {"$ref": "#/$defs/Engine"}
    system["required"] = ["engine"]
    _audit_tables(parts)
    schema["properties"] |= {name: system["properties"][name] for name in OF_A_SYSTEM}
    del schema["required"]
    return schema | {"anyOf": [{"required": ["system"]}, {"required": ["engine"]}]}


def _audit_tables(parts: dict[str, Any]) -> None:
    """Let the section `audit` have a table for each audit.

    Audits are not loaded for it, since they import torch: those of others than these two have no settings here, or are
    of other packages.
    """
    switch = {"type": "boolean"}
    section = parts["AuditConfig"]
    settings_of: dict[str, type[BaseModel]] = {"two-world": TwoWorldSettings, "one-run": OneRunSettings}
    for name, model in settings_of.items():
        settings = model.model_json_schema(ref_template=f"#/$defs/audit.{name}.{{model}}")
        parts |= {f"audit.{name}.{key}": value for key, value in settings.pop("$defs", {}).items()}
        parts[f"audit.{name}"] = settings | {"title": name}
        table = {"$ref": f"#/$defs/audit.{name}"}
        section["properties"][name] = {"description": f"The settings of the audit {name}.", "anyOf": [switch, table]}
    section["additionalProperties"] = {
        "description": "The settings of an audit by its name, of those that `vflpriv audits` lists.",
        "anyOf": [switch, {"type": "object"}],
    }


SCHEMAS: dict[str, Callable[[], dict[str, Any]]] = {
    "config": _config_schema,
    "ledger": LedgerConfig.model_json_schema,
    "report": _result_schema(Report),
    "attacks": _result_schema(AttackReport),
    "comparison": _result_schema(Comparison),
}
"""The schemas by name."""
