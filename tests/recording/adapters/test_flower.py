"""A Flower app is recorded by a grid that passes messages on: with a stand-in for Flower, and with Flower itself."""

from __future__ import annotations

import os
import runpy
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import vflpriv
from tests.recording.adapters import flower_stand_in as flower
from vflpriv.errors import InputError
from vflpriv.recording.adapters.flower import watch_grid

EXAMPLE = Path(__file__).resolve().parents[3] / "examples" / "flower"


def audited(folder):
    ledger = folder / "ledger.toml"
    ledger.write_text(
        'attacks = ["label_direction"]\n' + (EXAMPLE / "ledger.toml").read_text("utf-8"), encoding="utf-8"
    )
    report = vflpriv.audit(transcript=folder, ledger=ledger, quiet=True)
    return report, {a.attack: a.success for a in report.systems[0].attacks if a.success is not None}


def test_the_example_gives_every_label_away(monkeypatch, tmp_path):
    flower.install(monkeypatch)
    monkeypatch.setattr(sys, "argv", ["train.py", str(tmp_path / "t")])
    runpy.run_path(str(EXAMPLE / "train.py"), run_name="__main__")
    report, successes = audited(tmp_path / "t")
    assert report.exit_code == 1
    assert report.systems[0].data["messages"] == {"embeddings": 60, "embedding-gradient": 60}
    assert successes["label_direction"] == 1.0


def test_the_example_adds_three_lines():
    added = [line for line in (EXAMPLE / "train.py").read_text("utf-8").splitlines() if line.endswith("# added")]
    assert len(added) == 3


@pytest.mark.slow
def test_the_example_in_flowers_own_simulation(tmp_path):
    pytest.importorskip("flwr", reason="Flower is not installed: its requirements exclude our pinned versions")
    environment = os.environ | {"FLWR_TELEMETRY_ENABLED": "0", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, str(EXAMPLE / "train.py"), str(tmp_path / "t")]
    subprocess.run(command, check=True, timeout=900, env=environment, cwd=tmp_path)
    report, successes = audited(tmp_path / "t")
    assert report.exit_code == 1
    assert successes["label_direction"] == 1.0


RECORDS, NODES = 6, 2


def request(node, content=None):
    message_type = "query.generate_embeddings"
    return flower.Message(flower.RecordDict(content or {}), dst_node_id=node, message_type=message_type)


def reply(embedding, position=None, metrics=None, **arrays):
    """A node's answer to any request."""

    def answer(message, context):
        record = flower.ArrayRecord({"embedding": flower.Array(embedding), **arrays})
        content = flower.RecordDict({"arrays": record})
        if position is None:
            content["config"] = flower.ConfigRecord({"pos": context.node_config["partition-id"]})
        if metrics:
            content["metrics"] = flower.MetricRecord(metrics)
        return flower.Message(content, reply_to=message)

    return answer


def grid_of(folder, answer, records=RECORDS, **options):
    app = flower.ClientApp()
    app.query("generate_embeddings")(answer)
    app.train("apply_gradients")(lambda message, context: flower.Message(None, reply_to=message))
    grid = flower.SimulatedGrid(app, NODES)
    return watch_grid(grid, labels=torch.arange(records) % 2, classes=2, folder=folder, **options)


def messages_of(grid, folder):
    grid.finish()
    return vflpriv.read_transcript(folder).transcript.messages


def rows(value=0.0):
    return np.full((RECORDS, 3), value, dtype=np.float32)


def gradients(grid, **content):
    """A gradient for each node, whose value is the node's position."""
    return [
        flower.Message(
            flower.RecordDict({"gradients": flower.ArrayRecord({"local-gradients": flower.Array(rows(n))}), **content}),
            dst_node_id=node,
            message_type="train.apply_gradients",
        )
        for n, node in enumerate(grid.get_node_ids())
    ]


def test_rounds_devices_and_values_are_those_of_the_messages(tmp_path):
    grid = grid_of(tmp_path, reply(rows(1.0)))
    for _ in range(2):
        replies = grid.send_and_receive([request(node) for node in grid.get_node_ids()], timeout=1.0)
        assert len(replies) == NODES
        grid.pull_messages(grid.push_messages(gradients(grid)))
    found = messages_of(grid, tmp_path)
    outline = [(m.round, m.kind, m.device.index) for m in found]
    assert sorted(outline) == [
        (r, k, d) for r in range(2) for k in ("embedding-gradient", "embeddings") for d in range(2)
    ]
    for m in found:
        expected = rows(1.0) if m.kind == "embeddings" else rows(m.device.index)
        assert m.tensors[next(iter(m.tensors))][0].numpy().tolist() == expected.tolist()
        assert m.records.tolist() == list(range(RECORDS))


def test_nodes_that_are_asked_one_by_one_are_of_one_round(tmp_path):
    grid = grid_of(tmp_path, reply(rows()))
    for _ in range(2):
        for node in grid.get_node_ids():
            grid.send_and_receive([request(node)])
    assert [m.round for m in messages_of(grid, tmp_path)] == [0, 0, 1, 1]


def test_a_request_may_say_which_records_it_wants(tmp_path):
    grid = grid_of(tmp_path, reply(rows()[:2]), ids="arrays/batch")
    wanted = {"arrays": flower.ArrayRecord({"batch": flower.Array(np.array([4, 1]))})}
    grid.send_and_receive([request(node, wanted) for node in grid.get_node_ids()])
    found = messages_of(grid, tmp_path)
    assert {m.kind for m in found} == {"embeddings"}
    assert [m.records.tolist() for m in found] == [[4, 1]] * NODES


def test_nothing_else_passes_unrecorded(tmp_path):
    answer = reply(rows(), position=False, metrics={"loss": 0.5}, labels=flower.Array(np.arange(3.0)))
    grid = grid_of(tmp_path, answer)
    told = {"model": flower.ArrayRecord({"fc.weight": flower.Array(np.ones((2, 2)))})}
    grid.send_and_receive([request(node, told) for node in grid.get_node_ids()])
    found = messages_of(grid, tmp_path)
    others = [m for m in found if m.kind == "flower-query-generate_embeddings"]
    assert {frozenset(m.tensors) for m in others} == {
        frozenset({"model.fc.weight"}),
        frozenset({"arrays.labels", "metrics.loss"}),
    }
    assert {m.device.index for m in others} == {0, 1}


def test_rows_of_unknown_records_are_refused(tmp_path):
    grid = grid_of(tmp_path, reply(rows()[:2]))
    with pytest.raises(InputError) as error:
        grid.send_and_receive([request(node) for node in grid.get_node_ids()])
    assert str(error.value).startswith("embeddings: rows = 2: expected 6, one for each record, or watch_grid(ids=...)")


@pytest.mark.parametrize(("place", "value"), [("embedding", "embedding"), ("ids", "a/b/c")])
def test_places_in_messages_are_a_record_and_an_entry(tmp_path, place, value):
    with pytest.raises(InputError, match="expected record/entry"):
        grid_of(tmp_path, reply(rows()), **{place: value})


def test_nodes_must_be_there_or_their_number(tmp_path):
    empty = flower.SimulatedGrid(flower.ClientApp(), 0)
    with pytest.raises(InputError, match="devices = 0"):
        watch_grid(empty, labels=torch.zeros(2), classes=2, folder=tmp_path)
