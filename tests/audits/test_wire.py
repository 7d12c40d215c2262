"""The wire audit: systems that send more than their ledger says are caught at the first difference, sound ones not."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from tests.support import make_system
from vflpriv.audits.noise import noise_of_kinds
from vflpriv.audits.verdict import exit_code
from vflpriv.audits.wire import WireAudit
from vflpriv.common.random import Stream
from vflpriv.core.audit import AuditContext, Finding
from vflpriv.core.claims import Verdict
from vflpriv.core.engine import Contributions
from vflpriv.core.releases import Release
from vflpriv.core.systems import System
from vflpriv.core.units import Unit
from vflpriv.core.wire import SERVER, Payload, device
from vflpriv.laws import Exact
from vflpriv.training.engines.dpzv import Dpzv
from vflpriv.training.engines.split import Split
from vflpriv.training.mechanisms.base import ScalarMean
from vflpriv.training.mechanisms.labels import label_claims

EVERYONE = frozenset({"device", "devices", "eavesdropper", "server", "outsider", "model"})


def findings_of(engine: type, variant: str = "dpzv-joint", **changes: object) -> list[Finding]:
    return audited(replace(make_system(variant, **changes), engine=engine))


def audited(system: System) -> list[Finding]:
    claims = (*system.claims, *label_claims(system.engine, system.settings))
    return WireAudit().run(system, AuditContext(claims=claims))


def violated(findings: list[Finding], subject: str, unit: Unit | None = None) -> list[Finding]:
    return [
        f
        for f in findings
        if f.verdict is Verdict.VIOLATED and f.subject == subject and (unit is None or f.unit is unit)
    ]


def public(kind: str, rounds: int) -> Release:
    every = np.ones(rounds, dtype=np.bool_)
    return Release(kind=kind, what="public", noise=Exact(), sensitivity={}, rounds=every, seen_by=EVERYONE)


class LabelsDown(Dpzv):
    """The downlink has the batch's labels in an extra tensor."""

    def serve(self, round_, records, uplinks):
        replies = super().serve(round_, records, uplinks)
        labels = self.labels_of(records, lambda: torch.empty(0)).float()
        return {m: Payload(p.kind, {**p.tensors, "scale": labels}) for m, p in replies.items()}


def test_labels_in_an_extra_tensor_of_the_downlink() -> None:
    findings = findings_of(LabelsDown)
    (named,) = [f for f in findings if f.verdict is Verdict.UNSUPPORTED]
    assert named.subject == "zo-scalar/scale"
    assert named.sentence.startswith("tensor scale of 12 zo-scalar messages (first in round 0, server → device(")
    (release,) = named.undeclared
    assert isinstance(release.noise, Exact)
    assert set(release.sensitivity) == set(Unit)
    assert {"device", "devices", "eavesdropper", "outsider"} == release.seen_by
    ledger, refuted = violated(findings, "zo-scalar/scale", Unit.LABEL)[0], violated(findings, "zo-scalar/scale")
    assert "one record's label moves tensor scale of zo-scalar messages by up to" in ledger.sentence
    assert {f.claim for f in refuted} == {None, "dpzv-device", "dpzv-devices", "dpzv-embeddings"}
    assert exit_code(f.verdict for f in findings if f.decides_alone) == 1


class LabelsUp(Dpzv):
    """The uplink, which is declared to depend on features alone, also has labels."""

    def uplink(self, round_, m, records):
        payload = super().uplink(round_, m, records)
        labels = self.data.labels_of(records).expand(len(self.replicas), -1)
        return Payload(payload.kind, {**payload.tensors, "plus": payload.tensors["plus"] + labels.unsqueeze(2)})


def test_labels_in_a_kind_that_is_declared_to_hold_features() -> None:
    found = violated(findings_of(LabelsUp), "embedding-pair/plus")
    assert {f.unit for f in found} == {Unit.LABEL}
    assert {f.claim for f in found} == {None, "dpzv-embeddings"}, "no device sees it"
    assert found[0].undeclared[0].seen_by == {"eavesdropper", "outsider"}, "the server holds the labels"


