"""YAML configurations: the same settings, the same errors, and none of YAML's surprises."""

from __future__ import annotations

import json
import tempfile
import tomllib
from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.cli.fuzzing import mutated, scrambled
from tests.cli.test_cli import run
from tests.tiny import TINY
from vflpriv.config.loading import load_config, read_tree
from vflpriv.errors import InputError
from vflpriv.recording.ledger_file import load_ledger


def written(tmp_path: Path, text: str, name: str = "audit.yaml") -> Path:
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    return path


def test_the_same_settings_are_the_same_configuration(tmp_path: Path) -> None:
    toml = load_config(written(tmp_path, TINY, "audit.toml"))
    tree = tomllib.loads(TINY)
    assert load_config(written(tmp_path, yaml.safe_dump(tree))) == toml
    assert load_config(written(tmp_path, json.dumps(tree), "audit.YML")) == toml
    assert load_config(written(tmp_path, yaml.safe_dump(tree)), {"system.sound.engine.rounds": 9}) != toml


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("x: 1e-3", 1e-3),
        ("x: 1.5E+3", 1500.0),
        ("x: -.5", -0.5),
        ("x: no", "no"),
        ("x: on", "on"),
        ("x: true", True),
        ("x: 010", 10),
        ("x: 0o10", 8),
        ("x: 1:30", "1:30"),
        ("x: 2024-01-01", "2024-01-01"),
        ("x: 1_000", "1_000"),
        ("x: '1'", "1"),
        ("x:", None),
        ("y: &a {z: 1}\nx:\n  <<: *a\n  z: 2", {"z": 2}),
    ],
)
def test_values_are_those_of_yaml_1_2(tmp_path: Path, text: str, value: object) -> None:
    found = read_tree(written(tmp_path, text), "config")["x"]
    assert (found, type(found)) == (value, type(value))


