"""The audited configuration as TOML, with every default written out, so that the audit can be run again."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from vflpriv.common.registry import register
from vflpriv.report.audit import Report
from vflpriv.report.formats import Context, Format

__all__ = ["TomlFormat", "to_toml"]


@register("format")
class TomlFormat(Format):
    """`config.toml`, or `ledger.toml` if a recorded training was audited."""

    name = "toml"
    summary = "the audited configuration or ledger file, with every default written out"
    results = ("report",)

    def file_name(self, result: Report) -> str:
        """Of a configuration or of a ledger file, by what was audited."""
        return "config.toml" if "system" in result.config else "ledger.toml"

    def render(self, result: Report, context: Context) -> str:
        """Only the configuration, with what a ledger leaves open as comments: no result is in it."""
        return to_toml(result.config) + "".join(_questions(result.config.get("release", ())))


def to_toml(values: Mapping[str, Any]) -> str:
    """Plain values as TOML, one line for each; a value that is None is left out.

    >>> print(to_toml({"seed": 1, "system": [{"key": "a", "title": None, "rates": [0.5, 1e-5]}]}), end="")
    seed = 1
    system = [{"key" = "a", "rates" = [0.5, 1e-05]}]
    """
    return "".join(f"{name} = {_toml(value)}\n" for name, value in values.items() if value is not None)


def _questions(releases: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """One comment for each noised kind of a ledger that does not say what state without noise it depends on."""
    for release in releases:
        if release.get("leak") is None and release.get("noise") != "none" and not release.get("once"):
            yield (
                f"# {release['kind']}: does it depend on state that raw data changed without noise, such as a model "
                "trained on them?\n"
                '# If so: leak = { carrier = "the device\'s model", own = true, sensitivity = { features = … } }. '
                'If not: leak = "none".\n'
            )


def _toml(value: Any) -> str:
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{_text(k)} = {_toml(v)}' for k, v in value.items() if v is not None)}}}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(_toml(v) for v in value if v is not None)}]"
    return _text(value) if isinstance(value, str) else json.dumps(value)


def _text(value: object) -> str:
    """A JSON string, with the DEL character escaped too, as TOML requires."""
    return json.dumps(str(value)).replace("\x7f", "\\u007f")
