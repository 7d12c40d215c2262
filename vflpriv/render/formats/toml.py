"""The audited configuration as TOML, with every default written out, so that the audit can be run again."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from vflpriv.common.registry import register
from vflpriv.common.toml import toml_file
from vflpriv.report.audit import Report
from vflpriv.report.formats import Context, Format

__all__ = ["TomlFormat"]


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
        return toml_file(result.config) + "".join(_questions(result.config.get("release", ())))


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