LAUGHS = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]\n" for i in range(1, 12)
)
MERGES = "a0: &a0 {b: 1, c: 2}\n" + "".join(
    f"a{i}: &a{i}\n  <<: [{', '.join([f'*a{i - 1}'] * 9)}]\n" for i in range(1, 9)
)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a: [1", "valid YAML"),
        ("a: 1\na: 2", "field 'a' is given twice"),
        ("- 1", "a mapping of fields to values, found list"),
        ("3: 4", "names of fields as text, found 3"),
        ("? [1]\n: 2", "valid YAML"),
        ("!!python/object/apply:os.system ['true']", "could not determine a constructor"),
        ("a: !!python/name:os.system", "could not determine a constructor"),
        ("a: 1\n---\nb: 2", "expected a single document"),
        (LAUGHS, "at most 100000 values"),
        (MERGES, "at most 100000 values"),
        ("a: &a\n  <<: *a", "nested less deeply"),
        ("a: " + "{b: " * 10_000, "nested less deeply"),
        ("a: " + "x" * 1_000_000, "a YAML file of at most 1 MB"),
        ("a: &a [*a]", "nested less deeply"),
        ("[" * 5000, "nested less deeply"),
        ("a: \x00", "valid YAML"),
    ],
)  # fmt: skip
def test_what_is_no_plain_tree_is_one_line(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(InputError, match=words) as caught:
        read_tree(written(tmp_path, text), "config")
    assert "\n" not in str(caught.value)


def test_errors_name_the_field_as_those_of_toml(monkeypatch, capsys, tmp_path) -> None:
    lines = []
    for name, dump in (("audit.toml", None), ("audit.yaml", yaml.safe_dump)):
        text = TINY.replace("rounds = 6", "rounds = 0")
        path = written(tmp_path, text if dump is None else dump(tomllib.loads(text)), name)
        code, _, error = run(monkeypatch, capsys, "validate", str(path))
        assert code == 2
        lines.append(error)
    assert lines[0] == lines[1] == "vflpriv: system.sound.engine.rounds = 0: expected a number >= 1\n"
    assert run(monkeypatch, capsys, "validate", str(tmp_path / "none.yaml"))[2] == (
        f"vflpriv: config = '{tmp_path / 'none.yaml'}': expected a readable YAML file (No such file or directory)\n"
    )


@settings(max_examples=150)
@given(data=st.data())
def test_hostile_yaml_is_read_or_refused_in_one_line(data: st.DataObject) -> None:
    tree = tomllib.loads(TINY)
    if data.draw(st.booleans()):
        content = json.dumps(data.draw(mutated(tree))).encode()
    else:
        content = data.draw(scrambled(yaml.safe_dump(tree).encode()))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "audit.yaml"
        path.write_bytes(content)
        complaint = ""
        try:
            assert load_config(path).system
        except InputError as error:
            complaint = str(error)
    assert complaint.isprintable()


def test_deep_toml_is_one_line_too(tmp_path: Path) -> None:
    for depth in (300, 5000):
        path = written(tmp_path, f"engine = {'[' * depth}{']' * depth}", "deep.toml")
        with pytest.raises(InputError):
            load_config(path)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (f"{'.'.join('a' * 10_000)} = 1", "nested less deeply"),
        ("[" + '"a".' * 10_000 + "a]", "nested less deeply"),
        ("a = " + "{a = " * 10_000, "nested less deeply"),
        (f"a = {'1' * 10_000}", "valid TOML"),
        ("#" * 1_000_001, "a TOML file of at most 1 MB"),
    ],
)
def test_toml_that_takes_too_long_is_one_line(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(InputError, match=words) as caught:
        load_config(written(tmp_path, text, "audit.toml"))
    assert "\n" not in str(caught.value)


def test_a_field_that_is_nested_deeply_is_one_line() -> None:
    with pytest.raises(InputError) as caught:
        load_config(None, {".".join("a" * 3_000): 1})
    assert len(str(caught.value)) < 200
    with pytest.raises(InputError, match=r"^config = 'settings': expected plain values \("):
        load_config(None, {"data.name": "\ud800"})


def test_a_device_that_never_ends_is_not_read_to_its_end() -> None:
    if not Path("/dev/zero").exists():
        pytest.skip("the system has no such device")
    with pytest.raises(InputError, match="it is a pipe or a device, no file"):
        read_tree(Path("/dev/zero"), "config")


@pytest.mark.parametrize("name", ["audit.toml", "audit.yaml"])
def test_a_byte_order_mark_is_no_error(tmp_path: Path, name: str) -> None:
    text = TINY if name.endswith("toml") else yaml.safe_dump(tomllib.loads(TINY))
    plain = load_config(written(tmp_path, text, name))
    assert load_config(written(tmp_path, f"\ufeff{text}", name)) == plain


def test_ledgers_may_be_yaml(tmp_path: Path) -> None:
    text = "release:\n- kind: reply\n  noise: gaussian\n  scale: 2\n  sensitivity: {label: 1e-1}\n"
    assert load_ledger(written(tmp_path, text)).release[0].sensitivity == {"label": 0.1}


def test_sarif_points_to_the_line_of_yaml(monkeypatch, capsys, tmp_path) -> None:
    tree = tomllib.loads(TINY)
    mine = {"key": "mine", "unit": "label", "view": "device", "epsilon": 0.001}
    tree["system"] = [tree["system"][0] | {"claim": [mine]}]
    path, sarif = written(tmp_path, yaml.safe_dump(tree, sort_keys=False)), tmp_path / "a.sarif"
    told = ("-q", "--format", "json", "--out", str(tmp_path), "--sarif", str(sarif))
    code, _, _ = run(monkeypatch, capsys, "audit", str(path), *told)
    assert code == 1
    (result,) = json.loads(sarif.read_text("utf-8"))["runs"][0]["results"]
    line = result["locations"][0]["physicalLocation"]["region"]["startLine"]
    assert path.read_text("utf-8").split("\n")[line - 1].strip() == "- key: mine"
