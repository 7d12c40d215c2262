"""The simulated clock: times by hand, the law of Poisson clocks, and engines whose devices are not equally fast."""

from __future__ import annotations

import numpy as np
import pytest

from tests.cli.test_cli import run as run_program
from tests.support import make_system
from tests.training.engines.test_vafl import run
from vflpriv.core.schedules import Activation, Batching, Schedule
from vflpriv.errors import InputError
from vflpriv.report.train import TrainReport
from vflpriv.training.clocks import Delay, Delays, first_to_deliver, simulated_times, timed_order

THREE = Delays(compute=Delay(mean=(1.0, 2.0, 5.0)))


def order_of(delays: Delays, *, rounds: int, together: int = 1, devices: int = 3, seed: int = 0):
    return first_to_deliver(delays, rounds=rounds, devices=devices, together=together, seed=seed)


def test_fast_devices_are_active_more_often_and_rounds_end_when_they_deliver():
    active, ends = order_of(THREE, rounds=8)
    assert ends.tolist() == [1, 2, 2, 3, 4, 4, 5, 5]
    # At 2 and 4 device 1 began its job before device 0 began that one; at 5 device 2 did.
    assert active.argmax(1).tolist() == [0, 1, 0, 0, 1, 0, 2, 0]


def test_a_round_that_waits_for_two_ends_with_the_second_and_others_go_on_with_their_jobs():
    active, ends = order_of(THREE, rounds=4, together=2)
    assert ends.tolist() == [2, 4, 5, 6]
    assert [np.flatnonzero(row).tolist() for row in active] == [[0, 1], [0, 1], [0, 2], [0, 1]]


def test_a_synchronous_round_takes_as_long_as_its_slowest_device():
    delays = Delays(
        compute=Delay(distribution="exponential", mean=(1.0, 2.0, 5.0)),
        network=Delay(distribution="poisson", mean=0.5, step=0.1),
    )
    jobs = np.array([delays.drawn(m, 2000, 3) for m in range(3)])
    ends = simulated_times(np.ones((2000, 3), dtype=np.bool_), delays, seed=3)
    np.testing.assert_allclose(np.diff(ends, prepend=0.0), jobs.max(axis=0))
    waiting = order_of(delays, rounds=2000, together=3, seed=3)
    assert waiting[0].all()
    np.testing.assert_allclose(waiting[1], ends)


def test_devices_in_turn_wait_for_their_turn():
    """Device 1 delivers at 2, device 2 not before 5; then all begin again, one after the other."""
    schedule = Activation.ROUND_ROBIN.fixed_order(6, 3)
    assert simulated_times(schedule, THREE, seed=0).tolist() == [1, 2, 5, 5, 5, 10]


@pytest.mark.parametrize("together", [1, 2])
def test_the_times_of_an_order_that_delays_decided_are_those_of_its_rounds(together):
    delays = Delays.published(5)
    active, ends = order_of(delays, rounds=1500, together=together, devices=5, seed=4)
    assert (np.diff(ends) >= 0).all()
    np.testing.assert_array_equal(simulated_times(active, delays, seed=4), ends)
    assert not np.array_equal(simulated_times(active, delays, seed=5), ends)


def test_exponential_delays_are_poisson_clocks():
    """The same shares of devices, and the same time between rounds, as clocks whose rates are one over the means."""
    rates, rounds = np.array([4.0, 2.0, 1.0]), 20_000
    delays = Delays(compute=Delay(distribution="exponential", mean=tuple(1 / rates)))
    common = {"batching": Batching.FULL, "records": 1, "batch_size": 1, "rounds": rounds, "devices": 3, "seed": 0}
    for activation, together in ((Activation.CLOCKS, 1), (Activation.SEVERAL, 2)):
        clocks = Schedule.draw(activation=activation, rates=tuple(rates), together=together, **common)
        active, ends = order_of(delays, rounds=rounds, together=together)
        np.testing.assert_allclose(active.mean(0), clocks.active.mean(0), atol=0.015)
        assert ends[-1] == pytest.approx(clocks.seconds[-1], rel=0.03)
    # Margin: NumPy draws the same from its seeds on every CPU.
    assert ends[-1] > 2 * rounds / rates.sum(), "the second of two takes longer"


def test_poisson_clocks_ring_when_their_own_waits_say():
    rates = (4.0, 1.0)
    common = {"batching": Batching.FULL, "records": 1, "batch_size": 1, "rounds": 20_000, "devices": 2, "seed": 0}
    alone, first, both = (
        Schedule.draw(activation=a, rates=rates, together=t, **common)
        for a, t in ((Activation.CLOCKS, 1), (Activation.SEVERAL, 1), (Activation.SEVERAL, 2))
    )
    np.testing.assert_array_equal(alone.seconds, first.seconds)
    assert alone.seconds[-1] / 20_000 == pytest.approx(1 / 5, rel=0.03)
    assert both.seconds[-1] / 20_000 == pytest.approx(1 / 4 + 1 / 1 - 1 / 5, rel=0.03), "the mean of the larger one"
    assert Schedule.draw(activation=Activation.ALL, **common).seconds is None


