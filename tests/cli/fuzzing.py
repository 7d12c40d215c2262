"""Hostile configurations: valid trees with a few values replaced, dropped or added, and the program run on them."""

from __future__ import annotations

import contextlib
import copy
import io
import json
import sys
import tomllib
from collections.abc import Iterator, Sequence
from typing import Any
from unittest.mock import patch

from hypothesis import strategies as st
from pydantic import BaseModel

from tests.tiny import TINY
from vflpriv.cli.main import main
from vflpriv.common.registry import find
from vflpriv.config.models import AuditConfig, Config, DataConfig

__all__ = ["call", "configs", "is_tiny", "mutated", "odd_fields", "scrambled", "to_toml"]

_BASES = [
    TINY,
    """
[data]
name = "breast-cancer"
devices = 3
train = 40
[engine]
name = "vafl"
rounds = 3
batch_size = 5
protection = "embedding"
noise_std = 0.5
[audit]
trials = 0
attacks = ["label_norm"]
""",
    """
[data]
name = "digits"
devices = 2
train = 40
[[system]]
title = "a title"
key = "a"
[system.engine]
name = "vimadmm"
rounds = 2
batch_size = 4
label_protection = "alibi"
[system.audit]
trials = 0
one_run = { canaries = 20 }
[attack]
seeds = 1
views = ["device(0)"]
""",
]
_HOSTILE = (
    *(
        "",
        "\x1b[2J\x1b]0;x\x07",
        "<script>alert(1)</script>",
        "| `x` | [a](javascript:b) |",
        "../../etc/passwd",
        "\n\n",
    ),
    *("𝔘𝔫𝔦\u202ecode\u0000", "a" * 5000, "{{ 7 * 7 }}", "%s%n", "nan", "device(0)", "devices(all)", "auto", "paper"),
)
_NUMBERS = (0, -1, 1, 2, 3, 7, 2**31, 2**63 - 1, 2**63, 10**12, 10**30, -(10**18))
_FLOATS = (0.0, -0.0, 0.5, 1.0, 1e-300, 1e-12, 1e12, 1e300, 1.7e308, -1.0, float("inf"), float("nan"))
_VALUES = st.one_of(
    st.sampled_from(_HOSTILE),
    st.sampled_from(_NUMBERS),
    st.sampled_from(_FLOATS),
    st.booleans(),
    st.text(max_size=20),
    st.lists(st.integers(-3, 3) | st.text(max_size=3), max_size=3),
    st.dictionaries(st.sampled_from(["name", "key", "worst-case", "canaries", "x"]), st.integers(-2, 30), max_size=2),
)
_SIMILAR = {
    "boolean": st.booleans(),
    "integer": st.integers(0, 12) | st.sampled_from(_NUMBERS),
    "number": st.floats(0, 3) | st.floats(0, 3) | st.sampled_from(_FLOATS),
    "string": st.sampled_from((*_HOSTILE, "device", "devices(0, 1)", "outsider", "server", "model")),
    "array": st.lists(st.integers(0, 9), max_size=3),
    "null": st.just("none"),
}
"""By JSON type, values that may well be valid."""
_NAMES = (
    *("seed", "device", "confidence", "accountant", "noise", "noise_std", "epsilon", "delta", "clip", "protect"),
    *("schedule", "activation", "rates", "embedding", "hidden", "top_hidden", "bottom", "label_protection"),
    *("label_noise", "device_rate", "server_rate", "momentum", "max_delay", "aggregation", "trials", "min_trials"),
    *("stop_early", "one_run", "canaries", "partition", "standardise", "keep_shape", "title", "\x1b[31m", "", "a.b"),
)


