"""Public limits and values of columns: with them no record has a say in the features of another one."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.program import vflpriv
from vflpriv.config.loading import load_config
from vflpriv.config.models import Config, DataConfig, SystemConfig
from vflpriv.core.units import Unit
from vflpriv.core.views import Adversary
from vflpriv.data.columns import Column, decided_by_all, declared
from vflpriv.data.loading import load, read
from vflpriv.errors import InputError
from vflpriv.run.systems import build_system, load_data, read_data

RECORDS = 20
RANGES = {"age": (0.0, 100.0), "bought": (0.0, 10.0)}
JOBS = {"job": ("clerk", "nurse", "pilot")}
TESTED = {17: (40.0, "pilot", 1.0), 18: (41.0, "spy", 2.0)}
"""Test records with jobs that no training record has."""
AS_FITTED = ("the means and deviations of the columns", "the values that texts take")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return written(tmp_path, {})


def written(folder: Path, changed: dict[int, tuple[float, str, float]]) -> Path:
    """Files of two parties, in which some records have this age and job and have bought so much."""
    own = {i: changed.get(i, (20.0 + i, ("clerk", "nurse")[i % 2], i % 5)) for i in range(RECORDS)}
    tables = {
        "bank": ["id,age,job", *(f"u{i},{age},{job}" for i, (age, job, _) in own.items())],
        "shop": ["id,bought", *(f"u{i},{bought}" for i, (_, _, bought) in own.items())],
        "labels": ["id,label,split", *(f"u{i},{i % 2},{'train' if i < 15 else 'test'}" for i in range(RECORDS))],
    }
    for name, lines in tables.items():
        (folder / f"{name}.csv").write_text("\n".join(lines), "utf-8")
    return folder


def test_numbers_lie_between_their_limits_and_texts_have_the_declared_columns(folder: Path) -> None:
    data = load("csv", folder=folder, ranges={"age": (20.0, 30.0)}, values=JOBS)
    bank = torch.cat([data.blocks[0], data.test_blocks[0]])
    assert bank.shape == (RECORDS, 4)
    assert bank[:, 0].min() == -1
    assert sorted(bank[:, 0].tolist())[5] == pytest.approx(0.0)
    assert int((bank[:, 0] == 1).sum()) == 10  # 30 to 39
    assert bank[:, 1:].sum(0).tolist() == [10, 10, 0]
    shop = data.blocks[1]
    assert float(shop.mean()) == pytest.approx(0, abs=1e-6)
    assert float(shop.std(correction=0)) == pytest.approx(1, abs=1e-5)


@settings(max_examples=25, deadline=None)
@given(
    age=st.floats(-1e6, 1e6, allow_nan=False),
    job=st.sampled_from(["clerk", "pilot", "spy"]),
    bought=st.floats(-1e6, 1e6, allow_nan=False),
)
def test_a_record_changes_no_other_one_where_all_columns_are_declared(
    tmp_path_factory: pytest.TempPathFactory, age: float, job: str, bought: float
) -> None:
    before, after = (
        read("csv", folder=written(tmp_path_factory.mktemp("own"), changed), ranges=RANGES, values=JOBS)
        for changed in (TESTED, {**TESTED, 3: (age, job, bought)})
    )
    assert (before.fitted, after.fitted) == ((), ())
    for one, other in zip(before.blocks, after.blocks, strict=True):
        assert one.shape == other.shape
        assert int((one != other).any(axis=1).sum()) <= 1
    for one, other in zip(before.test_blocks, after.test_blocks, strict=True):
        assert np.array_equal(one, other)


def test_a_job_that_test_records_alone_have_counts_where_it_is_declared(tmp_path: Path) -> None:
    folder = written(tmp_path, TESTED)
    jobs = [load("csv", folder=folder, values=values).test_blocks[0][:, 1:] for values in (JOBS, {})]
    assert [part.sum(0).tolist() for part in jobs] == [[1, 2, 1], [1, 2]]


def test_without_them_one_record_changes_all(tmp_path_factory: pytest.TempPathFactory) -> None:
    before, after = (
        read("csv", folder=written(tmp_path_factory.mktemp("own"), changed)) for changed in ({}, {3: (1e4, "spy", 2)})
    )
    assert before.fitted == AS_FITTED
    assert before.blocks[0].shape[1] + 1 == after.blocks[0].shape[1]
    assert bool((before.blocks[0][:, 0] != after.blocks[0][:, 0]).all())


@pytest.mark.parametrize(
    ("ranges", "values", "fitted"),
    [
        (RANGES, {}, AS_FITTED[1:]),
        ({"age": (0, 100)}, JOBS, AS_FITTED[:1]),
        ({}, JOBS, AS_FITTED[:1]),
        (RANGES, JOBS, ()),
    ],
)
def test_what_is_not_declared_is_named(folder: Path, ranges: dict, values: dict, fitted: tuple[str, ...]) -> None:
    assert load("csv", folder=folder, ranges=ranges, values=values).fitted == fitted


def test_budgets_that_count_features_name_what_all_records_decided(folder: Path) -> None:
    section = SystemConfig(key="ours", engine={"name": "send-once", "rounds": 3})
    for chosen, named in (({}, True), ({"ranges": RANGES, "values": JOBS}, False)):
        config = Config(data=DataConfig(name="csv", folder=str(folder), **chosen), system=(section,))
        ledger = build_system(config, 0, load_data(config)).ledger
        for unit in (Unit.RECORD, Unit.FEATURES):
            notes = " ".join(ledger.exposure(Adversary.parse("devices(all)"), unit).assumptions)
            assert (" and ".join(AS_FITTED) in notes) == named
            assert ("nothing counts that" in notes) == named
        labels = ledger.exposure(Adversary.parse("devices(all)"), Unit.LABEL).assumptions
        assert not any("nothing counts that" in note for note in labels)


@pytest.mark.parametrize("reading", [load_data, read_data])
def test_one_scale_of_all_features_is_named_too(reading) -> None:
    config = load_config(None, {"data.name": "digits", "data.standardise": True})
    assert reading(config).fitted == ("the mean and deviation of all features",)
    assert reading(load_config(None, {"data.name": "digits"})).fitted == ()


@pytest.mark.parametrize(
    ("chosen", "message"),
    [
        ({"ranges": {"height": (0, 1)}}, "data.ranges.height = [0, 1]: expected a column of numbers: age, bought"),
        ({"ranges": {"job": (0, 1)}}, "data.ranges.job = [0, 1]: expected a column of numbers: age, bought"),
        ({"ranges": {"age": (3, 3)}}, "data.ranges.age = [3, 3]: expected two numbers, the lower one first"),
        ({"values": {"age": ("1",)}}, "data.values.age = ['1']: expected a column of texts: job"),
        ({"values": {"job": ("a", "a")}}, "data.values.job = ['a', 'a']: expected at least one value, each once"),
    ],
)
def test_what_does_not_fit_is_named(folder: Path, chosen: dict, message: str) -> None:
    with pytest.raises(InputError) as error:
        load("csv", folder=folder, **chosen)
    assert message in str(error.value)


def test_images_have_no_named_columns() -> None:
    with pytest.raises(InputError, match="none: digits has no such columns"):
        load("digits", ranges={"age": (0, 1)})


def test_the_command_line_takes_them_and_names_what_is_wrong(folder: Path) -> None:
    path = folder / "own.toml"
    own = f'[data]\nname = "csv"\nfolder = {str(folder)!r}\n[engine]\nname = "split"\nrounds = 2\nbatch_size = 4\n'
    path.write_text(own, "utf-8")
    fine = vflpriv("train", path, "--set", "data.ranges={age = [0, 100]}")
    assert fine.returncode == 0, fine.stderr
    wrong = vflpriv("train", path, "--set", "data.ranges={age = 3}")
    assert wrong.returncode == 2
    assert "data.ranges.age = 3" in wrong.stderr
    assert "Traceback" not in wrong.stderr


def test_columns_of_the_same_name_of_two_parties_are_each_declared() -> None:
    columns = (Column("age"), Column("job", "a"), Column("age"))
    only = np.array([[5.0, 1.0, 20.0]])
    features, _, kept, views = declared(only, only, columns, (2, 1), {"age": (0, 10)}, {})
    assert features.tolist() == [[0.0, 1.0, 1.0]]
    assert [column.public for column in kept] == [True, False, True]
    assert views == (2, 1)
    assert decided_by_all(kept) == ("the values that texts take",)
    assert decided_by_all(None) == ("the means and deviations of the columns",)
