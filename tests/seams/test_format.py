"""An output format is one class: in a package of someone else's, it is written, rendered again, listed and refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.seams.plugins import Plugin
from tests.tiny import TINY
from vflpriv.common.registry import available, names
from vflpriv.report.formats import DEFAULT_FORMATS, Format

SOURCE = '''
from vflpriv.report.formats import Format


class Verdicts(Format):
    """One line per claim."""

    name = "verdicts"
    summary = "one line per claim"
    results = ("report",)
    suffix = "verdicts.txt"

    def render(self, result, context):
        config = None if context.config is None else context.config.name
        return "".join(f"{config}: {claim.key} {claim.verdict}\\n" for claim in result.claims)
'''


@pytest.fixture
def plugin(tmp_path: Path) -> Plugin:
    package = Plugin(tmp_path / "package", "vflpriv.formats", "Verdicts", SOURCE)
    (package.folder / "audit.toml").write_text(TINY, encoding="utf-8")
    return package


def test_a_plugin_adds_an_output_format(plugin):
    done = plugin.command("audit", "audit.toml", "-q", "--out", "out", "--format", "verdicts", "--format", "json")
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("wrote out/report.verdicts.txt\nwrote out/report.json\n")
    written = plugin.folder / "out" / "report.verdicts.txt"
    (claim,) = json.loads((plugin.folder / "out" / "report.json").read_text("utf-8"))["systems"][0]["claims"]
    assert written.read_text("utf-8") == f"audit.toml: {claim['key']} {claim['verdict']}\n"
    written.unlink()
    done = plugin.command("report", "out", "--format", "verdicts")
    assert done.stdout.endswith("wrote out/report.verdicts.txt\n")
    assert written.read_text("utf-8") == f"None: {claim['key']} {claim['verdict']}\n"
    code = """
        from pathlib import Path
        from vflpriv.report.audit import read_report
        result = [path.name for path in read_report(Path("out/report.json")).save("saved", formats=["verdicts"])]
    """
    assert plugin.python(code) == ["report.verdicts.txt"]


def test_an_unknown_format_is_one_line_that_lists_the_plugin(plugin):
    done = plugin.command("audit", "audit.toml", "--format", "pdf")
    known = "html, json, junit, md, sarif, summary, toml, verdicts"
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"vflpriv: --format = 'pdf': expected one of {known}\n"
    done = plugin.command("attack", "audit.toml", "--format", "verdicts")
    assert done.stderr == ("vflpriv: --format = 'verdicts': expected one of html, json, junit, md, sarif, summary\n")
    assert f"{known}; repeat for more." in plugin.process("audit", "--help").stdout


def test_a_plugin_that_cannot_be_loaded_spoils_nothing_else(tmp_path):
    package = Plugin(tmp_path, "vflpriv.formats", "Missing", "")
    done = package.command("audit", "--format", "plugin")
    assert done.returncode == 2
    assert done.stderr.startswith("vflpriv: --format = 'plugin': expected a plug-in that works: plugin_package:Missing")
    assert "html, json, junit, md, sarif, summary, toml; repeat" in package.command("report", "--help").stdout


def test_formats_are_named_after_their_modules_and_listed_without_them():
    formats = available("format")
    assert names("format") == list(formats)
    for name, item in formats.items():
        assert issubclass(item, Format)
        assert item.__module__ == f"vflpriv.render.formats.{name}"
        assert item.summary
        assert set(item.results) <= {"report", "attacks", "reproduction", "frontier"}
    assert set(DEFAULT_FORMATS) <= set(formats)
