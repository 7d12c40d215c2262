"""The hash of code changes with every line that decides a result, and with nothing else."""

from __future__ import annotations

import importlib
import subprocess
import sys
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.tree import modules
from vflpriv.common import sources
from vflpriv.common.philox import extension
from vflpriv.common.sources import code_hash, deciding_packages, program_hash
from vflpriv.training.engines.split import Split

ENGINE = """
from helper import factor
LIMIT = 1.0

class Mine:
    name = "mine"

    def clip(self, value):
        return min(value, LIMIT * factor())
"""
HELPER = "def factor():\n    return 1\n"


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Writes the two modules and gives the hash of the class in a new interpreter."""

    def hashed(engine: str = ENGINE, helper: str = HELPER, unused: str = "") -> str:
        for name, text in (("mine", engine), ("helper", helper), ("beside", unused)):
            (tmp_path / f"{name}.py").write_text(text, encoding="utf-8")
        program = "from mine import Mine; from vflpriv.common.sources import code_hash; print(code_hash(Mine))"
        command = [sys.executable, "-B", "-c", program]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
        return done.stdout

    return hashed


def test_a_change_of_a_plug_in_or_of_a_module_it_uses_changes_the_hash(package: Any) -> None:
    first = package()
    assert package() == first
    changes = [
        package(ENGINE.replace("1.0", "8.0")),
        package(ENGINE.replace("min(", "max(")),
        package(helper=HELPER.replace("return 1", "return 8")),
        package(unused="imported = 'inside a function'"),
    ]
    assert len({first, *changes}) == 5
    assert package() == first


def test_a_change_of_a_compiled_module_beside_a_plug_in_changes_the_hash(package: Any, tmp_path: Path) -> None:
    first, compiled = package(), tmp_path / f"fast{EXTENSION_SUFFIXES[-1]}"
    hashes = {first}
    for content in (b"\x7fELF 1", b"\x7fELF 2"):
        compiled.write_bytes(content)
        hashes.add(package())
    assert len(hashes) == 3
    (tmp_path / "fast.c").write_text("int unused;", encoding="utf-8")
    assert package() in hashes, "a source that was not compiled anew does not run"


def notebook(source: str, **values: object) -> type:
    """A class that was defined in a module without a file, as notebooks do."""
    module = ModuleType("a_notebook")
    sys.modules["a_notebook"] = module
    vars(module).update(values)
    exec(source.replace("from helper import factor", HELPER), vars(module))  # noqa: S102
    mine: type = vars(module)["Mine"]
    return mine


def test_a_class_of_a_notebook_is_hashed_by_its_code_and_the_values_it_refers_to() -> None:
    first = code_hash(notebook(ENGINE))
    assert first is not None
    assert code_hash(notebook(ENGINE)) == first
    assert code_hash(notebook(ENGINE.replace("1.0", "8.0"))) != first
    assert code_hash(notebook(ENGINE.replace("min(", "max("))) != first
    assert code_hash(notebook(ENGINE.replace("clip(self, value)", "clip(self, value=2)"))) != first


def test_a_class_of_a_notebook_that_uses_an_unknown_object_has_no_hash() -> None:
    source = ENGINE.replace("LIMIT * factor()", "state.limit")
    assert code_hash(notebook(source, state=object())) is None
    assert code_hash(notebook(source)) is not None


def made(factor: float) -> type:
    class Made(Split):
        """A class that differs from others of the same source by what its function encloses."""

        def scaled(self, value: float) -> float:
            return value * factor

    return Made


def test_classes_that_a_function_makes_differ_by_what_they_enclose() -> None:
    assert code_hash(made(1.0)) == code_hash(made(1.0))
    assert code_hash(made(1.0)) != code_hash(made(8.0))
    assert code_hash(made(1.0)) != code_hash(Split)


@pytest.mark.parametrize(
    "package_name",
    [
        "training/mechanisms/base.py",
        "audits/two_world/scores.py",
        "data/loading.py",
        pytest.param(
            getattr(extension, "__file__", ""),
            marks=pytest.mark.skipif(extension is None, reason="nothing is compiled"),
        ),
    ],
    ids=lambda path: path.rpartition("/")[2],
)
def test_the_source_of_the_program_is_part_of_every_hash(monkeypatch: pytest.MonkeyPatch, package_name: str) -> None:
    first = program_hash()
    read = Path.read_bytes

    def changed(path: Path) -> bytes:
        return read(path) + (b"\n" if path.as_posix().endswith(package_name) else b"")

    monkeypatch.setattr(Path, "read_bytes", changed)
    program_hash.cache_clear()
    try:
        assert program_hash() != first
    finally:
        monkeypatch.undo()
        program_hash.cache_clear()
    assert program_hash() == first


@pytest.mark.parametrize("library", ["torch", "numpy"])
def test_the_versions_of_the_libraries_are_part_of_every_hash(monkeypatch: pytest.MonkeyPatch, library: str) -> None:
    first = code_hash(Split)
    known = sources.version
    monkeypatch.setattr(sources, "version", lambda name: "0.0" if name == library else known(name))
    program_hash.cache_clear()
    try:
        assert code_hash(Split) != first
    finally:
        monkeypatch.undo()
        program_hash.cache_clear()


def test_every_package_that_trains_or_scores_is_covered() -> None:
    """A new sub-package decides results unless it only reads, shows or checks them."""
    packages = {name.split(".")[1] for name in modules() if name.count(".") > 1}
    assert packages - set(deciding_packages()) == {"cli", "config", "render", "report", "testing"}
    assert set(deciding_packages()) <= packages
    for name in deciding_packages():
        assert importlib.import_module(f"vflpriv.{name}").__file__


def test_libraries_that_classes_derive_from_are_known_by_version_and_not_read() -> None:
    reader = sources._CodeReader()
    for item in (Split, Split.settings_type):
        reader.read(item)
    assert {"pydantic", "torch"} <= set(sources._LIBRARIES)
    assert reader._folders == set()
