"""Operations that draw random numbers: their laws, and what a private argument makes of them."""

from __future__ import annotations

import hashlib
from typing import Any

import torch
from torch import Tensor

from vflpriv.audits.flow.draws.families import DISCRETE, EXPONENTIAL, NORMAL, UNIFORM, Family
from vflpriv.audits.flow.draws.recipes import leaf
from vflpriv.audits.flow.draws.rows import Rows, fineness, no_columns
from vflpriv.audits.flow.tracer import choices
from vflpriv.audits.flow.tracer.calls import Call
from vflpriv.audits.flow.tracer.following import Following
from vflpriv.audits.flow.tracer.lines import program_line
from vflpriv.audits.flow.tracer.storages import NOTHING, State

__all__ = ["counted", "draw", "enter_draw"]

_MOST_VALUES = 64


def draw(trace: Following, call: Call) -> Any:
    """Draw, and note the law of what was drawn."""
    out = _drawn(trace, call)
    trace.draws.position += isinstance(out, Tensor) and out.is_floating_point()
    return out


def _drawn(trace: Following, call: Call) -> Any:
    state = _state_of(trace, call)
    if not trace.sources and not trace.early:
        out = call.op(*call.args, **call.kwargs)
        if state is not None and any(result.numel() for result in call.results(out)):
            trace.draws.public(state, call.name)
        return out
    if call.written == [0] and isinstance(call.tensors[0], torch.nn.Parameter):
        # Initial weights are no noise, also where a model is made after there is something private.
        if state is not None:
            trace.draws.public(state, call.name)
        trace.table.drop(call.tensors[0])
        return call.op(*call.args, **call.kwargs)
    if trace.dropping:
        # Which units drop out is given to the adversary: it hides no value of those that are left.
        out = call.op(*call.args, **call.kwargs)
        for result in call.results(out):
            trace.table.drop(result)
        return out
    states = _parameters(trace, call)
    if any(known is not None and known.taint for known in states):
        return _private(trace, call, states, state)
    out = call.op(*call.args, **call.kwargs)
    opaque = trace.spent(call, states, linear=False)
    for result in call.results(out):
        if opaque is not None:
            trace.mark(result, NOTHING, NOTHING, masked=False).opaque = opaque
        else:
            _public(trace, call, result, state)
    return out


def _state_of(trace: Following, call: Call) -> bytes | None:
    """What identifies the state of the generator; None of one that is not on the CPU."""
    generator = call.kwargs.get("generator") or torch.default_generator
    if generator.device.type != "cpu":
        return None
    trace.draws.seed(generator.initial_seed())
    return hashlib.blake2b(generator.get_state().numpy().tobytes(), digest_size=12).digest()


def _parameters(trace: Following, call: Call) -> list[State | None]:
    """What is known of the arguments that the law depends on: not of those that are filled, nor of mere shapes."""
    fills = call.name.endswith("_") or "out" in call.kwargs
    shape_only = call.name.endswith("_like")
    return [
        None if shape_only or (fills and number in call.written) else trace.table.of(tensor)
        for number, tensor in enumerate(call.tensors)
    ]


def _scalar_law(call: Call) -> tuple[Family, float | Tensor, float | Tensor] | None:
    """Family, shift and scale of a draw of real numbers; None of all others."""
    args, kwargs = call.args, call.kwargs

    def argument(place: int, name: str, default: float) -> Any:
        return args[place] if len(args) > place else kwargs.get(name, default)

    match call.name:
        case "randn" | "randn_like":
            return NORMAL, 0.0, 1.0
        case "normal_":
            return NORMAL, argument(1, "mean", 0.0), argument(2, "std", 1.0)
        case "normal":
            return NORMAL, argument(0, "mean", 0.0), argument(1, "std", 1.0)
        case "rand" | "rand_like":
            return UNIFORM, 0.0, 1.0
        case "uniform_":
            low, high = argument(1, "from", 0.0), argument(2, "to", 1.0)
            return UNIFORM, low, high - low
        case "exponential_":
            return EXPONENTIAL, 0.0, 1 / argument(1, "lambd", 1.0)
    return None


def _public(trace: Following, call: Call, result: Tensor, state: bytes | None) -> None:
    """The law of a draw whose arguments are public."""
    law = _scalar_law(call)
    if law is not None and result.is_floating_point():
        enter_draw(trace, result, call.name, law, state)
        return
    if call.name == "randperm":
        # Which records are in a batch is given to the adversary.
        trace.table.drop(result)
        return
    values = _few_values(call)
    if values is None:
        trace.mark(result, NOTHING, NOTHING, masked=False).opaque = no_columns()
        return
    alike = sum(torch.as_tensor(weight, dtype=torch.float64).expand(result.numel()).square() for _, weight in values)
    columns = trace.draws.drawn(call.name, DISCRETE, result, state, chance=float(torch.as_tensor(alike).prod()))
    filled = trace.mark(result, NOTHING, NOTHING, masked=False)
    if bool(trace.draws.known(columns).any()):
        return
    filled.coin = choices.coin(columns, [(value.expand(result.numel()), weight) for value, weight in values])