class Copy(Dpzv):
    """The noiseless scalar is also sent, in a kind that is said to be public."""

    noiseless = torch.zeros(1)

    @staticmethod
    def releases(settings, schedule):
        return (*Dpzv.releases(settings, schedule), public("progress", schedule.rounds))

    def setup(self):
        super().setup()
        release = self.scalar.scalar

        def kept(contributions: Contributions):
            self.noiseless = self.scalar.mechanism.noiseless(contributions.values)
            return release(contributions)

        self.scalar.scalar = kept

    def round(self, round_, wire):
        super().round(round_, wire)
        (m,) = self.schedule.members(round_)
        Payload("progress", {"value": self.noiseless}).send(wire, round_, SERVER, device(m), self._order[:0])


def test_a_noiseless_copy_in_a_kind_declared_public() -> None:
    found = violated(findings_of(Copy), "progress/value")
    assert [f.unit for f in found if f.claim is None] == [Unit.LABEL, Unit.FEATURES], "each record and device with them"
    assert {f.claim for f in found} == {None, "dpzv-device", "dpzv-devices", "dpzv-embeddings"}


class Wider(ScalarMean):
    """Clips to twice what it declares."""

    def contributions(self, values):
        return values.clamp(-2 * self.clip, 2 * self.clip)


class OneSided(ScalarMean):
    """Clips on one side, and declares both."""

    def contributions(self, values):
        return values.clamp(max=self.clip)


def with_mechanism(kind: type[ScalarMean]) -> type[Dpzv]:
    class Clipped(Dpzv):
        def setup(self):
            super().setup()
            own = self.scalar.mechanism
            self.scalar.mechanism = kind(noise_std=own.noise_std, clip=own.clip, batch_size=own.batch_size)

    return Clipped


@pytest.mark.parametrize("mechanism", [Wider, OneSided])
def test_a_clip_in_the_engine_that_is_not_the_declared_one(mechanism: type[ScalarMean]) -> None:
    found = violated(findings_of(with_mechanism(mechanism), rounds=40), "zo-scalar")
    assert {f.unit for f in found} >= {Unit.LABEL, Unit.FEATURES}
    assert {f.claim for f in found} == {None, "dpzv-device", "dpzv-devices", "dpzv-embeddings", "dpzv-model"}
    assert all("beyond the declared 2.5" in f.sentence for f in found if f.unit in (Unit.LABEL, Unit.FEATURES))


class UnclippedLabel(Dpzv):
    """The contributions of records with label 2 are not clipped."""

    def setup(self):
        super().setup()
        release, point = self.scalar.scalar, self.scalar

        def spared(contributions: Contributions):
            labels = self.data.labels_of(contributions.records).expand_as(contributions.values)
            clipped = point.mechanism.contributions(contributions.values)
            total = torch.where(labels == 2, contributions.values, clipped).sum(-1) / point.mechanism.batch_size
            return release(replace(contributions, values=total, clipped=True, relabelled=None))

        self.scalar.scalar = spared


def test_one_label_without_a_clip() -> None:
    found = violated(findings_of(UnclippedLabel, rounds=40), "zo-scalar", Unit.LABEL)
    assert found
    assert "beyond the declared 2.5" in found[0].sentence


class NoiselessStep(Dpzv):
    """The server's model moves by the scalar before its noise."""

    def setup(self):
        super().setup()
        update, point = self.server_update, self.scalar

        class Rule(type(update)):
            def apply(self, step, delta=None):
                update.apply(step, point.before)

        release = point.release

        def kept(contributions, normals):
            point.before = point.noiseless(contributions)
            return release(contributions, normals)

        point.release, self.server_update = kept, Rule()


def test_server_steps_on_noiseless_values() -> None:
    found = violated(findings_of(NoiselessStep, rounds=40), "zo-scalar", Unit.LABEL)
    assert {f.claim for f in found} == {None, "dpzv-device", "dpzv-devices", "dpzv-embeddings", "dpzv-model"}
    assert "in which the ledger does not count it" in found[0].sentence