def test_laws_have_their_means_and_poisson_its_steps():
    for distribution, variance in (("constant", 0.0), ("exponential", 4.0), ("poisson", 2.0 * 0.5)):
        delays = Delays(network=Delay(distribution=distribution, mean=2.0, step=0.5))
        drawn = delays.drawn(1, 40_000, 0)
        assert drawn.mean() == pytest.approx(2.0, rel=0.02)
        assert drawn.var() == pytest.approx(variance, rel=0.05)
    np.testing.assert_allclose(drawn / 0.5, np.round(drawn / 0.5))
    assert not np.array_equal(delays.drawn(0, 50, 0), delays.drawn(1, 50, 0)), "each device its own"


def test_published_delays_have_the_papers_means():
    """§G.2: Poisson with parameter 2m, scaled by 1/2M; the slowest worker's expectation is one second."""
    delays = Delays.published(4)
    for m in range(4):
        drawn = delays.drawn(m, 40_000, 0)
        assert drawn.mean() == pytest.approx((m + 1) / 4, rel=0.02)
        assert drawn.var() == pytest.approx(2 * (m + 1) / 64, rel=0.05)


def test_devices_without_any_delay_take_turns():
    active, ends = order_of(Delays(), rounds=7)
    assert active.argmax(1).tolist() == [0, 1, 2, 0, 1, 2, 0]
    assert not ends.any()


@pytest.mark.parametrize("variant", ["vafl-concat", "vafl-sum", "vafl-tsync-some", "split-concat", "vimadmm"])
def test_every_engine_takes_delays_and_batches_stay_as_they_are(variant):
    system = make_system(variant, rounds=20, delays={"network": {"distribution": "exponential", "mean": [1, 2, 4]}})
    without = make_system(variant, rounds=20)
    ends = system.schedule.seconds
    assert ends.shape == (20,)
    assert (np.diff(ends) >= 0).all()
    assert ends[-1] > 0
    np.testing.assert_array_equal(simulated_times(system.schedule.active, system.settings.delays, seed=0), ends)
    if without.schedule.active.all():
        assert np.array_equal(system.schedule.order, without.schedule.order)
        assert without.schedule.seconds is None
    _, transcript, _ = run(system)
    assert {m.round for m in transcript.messages} == set(range(20))


def test_asynchrony_pays_where_devices_differ():
    """Of 7 devices with the paper's delays, the same number of device rounds is done in a fraction of the time."""
    delays, devices = Delays.published(7), 7
    everyone = Activation.ALL.fixed_order(200, devices)
    synchronous = simulated_times(everyone, delays, seed=0)[-1]
    alone = order_of(delays, rounds=200 * devices, devices=devices)[1][-1]
    assert alone < 0.4 * synchronous


def test_a_mean_for_some_devices_only_is_refused():
    with pytest.raises(InputError, match=r"delays\.compute\.mean = \[1\.0, 2\.0\]: expected one number, or 3"):
        make_system("vafl-concat", delays={"compute": {"mean": [1, 2]}})
    with pytest.raises(InputError, match="together = 4: expected 1 to 3 devices"):
        timed_order(THREE, Activation.SEVERAL, rounds=1, devices=3, together=4, seed=0)


@pytest.mark.parametrize(
    ("delays", "message"),
    [
        ({"compute": {"mean": -1}}, "greater than or equal to 0"),
        ({"compute": {"mean": []}}, "at least 1 item"),
        ({"compute": {"mean": 1, "distribution": "normal"}}, "'constant', 'exponential' or 'poisson'"),
        ({"computing": {"mean": 1}}, "Extra inputs"),
    ],
)
def test_impossible_delays_are_refused(delays, message):
    with pytest.raises(ValueError, match=message):
        make_system("split-concat", delays=delays)


@pytest.mark.parametrize("variant", ["vafl-concat", "vafl-tsync-some", "zoo-vfl"])
def test_rates_and_delays_do_not_go_together(variant):
    with pytest.raises(ValueError, match="nothing beside delays"):
        make_system(variant, rates=(1.0, 2.0, 3.0), delays={"compute": {"mean": 1}})


def test_a_configuration_gives_one_mean_or_a_list(monkeypatch, capsys, tmp_path):
    """Margin: between these lies whatever an area can be."""
    path = tmp_path / "clock.toml"
    path.write_text(
        '[data]\nname = "breast-cancer"\ndevices = 3\n[engine]\nname = "vafl"\nrounds = 6\nbatch_size = 8\n'
        "delays.compute = { mean = 0.5 }\ndelays.network = { mean = [1, 2, 4.5] }\n",
        encoding="utf-8",
    )
    code, printed, _ = run_program(monkeypatch, capsys, "train", str(path), "-q", "--format", "json")
    (row,) = TrainReport.model_validate_json(printed).systems
    assert (code, row.seconds) == (0, 5.0)
    assert 0.0 <= row.auc <= 1.0
    _, printed, _ = run_program(monkeypatch, capsys, "train", str(path), "-q")
    assert "5 s" in printed
    assert "AUC" in printed
    wrong = ("train", str(path), "--set", "engine.delays.network.mean=[1, 2]")
    code, _, told = run_program(monkeypatch, capsys, *wrong)
    assert code == 2
    assert "delays.network.mean = [1.0, 2.0]: expected one number, or 3, one per device" in told
