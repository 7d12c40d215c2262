"""Reports as files: each format is rendered from the canonical data, and each file is whole or absent."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from vflpriv.common.files import write_atomically
from vflpriv.report.attacks import AttackReport
from vflpriv.report.audit import Report

__all__ = ["FORMATS", "to_toml", "write_attacks", "write_report"]

FORMATS = ("json", "html", "md")


def to_toml(values: Mapping[str, Any]) -> str:
    """Plain values as TOML, one line for each; what is None is left out.

    >>> print(to_toml({"seed": 1, "system": [{"key": "a", "title": None, "rates": [0.5, 1e-5]}]}), end="")
    seed = 1
    system = [{"key" = "a", "rates" = [0.5, 1e-05]}]
    """
    return "".join(f"{name} = {_toml(value)}\n" for name, value in values.items() if value is not None)


def _toml(value: Any) -> str:
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{_text(k)} = {_toml(v)}' for k, v in value.items() if v is not None)}}}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(_toml(v) for v in value if v is not None)}]"
    return _text(value) if isinstance(value, str) else json.dumps(value)


def _text(value: object) -> str:
    """As in JSON, but that DEL is a control character here."""
    return json.dumps(str(value)).replace("\x7f", "\\u007f")


def write_report(report: Report, out: Path, formats: Sequence[str] = FORMATS) -> list[Path]:
    """Write `report.json` and what is rendered from it; as toml, what was audited with every default spelled out."""
    from vflpriv.render.html.report import render_html
    from vflpriv.render.markdown import render_markdown

    render = {"json": Report.to_json, "html": render_html, "md": render_markdown}
    config = "config.toml" if "system" in report.config else "ledger.toml"
    return [
        _write(out / config, to_toml(report.config))
        if name == "toml"
        else _write(out / f"report.{name}", render[name](report))
        for name in formats
    ]


def write_attacks(report: AttackReport, out: Path, formats: Sequence[str] = FORMATS) -> list[Path]:
    """Write `attacks.json` and what is rendered from it."""
    from vflpriv.render.attacks import attacks_html, attacks_markdown

    render = {"json": AttackReport.to_json, "html": attacks_html, "md": attacks_markdown}
    return [_write(out / f"attacks.{name}", render[name](report)) for name in formats]


def _write(path: Path, text: str) -> Path:
    write_atomically(path, text)
    return path