class Twice(Dpzv):
    """A second scalar with noise of its own leaves in every round."""

    def setup(self):
        super().setup()
        release, again = self.scalar.scalar, self.stream("server-noise")

        def scalar(contributions: Contributions):
            normals = again.normal(1, contributions.round)[:, 0]
            self._second = self.scalar.release(contributions, normals)
            return release(contributions)

        self.scalar.scalar = scalar

    def round(self, round_, wire):
        super().round(round_, wire)
        (m,) = self.schedule.members(round_)
        Payload("zo-scalar", {"delta": self._second}).send(wire, round_, SERVER, device(m), self._order[:0])


def test_two_messages_where_one_is_counted() -> None:
    findings = findings_of(Twice, rounds=40)
    (named,) = [f for f in findings if f.verdict is Verdict.UNSUPPORTED]
    assert "beyond the first on the same link in a round" in named.sentence
    assert [int(r.rounds.sum()) for r in named.undeclared] == [40]
    assert violated(findings, "zo-scalar", Unit.LABEL)


class Forgetful(Dpzv):
    """Round 5 leaves without noise."""

    def serve(self, round_, records, uplinks):
        self._bare = round_ == 5
        return super().serve(round_, records, uplinks)

    def setup(self):
        super().setup()
        release = self.scalar.scalar

        def scalar(contributions):
            return self.scalar.noiseless(contributions) if self._bare else release(contributions)

        self.scalar.scalar = scalar


def not_forced(findings: list[Finding]) -> str:
    """What is said of noise that no release point added; nothing is violated by it."""
    assert not [f for f in findings if f.verdict is Verdict.VIOLATED]
    (found,) = [f for f in findings if f.verdict is Verdict.UNMEASURED]
    return found.sentence


def test_noise_that_is_omitted_in_one_round_is_left_to_the_trace() -> None:
    assert "(zo-scalar, round 5, server → device(" in not_forced(findings_of(Forgetful))
    (noise,) = noise_of_kinds(replace(make_system("dpzv-joint"), engine=Forgetful))
    assert noise.without == (5,)


class SilentMechanism(ScalarMean):
    """Adds no noise in one round of many, and says nothing of it."""

    def release(self, noiseless, normals):
        released = super().release(noiseless, normals)
        return noiseless.clone() if float(normals.flatten()[0]) < -1.5 else released


def test_noise_that_a_mechanism_leaves_out_once() -> None:
    system = replace(make_system("dpzv-joint", rounds=60), engine=with_mechanism(SilentMechanism))
    (noise,) = noise_of_kinds(system)
    assert 0 < len(noise.without) < 20


class Quieter(Dpzv):
    """Half the declared noise."""

    def setup(self):
        super().setup()
        self.scalar.mechanism = replace(self.scalar.mechanism, noise_std=self.scalar.mechanism.noise_std / 2)


def test_less_noise_than_declared() -> None:
    (found,) = [f for f in findings_of(Quieter) if f.verdict is Verdict.UNSUPPORTED]
    assert [r.noise.deviation for r in found.undeclared] == [pytest.approx(0.05)]
    assert found.sentence == "the release point of zo-scalar adds noise of std 0.05, and the ledger declares 0.1"


class OtherBatches(Dpzv):
    """Trains on the next round's batch as well, which the schedule does not say."""

    def round(self, round_, wire):
        start, size = self.schedule.start[round_], self.schedule.size[round_]
        shifted = torch.roll(torch.from_numpy(self.schedule.order), -int(size)) if start else self._order
        before, self._order = self._order, shifted
        super().round(round_, wire)
        self._order = before


def test_batches_that_are_not_the_schedules() -> None:
    found = violated(findings_of(OtherBatches, rounds=40), "zo-scalar", Unit.LABEL)
    assert "in which the ledger does not count it" in found[0].sentence


class Redrawn(Split):
    """Randomised response is drawn anew for every batch instead of once."""

    def labels_of(self, records, logits):
        mechanism = self.settings.label_mechanism
        labels = self._as_given.labels_of(records).expand(len(self.replicas), -1)
        self._drawn = getattr(self, "_drawn", 0) + 1
        stream = Stream.of(self.seed + self._drawn, "labels", self.replicas, self.torch_device)
        return mechanism.observe(labels, self.data.classes, stream).argmax(-1)