def enter_draw(
    trace: Following,
    result: Tensor,
    name: str,
    law: tuple[Family, float | Tensor, float | Tensor],
    state: bytes | None,
) -> None:
    """Make a tensor known as a draw of real numbers, shift + scale × a standard draw of a family."""
    family, shift, scale = law
    columns = trace.draws.drawn(name, family, result, state)
    shifts, scales = (
        torch.as_tensor(value, dtype=torch.float64).expand(result.shape).reshape(-1) for value in (shift, scale)
    )
    trace.draws.keep(columns, (result.detach().double().reshape(-1) - shifts) / scales)
    precision = fineness(result.dtype)
    filled = trace.mark(result, NOTHING, NOTHING, masked=False)
    rows = Rows(columns[:, None], scales[:, None].clone(), precision)
    trace.put(result, filled, rows, leaf(columns, shifts.clone(), scales.clone(), precision), None)


def counted(trace: Following, tensor: Tensor, rate: float) -> None:
    """Say of draws of a geometric law by which rate their probabilities fall; they are no function of a quantile."""
    state = trace.table.of(tensor)
    if state is not None and state.rows is not None:
        trace.draws.on_grid(state.rows.columns.reshape(-1), 1.0, rate)
        state.recipe = None


def _few_values(call: Call) -> list[tuple[Tensor, float | Tensor]] | None:
    """The values of a discrete draw with their probabilities, if there are few."""
    args = call.args
    if call.name in ("bernoulli_", "bernoulli"):
        p = args[1] if len(args) > 1 and isinstance(args[1], float | int | Tensor) else args[0]
        p = p if not isinstance(p, Tensor) else p.detach().double().reshape(-1)
        if isinstance(p, Tensor) or call.name == "bernoulli_":
            p = 0.5 if call.name == "bernoulli_" and p is args[0] else p
            return [(torch.tensor([0.0]), 1 - p), (torch.tensor([1.0]), p)]
    if call.name in ("randint", "randint_like"):
        numbers = [value for value in args if isinstance(value, int)]
        low, high = (0, numbers[0]) if len(numbers) == 1 else numbers[:2]
        if high - low <= _MOST_VALUES:
            return [(torch.tensor([value]), 1 / (high - low)) for value in range(low, high)]
    if call.name == "multinomial":
        return _of_classes(call)
    return None


def _of_classes(call: Call) -> list[tuple[Tensor, float | Tensor]] | None:
    """The classes of independent draws by rows of public probabilities."""
    p, count = call.tensors[0].detach().double(), call.args[1]
    again = call.args[2] if len(call.args) > 2 else call.kwargs.get("replacement", False)
    if p.shape[-1] > _MOST_VALUES or not (again or count == 1):
        return None
    shares = (p / p.sum(-1, keepdim=True)).reshape(-1, p.shape[-1]).repeat_interleave(count, 0)
    return [(torch.tensor([place]), shares[:, place]) for place in range(shares.shape[1])]


def _private(trace: Following, call: Call, states: list[State | None], state: bytes | None) -> Any:
    """A draw whose law depends on a private value."""
    taint = NOTHING.union(*[known.taint for known in states if known is not None])
    seals = NOTHING.union(*[known.seals for known in states if known is not None])
    if call.name == "normal" and (out := _around_private_mean(trace, call, states, state)) is not None:
        return out
    if call.name in ("bernoulli", "multinomial") and all(s is None or not s.random for s in states):
        out = call.op(*call.args, **call.kwargs)
        if choices.by_probabilities(trace, call, out, taint, seals):
            return out
        trace.mark(out, taint, seals, masked=False).opaque = no_columns()
        return out
    # As with dropout: both worlds draw the same, and the draw hides nothing that could be accounted for.
    generator = call.kwargs.get("generator") or torch.default_generator
    before = generator.get_state()
    out = call.op(*call.args, **call.kwargs)
    after = generator.get_state()
    if any(known is not None and known.shadow is not None for known in states):
        others = [trace.table.other(tensor) for tensor in call.tensors]
        generator.set_state(before)
        try:
            trace.link(call, call.results(out), call.results(call.run(others), others))
        finally:
            generator.set_state(after)
    for result in call.results(out):
        trace.mark(result, taint, seals, masked=False).opaque = no_columns()
    return out


def _around_private_mean(trace: Following, call: Call, states: list[State | None], state: bytes | None) -> Any:
    """`torch.normal(mean, std)` of a private mean is the mean plus noise."""
    law = _scalar_law(call)
    assert law is not None
    _, mean, std = law
    if not isinstance(mean, Tensor) or any(s is not None and s.random for s in states):
        return None
    if isinstance(std, Tensor) and (known := trace.table.of(std)) is not None and known.taint:
        return None
    known = trace.table.of(mean)
    assert known is not None
    other = trace.table.other(mean)
    out = call.op(*call.args, **call.kwargs)
    enter_draw(trace, out, call.name, (NORMAL, mean.detach().double(), std), state)
    filled = trace.table.enter(out)
    assert filled.rows is not None
    filled.recipe = None
    filled.taint, filled.seals = known.taint, known.seals
    filled.masked = bool(filled.rows.covered.all())
    filled.where = program_line()
    filled.met = trace.meet(out, filled.rows)
    if known.shadow is not None:
        filled.shadow = (out + (other - mean).to(out.dtype)).contiguous().untyped_storage()
    return out
