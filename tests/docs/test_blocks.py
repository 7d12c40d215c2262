"""Every fenced block of the documentation is run: Python, TOML, shell commands, workflows and what commands print.

`reduced.py` lists the commands that run only in part.
"""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from tests.cli.test_cli import run
from tests.docs.blocks import ROOT, Block, Page, blocks, commands
from tests.docs.reduced import FLAGS, PRELUDE
from tools.docs_markdown import part
from tools.docs_pages import pages
from tools.docs_readme import trace_part

pytestmark = pytest.mark.usefixtures("few_trees")
FILES = sorted(
    path
    for pattern in ("*.md", "docs/**/*.md", "examples/**/README.md", "benchmarks/**/*.md", "tests/**/*.md")
    for path in ROOT.glob(pattern)
)
WRITTEN = [path for path in FILES if blocks(path.read_text("utf-8"))]


@pytest.fixture
def page(monkeypatch, capsys, tmp_path):
    folder = tmp_path / "page"
    made = Page(folder, lambda *words: run(monkeypatch, capsys, *words))
    monkeypatch.chdir(folder)
    monkeypatch.delenv("GITHUB_STEP_SUMMARY", raising=False)
    monkeypatch.syspath_prepend(str(folder))
    return made


def go(page: Page, found: list[Block], where: str) -> None:
    for block in found:
        try:
            page.run(block)
        except BaseException as error:
            error.add_note(f"in the {block.language} block at {where}:{block.line}")
            raise


@pytest.mark.parametrize("path", WRITTEN, ids=lambda path: str(path.relative_to(ROOT)))
def test_the_blocks_of_a_page_do_what_they_say(page, path: Path):
    if path.name in PRELUDE:
        page.write(blocks((path.parent / PRELUDE[path.name]).read_text("utf-8")))
    text = path.read_text("utf-8")
    go(page, blocks(text), path.name)
    if path == ROOT / "README.md":  # it shows all that the program says of its script, not only some lines
        assert part(text, "trace").strip() == trace_part(page.printed).strip(), "run `make results`"


@pytest.fixture(scope="module")
def generated() -> dict[str, str]:
    return pages()


def test_configurations_of_generated_pages_are_valid(page, generated):
    found = {name: blocks(text) for name, text in generated.items()}
    tomls = [(name, block) for name, inside in found.items() for block in inside if block.language == "toml"]
    assert len(tomls) >= 30
    for name, block in tomls:
        go(page, [block], name)


@pytest.mark.slow
def test_blocks_of_generated_pages_do_what_they_say(page, generated):
    for name, text in generated.items():
        go(page, blocks(text), name)


def test_nothing_is_reduced_that_is_not_there(generated):
    texts = [*(path.read_text("utf-8") for path in WRITTEN), *generated.values()]
    shell = [block for text in texts for block in blocks(text) if block.language == "sh"]
    there = {shlex.join([Path(words[0]).name, *words[1:]]) for block in shell for words, _ in commands(block.text)}
    assert set(FLAGS) <= there


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("```\nwords\n```", "no runner for a block of language ''"),
        ("```rust\nfn main() {}\n```", "no runner for a block of language 'rust'"),
        ("```sh\ncurl example.org\n```", "no runner for the command curl"),
        ("```python\n1 / 0\n```", "division by zero"),
        ("```toml\n[engine]\nname = 'nobody'\n```", "nobody"),
        ("```toml\n[[release]]\nkind = 'x'\n```", "noise"),
        ("```sh\nvflpriv engines  # exit code 1\n```", "exit code 0, expected"),
        ("```sh\nvflpriv validate missing.toml\n```", "exit code 2, expected"),
        ("```sh\nvflpriv engines\n```\n\n```text\nno such engine\n```", "nothing printed 'no such engine'"),
        ("```python\n# train.py\na = 1\n```\n\n```diff\n a = 1\n+b = 2\n```", "train.py has no line 'b = 2' here"),
        ("```sh\nmake nothing\n```", "make"),
        ("```sh\npip install ./nowhere\n```", "pip"),
    ],
)
def test_a_wrong_block_is_found(page, text, complaint):
    with pytest.raises(Exception, match=r".*") as caught:
        go(page, blocks(text), "here")
    assert complaint in str(caught.value)


def test_an_open_fence_is_found():
    with pytest.raises(AssertionError, match="not closed"):
        blocks("```sh\nls\n")