def test_labels_that_are_noised_anew_in_every_round() -> None:
    found = violated(findings_of(Redrawn, "split-rr"), "logit-gradient/gradient")
    assert {f.unit for f in found} == {Unit.LABEL}
    assert {f.claim for f in found} == {None, "labels"}


class OwnNoise(Dpzv):
    """Adds its noise itself, past the release point."""

    def setup(self):
        super().setup()
        point = self.scalar

        def scalar(contributions):
            return point.noiseless(contributions) + point.mechanism.noise_std * point.noise.scalar(contributions.round)

        self.scalar.scalar = scalar


def test_noise_past_the_release_point() -> None:
    assert "(zo-scalar, round " in not_forced(findings_of(OwnNoise))


class Unseeded(Dpzv):
    """Its uplinks carry randomness that no seed gives."""

    def uplink(self, round_, m, records):
        payload = super().uplink(round_, m, records)
        jitter = torch.from_numpy(np.random.default_rng().normal(size=payload.tensors["plus"].shape)).float()
        return Payload(payload.kind, {**payload.tensors, "plus": payload.tensors["plus"] + jitter})


def test_a_system_that_cannot_be_repeated_is_not_accused() -> None:
    findings = findings_of(Unseeded)
    assert not [f for f in findings if f.verdict is Verdict.VIOLATED]
    (finding,) = [f for f in findings if f.verdict is Verdict.UNMEASURED]
    assert not finding.measures
    assert "two runs with the same data and the same seed differ" in finding.sentence
    assert "tensor plus of embedding-pair, round 0" in finding.sentence


class Selective(Dpzv):
    """A second message is sent only where the labels of a batch add up to an odd number in the second replica."""

    @staticmethod
    def releases(settings, schedule):
        return (*Dpzv.releases(settings, schedule), public("progress", schedule.rounds))

    def round(self, round_, wire):
        super().round(round_, wire)
        records = self._order[self.schedule.start[round_] :][: self.schedule.size[round_]]
        (m,), odd = self.schedule.members(round_), self.data.labels_of(records)[1].sum() % 2
        if odd:
            Payload("progress", {"value": torch.zeros(len(self.replicas))}).send(
                wire, round_, SERVER, device(m), records
            )


def test_messages_that_are_sent_or_not_by_private_data() -> None:
    (found,) = violated(findings_of(Selective), "messages")
    assert found.sentence.startswith("what is sent depends on private data, whatever the noise is: round ")
    assert found.claim_units is None


class Wavering(Dpzv):
    """A second message is sent by chance, and no seed gives the chance."""

    releases = Selective.releases

    def round(self, round_, wire):
        super().round(round_, wire)
        (m,) = self.schedule.members(round_)
        if np.random.default_rng().random() < 0.5:
            Payload("progress", {"value": torch.zeros(len(self.replicas))}).send(
                wire, round_, SERVER, device(m), self._order[:0]
            )


def test_messages_that_are_sent_by_chance_are_not_held_against_a_system() -> None:
    findings = findings_of(Wavering, rounds=20)
    assert {f.verdict for f in findings} == {Verdict.CONSISTENT, Verdict.UNMEASURED}


class Hidden(Dpzv):
    """The ledger says that devices do not see the scalar."""

    @staticmethod
    def releases(settings, schedule):
        scalar, *others = Dpzv.releases(settings, schedule)
        return (replace(scalar, seen_by=scalar.seen_by - {"device", "devices"}), *others)


def test_viewers_that_the_ledger_leaves_out() -> None:
    (found,) = [f for f in findings_of(Hidden) if f.verdict is Verdict.UNSUPPORTED]
    assert found.subject == "zo-scalar"
    assert "so that device, devices see them, and the ledger leaves them out" in found.sentence
    assert found.undeclared[0].seen_by == {"device", "devices"}


