"""Files around the code that a release needs: they can be read, agree with each other, and name what is there."""

from __future__ import annotations

import json
import re
import tomllib
from collections import defaultdict
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.utils import canonicalize_name

from tests.docs.reduced import CPU_WHEELS
from tools import hashes
from vflpriv import __version__

ROOT = Path(__file__).resolve().parents[2]
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
HOME = PROJECT["urls"]["Homepage"]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
YAML = [*sorted((ROOT / ".github").rglob("*.yml")), ROOT / "action.yml", ROOT / "CITATION.cff"]
PAGES = ("SECURITY.md", "CODE_OF_CONDUCT.md", "CONTRIBUTING.md", "CHANGELOG.md", "LICENSE", "Dockerfile")


def read(path: Path) -> Any:
    return yaml.safe_load(path.read_text("utf-8"))


def text(*parts: str) -> str:
    return ROOT.joinpath(*parts).read_text("utf-8")


@pytest.mark.parametrize("path", YAML, ids=lambda path: path.name)
def test_every_yaml_file_can_be_read(path: Path) -> None:
    assert read(path)


def steps(path: Path) -> list[dict[str, Any]]:
    return [step for job in read(path)["jobs"].values() for step in job["steps"]]


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_workflows_ask_for_no_more_than_they_need_and_call_what_is_there(path: Path) -> None:
    document = read(path)
    assert document["permissions"] == {"contents": "read"}
    targets = set(re.findall(r"^([a-z-]+):", text("Makefile"), re.MULTILINE))
    for step in steps(path):
        assert ("run" in step) != ("uses" in step), step
        assert set(re.findall(r"\bmake ([a-z-]+)", step.get("run", ""))) <= targets, step
        assert re.fullmatch(r"\./|[\w-]+/[\w-]+(/[\w-]+)?@[0-9a-f]{40}", step.get("uses", "./")), step
    assert all("timeout-minutes" in job for job in document["jobs"].values())


def test_actions_are_pinned_to_commits_and_say_which_version_that_is() -> None:
    """A tag can be moved to other code. Dependabot moves the commit and the version beside it together."""
    pinned: dict[str, set[tuple[str, str]]] = defaultdict(set)
    for path in (*WORKFLOWS, ROOT / "action.yml"):
        for line in re.findall(r"uses: (?!\./)(.+)", re.sub(r"(?m)^\s*#.*$", "", path.read_text("utf-8"))):
            parts = re.fullmatch(r"([\w/-]+)@([0-9a-f]{40}) # (v\d+\.\d+\.\d+)", line)
            assert parts, f"{path.name}: {line}"
            pinned[parts[1]].add((parts[2], parts[3]))
    assert len(pinned) >= 7
    assert all(len(versions) == 1 for versions in pinned.values()), pinned
    updates = read(ROOT / ".github" / "dependabot.yml")["updates"]
    assert "github-actions" in {update["package-ecosystem"] for update in updates}


def locked() -> dict[str, str]:
    """The versions of hashes.txt, by name."""
    lines = [line for line in text("hashes.txt").splitlines() if not line.startswith("#")]
    pins = [hashes.PIN.fullmatch(line) for line in lines]
    assert all(pins), [line for line, pin in zip(lines, pins, strict=True) if not pin]
    return {pin["name"]: pin["version"] for pin in pins if pin}


def test_what_is_locked_by_hashes_has_the_versions_of_the_constraints_and_is_complete() -> None:
    versions = {canonicalize_name(name): version for name, version in locked().items()}
    constraints = dict(
        line.split("==") for line in text("constraints.txt").splitlines() if "==" in line[1:] and line[0] != "#"
    )
    pinned = {canonicalize_name(name): version for name, version in constraints.items()}
    assert versions.items() <= pinned.items()
    assert hashes.UNLOCKED in pinned.keys() - versions.keys()
    # What is installed here says itself what it needs: nothing of that may be missing.
    installed = {
        canonicalize_name(d.metadata["Name"]): d.requires or [] for d in metadata.distributions() if d.metadata["Name"]
    }
    assert hashes.wanted(hashes.requirements(("test",)), installed) <= versions.keys()
    steps_of_test = [step.get("run") for step in read(WORKFLOWS[0])["jobs"]["test"]["steps"]]
    assert steps_of_test.index("make locked PYTHON=python") < steps_of_test.index("make test PYTHON=python")
    assert "--require-hashes --no-deps -r hashes.txt" in text("Makefile")


def test_publishing_needs_no_token_and_attests_what_was_built() -> None:
    jobs = read(ROOT / ".github" / "workflows" / "release.yml")["jobs"]
    assert jobs["publish"]["permissions"] == {"id-token": "write", "attestations": "write"}
    uses = [step["uses"].partition("@")[0] for step in jobs["publish"]["steps"]]
    assert uses == ["actions/download-artifact", "actions/attest-build-provenance", "pypa/gh-action-pypi-publish"]
    assert jobs["publish"]["steps"][1]["with"] == {"subject-path": "dist/*"}
    assert jobs["publish"]["environment"] == "pypi"
    assert jobs["publish"]["needs"] == "try"
    assert jobs["try"]["needs"] == ["sdist", "wheels"]
    assert "secrets." not in text(".github", "workflows", "release.yml")


