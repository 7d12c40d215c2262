"""The README: its length, its table of findings, and the commands that set everything up."""

from __future__ import annotations

import re
import shlex

from tests.cli.test_cli import run
from tests.docs.blocks import ROOT, blocks
from tests.docs.reduced import check
from tools.docs_markdown import part, with_part
from tools.docs_readme import found_table
from vflpriv.config.loading import load_config

TEXT = (ROOT / "README.md").read_text("utf-8")


def test_the_readme_is_short():
    words = [word for word in TEXT.split() if re.search(r"[^\W\d_]", word)]
    assert len(words) <= 800


def test_the_table_of_findings_is_what_the_program_and_the_results_say():
    assert part(TEXT, "found") == found_table(), "run `make results`"


def test_the_commands_beside_budgets_print_them(monkeypatch, capsys):
    rows = re.findall(r"^\| (.*) \| `vflpriv (account .*)` \|$", part(TEXT, "found"), re.MULTILINE)
    assert len(rows) == 2
    for finding, command in rows:
        code, printed, _ = run(monkeypatch, capsys, *shlex.split(command))
        assert code == 0
        figures = re.findall(r"\d+\.\d\d", finding)
        assert len(figures) >= 2
        assert all(figure in printed for figure in figures)


def test_the_other_commands_name_what_is_there():
    commands = [shlex.split(command) for command in re.findall(r"`([^`]+)` \|$", part(TEXT, "found"), re.MULTILINE)]
    for words in commands:
        if words[:2] in (["vflpriv", "reproduce"], ["vflpriv", "frontier"]):
            check(words, ROOT)
        elif words[:3] == ["vflpriv", "audit", "papers"]:
            assert words[4] in {system.key for system in load_config("papers").system}
        elif words[0] == "python":
            assert (ROOT / words[1]).is_file()
        else:
            assert words[:2] == ["vflpriv", "account"]


def test_the_first_example_is_a_script():
    found = blocks(TEXT)
    assert found[0].text.rstrip() == (ROOT / "examples" / "trace" / "lender.py").read_text("utf-8").rstrip()
    assert len(found[0].text.splitlines()) <= 30
    assert "vflpriv trace lender.py" in found[1].text


def test_a_part_is_replaced_between_its_marks():
    text = "a\n<!-- demo: how -->\nold\n<!-- /demo -->\nb\n<!-- found -->\nkept\n<!-- /found -->\n"
    assert with_part(text, "demo", "new \\1") == text.replace("old", "new \\1")
    assert part(text, "found") == "kept\n"


def test_the_continuous_integration_calls_the_readmes_command():
    commands = re.findall(r"^make \w+", "\n".join(block.text for block in blocks(TEXT)), re.MULTILINE)
    assert commands == ["make audit", "make test"]
    assert (ROOT / ".ci" / "run").read_text("utf-8").splitlines()[-1] == "make test"