def _paths(tree: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    items = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    for key, value in items:
        yield (*path, key)
        yield from _paths(value, (*path, key))


def _at(tree: Any, path: tuple[Any, ...]) -> Any:
    for key in path:
        tree = tree[key]
    return tree


@st.composite
def configs(draw: st.DrawFn) -> str:
    """The text of a configuration: one with odd settings, a tree with wrong branches, or any text at all."""
    kind = draw(st.integers(0, 19))
    if kind == 0:
        return draw(st.text(max_size=200))
    base = draw(st.sampled_from(_BASES))
    if kind < 3:
        return draw(scrambled(base.encode())).decode("utf-8", "surrogateescape")
    tree = copy.deepcopy(tomllib.loads(base))
    if kind < 15:
        draw(_odd_settings(tree))
        return to_toml(tree)
    return to_toml(draw(mutated(tree)))


@st.composite
def scrambled(draw: st.DrawFn, content: bytes) -> bytes:
    """The bytes with a few of them changed, left out, doubled or put in, or with the end cut off."""
    found = bytearray(content)
    for _ in range(draw(st.integers(1, 4))):
        place = draw(st.integers(0, len(found)))
        length = draw(st.integers(1, 12))
        what = draw(st.sampled_from(["change", "change", "leave out", "double", "put in", "cut"]))
        if what == "cut":
            del found[place:]
        elif what == "leave out":
            del found[place : place + length]
        elif what == "double":
            found[place:place] = found[place : place + length]
        else:
            new = draw(st.binary(min_size=1, max_size=length))
            found[place : place + (len(new) if what == "change" else 0)] = new
    return bytes(found)


@st.composite
def mutated(draw: st.DrawFn, tree: dict[str, Any]) -> dict[str, Any]:
    """The tree with a few branches replaced, dropped or added."""
    for _ in range(draw(st.integers(1, 3))):
        paths = list(_paths(tree))
        if not paths:
            break
        path = draw(st.sampled_from(paths))
        parent, what = (
            _at(tree, path[:-1]),
            draw(st.sampled_from(["replace", "replace", "replace", "drop", "add", "add"])),
        )
        if what == "drop":
            del parent[path[-1]]
        elif what == "add" and isinstance(parent, dict):
            parent[draw(st.sampled_from(_NAMES))] = draw(_VALUES)
        else:
            parent[path[-1]] = draw(_VALUES)
    return tree


@st.composite
def _odd_settings(draw: st.DrawFn, tree: dict[str, Any]) -> None:
    """Odd values in the sections of a configuration."""
    sections = [(tree.setdefault("data", {}), DataConfig), (tree.get("audit", {}), AuditConfig), (tree, Config)]
    systems = [s for s in tree.get("system", [tree]) if isinstance(s, dict)]
    engines = [(s["engine"], find("engine", s["engine"]["name"]).settings_type) for s in systems]
    draw(odd_fields([*engines, *engines, *engines, *sections]))


@st.composite
def odd_fields(draw: st.DrawFn, sections: Sequence[tuple[dict[str, Any], type[BaseModel]]]) -> None:
    """Put values of the right type into a few fields that exist, of sections with their models."""
    for section, model in draw(st.lists(st.sampled_from(sections), min_size=1, max_size=3)):
        schema = model.model_json_schema()
        plain = {
            name: field for name, field in schema["properties"].items() if name not in ("system", "data", "attack")
        }
        name = draw(st.sampled_from(sorted(plain)))
        section[name] = draw(_fitting(plain[name], schema.get("$defs", {})))


def _fitting(field: dict[str, Any], parts: dict[str, Any]) -> st.SearchStrategy[Any]:
    if "anyOf" in field:
        return st.one_of(*(_fitting(one, parts) for one in field["anyOf"]))
    if "$ref" in field:
        return _fitting(parts[field["$ref"].rpartition("/")[2]], parts)
    if "enum" in field or "const" in field:
        return st.sampled_from(field.get("enum") or [field["const"]])
    if field.get("type") == "array" and "items" in field:
        return st.lists(_fitting(field["items"], parts), max_size=3)
    if "propertyNames" in field and isinstance(field.get("additionalProperties"), dict):
        keys = _fitting(field["propertyNames"], parts)
        return st.dictionaries(keys, _fitting(field["additionalProperties"], parts), max_size=3)
    if "properties" in field:
        needed = {name: _fitting(field["properties"][name], parts) for name in field.get("required", ())}
        rest = {n: _fitting(one, parts) for n, one in field["properties"].items() if n not in needed}
        return st.fixed_dictionaries(needed, optional=rest)
    return _SIMILAR.get(field.get("type", ""), _VALUES)


def to_toml(tree: dict[str, Any]) -> str:
    """Any tree as TOML, all on inline tables."""
    return "".join(f"{_text(key)} = {_value(value)}\n" for key, value in tree.items())


def _text(text: str) -> str:
    # JSON's escapes are TOML's, but for surrogates, which neither file can hold, and delete.
    return json.dumps(text.encode("utf-8", "ignore").decode(), ensure_ascii=False).replace("\x7f", "\\u007f")


def _value(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_text(key)} = {_value(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_value, value)) + "]"
    if isinstance(value, bool):
        return str(value).lower()
    return _text(value) if isinstance(value, str) else repr(value)


def is_tiny(config: Any) -> bool:
    """Whether an audit of this takes a moment."""
    for system in config.system:
        e, a = system.engine, system.audit
        trials = a.trials if isinstance(a.trials, int) else sum(a.trials.values())
        widths = [e.get("embedding", 1), *e.get("hidden", ()), *e.get("top_hidden", ())]
        if trials > 8 or e["rounds"] > 10 or e["batch_size"] > 64 or max(widths) > 64 or e.get("local_steps", 1) > 4:
            return False
    return (config.data.train or 10**9) <= 100 and len(config.system) <= 2


def call(*arguments: str) -> tuple[int, str, str]:
    """Run the program in this process: exit code, output, error output."""
    out, error = io.StringIO(), io.StringIO()
    streams = contextlib.redirect_stdout(out), contextlib.redirect_stderr(error)
    with patch.object(sys, "argv", ["vflpriv", *arguments]), streams[0], streams[1]:
        try:
            main()
        except SystemExit as stopped:
            code = int(stopped.code or 0)
    return code, out.getvalue(), error.getvalue()
