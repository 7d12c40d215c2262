"""Configurations from files: TOML or YAML as a tree of plain values, overridden by field, checked as a `Config`."""

from __future__ import annotations

import json
import re
import tomllib
from collections import Counter
from collections.abc import Mapping, Sequence
from copy import deepcopy
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from vflpriv.common.files import regular
from vflpriv.common.registry import available
from vflpriv.config.errors import parse_settings
from vflpriv.config.models import AuditConfig, Config
from vflpriv.errors import InputError

__all__ = ["EMBEDDED", "OF_A_SYSTEM", "load_config", "put", "read_tree"]

EMBEDDED = ("default", "papers")
"""Configurations that come with the package and are loaded by name."""
OF_A_SYSTEM = ("engine", "audit", "tuning_runs", "positive_classes")
"""Fields of a system that may stand at the top level if there is only one."""
_MOST_BYTES = 1_000_000
_LONG_KEY = re.compile(r"""(?<![\w."'-])(?:(?:[\w-]+|"[^"\n]*"|'[^'\n]*')[ \t]*\.[ \t]*){100}""")
"""A dotted key of TOML of so many parts that reading it would take minutes."""
_MOST_VALUES = 100_000
"""The most values in a file, aliases of YAML counted each time: they could stand for more than fits into memory."""


def load_config(
    source: str | Path | Mapping[str, Any] | Config | None, overrides: Mapping[str, Any] | None = None
) -> Config:
    """A configuration with some fields overridden, by dotted path.

    The source is a file, the name of an embedded configuration, a mapping as TOML gives it, or a configuration itself;
    without a source it is the embedded default.
    """
    if isinstance(source, Config):
        raw: dict[str, Any] = json.loads(source.model_dump_json())
    else:
        raw = deepcopy(dict(source)) if isinstance(source, Mapping) else _read(None if source is None else Path(source))
    for dotted, value in (overrides or {}).items():
        put(raw, dotted, value)
    config = parse_settings(Config, _expand(raw), "")
    _ = config.attack.variants  # their strengths are checked as they are read
    if config.train.patience is not None and config.data.validation is None:
        raise InputError("train.patience", config.train.patience, "data.validation beside it: records to evaluate on")
    return config


def _expand(raw: Mapping[str, Any]) -> dict[str, Any]:
    """Write out the short forms: a single system at the top level, a system named after its engine."""
    expanded = {k: v for k, v in raw.items() if k not in OF_A_SYSTEM}
    listed = raw.get("system", [])
    if "engine" in raw and isinstance(listed, list):
        listed = [*listed, {k: raw[k] for k in OF_A_SYSTEM if k in raw}]
    else:
        expanded |= {k: raw[k] for k in OF_A_SYSTEM if k in raw and k != "engine"}
    if isinstance(listed, list) and listed:
        expanded["system"] = [_named(system) for system in listed]
    systems = expanded.get("system")
    if isinstance(systems, list):
        expanded["system"] = [_with_tables(system) for system in systems]
    return expanded


def _with_tables(system: Any) -> Any:
    """The system whose section `audit` has the tables of registered audits in its field `audits`."""
    section = system.get("audit") if isinstance(system, dict) else None
    unknown = [key for key in section if key not in AuditConfig.model_fields] if isinstance(section, dict) else []
    if not isinstance(section, dict) or not unknown:
        return system
    own = {key: section[key] for key in unknown if key in available("audit")}
    others = {key: value for key, value in section.items() if key not in own}
    return system | {"audit": others | ({"audits": {**others.get("audits", {}), **own}} if own else {})}


def _named(system: Any) -> Any:
    if isinstance(system, dict) and "key" not in system and isinstance(system.get("engine"), dict):
        return {"key": str(system["engine"].get("name", "system")), **system}
    return system


def _read(path: Path | None) -> dict[str, Any]:
    if path is None or (str(path) in EMBEDDED and not path.is_file()):
        name = "default" if path is None else str(path)
        return tomllib.loads(files("vflpriv.config").joinpath(f"{name}.toml").read_text(encoding="utf-8"))
    return read_tree(path, "config")


def read_tree(path: Path, field: str) -> dict[str, Any]:
    """The content of a `.yaml` or `.yml` file as YAML, of any other as TOML; `field` is what errors call it."""
    kind = "YAML" if path.suffix.lower() in (".yaml", ".yml") else "TOML"
    try:
        with regular(path).open("rb") as file:
            content = file.read(_MOST_BYTES + 1)
        text = content.decode("utf-8-sig")
    except OSError as error:
        raise InputError(field, str(path), f"a readable {kind} file ({error.strerror})") from error
    except UnicodeDecodeError as error:
        raise InputError(field, str(path), f"valid {kind} ({error})") from error
    if len(content) > _MOST_BYTES:
        raise InputError(field, str(path), f"a {kind} file of at most 1 MB")
    try:
        if kind == "YAML":
            return _yaml(text)
        if _LONG_KEY.search(text):
            raise RecursionError
        return tomllib.loads(text)
    except RecursionError as error:
        raise InputError(field, str(path), f"{kind} that is nested less deeply") from error
    except ValueError as error:
        raise InputError(field, str(path), f"valid {kind} ({' '.join(str(error).split())})") from error