def test_the_versions_of_python_are_the_same_everywhere() -> None:
    listed = [c.rpartition(" ")[2] for c in PROJECT["classifiers"] if re.search(r":: 3\.\d+$", c)]
    assert listed == ["3.11", "3.12", "3.13"]
    assert PROJECT["requires-python"] == f">={listed[0]}"
    for name, job in (("ci", "test"), ("release", "try")):
        jobs = read(ROOT / ".github" / "workflows" / f"{name}.yml")["jobs"]
        assert jobs[job]["strategy"]["matrix"]["python"] == listed
    assert "Python 3.11, 3.12 or 3.13" in text("docs", "tutorial.md")


def test_one_version_in_every_place() -> None:
    assert re.search(r"^## (\S+)", text("CHANGELOG.md"), re.MULTILINE)[1] == __version__  # type: ignore[index]
    assert read(ROOT / "CITATION.cff")["version"] == __version__
    used = re.findall(r"vflpriv/vflpriv@(\S+)", text("docs", "ci.md") + text("action.yml"))
    assert used == ["main"] * 3, "and not of a release, until there is one"


def test_one_address_and_one_author_in_every_place() -> None:
    assert all(url.startswith(HOME) for url in PROJECT["urls"].values())
    files = [*YAML, *(ROOT / name for name in PAGES if name.endswith(".md"))]
    found = {m for path in files for m in re.findall(r"https://github\.com/[\w-]+/vflpriv\b", path.read_text("utf-8"))}
    assert found == {HOME}
    (author,) = PROJECT["authors"]
    assert read(ROOT / "CITATION.cff")["authors"] == [author]
    assert read(ROOT / "action.yml")["author"] == author["name"]


def test_the_citation_has_the_papers_of_the_documentation() -> None:
    citation = read(ROOT / "CITATION.cff")
    assert {"cff-version", "message", "title", "authors", "type", "license"} <= citation.keys()
    assert citation["license"] == PROJECT["license"]
    named = [
        (authors, " ".join(title.split()))
        for authors, title in re.findall(r"^([\w, -]+): \*([^*]+)\*\.", text("docs", "papers.md"), re.MULTILINE)
    ]
    assert len(named) >= 5
    cited = {r["title"]: [a["family-names"] for a in r["authors"]] for r in citation["references"]}
    assert {title: authors.split(", ") for authors, title in named if title in cited} == cited


def test_issue_forms_can_be_shown() -> None:
    forms = [path for path in (ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml") if path.name != "config.yml"]
    assert len(forms) == 3
    for path in forms:
        form = read(path)
        assert {"name", "description", "body"} <= form.keys()
        ids = [part["id"] for part in form["body"]]
        assert len(ids) == len(set(ids))
        assert all(part["attributes"]["label"] for part in form["body"])


def test_containers_install_as_documented() -> None:
    docker = text("Dockerfile")
    assert f"--extra-index-url {CPU_WHEELS} -c /tmp/constraints.txt" in docker
    assert 'ENTRYPOINT ["vflpriv"]' in docker
    container = json.loads(text(".devcontainer", "devcontainer.json"))
    assert (ROOT / ".devcontainer" / container["build"]["dockerfile"]).is_file()
    command = container["postCreateCommand"]
    assert f"`{command}`" in " ".join(text("CONTRIBUTING.md").split())


def test_the_sdist_has_what_tests_need() -> None:
    lines = [line.split() for line in text("MANIFEST.in").splitlines() if line and not line.startswith("#")]
    names = {word: words[0] for words in lines for word in words[1:]}
    for name in ("tests", "docs", "examples", "benchmarks", "tools", ".github", ".devcontainer"):
        assert names[name] == "graft"
    for name, kind in names.items():
        if kind in ("include", "graft"):
            assert (ROOT / name).exists(), name
    top = {path.name for path in ROOT.iterdir() if path.is_file() and not path.name.startswith(".")}
    always = {"pyproject.toml", "README.md", "LICENSE", "MANIFEST.in", "PKG-INFO", "setup.cfg"}
    assert top - always <= names.keys()


def test_other_accountants_are_an_extra_that_tests_have() -> None:
    extras = PROJECT["optional-dependencies"]
    names = ("opacus", "prv-accountant", "dp-accounting")
    assert [re.split("[>=]", need)[0] for need in extras["cross-check"]] == list(names)
    assert not [need for need in PROJECT["dependencies"] if need.startswith(names)]
    assert "vflpriv[cross-check]" in extras["test"]
