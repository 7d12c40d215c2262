"""Ledger files: every field is checked, silence never helps a claim, and budgets are those of the closed forms."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support import make_system
from vflpriv.config.errors import parse_settings
from vflpriv.core.ledger import Ledger
from vflpriv.core.units import Unit
from vflpriv.core.views import Adversary
from vflpriv.core.wire import SERVER, Message, Transcript, Wire, device
from vflpriv.errors import InputError
from vflpriv.recording.ledger_file import LedgerConfig, load_ledger
from vflpriv.recording.schedule import RecordedSchedule

VIEWS = ("device", "devices(all)", "eavesdropper", "outsider", "server", "model")


def ledger_of(config, messages, *, records, devices):
    recorded = RecordedSchedule.of(
        messages,
        records=records,
        devices=devices,
        shared=frozenset(r.kind for r in config.release if r.shared),
        public=frozenset(config.public),
        sampled=config.batches.sampled(),
    )
    ways = {m.kind: frozenset({"down" if m.sender.is_server else "up"}) for m in messages}
    holders = frozenset(config.label_holders)
    return Ledger(schedule=recorded.schedule, releases=config.releases(recorded, ways), label_holders=holders)


def parse(raw):
    return parse_settings(LedgerConfig, raw, "ledger")


def replies(rounds=5, devices=2, batch=3, records=8):
    generator = np.random.default_rng(0)
    found = []
    for t in range(rounds):
        ids = torch.from_numpy(generator.choice(records, batch, replace=False))
        for m in range(devices):
            value = {"x": torch.ones(1, 1)}
            found.append(Message(round=t, sender=SERVER, receiver=device(m), kind="reply", tensors=value, records=ids))
    return found


NOISED = {"kind": "reply", "noise": "gaussian", "scale": 2.0, "sensitivity": {"label": 0.5}}


def mu(config, view, unit=Unit.LABEL, messages=None):
    ledger = ledger_of(parse(config), messages or replies(), records=8, devices=2)
    exposure = ledger.exposure(Adversary.parse(view), unit)
    return exposure.mu if exposure.gaussian else math.inf


def most(messages):
    counts = np.zeros(8)
    for m in messages:
        counts[m.records] += 1
    return counts.max()


def test_gaussian_messages_compose_by_the_closed_form():
    both = most(replies())
    assert mu({"release": [NOISED]}, "devices(all)") == pytest.approx(0.25 * math.sqrt(both))
    # What a message to one device moves is read in messages to the other, unless the file says otherwise.
    assert mu({"release": [NOISED]}, "device") == pytest.approx(0.25 * math.sqrt(both))
    assert mu({"release": [NOISED | {"carried": False}]}, "device") == pytest.approx(0.25 * math.sqrt(both / 2))
    assert mu({"release": [NOISED | {"shared": True}]}, "devices(all)") == pytest.approx(0.25 * math.sqrt(both / 2))


def test_what_is_not_said_is_not_protected():
    for view in ("device", "devices(all)", "eavesdropper", "outsider"):
        assert math.isinf(mu({"release": [NOISED]}, view, Unit.RECORD))
        assert math.isinf(mu({}, view))
        assert math.isinf(mu({"release": [NOISED | {"kind": "another"}]}, view))
    assert math.isinf(mu({"release": [NOISED]}, "model"))
    wider = NOISED | {"sensitivity": {"record": 0.5}}
    assert mu({"release": [wider]}, "device") == mu({"release": [NOISED]}, "device")
    assert mu({"release": [NOISED], "model_follows_releases": True}, "model") < math.inf
    assert mu({"public": ["reply"]}, "device") == 0


def test_the_ways_of_the_wire_decide_who_sees_unless_the_file_does():
    up = [Message(round=0, sender=device(0), receiver=SERVER, kind="reply", tensors={}, records=None)]
    noised = NOISED | {"sensitivity": {"client": 1.0}}
    assert mu({"release": [noised]}, "server", Unit.FEATURES, up) == pytest.approx(0.5)
    assert mu({"release": [noised]}, "device", Unit.FEATURES, up) == 0
    hidden = noised | {"seen_by": ["eavesdropper"]}
    assert mu({"release": [hidden]}, "server", Unit.FEATURES, up) == 0
    assert mu({"release": [hidden]}, "eavesdropper", Unit.FEATURES, up) == pytest.approx(0.5)


def test_labels_noised_once_cost_once():
    labels = {
        "kind": "noised-labels",
        "noise": "rr",
        "scale": 1.5,
        "once": True,
        "sensitivity": {"label": 1.0, "record": 1.0},
    }
    gradients = {"kind": "reply", "noise": "none", "independent_of": ["label"]}
    ledger = ledger_of(parse({"release": [labels, gradients]}), replies(), records=8, devices=2)
    exposure = ledger.exposure(Adversary.parse("device"), Unit.LABEL)
    assert not exposure.unprotected
    assert [(e.count, e.noise.epsilon) for e in exposure.events] == [(1, 1.5)]
    hidden = ledger_of(parse({"release": [labels], "public": ["reply"]}), replies(), records=8, devices=2)
    assert [e.count for e in hidden.exposure(Adversary.parse("device"), Unit.LABEL).events] == [1]
    assert hidden.exposure(Adversary.parse("model"), Unit.LABEL).unprotected


def test_a_recording_of_an_engine_of_ours_has_the_engines_budget():
    system = make_system("dpzv-joint", rounds=20)
    transcript = Transcript()
    system.train([0]).run(Wire(transcript))
    own = next(r for r in system.ledger.releases if r.kind == "zo-scalar")
    entry = {
        "kind": "zo-scalar",
        "noise": "gaussian",
        "scale": own.noise.std,
        "sensitivity": {unit.value: bound for unit, bound in own.sensitivity.items()},
        "carried": own.carried,
        "shared": own.reaches_all,
    }
    pairs = {"kind": "embedding-pair", "noise": "none", "independent_of": ["label"], "seen_by": ["server"]}
    config = parse({"release": [entry, pairs]})
    ledger = ledger_of(config, transcript.messages, records=60, devices=3)
    for view in ("device", "device(1)", "devices(all)"):
        for unit in (Unit.LABEL, Unit.RECORD):
            wanted = system.ledger.exposure(Adversary.parse(view), unit)
            assert ledger.exposure(Adversary.parse(view), unit).mu == pytest.approx(wanted.mu)


WRONG = {
    "no such field": ({"realease": []}, "realease"),
    "scale": ({"release": [NOISED | {"scale": 0}]}, r"release\.0\.scale"),
    "no scale": ({"release": [{"kind": "a", "noise": "gaussian"}]}, "a scale > 0 with noise"),
    "scale without noise": ({"release": [{"kind": "a", "noise": "none", "scale": 1.0}]}, "no scale without noise"),
    "noise": ({"release": [NOISED | {"noise": "uniform"}]}, r"release\.0\.noise"),
    "unit": ({"release": [NOISED | {"sensitivity": {"house": 1.0}}]}, "sensitivity"),
    "negative": ({"release": [NOISED | {"sensitivity": {"label": -1.0}}]}, "sensitivity"),
    "both": ({"release": [NOISED | {"independent_of": ["label"]}]}, "that have no sensitivity"),
    "smaller record": ({"release": [NOISED | {"sensitivity": {"label": 1.0, "record": 0.5}}]}, "at least 1, that of"),
    "no record": ({"release": [NOISED | {"independent_of": ["record"]}]}, "at least 0.5, that of the label unit"),
    "onlooker": ({"release": [NOISED | {"seen_by": ["nobody"]}]}, "seen_by"),
    "twice": ({"release": [NOISED, NOISED]}, "several times"),
    "kind": ({"release": [NOISED | {"kind": "a b"}]}, "kind"),
    "claim": ({"claim": [{"key": "c", "unit": "label", "view": "device"}]}, "one of epsilon, mu and like"),
    "view": ({"claim": [{"key": "c", "unit": "label", "view": "spy", "epsilon": 1.0}]}, "devices"),
    "rate": ({"attack_claim": [{"key": "c", "unit": "label", "view": "device", "attack": "x", "rate": 2.0}]}, "rate"),
    "batching": ({"batches": {"batching": "often"}}, "batching"),
    "unrecorded": ({"batches": {"unrecorded_rounds": 2**63}}, "unrecorded_rounds"),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_field_is_one_line_that_names_it(case):
    raw, complaint = WRONG[case]
    with pytest.raises(InputError, match=complaint) as caught:
        parse(raw)
    assert "\n" not in str(caught.value)
    assert str(caught.value).startswith("ledger")


def test_files_that_cannot_be_read(tmp_path):
    (tmp_path / "bad.toml").write_text("key = ")
    for name, complaint in (("none.toml", "readable"), ("bad.toml", "valid TOML")):
        with pytest.raises(InputError, match=complaint):
            load_ledger(tmp_path / name)


UNITS = st.sampled_from([unit.value for unit in Unit] + ["house"])
RELEASES = st.fixed_dictionaries(
    {"kind": st.sampled_from(["reply", "other"]), "noise": st.sampled_from(["gaussian", "laplace", "rr", "none"])},
    optional={
        "scale": st.floats(-1, 100) | st.none() | st.text(max_size=3),
        "sensitivity": st.dictionaries(UNITS, st.floats(0, 1e6) | st.just("unbounded"), max_size=6),
        "independent_of": st.lists(UNITS, max_size=3),
        "seen_by": st.lists(st.sampled_from(["device", "devices", "eavesdropper", "model", "spy"]), max_size=3),
        **dict.fromkeys(("shared", "carried", "additive", "once"), st.booleans()),
        "leak": st.fixed_dictionaries(
            {"carrier": st.just("model"), "sensitivity": st.dictionaries(UNITS, st.floats(0, 9))}
        ),
    },
)  # fmt: skip
FILES = st.fixed_dictionaries(
    {},
    optional={
        "release": st.lists(RELEASES, max_size=2),
        "public": st.lists(st.sampled_from(["reply", "note", "a/b"]), max_size=2),
        "model_follows_releases": st.booleans(),
        "label_holders": st.lists(st.sampled_from(["server", "device", "devices"]), max_size=2),
        "batches": st.fixed_dictionaries(
            {}, optional={"batching": st.sampled_from(["shuffle", "fixed", "full"]), "size": st.integers(0, 9)}
        ),
        "seed": st.integers(-1, 3) | st.text(max_size=2),
    },
)


@settings(max_examples=150)
@given(FILES)
def test_any_file_is_refused_in_one_line_or_gives_exposures_in_every_view(raw):
    complaint, ledger = "", None
    try:
        ledger = ledger_of(parse(raw), replies(), records=8, devices=2)
    except InputError as error:
        complaint = str(error)
    assert "\n" not in complaint
    if ledger is None:
        assert complaint
        return
    for view in VIEWS:
        for unit in Unit:
            exposure = ledger.exposure(Adversary.parse(view), unit)
            assert all(math.isfinite(e.sensitivity) and e.count > 0 for e in exposure.events)


def turns(*, rounds=40, devices=1, records=50, size=5, kinds=("up", "reply")):
    """Poisson batches: in each round one device sends rows of its batch and is sent a reply."""
    generator = np.random.default_rng(3)
    found = []
    for t in range(rounds):
        ids = torch.from_numpy(np.flatnonzero(generator.random(records) < size / records))
        link = device(t % devices)
        rows, value = {"x": torch.ones(1, len(ids))}, {"x": torch.ones(1, 1)}
        sent = Message(round=t, sender=link, receiver=SERVER, kind="up", tensors=rows, records=ids)
        answer = Message(round=t, sender=SERVER, receiver=link, kind="reply", tensors=value, records=ids)
        found += [m for m in (sent, answer) if m.kind in kinds]
    return found


POISSON = {"batching": "poisson", "size": 5}
SUM = {"kind": "reply", "noise": "gaussian", "scale": 2.0, "sensitivity": {"label": 1.0, "add-remove": 0.5}}
HIDDEN_SUM = SUM | {"additive": True}


def outsider(config, messages):
    ledger = ledger_of(parse(config | {"batches": POISSON}), messages, records=50, devices=1)
    return ledger.exposure(Adversary.parse("outsider"), Unit.LABEL)


@settings(max_examples=80)
@given(st.lists(RELEASES, max_size=2), st.sampled_from(["reply", "both"]))
def test_any_file_with_secret_batches_gives_finite_events(releases, sent):
    messages = turns(kinds=("reply",) if sent == "reply" else ("reply", "up"))
    try:
        config = parse({"release": releases, "public": ["up"], "batches": POISSON})
    except InputError:
        return
    ledger = ledger_of(config, messages, records=50, devices=1)
    for unit in Unit:
        exposure = ledger.exposure(Adversary.parse("outsider"), unit)
        assert all(math.isfinite(e.sensitivity) and e.count > 0 for e in exposure.events)
        if not exposure.unprotected and exposure.not_applicable is None:
            known = ledger.exposure(Adversary.parse("eavesdropper"), unit)
            assert {e.kind for e in known.events} <= {k for e in exposure.events for k in e.kind.split(" + ")}


@pytest.mark.parametrize("listed", [True, False])
def test_recorded_rows_without_noise_show_who_is_in_a_secret_batch(listed):
    rows = {"kind": "up", "noise": "none", "independent_of": ["label"], "seen_by": ["server", "outsider"]}
    alone = outsider({"release": [HIDDEN_SUM]}, turns(kinds=("reply",)))
    assert [e.sampling.scheme for e in alone.events] == ["poisson"]
    beside = outsider({"release": [HIDDEN_SUM, rows] if listed else [HIDDEN_SUM]}, turns())
    assert beside.batches == "known"
    assert all(e.sampling is None for e in beside.events)
    assert any("up shows who is in them" in note for note in beside.assumptions)
    private = outsider({"release": [HIDDEN_SUM, rows | {"seen_by": ["server"]}]}, turns())
    assert private.events == alone.events


def test_a_recorded_sum_without_a_bound_on_what_a_record_adds_is_counted_as_if_it_showed_who_takes_part():
    silent = HIDDEN_SUM | {"sensitivity": {"label": 1.0}}
    found = outsider({"release": [silent]}, turns(kinds=("reply",)))
    assert [e.sampling.scheme for e in found.events] == ["poisson-seen"]
    assert any("no sensitivity for the add-remove unit" in note for note in found.assumptions)
    bounded = outsider({"release": [HIDDEN_SUM]}, turns(kinds=("reply",)))
    assert [(e.sampling.scheme, e.sensitivity) for e in bounded.events] == [("poisson", 1.0)]


ROWS = {"kind": "up", "noise": "gaussian", "scale": 2.0, "sensitivity": {"features": 1.0}, "independent_of": ["label"]}


def features(release, *others, devices=3, rounds=51):
    """The exposure of features to the server, where every record is in every round of every device in turn."""
    messages = [
        Message(round=t, sender=device(t % devices), receiver=SERVER, kind="up", tensors={}, records=None)
        for t in range(rounds)
    ]
    ledger = ledger_of(parse({"release": [release, *others]}), messages, records=8, devices=devices)
    return ledger.exposure(Adversary.parse("server"), Unit.FEATURES)


def test_a_block_at_one_device_counts_that_devices_uplinks_alone():
    assert features(ROWS).mu == pytest.approx(0.5 * math.sqrt(17))
    assert features(ROWS, rounds=52).mu == pytest.approx(0.5 * math.sqrt(18)), "device 0 sends once more"
    leak = {"carrier": "a device's own model", "sensitivity": {"record": 4.0}}
    own = features(ROWS | {"leak": leak | {"own": True}})
    assert own.mu == pytest.approx(math.sqrt(0.25 + 16 * 4.0)), "the record's leak bounds that of its features"
    shared = features(ROWS | {"leak": leak | {"own": False}})
    assert shared.mu == pytest.approx(math.sqrt(0.25 + 50 * 4.0)), "state that every device's messages depend on"
    whole = ROWS | {"sensitivity": {"record": 1.0}}
    ledger = ledger_of(parse({"release": [whole]}), turns(devices=2, kinds=("up",)), records=50, devices=2)
    both = ledger.exposure(Adversary.parse("server"), Unit.RECORD)
    assert both.counts.max() > ledger.exposure(Adversary.parse("server"), Unit.FEATURES).counts.max()


def test_a_block_that_also_leaves_without_noise_may_move_what_other_devices_send():
    messages = turns(devices=2, rounds=10)
    exact = {"kind": "reply", "noise": "none"}
    config = parse({"release": [ROWS, exact]})
    (up,) = (r for r in ledger_of(config, messages, records=50, devices=2).releases if r.kind == "up")
    assert up.senders is not None, "replies are sent by the server"
    messages.append(Message(round=10, sender=device(0), receiver=SERVER, kind="raw", tensors={}, records=None))
    (up,) = (r for r in ledger_of(config, messages, records=50, devices=2).releases if r.kind == "up")
    assert up.senders is None


@pytest.mark.parametrize(("leak", "asked"), [(None, True), ("none", False)])
def test_silence_about_state_that_moves_without_noise_is_a_premise(leak, asked):
    release = ROWS if leak is None else ROWS | {"leak": leak}
    premise = "device models are taken to depend on a record through noised releases alone: the ledger declares no leak"
    assert any(premise in line for line in features(release).assumed) == asked
    config = parse({"release": [NOISED | ({} if leak is None else {"leak": leak})]})
    down = ledger_of(config, replies(), records=8, devices=2).exposure(Adversary.parse("device"), Unit.LABEL)
    assert any("the server's model is taken" in line for line in down.assumed) == asked