def _yaml(text: str) -> dict[str, Any]:
    """A mapping with plain values; a ValueError with the reason if it is none."""
    import yaml

    try:
        loader = _loader()(text)
        root = loader.get_single_node()
        _count(root, {})
        tree = None if root is None else loader.construct_document(root)
    except (yaml.YAMLError, OverflowError) as error:
        raise ValueError(str(error)) from error
    tree = {} if tree is None else tree
    if not isinstance(tree, dict):
        raise ValueError(f"a mapping of fields to values, found {type(tree).__name__}")
    _check(tree)
    return tree


def _count(node: Any, counts: dict[int, int]) -> int:
    """The number of values that a node of YAML stands for, aliases and merges counted each time; at most the limit.

    A node that several aliases name is one object, whose values are counted once and added for each alias.
    """
    if node is None or isinstance(node.value, str):
        return 1
    if counts.get(id(node)) == 0:
        raise RecursionError  # it is being counted: a node that holds itself has no end
    if id(node) not in counts:
        counts[id(node)] = 0
        inner = [part for child in node.value for part in (child if isinstance(child, tuple) else (child,))]
        counts[id(node)] = 1 + sum(_count(part, counts) for part in inner)
    if counts[id(node)] > _MOST_VALUES:
        raise ValueError(f"at most {_MOST_VALUES} values, aliases counted each time")
    return counts[id(node)]


def _check(tree: Any) -> None:
    """Check that every value could be in TOML too."""
    if isinstance(tree, dict):
        for key, value in tree.items():
            if not isinstance(key, str):
                raise ValueError(f"names of fields as text, found {key!r}")
            _check(value)
    elif isinstance(tree, list):
        for value in tree:
            _check(value)


@cache
def _loader() -> Any:
    """PyYAML's safe loader, read as YAML 1.2: `no` is text, 1e-3 is a number, and no field is given twice."""
    import yaml

    class Loader(yaml.SafeLoader):  # type: ignore[misc]
        def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
            written = Counter(key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode))
            for key, times in written.items():
                if times > 1:
                    problem = f"field {key!r} is given twice"
                    raise yaml.constructor.ConstructorError(None, None, problem, node.start_mark)
            mapping: dict[Any, Any] = super().construct_mapping(node, deep)
            return mapping

    plain = {
        "bool": r"true|True|TRUE|false|False|FALSE",
        "int": r"[-+]?\d+|0o[0-7]+|0x[0-9a-fA-F]+",
        "float": r"[-+]?(?:\.\d+|\d+(?:\.\d*)?)(?:[eE][-+]?\d+)?|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)",
        "null": r"~|null|Null|NULL|",
        "merge": r"<<",
    }
    Loader.yaml_implicit_resolvers = {}
    for name, pattern in plain.items():
        Loader.add_implicit_resolver(f"tag:yaml.org,2002:{name}", re.compile(rf"^(?:{pattern})$"), None)
    Loader.add_constructor("tag:yaml.org,2002:int", _number)
    return Loader


def _number(loader: Any, node: Any) -> int:
    text = str(loader.construct_scalar(node))
    return int(text, 0) if text[:2] in ("0o", "0x") else int(text)


def put(tree: Any, dotted: str, value: Any) -> None:
    """Set the field that a dotted path names, such as system.0.engine.rounds or system.KEY.engine.rounds."""
    keys: Sequence[str] = dotted.split(".")
    for key in keys[:-1]:
        if isinstance(tree, list):
            tree = _item(tree, key, dotted)
        elif isinstance(tree, dict):
            tree = tree.setdefault(key, {})
    if isinstance(tree, list):
        raise InputError("--set", dotted, "a path that ends in a field, such as system.0.engine.rounds")
    if not isinstance(tree, dict):
        raise InputError("--set", dotted, "a path of fields that exist")
    tree[keys[-1]] = value


def _item(items: list[Any], key: str, dotted: str) -> Any:
    """An entry of a list by its number or, for systems, by its key."""
    for item in items:
        if isinstance(item, Mapping) and item.get("key") == key:
            return item
    if key.isdigit() and int(key) < len(items):
        return items[int(key)]
    raise InputError("--set", dotted, f"an entry below {len(items)} or a system's key, not {key!r}")
