"""What seals a private value, what does not, and what the seals of a run cost together."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from tests.mutations.flow.program import Examined, gdp, pure
from vflpriv.audits.flow.plain.wire import FlowWire
from vflpriv.core.claims import Verdict

HERE, THERE = torch.zeros(4), torch.tensor([0.0, 1.0, 0.0, 0.0])


@pytest.fixture(autouse=True)
def _one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def sending(made: Callable[[Tensor], Tensor]) -> Callable[[FlowWire], None]:
    """One message made of the private value."""

    def program(wire: FlowWire) -> None:
        wire.send("message", made(wire.private(HERE, THERE)))

    return program


def examined(program: Callable[[FlowWire], object], mu: float = 0.5, *, view: str | int = "eavesdropper") -> Examined:
    return Examined(program, gdp(mu, view=view))


def _box_muller(y: Tensor) -> Tensor:
    u, v = torch.rand(2, 4)
    return y + 2 * torch.sqrt(-2 * torch.log(1 - u)) * torch.cos(2 * math.pi * v)


def _into_a_buffer(y: Tensor) -> Tensor:
    buffer = torch.empty(4)
    torch.add(y, torch.randn(4), alpha=2, out=buffer)
    return buffer


def _in_place(y: Tensor) -> Tensor:
    noise = torch.empty(4).normal_(0, 2)
    noise[:2] += y[:2]
    noise[2:].add_(y[2:])
    return noise


def _autograd(y: Tensor) -> Tensor:
    x = torch.zeros(4, requires_grad=True)
    (-(y * x).sum()).backward()
    assert x.grad is not None
    return x.grad.add_(torch.randn(4), alpha=2.0)


SEALS = {
    "add": lambda y: y + 2 * torch.randn(4),
    "sub": lambda y: 2 * torch.randn(4) - y,
    "addcmul": lambda y: torch.addcmul(y, torch.full((4,), 2.0), torch.randn(4)),
    "normal of the mean": lambda y: torch.normal(y, 2.0),
    "scaled by entry": lambda y: 5 * (y + torch.tensor([1.0, 2.0, 3.0, 4.0]) * torch.randn(4)),
    "two draws": lambda y: y + math.sqrt(2) * torch.randn(4) + math.sqrt(2) * torch.randn(4),
    "rotation": lambda y: y + 2 * torch.linalg.qr(torch.arange(16.0).reshape(4, 4).cos())[0] @ torch.randn(4),
    "baddbmm": lambda y: torch.baddbmm(y.reshape(1, 2, 2), 2 * torch.eye(2)[None], torch.randn(1, 2, 2)),
    "vmap": lambda y: torch.func.vmap(lambda a, b: a + 2 * b)(y, torch.randn(4)),
    "NumPy": lambda y: y + torch.from_numpy(np.random.default_rng().normal(0, 2, 4).astype(np.float32)),
    "NumPy's old way": lambda y: y + torch.tensor(2 * np.random.standard_normal(4)).float(),  # noqa: NPY002
    "distributions": lambda y: y + torch.distributions.Normal(0.0, 2.0).sample((4,)),
    "inverse of the distribution function": lambda y: y + 2 * torch.special.ndtri(torch.rand(4, dtype=torch.float64)),
    "Box and Muller": _box_muller,
    "out=": _into_a_buffer,
    "in place, in views": _in_place,
    "gradient": _autograd,
    "afterwards anything": lambda y: ((y + 2 * torch.randn(4)).half().float() * 4).round().clamp(-8, 8).sign(),
}


@pytest.mark.parametrize("name", SEALS)
def test_noise_of_std_2_on_a_gap_of_1(name: str) -> None:
    result = examined(sending(SEALS[name]))
    assert result.verdict is Verdict.CONSISTENT, result.finding.sentence
    assert result.observation.loss.mu == pytest.approx(0.5, rel=1e-3)
    assert result.states == ["sealed"]
    trace = result.observation.trace
    assert trace is not None
    assert all("test_seals.py:" in seal.where for seal in trace.seals)


@pytest.mark.parametrize("name", ["add", "rotation", "NumPy", "Box and Muller", "two draws", "gradient"])
def test_the_same_noise_refutes_a_smaller_claim(name: str) -> None:
    result = examined(sending(SEALS[name]), 0.45)
    assert result.verdict is Verdict.VIOLATED
    assert (result.finding.measure, result.finding.figure) == ("μ", pytest.approx(0.5, rel=1e-3))


UNSEALED: dict[str, tuple[Callable[[Tensor], Tensor], str]] = {
    "nothing": (lambda y: y * 2, "bare"),
    "noise on some entries": (lambda y: y + torch.tensor([1.0, 0, 1, 1]) * torch.randn(4), "bare"),
    "a slope that is private": (lambda y: y + (1 + y) * torch.randn(4), "unexplained"),
    "a coin skips the noise": (lambda y: torch.where(torch.rand(4) < 1e-6, y, y + torch.randn(4)), "unexplained"),
    "noise that cancels": (lambda y: (y + (z := torch.randn(4))) - z, "bare"),
    "coarse noise": (lambda y: y.double() / 3 + torch.randn(4).bfloat16().double(), "unexplained"),
    "standardised": (lambda y: y + ((z := torch.randn(4)) - z.mean()) / z.std(), "unexplained"),
    "no difference, and no noise": (lambda y: (y * 0.1).round(), "unexplained"),
    "minus zero": (lambda y: torch.where(y > 0, -0.0, 0.0), "bare"),
}


@pytest.mark.parametrize("name", UNSEALED)
def test_what_does_not_seal(name: str) -> None:
    made, state = UNSEALED[name]
    result = examined(sending(made), 3.0)
    assert result.states == [state]
    assert result.verdict is (Verdict.VIOLATED if state == "bare" else Verdict.UNMEASURED)
    assert "test_seals.py:" in result.finding.sentence


def test_noise_that_was_sent_hides_nothing_from_its_receiver() -> None:
    def program(wire: FlowWire) -> None:
        y, z = wire.private(HERE, THERE), torch.randn(4)
        wire.send("noise", z, receiver=1)
        wire.send("noised", y + z, receiver=(0, 1))

    assert examined(program, mu=1.0, view=0).verdict is Verdict.CONSISTENT
    for view in (1, "eavesdropper"):
        result = examined(program, mu=1.0, view=view)
        assert result.verdict is Verdict.VIOLATED
        assert "no noise" in result.finding.sentence


def test_a_message_outside_the_view_keeps_its_private_values() -> None:
    def program(wire: FlowWire) -> None:
        received = wire.send("labels", wire.private(HERE, THERE), receiver=0)
        wire.send("embedding", received * 2, sender=0, receiver=1)

    result = examined(program, mu=9.0, view=1)
    assert result.verdict is Verdict.VIOLATED
    assert [message.trail.message.kind for message in result.observation.messages] == ["embedding"]


def test_the_same_noise_over_a_tree_is_solved_together() -> None:
    """Rounds share the draws of the nodes above them: mu² is that of the whole matrix."""

    def program(wire: FlowWire) -> None:
        y, nodes = wire.private(HERE, THERE), torch.randn(3, 4)
        wire.send("first", y + nodes[0] + nodes[2])
        wire.send("second", 2 * y + nodes[1] + nodes[2])

    noise = np.array([[1.0, 0, 1], [0, 1, 1]])
    gap = np.array([1.0, 2.0])
    wanted = math.sqrt(gap @ np.linalg.inv(noise @ noise.T) @ gap)
    assert examined(program, 2.0).observation.loss.mu == pytest.approx(wanted, rel=1e-6)


def test_noise_of_a_matrix_factorisation_is_solved_over_all_rounds() -> None:
    """Prefix sums under noise that later rounds share, in the shares of a square root of the matrix of ones."""
    rounds = range(5)
    shares = [[math.comb(2 * (t - s), t - s) / 4 ** (t - s) if s <= t else 0.0 for s in rounds] for t in rounds]

    def program(wire: FlowWire) -> None:
        y, draws = wire.private(HERE, THERE), torch.randn(5, 4)
        for t in rounds:
            wire.send("sum", (t + 1) * y + sum(shares[t][s] * draws[s] for s in range(t + 1)), round_=t)

    noise, gap = np.array(shares), np.arange(1.0, 6.0)
    wanted = math.sqrt(gap @ np.linalg.inv(noise @ noise.T) @ gap)
    assert examined(program, 5.0).observation.loss.mu == pytest.approx(wanted, rel=1e-6)


def test_laplace_noise_costs_epsilon_and_its_law_is_recognised() -> None:
    def exponentials(y: Tensor) -> Tensor:
        return y + 2 * (torch.empty(4).exponential_() - torch.empty(4).exponential_())

    for made in (lambda y: y + torch.distributions.Laplace(0.0, 2.0).sample((4,)), exponentials):
        result = Examined(sending(made), pure(0.5))
        assert (result.verdict, result.finding.figure) == (Verdict.CONSISTENT, pytest.approx(0.5, rel=1e-6))
        assert Examined(sending(made), pure(0.4)).verdict is Verdict.VIOLATED


def test_generators_that_repeat_hide_nothing() -> None:
    def again(wire: FlowWire) -> None:
        y, generator = wire.private(HERE, THERE), torch.default_generator
        for factor in (1, 3):
            state = generator.get_state()
            wire.send("message", factor * y + torch.randn(4))
            generator.set_state(state)

    def by_hand(wire: FlowWire) -> None:
        y = wire.private(HERE, THERE)
        torch.manual_seed(7)
        wire.send("message", y + 100 * torch.randn(4))

    for program in (again, by_hand):
        assert examined(program, 5.0).verdict is Verdict.VIOLATED


def test_optimisers_and_batch_norm_carry_private_values() -> None:
    """Of one that differs and one that does not, by single and by joined updates, only one shows."""

    def program(wire: FlowWire, foreach: bool) -> None:
        y = wire.private(HERE, THERE)
        private, public = nn.Parameter(torch.ones(4)), nn.Parameter(torch.ones(4))
        optimiser = torch.optim.Adam([private, public], foreach=foreach)
        ((private - y) ** 2 + public**2).sum().backward()
        optimiser.step()
        wire.send("public", public.detach())
        norm = nn.BatchNorm1d(1)
        norm(y[:, None])
        assert norm.running_mean is not None
        wire.send("buffer", norm.running_mean)

    for foreach in (False, True):
        assert examined(lambda wire, f=foreach: program(wire, f), 1.0).states == ["clean", "bare"]


def test_a_program_that_fails_gets_one_line() -> None:
    def program(wire: FlowWire) -> None:
        raise RuntimeError("no data\nat all")

    result = examined(program)
    assert result.verdict is Verdict.UNMEASURED
    assert result.finding.sentence.endswith(": the program fails: RuntimeError: no data")


@pytest.mark.parametrize(("scaled", "expected"), [(True, Verdict.UNMEASURED), (False, Verdict.CONSISTENT)])
def test_noise_that_the_host_scales_by_a_private_number_is_no_seal(scaled: bool, expected: Verdict) -> None:
    """A number that left torch moves the value in either program; in the first it also scales the noise."""

    def program(wire: FlowWire) -> None:
        count = int(wire.private(torch.tensor(16), torch.tensor(13), what="records", owner="server"))
        noise = torch.randn(5) / (count if scaled else 13)
        wire.send("mean", torch.full((5,), count / 100) + 10 * noise, sender="server", receiver=0, round_=0)

    assert examined(program, 1.0).verdict is expected