class Few(Dpzv):
    """The ledger counts every other round."""

    @staticmethod
    def releases(settings, schedule):
        scalar, *others = Dpzv.releases(settings, schedule)
        return (replace(scalar, rounds=np.arange(schedule.rounds) % 2 == 0), *others)


def test_rounds_that_the_ledger_does_not_count() -> None:
    found = [f for f in findings_of(Few, rounds=40) if f.verdict is not Verdict.CONSISTENT]
    assert "in rounds that the ledger does not count, in 20 rounds (first in round 1)" in found[0].sentence
    assert any(f.subject.startswith("all rounds, ") for f in found)


def test_encrypted_rows_are_seen_by_the_server_alone() -> None:
    system = make_system("dpzv-joint", encrypted_uplink=True)
    assert {f.verdict for f in audited(system)} == {Verdict.CONSISTENT}

    class InClear(Dpzv):
        """The uplink is not encrypted, against the ledger."""

        def uplink(self, round_, m, records):
            return replace(super().uplink(round_, m, records), encrypted=False)

    (found, *_) = violated(audited(replace(system, engine=InClear)), "embedding-pair/plus")
    assert {"eavesdropper", "outsider"} <= set().union(*(r.seen_by for r in found.undeclared))


def test_a_sound_system_is_told_what_was_compared() -> None:
    system = make_system("dpzv-joint", rounds=30)
    findings = audited(system)
    assert {f.verdict for f in findings} == {Verdict.CONSISTENT}
    names, *units = findings
    assert names.sentence == "the ledger lists all of 60 messages, 2 kinds and 3 tensors"
    assert not names.measures
    label = next(f for f in units if f.unit is Unit.LABEL)
    assert "30 rounds, 90 tensors" in label.sentence
    assert label.figure == pytest.approx(1.0, abs=1e-4), "the canaries reach the clip"
    assert label.claim_units == {Unit.LABEL}


class RoundsAfter(Dpzv):
    """All rounds are run once more by `run`, with noise of their own."""

    def run(self, wire, *, advance=None):
        super().run(wire, advance=advance)
        self.redraw_noise(self.seed + 1, self.replicas)
        super().run(wire)


def test_rounds_that_only_a_whole_training_has() -> None:
    findings = findings_of(RoundsAfter, rounds=30)
    extra = [f for f in findings if f.verdict is Verdict.UNSUPPORTED]
    assert [f.subject for f in extra] == ["embedding-pair", "zo-scalar"]
    assert extra[1].sentence == (
        "there are 30 zo-scalar messages that a training sends beyond those of its rounds (first in round 0, server → "
        "device(2)): counted once more there"
    )
    assert extra[1].undeclared[0].rounds.all()
    found = violated(findings, "zo-scalar", Unit.LABEL)
    assert {f.claim for f in found} == {None, "dpzv-device", "dpzv-devices", "dpzv-embeddings", "dpzv-model"}
    assert "by 2.795 in round 11, beyond the declared 2.5 (whole trainings, " in found[0].sentence


class SortedIds(Dpzv):
    """The ids of a batch are in the order of its labels, which all replicas share."""

    def setup(self):
        super().setup()
        self._order = self._order.clone()
        for begin, size in zip(self.schedule.start, self.schedule.size, strict=True):
            batch = self._order[begin : begin + size]
            self._order[begin : begin + size] = batch[self.data.labels[batch].argsort(stable=True)]


def test_record_ids_in_the_order_of_labels() -> None:
    found = violated(findings_of(SortedIds), "messages")
    assert {f.unit for f in found} == {Unit.LABEL}
    assert {f.claim for f in found} == {None, "dpzv-device", "dpzv-devices", "dpzv-embeddings"}
    assert "has other records, tensors or shapes (whole trainings, record" in found[0].sentence


class SharedLabels(Copy):
    """Labels without a replica axis, of the data that all replicas share, in a kind that is said to be public."""

    def round(self, round_, wire):
        Dpzv.round(self, round_, wire)
        records = torch.from_numpy(self.schedule.batch(round_))
        (m,) = self.schedule.members(round_)
        Payload("progress", {"value": self.data.labels[records]}).send(wire, round_, SERVER, device(m), records)


