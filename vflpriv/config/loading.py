"""Settings as files hold them: a tree of plain values, read from TOML or YAML, with a few fields put over it."""

from __future__ import annotations

import re
import tomllib
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from vflpriv.errors import InputError

__all__ = ["put", "read_tree"]

_MOST = 100_000
"""Values that a file may spell out. YAML's aliases could otherwise stand for more than fit into memory."""


def read_tree(path: Path, field: str) -> dict[str, Any]:
    """The content of a `.yaml` or `.yml` file as YAML, of any other as TOML; `field` is what errors call it."""
    kind = "YAML" if path.suffix.lower() in (".yaml", ".yml") else "TOML"
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise InputError(field, str(path), f"a readable {kind} file ({error.strerror})") from error
    except UnicodeDecodeError as error:
        raise InputError(field, str(path), f"valid {kind} ({error})") from error
    try:
        return _yaml(text) if kind == "YAML" else tomllib.loads(text)
    except RecursionError as error:
        raise InputError(field, str(path), f"{kind} that is nested less deeply") from error
    except ValueError as error:
        raise InputError(field, str(path), f"valid {kind} ({' '.join(str(error).split())})") from error


def _yaml(text: str) -> dict[str, Any]:
    """A mapping with plain values; a ValueError says what is wrong."""
    import yaml

    try:
        tree = yaml.load(text, Loader=_loader())
    except (yaml.YAMLError, OverflowError) as error:
        raise ValueError(str(error)) from error
    tree = {} if tree is None else tree
    if not isinstance(tree, dict):
        raise ValueError(f"a mapping of fields to values, found {type(tree).__name__}")
    _check(tree, [_MOST])
    return tree


def _check(tree: Any, left: list[int]) -> None:
    """Only values that TOML could hold as well, and no more of them than `left`, aliases spelt out."""
    left[0] -= 1
    if left[0] < 0:
        raise ValueError(f"at most {_MOST} values, aliases counted each time")
    if isinstance(tree, dict):
        for key, value in tree.items():
            if not isinstance(key, str):
                raise ValueError(f"names of fields as text, found {key!r}")
            _check(value, left)
    elif isinstance(tree, list):
        for value in tree:
            _check(value, left)


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
            found: dict[Any, Any] = super().construct_mapping(node, deep)
            return found

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
