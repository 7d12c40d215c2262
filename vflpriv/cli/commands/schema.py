"""What `vflpriv schema` prints: the JSON Schema of a configuration or of a report."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema

from vflpriv.config.models import Config
from vflpriv.errors import InputError
from vflpriv.report.attacks import AttackReport
from vflpriv.report.audit import Report
from vflpriv.report.compare import Comparison
from vflpriv.report.rows import Row

__all__ = ["SCHEMAS", "print_schema"]

_DRAFT = "https://json-schema.org/draft/2020-12/schema"


def print_schema(name: str) -> None:
    """One schema by its name."""
    if name not in SCHEMAS:
        raise InputError("schema", name, f"one of {', '.join(SCHEMAS)}")
    schema = {"$schema": _DRAFT, **SCHEMAS[name]()}
    print(json.dumps(schema, indent=2, ensure_ascii=False))  # noqa: T201


class _WithInfinities(GenerateJsonSchema):
    """Numbers of a report may be infinite, which JSON writes as text."""

    def float_schema(self, schema: core_schema.FloatSchema) -> JsonSchemaValue:
        return {"anyOf": [super().float_schema(schema), {"enum": ["Infinity", "-Infinity", "NaN"]}]}


def _written(model: type[Row]) -> Callable[[], dict[str, Any]]:
    return lambda: model.model_json_schema(mode="serialization", schema_generator=_WithInfinities)


def _config() -> dict[str, Any]:
    """A configuration as a file may spell it: a single system at the top or a list, keys that may be left out."""
    from vflpriv.common.registry import available

    schema = Config.model_json_schema()
    parts, system = schema["$defs"], schema["$defs"]["SystemConfig"]
    kinds = []
    for name, engine in available("engine").items():
        settings = engine.settings_type.model_json_schema(ref_template=f"#/$defs/{name}.{{model}}")
        parts |= {f"{name}.{key}": value for key, value in settings.pop("$defs", {}).items()}
        settings["properties"] = {"name": {"const": name, "description": engine.summary}, **settings["properties"]}
        settings["required"] = ["name", *settings.get("required", [])]
        parts[f"engine.{name}"] = settings | {"title": name}
        kinds.append({"$ref": f"#/$defs/engine.{name}"})
    parts["Engine"] = {"description": "An engine by its name, with its settings.", "oneOf": kinds}
    system["properties"]["engine"] = {"$ref": "#/$defs/Engine"}
    system["required"] = ["engine"]
    own = schema["properties"]
    own["engine"], own["audit"] = {"$ref": "#/$defs/Engine"}, {"$ref": "#/$defs/AuditConfig"}
    del schema["required"]
    return schema | {"anyOf": [{"required": ["system"]}, {"required": ["engine"]}]}


SCHEMAS: dict[str, Callable[[], dict[str, Any]]] = {
    "config": _config,
    "report": _written(Report),
    "attacks": _written(AttackReport),
    "comparison": _written(Comparison),
}
"""By name, what `vflpriv schema` prints."""