def test_labels_that_replicas_share() -> None:
    found = violated(findings_of(SharedLabels), "progress/value")
    assert {f.claim for f in found} == {None, "dpzv-device", "dpzv-devices", "dpzv-embeddings"}


class MeanAtTheEnd(Copy):
    """When it has trained it sends one device's mean features in a kind that is said to be public."""

    def run(self, wire, *, advance=None):
        super().run(wire, advance=advance)
        value = self.data.blocks[0].mean().reshape(1)
        Payload("progress", {"value": value}).send(wire, self.schedule.rounds, SERVER, device(0), self._order[:0])

    def round(self, round_, wire):
        Dpzv.round(self, round_, wire)


def test_features_in_a_message_after_the_last_round() -> None:
    found = violated(findings_of(MeanAtTheEnd), "progress/value")
    assert {f.unit for f in found} == {Unit.FEATURES}
    assert "first in round 12" in found[0].sentence


class Goodbye(MeanAtTheEnd):
    """The same with a message that depends on nothing."""

    def run(self, wire, *, advance=None):
        Dpzv.run(self, wire, advance=advance)
        Payload("progress", {"value": torch.ones(1)}).send(wire, 99, SERVER, device(0), self._order[:0])


def test_a_public_message_after_the_last_round_is_no_finding() -> None:
    assert {f.verdict for f in findings_of(Goodbye)} == {Verdict.CONSISTENT}


class Undeclared(Goodbye):
    """The same in a kind that the ledger does not list."""

    releases = Dpzv.releases


def test_an_unlisted_message_after_the_last_round_counts_as_exact() -> None:
    (found,) = [f for f in findings_of(Undeclared) if f.verdict is not Verdict.CONSISTENT]
    assert found.verdict is Verdict.UNSUPPORTED
    assert found.sentence.endswith("(first in round 99, server → device(0)): counted as exact, of everything")
    assert isinstance(found.undeclared[0].noise, Exact)


class Shorter(Dpzv):
    """`run` leaves out the last round."""

    def run(self, wire, *, advance=None):
        for round_ in range(self.schedule.rounds - 1):
            self.round(round_, wire)


def test_a_training_that_does_not_run_all_rounds() -> None:
    found = [f for f in findings_of(Shorter) if f.verdict is not Verdict.CONSISTENT]
    assert [f.subject for f in found] == ["embedding-pair", "zo-scalar"]
    assert found[1].sentence == (
        "a training does not send 1 zo-scalar messages that its rounds send one by one (first in round 11): what is "
        "measured in rounds is another training"
    )


class LowBit(Dpzv):
    """The lowest bit of the scalar tells whether the labels of the batch add up to an odd number."""

    def serve(self, round_, records, uplinks):
        replies = super().serve(round_, records, uplinks)
        odd = self.data.labels_of(records).expand(len(self.replicas), -1).sum(1).to(torch.int32) % 2
        for payload in replies.values():
            payload.tensors["delta"].view(torch.int32).bitwise_and_(-2).bitwise_or_(odd)
        return replies


def test_labels_in_the_lowest_bit_of_a_released_value() -> None:
    found = violated(findings_of(LowBit, rounds=30), "zo-scalar/delta")
    assert {f.claim for f in found} == {None, "dpzv-device", "dpzv-devices", "dpzv-embeddings"}


class InClear(Dpzv):
    """The uplink is said to be encrypted, and is not."""

    def uplink(self, round_, m, records):
        return replace(super().uplink(round_, m, records), encrypted=False)


def test_encrypted_messages_are_seen_by_their_receiver_alone() -> None:
    """The ledger leaves onlookers out of an encrypted uplink, and so does the wire; sent in clear, they see it."""
    encrypted = audited(make_system("dpzv-joint", encrypted_uplink=True))
    assert not [f for f in encrypted if f.verdict is not Verdict.CONSISTENT]
    (found,) = (f for f in findings_of(InClear, encrypted_uplink=True) if f.subject == "embedding-pair")
    assert found.verdict is Verdict.UNSUPPORTED
    assert "eavesdropper, outsider" in found.sentence
