"""The table of message kinds is true of every engine, and a wrong entry is refused."""

from __future__ import annotations

import pytest

from tests.contracts.test_engines import VARIANTS, run
from tests.support import make_system
from vflpriv.core.kinds import KINDS, Content, Direction, Kind, all_kinds, kind_named, names_of, register_kind
from vflpriv.recording.files.checks import check_shapes


def test_properties() -> None:
    assert KINDS["logits"].per_record
    assert KINDS["logits"].per_class
    assert not KINDS["embeddings"].per_class
    assert not KINDS["zo-scalar"].per_record
    assert KINDS["loss-differences"].per_record
    assert kind_named("of-my-own") is None
    assert names_of(direction=Direction.UP) == {"embeddings", "logits", "embedding-pair", "logit-pair"}
    assert names_of(content=Content.GRADIENT, per_class=True) == {"logit-gradient"}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"forms": ()}, "found none"),
        ({"content": Content.GRADIENT}, "Expected gradient in message kind 'x'"),
        ({"content": Content.OUTPUTS, "forms": ({"embedding": ("batch", "width")},)}, "to go up"),
        ({"content": Content.LOSS_CHANGE, "forms": ({"loss": ()},)}, "delta or loss, perturbed or differences"),
    ],
)
def test_a_wrong_entry_is_refused(changes: dict[str, object], message: str) -> None:
    fields: dict[str, object] = {"name": "x", "summary": "y", "direction": Direction.DOWN, "forms": ({"z": ()},)}
    Kind(**fields)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=message):
        Kind(**(fields | changes))  # type: ignore[arg-type]


def test_a_name_has_one_meaning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vflpriv.core.kinds._registered", {})
    kind = Kind(name="counts", summary="of words", direction=Direction.UP, forms=({"counts": ("batch", "words")},))
    assert register_kind(register_kind(kind)) is all_kinds()["counts"]
    assert kind_named("counts") is kind
    assert "counts" not in names_of()  # only attacks that name it know what it holds
    other = Kind(name="counts", summary="others", direction=Direction.UP, forms=({"counts": ()},))
    with pytest.raises(ValueError, match="one message kind named 'counts'"):
        register_kind(other)
    with pytest.raises(ValueError, match="one message kind named 'logits'"):
        register_kind(Kind(name="logits", summary="others", direction=Direction.UP, forms=({"x": ()},)))


@pytest.mark.parametrize("variant", VARIANTS)
def test_every_message_of_every_engine_is_as_the_table_says(variant: str) -> None:
    system = make_system(variant)
    _, transcript, _ = run(system)
    for message in transcript.messages:
        kind = KINDS[message.kind]
        assert kind.direction == ("down" if message.sender.is_server else "up")
        assert message.records is not None
        shapes = {name: tensor.shape[1:] for name, tensor in message.tensors.items()}
        check_shapes(message.kind, shapes, len(message.records), system.data.classes)
