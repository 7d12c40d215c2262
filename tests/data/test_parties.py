"""A user's own data: files are joined by ids, and whatever does not fit is refused in one line."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.program import vflpriv
from vflpriv.core.data import VerticalData
from vflpriv.data import parties
from vflpriv.data.loading import load
from vflpriv.errors import InputError

RECORDS = 20
BANK = {f"u{i}": (str(18 + i), ("clerk", "nurse", "none")[i % 3]) for i in range(RECORDS)}
SHOP = {f"u{i}": (str(i * i % 7),) for i in range(RECORDS)}
TRUTH = {f"u{i}": ("yes" if i % 2 else "no",) for i in range(RECORDS)}

Rows = dict[str, tuple[str, ...]]
Make = Callable[..., Path]


def table(header: str, rows: Rows, *, reverse: bool = False) -> str:
    lines = [",".join((own, *values)) for own, values in rows.items()]
    return "\n".join([header, *(reversed(lines) if reverse else lines)]) + "\n"


FILES = {
    "bank.csv": table("id,age,job", BANK),
    "shop.csv": table("id,bought", SHOP, reverse=True),
    "labels.csv": table("id,label", TRUTH),
}


@pytest.fixture
def make(tmp_path: Path) -> Make:
    """A folder with these files instead of the usual ones; None leaves one out."""

    def write(**changed: str | None) -> Path:
        folder = tmp_path / f"own-{len(list(tmp_path.iterdir()))}"
        folder.mkdir()
        for name, text in (FILES | {f"{name}.csv": text for name, text in changed.items()}).items():
            if text is not None:
                (folder / name).write_text(text, encoding="utf-8")
        return folder

    return write


def everything(data: VerticalData) -> list[Any]:
    return [*(block.tolist() for block in (*data.blocks, *data.test_blocks)), data.labels.tolist()]


def test_each_file_is_a_device_and_each_value_of_a_text_column_a_column(make: Make) -> None:
    data = load("csv", folder=make())
    assert (data.devices, data.classes, data.records, len(data.test_labels)) == (2, 2, 16, 4)
    bank, shop = data.blocks
    assert [tuple(block.shape) for block in (bank, shop)] == [(16, 4), (16, 1)]
    assert sorted(set(bank[:, 1:].flatten().tolist())) == [0.0, 1.0]
    assert bank[:, 1:].sum(dim=1).tolist() == [1.0] * 16
    for numbers in (bank[:, 0], shop[:, 0]):
        assert float(numbers.mean()) == pytest.approx(0, abs=1e-6)
        assert float(numbers.std(unbiased=False)) == pytest.approx(1, abs=1e-6)


def test_no_party_is_left_out_unsaid(make: Make) -> None:
    upper = make()
    (upper / "shop.csv").rename(upper / "SHOP.CSV")
    assert load("csv", folder=upper).devices == 2
    for make_entry, why in ((Path.mkdir, "Is a directory"), (lambda path: path.symlink_to("gone"), "No such file")):
        folder = make()
        make_entry(folder / "third.csv")
        with pytest.raises(InputError, match=rf"third.csv': expected a file that can be read \({why}"):
            load("csv", folder=folder)


def test_lines_are_joined_by_ids_and_their_order_changes_nothing(make: Make) -> None:
    data = load("csv", folder=make())
    ages = torch.cat([data.blocks[0][:, 0], data.test_blocks[0][:, 0]])
    place = ages.argsort().argsort()  # ages rise with the number of the record
    labels, bought = torch.cat([data.labels, data.test_labels]), torch.cat([data.blocks[1], data.test_blocks[1]])[:, 0]
    assert labels.tolist() == [int(i) % 2 for i in place]
    assert (bought[place == 4] > bought[place == 1]).all()  # 16 % 7 = 2 and 1
    moved = make(bank=table("id,age,job", BANK, reverse=True), labels=table("id,label", TRUTH, reverse=True))
    assert everything(load("csv", folder=moved)) == everything(data)


def test_parties_are_in_the_order_of_their_numbers(make: Make) -> None:
    wide = {1: "x", 2: "x,y", 10: "x,y,z"}
    shops = {
        f"party-{n}": table(f"id,{names}", {own: values * len(names.split(",")) for own, values in SHOP.items()})
        for n, names in wide.items()
    }
    data = load("csv", folder=make(bank=None, shop=None, **shops))
    assert [block.shape[1] for block in data.blocks] == [1, 2, 3]


def test_labels_are_classes_in_sorted_order_numbers_by_their_value(make: Make) -> None:
    truth = {f"u{i}": (("10", "9", "9.0")[i % 3],) for i in range(RECORDS)}
    data = load("csv", folder=make(labels=table("id,label", truth)))
    tens = sum(i % 3 == 0 for i in range(RECORDS))
    labels = torch.cat([data.labels, data.test_labels])
    assert (data.classes, int(labels.sum())) == (2, tens)


@pytest.mark.parametrize("split", [False, True])
def test_records_are_shuffled_once_so_that_the_first_ones_are_not_all_of_a_class(make: Make, split: bool) -> None:
    ids = sorted(TRUTH)
    parts = {own: ("test" if place % 5 == 0 else "train",) if split else () for place, own in enumerate(ids)}
    truth = {own: ("no" if place < RECORDS // 2 else "yes", *parts[own]) for place, own in enumerate(ids)}
    data = load("csv", folder=make(labels=table("id,label,split" if split else "id,label", truth)))
    assert len(set(data.labels[:8].tolist())) == len(set(data.test_labels.tolist())) == 2


def test_a_column_split_says_what_is_trained_on_and_which_values_are_columns(make: Make) -> None:
    truth = {own: (*label, "test" if own in ("u3", "u4") else "train") for own, label in TRUTH.items()}
    jobs = {own: (age, "pilot" if own == "u3" else "clerk") for own, (age, _) in BANK.items()}
    folder = make(labels=table("id,label,split", truth), bank=table("id,age,job", jobs))
    data = load("csv", folder=folder)
    assert (data.records, sorted(data.test_labels.tolist())) == (18, [0, 1])
    assert data.blocks[0].shape[1] == 2
    assert data.test_blocks[0][:, 1][data.test_labels == 1].tolist() == [0.0]


def test_common_ids_are_kept_only_if_that_is_said(make: Make) -> None:
    folder = make(shop=table("id,bought", {**{u: v for u, v in SHOP.items() if u != "u7"}, "u99": ("1",)}))
    with pytest.raises(InputError) as caught:
        load("csv", folder=folder)
    assert caught.value.value == str(folder / "shop.csv")
    assert "the ids of labels.csv; 'u7' is missing (one id in all)" in caught.value.expected
    kept = load("csv", folder=folder, alignment="common")
    assert kept.records + len(kept.test_labels) == RECORDS - 1
    strangers = make(shop=table("id,bought", {f"v{i}": ("1",) for i in range(RECORDS)}))
    with pytest.raises(InputError, match="an id that all of its CSV files have, found none"):
        load("csv", folder=strangers, alignment="common")
    with pytest.raises(InputError, match=r"data.alignment = 'common': expected exact, since records of digits"):
        load("digits", alignment="common")


def test_an_id_without_a_label_is_named(make: Make) -> None:
    folder = make(labels=table("id,label", {u: v for u, v in TRUTH.items() if u not in ("u7", "u8")}))
    with pytest.raises(
        InputError, match=r"labels.csv': expected the ids of bank.csv; 'u7' is missing \(2 ids in all\)"
    ):
        load("csv", folder=folder)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"labels": None}, "labels.csv in it; put one CSV file for each party"),
        ({"bank": None, "shop": None}, "a party's CSV file beside labels.csv"),
        (
            {"labels": table("id,label", dict.fromkeys(TRUTH, ("a",)))},
            "two classes or more in the column 'label', found",
        ),
        (
            {"labels": table("id,label", {u: (u,) for u in TRUTH})},
            "classes in the column 'label', found 20 values of 20",
        ),
        ({"labels": table("id,label", {**TRUTH, "u5": ("nan",)})}, "line 7: a finite number in the column 'label'"),
        ({"labels": table("id,a,b", dict.fromkeys(TRUTH, ("1", "2")))}, "the label; found a, b; features belong into"),
        ({"labels": table("id,split", dict.fromkeys(TRUTH, ("train",)))}, "the label; found none"),
        (
            {"labels": table("id,label,split", {u: (*v, "val") for u, v in TRUTH.items()})},
            "line 2: train or test in the column 'split', found 'val'",
        ),
        (
            {"bank": table("id,age,job", {**BANK, "u2": ("", "clerk")})},
            "line 4: a value in the column 'age', found none",
        ),
        ({"bank": table("id,age,job", {**BANK, "u2": ("?", "clerk")})}, "line 4: a number in the column 'age'"),
    ],
)
def test_what_does_not_fit_is_refused_in_one_line(make: Make, changed: dict[str, str | None], said: str) -> None:
    with pytest.raises(InputError) as caught:
        load("csv", folder=make(**changed))
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_column_of_too_many_texts_is_refused(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parties, "_DISTINCT", 2)
    with pytest.raises(InputError, match="numbers, or at most 2 different texts, in the column 'job', found 3"):
        load("csv", folder=make())


def test_files_decide_how_many_devices_there_are(make: Make) -> None:
    folder = make()
    assert everything(load("csv", folder=folder, devices=2)) == everything(load("csv", folder=folder))
    with pytest.raises(InputError, match=r"data.devices = 4: expected 2, one for each party's file, or nothing"):
        load("csv", folder=folder, devices=4)
    with pytest.raises(InputError, match=r"data.partition = 'slices': expected views or nothing"):
        load("csv", folder=folder, partition="slices")
    with pytest.raises(InputError, match=r"data.folder = None: expected a folder"):
        load("csv")
    with pytest.raises(InputError, match="nowhere': expected a folder"):
        load("csv", folder=folder / "nowhere")
    assert load("digits").devices == 4


CONFIG = """
device = "cpu"
[data]
name = "csv"
folder = "{folder}"
[attack]
seeds = 1
attacks = ["label_direct"]
[[system]]
key = "own"
engine = {{ name = "send-once", rounds = 4, epsilon = 1.0 }}
audit = {{ trials = 2, whole_view = 0, attacks = [], noise = false, state = false, wire = false, sensitivity = false }}
"""


@pytest.mark.parametrize("command", ["train", "account", "audit", "attack"])
def test_commands_work_with_it(make: Make, tmp_path: Path, command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    config = tmp_path / "own.toml"
    config.write_text(CONFIG.format(folder=make()), encoding="utf-8")
    formats = ("--format", "json")
    ran = vflpriv(command, config, *formats)
    assert ran.returncode in ((0,) if command in ("train", "account") else (0, 1, 3)), ran.stderr
    wrong = vflpriv(command, config, *formats, "--set", "data.devices=3")
    assert (wrong.returncode, wrong.stderr.count("\n")) == (2, 1)


def test_the_best_accuracy_at_a_budget_is_found_for_it(make: Make, tmp_path: Path) -> None:
    asked = ("--folder", make(), "--trials", 0, "--seeds", 1, "--epsilon", 1, "--set", "validation=2", "--quiet")
    once = ("--only", "send-once", "--only", "send-once-scattering", "--out", tmp_path / "out", "--format", "json")
    ran = vflpriv("frontier", "--data", "csv", *asked, *once)
    assert ran.returncode == 0, ran.stderr
    report = json.loads((tmp_path / "out" / "frontier.json").read_text("utf-8"))
    assert report["data"] == {"name": "csv", "records": 16, "devices": 2, "classes": 2}
    assert [point["key"] for point in report["points"]] == ["send-once"]
    assert "bands of rows" in next(e["refusal"] for e in report["entries"] if e["key"] == "send-once-scattering")
