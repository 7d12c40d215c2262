"""Choices: private values that draws with few outcomes select. Their law in both worlds is enumerated, never sampled.

Randomised response by `where`, xor, arithmetic, `bernoulli` or `multinomial`; comparisons of a draw with a threshold,
public or private; the largest of noisy scores, as with Gumbel noise.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from vflpriv.audits.flow.draws.families import DISCRETE, EXPONENTIAL, GEOMETRIC, GUMBEL, NORMAL, Family
from vflpriv.audits.flow.draws.recipes import Coin, Outcome, Recipe, recognise
from vflpriv.audits.flow.draws.rows import Rows
from vflpriv.audits.flow.tracer.calls import Call
from vflpriv.audits.flow.tracer.events import Choice
from vflpriv.audits.flow.tracer.following import Following
from vflpriv.audits.flow.tracer.lines import program_line
from vflpriv.audits.flow.tracer.storages import NOTHING, State, elements, whole

__all__ = ["by_probabilities", "coin", "compared", "floored", "noisy_largest", "stepped", "through"]

_MOST_OUTCOMES = 64
_MOST_ELEMENTS = 1 << 18
_HALVINGS = 100
_MOST_ORDERS = 5000
_ALL = -1
_NO_SHIFT = 1e-4
_ROLLS = (1, 7)
"""By how much private values are shifted among the elements: what they might be instead."""


def coin(columns: Tensor, values: Sequence[tuple[Tensor, float | Tensor]]) -> Coin:
    """A coin with a public law."""
    count = len(columns)
    outcomes = []
    for value, weight in values:
        weights = torch.as_tensor(weight, dtype=torch.float64).expand(count)
        outcomes.append(Outcome((value, value), (weights, weights)))
    return Coin(columns[:, None], tuple(outcomes))


# Pointwise operations on coins


def through(trace: Following, call: Call, states: Sequence[State | None]) -> Any:
    """A pointwise operation on coins, run once for every outcome; None where that is not what it is."""
    if any(s is not None and s.random and s.coin is None for s in states):
        return None
    shape = call.shape
    if shape.numel() > _MOST_ELEMENTS:
        return None
    if call.written and (call.tensors[call.written[0]].shape != shape or not whole(call.tensors[call.written[0]])):
        return None
    operands = [_spread(trace, tensor, state, shape) for tensor, state in zip(call.tensors, states, strict=True)]
    if any(operand is None for operand in operands):
        return None
    private = [state is not None and bool(state.taint) for state in states]
    groups = _groups([operand for operand in operands if isinstance(operand, Coin)])
    outcomes = [len(group[0].outcomes) for group in groups]
    if torch.tensor(outcomes).prod() > _MOST_OUTCOMES:
        return None
    worlds = [_enumerated(call, operands, private, groups, world, 0) for world in (0, 1)]
    rolled = [_enumerated(call, operands, private, groups, 0, roll) for roll in _ROLLS] if any(private) else []
    made = Coin(
        torch.cat([group[0].columns for group in groups], 1),
        tuple(Outcome((v0, v1), (w0, w1)) for (v0, w0), (v1, w1) in zip(worlds[0], worlds[1], strict=True)),
    )
    out = trace.both(call)
    (result,) = call.results(out)
    taint = NOTHING.union(*[state.taint for state in states if state is not None])
    seals = NOTHING.union(*[state.seals for state in states if state is not None])
    state = trace.mark(result, taint, seals, masked=False)
    _enter(trace, result, state, made, rolled, call.name)
    return out


def _spread(
    trace: Following, tensor: Tensor, state: State | None, shape: torch.Size
) -> Coin | tuple[Tensor, Tensor] | None:
    """An operand element by element of the result: a coin, or its values in the two worlds."""
    if state is not None and state.coin is not None:
        if len(state.coin.columns) * tensor.element_size() != tensor.untyped_storage().nbytes():
            return None
        return state.coin.at(elements(tensor).reshape(tensor.shape).expand(shape).reshape(-1))
    other = trace.table.other(tensor)
    return tensor.detach().expand(shape).reshape(-1).clone(), other.detach().expand(shape).reshape(-1).clone()


def _groups(coins: Sequence[Coin]) -> list[list[Coin]]:
    """Coins that are tossed by the same draws belong together."""
    groups: list[list[Coin]] = []
    for tossed in coins:
        for group in groups:
            if torch.equal(group[0].columns, tossed.columns) and len(group[0].outcomes) == len(tossed.outcomes):
                group.append(tossed)
                break
        else:
            groups.append([tossed])
    return groups


def _enumerated(
    call: Call,
    operands: Sequence[Any],
    private: Sequence[bool],
    groups: Sequence[Sequence[Coin]],
    world: int,
    roll: int,
) -> list[tuple[Tensor, Tensor]]:
    """Value and probability of every outcome in one world; with `roll`, private values stand at other elements."""
    made = []
    for numbers in itertools.product(*[range(len(group[0].outcomes)) for group in groups]):
        tensors, weight = [], torch.ones(1, dtype=torch.float64)
        for operand, secret in zip(operands, private, strict=True):
            if isinstance(operand, Coin):
                place = next(n for n, group in enumerate(groups) if any(operand is tossed for tossed in group))
                value = operand.outcomes[numbers[place]].values[world]
            else:
                value = operand[world]
            tensors.append(value.roll(roll) if roll and secret else value.clone())
        for number, group in zip(numbers, groups, strict=True):
            weight = weight * group[0].outcomes[number].weights[world]
        value = call.results(call.run(tensors), tensors)[0]
        made.append((value, weight.expand(value.shape)))
    return made


# The law of a choice


def _enter(
    trace: Following,
    result: Tensor,
    state: State,
    made: Coin,
    rolled: Sequence[list[tuple[Tensor, Tensor]]],
    kind: str,
) -> None:
    """Keep a coin with its storage; where draws hide the private value in it, seal it."""
    if not whole(result):
        state.opaque = made.columns.reshape(-1)
        return
    state.coin = made
    if not state.taint:
        return
    worlds = [[(o.values[w], o.weights[w]) for o in made.outcomes] for w in (0, 1)]
    laws = _laws([*worlds, *rolled])
    independent = len(torch.unique(made.columns)) == made.columns.numel()
    if independent and all(torch.equal(law > 0, laws[0] > 0) for law in laws) and _varies(laws[0]):
        seal_choice(trace, result, state, (laws[0], laws[1]), made.columns.reshape(-1), kind)


def _varies(law: Tensor) -> bool:
    return bool(((law > 0).sum(1) > 1).all())


def _laws(worlds: Sequence[list[tuple[Tensor, Tensor]]]) -> list[Tensor]:
    """The probability of every value, (elements, values), in each world; the values are in one order in all of them."""
    values = torch.stack([value.double() for world in worlds for value, _ in world], 1)
    first = torch.ones_like(values, dtype=torch.bool)
    for place in range(1, values.shape[1]):
        first[:, place] = ~(values[:, :place] == values[:, place : place + 1]).any(1)
    laws = []
    for world in worlds:
        law = torch.zeros(values.shape, dtype=torch.float64)
        for value, weight in world:
            law += weight[:, None] * (values == value.double()[:, None])
        laws.append(torch.where(first, law, 0.0))
    return laws


def seal_choice(
    trace: Following, result: Tensor, state: State, laws: tuple[Tensor, Tensor], columns: Tensor, kind: str
) -> None:
    """Note the laws of a choice; its value is public from here on."""
    trace.seals.append(Choice(weights=laws, columns=columns, taint=state.taint, where=program_line(), kind=kind))
    trace.released(result, state)


def _drawn_law(call: Call, p: Tensor) -> Tensor | None:
    """(draws, outcomes) of `bernoulli` or `multinomial` by these probabilities; None of too many outcomes."""
    if call.name == "bernoulli":
        return torch.stack([1 - p.reshape(-1), p.reshape(-1)], 1)
    count, again = call.args[1], call.args[2] if len(call.args) > 2 else call.kwargs.get("replacement", False)
    shares = (p / p.sum(-1, keepdim=True)).reshape(-1, p.shape[-1])
    return shares.repeat_interleave(count, 0) if again or count == 1 else _in_order(shares, count)


def _in_order(shares: Tensor, count: int) -> Tensor | None:
    """(rows, ordered choices) one place after another is drawn by its share of those that are left."""
    places = shares.shape[1]
    if math.perm(places, count) > _MOST_ORDERS:
        return None
    orders = torch.tensor(list(itertools.permutations(range(places), count)))
    drawn = shares[:, orders]
    left = 1 - drawn.cumsum(-1) + drawn
    return (drawn / left.clamp(min=1e-300)).prod(-1)


def by_probabilities(trace: Following, call: Call, out: Tensor, taint: frozenset[int], seals: frozenset[int]) -> bool:
    """`bernoulli` and `multinomial` with one draw, of private probabilities; whether that is what it was."""
    probabilities = (call.tensors[0], trace.table.other(call.tensors[0]))
    laws = [law for p in probabilities if (law := _drawn_law(call, p.detach().double())) is not None]
    if len(laws) < len(probabilities):
        return False
    if not torch.equal(laws[0] > 0, laws[1] > 0) or not _varies(laws[0]):
        return False
    if not all(torch.equal(laws[0].roll(roll, 0) > 0, laws[0] > 0) for roll in _ROLLS):
        return False
    columns = trace.draws.add(DISCRETE, out.numel())
    state = trace.mark(out, taint, seals, masked=False)
    seal_choice(trace, out, state, (laws[0], laws[1]), columns, call.name)
    return True


# Comparisons of a draw


def _of_storage(recipe: Recipe, tensor: Tensor) -> bool:
    """Whether a recipe has an element for each of the tensor's storage."""
    return len(recipe.columns) * tensor.element_size() == tensor.untyped_storage().nbytes()


def compared(trace: Following, call: Call, states: Sequence[State | None]) -> Any:
    """A pointwise operation from a real draw to true or false: a coin whose probability is found by bisection."""
    random = [n for n, s in enumerate(states) if s is not None and s.random]
    if len(random) != 1 or call.written:
        return None
    state, tensor = states[random[0]], call.tensors[random[0]]
    if state is None or state.recipe is None or state.recipe.columns.shape[1] != 1 or state.taint:
        return None
    family = trace.draws.family(state.recipe.columns.reshape(-1)) if len(state.recipe.columns) else None
    if family is None or family is DISCRETE or not _of_storage(state.recipe, tensor):
        return None
    shape = call.shape
    recipe = state.recipe.at(elements(tensor).reshape(tensor.shape).expand(shape).reshape(-1))
    spread = [
        None if number == random[0] else _spread(trace, t, s, shape)
        for number, (t, s) in enumerate(zip(call.tensors, states, strict=True))
    ]
    shares = []
    for world, roll in ((0, 0), (1, 0), *((0, roll) for roll in _ROLLS)):
        fixed = [None if pair is None else pair[world].roll(roll) for pair in spread]  # type: ignore[index]

        def truth(levels: Tensor, fixed: list[Tensor | None] = fixed) -> Tensor | None:
            values = recipe.made([family.quantile(levels)[None]], None)[0]
            tensors = [values if t is None else t.double() if t.is_floating_point() else t for t in fixed]
            answers = call.results(call.run(tensors), tensors)
            return answers[0] if len(answers) == 1 and answers[0].dtype == torch.bool else None

        share = _share(truth, len(recipe.columns))
        if share is None:
            return None
        shares.append(share)
    out = trace.both(call)
    (result,) = call.results(out)
    taint = NOTHING.union(*[s.taint for s in states if s is not None])
    seals = NOTHING.union(*[s.seals for s in states if s is not None])
    kept = trace.mark(result, taint, seals, masked=False)
    no, yes = torch.zeros(len(recipe.columns), dtype=torch.bool), torch.ones(len(recipe.columns), dtype=torch.bool)
    made = Coin(
        recipe.columns,
        (Outcome((no, no), (1 - shares[0], 1 - shares[1])), Outcome((yes, yes), (shares[0], shares[1]))),
    )
    rolled = [[(no, 1 - share), (yes, share)] for share in shares[2:]]
    _enter(trace, result, kept, made, rolled, call.name)
    return out


def stepped(trace: Following, call: Call, states: Sequence[State | None]) -> Any:
    """A draw that becomes whole numbers, as `(u * 9).long()` does: a coin whose outcomes are met one after another."""
    state, tensor = states[0], call.tensors[0]
    if len(states) != 1 or call.written or state is None or state.recipe is None or state.taint:
        return None
    if not _of_storage(state.recipe, tensor):
        return None
    recipe = state.recipe.at(elements(tensor))
    family = trace.draws.family(recipe.columns.reshape(-1)) if len(recipe.columns) else None
    if recipe.columns.shape[1] != 1 or family is None or family is DISCRETE:
        return None

    def value(levels: Tensor) -> Tensor | None:
        made = [recipe.made([family.quantile(levels)[None]], None)[0]]
        answers = call.results(call.run(made), made)
        return answers[0] if len(answers) == 1 and answers[0].dtype == torch.int64 else None

    outcomes = _steps(value, len(recipe.columns))
    if outcomes is None:
        return None
    out = trace.both(call)
    (result,) = call.results(out)
    seals = NOTHING.union(*[s.seals for s in states if s is not None])
    kept = trace.mark(result, NOTHING, seals, masked=False)
    kept.coin = Coin(recipe.columns, tuple(Outcome((v, v), (w, w)) for v, w in outcomes))
    return out


_FLOORED = torch.tensor([0.25, 0.75, 1.25, 7.5, 100.125], dtype=torch.float64)


def floored(trace: Following, call: Call, states: Sequence[State | None]) -> Any:
    """The whole part of an exponential draw: whole numbers of a geometric law."""
    state, tensor = states[0], call.tensors[0]
    if len(states) != 1 or call.written or state is None or state.recipe is None or state.taint or state.coin:
        return None
    if not _of_storage(state.recipe, tensor) or not len(state.recipe.columns):
        return None
    try:
        (whole_part,) = call.results(call.run([_FLOORED.clone()], double=True), [_FLOORED])
    except (RuntimeError, IndexError, ValueError):
        return None
    if whole_part.shape != _FLOORED.shape or not torch.equal(whole_part.double(), _FLOORED.floor()):
        return None
    recipe = state.recipe.at(elements(tensor))
    families = [trace.draws.family(recipe.columns[:, term]) for term in range(recipe.columns.shape[1])]
    law = recognise(recipe, [family for family in families if family is not None]) if all(families) else None
    if law is None or law.family is not EXPONENTIAL or not bool((law.scale == law.scale[0]).all()):
        return None
    if bool((law.shift.abs() > _NO_SHIFT * law.scale).any()) or float(law.scale[0]) <= 0:
        return None
    out = trace.both(call)
    (result,) = call.results(out)
    columns = trace.draws.derived(recipe.columns, GEOMETRIC, law.variant)
    trace.draws.on_grid(columns, 1.0, 1 / float(law.scale[0]))
    seals = NOTHING.union(*[s.seals for s in states if s is not None])
    kept = trace.mark(result, NOTHING, seals, masked=False)
    rows = Rows(columns[:, None], torch.ones(len(columns), 1, dtype=torch.float64), 0.0)
    trace.put(result, kept, rows, None, None)
    return out


def _steps(value: Callable[[Tensor], Tensor | None], count: int) -> list[tuple[Tensor, Tensor]] | None:
    """The values of a rising or falling step function of one draw, with the probability of each, element by element."""
    low, high = (torch.full((count,), level, dtype=torch.float64) for level in (1e-15, 1 - 1e-15))
    current, last = value(low), value(high)
    if current is None or last is None:
        return None
    sign = torch.where(last < current, -1, 1)
    outcomes: list[tuple[Tensor, Tensor]] = []
    before = torch.zeros(count, dtype=torch.float64)
    for _ in range(_MOST_OUTCOMES):

        def passed(levels: Tensor, current: Tensor = current) -> Tensor:
            answer = value(levels)
            assert answer is not None
            return answer * sign <= current * sign

        until = _share(passed, count)
        if until is None:
            return None
        outcomes.append((current, until - before))
        if torch.equal(current, last):
            return outcomes
        following = value(torch.minimum(until, high))
        assert following is not None
        current, before = torch.where(until < 1, following, current), until
    return None


def _share(truth: Callable[[Tensor], Tensor | None], count: int) -> Tensor | None:
    """The probability that a condition on one draw holds, for each element, if it holds above or below a threshold."""
    low, high = torch.full((count,), 1e-15, dtype=torch.float64), torch.full((count,), 1 - 1e-15, dtype=torch.float64)
    bottom, top = truth(low), truth(high)
    if bottom is None or top is None:
        return None
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        answer = truth(middle)
        assert answer is not None
        below = answer == bottom
        low, high = torch.where(below, middle, low), torch.where(below, high, middle)
    threshold = torch.where(bottom == top, 1.0, high)
    for level in torch.linspace(0.003, 0.997, 41, dtype=torch.float64).tolist():
        answer = truth(torch.full((count,), level, dtype=torch.float64))
        assert answer is not None
        wanted = torch.where(level < threshold, bottom, top)
        near = (threshold - level).abs() < 1e-9
        if not bool(((answer == wanted) | near).all()):
            return None
    return torch.where(bottom, threshold, 1 - threshold)


# The largest of noisy scores


def noisy_largest(trace: Following, call: Call, states: Sequence[State | None]) -> Any:
    """The place of the largest score, where every score has noise of its own: the law of that place in both worlds."""
    state = states[0] if len(states) == 1 else None
    if state is None or not state.masked or not state.taint or state.rows is None or state.opaque is not None:
        return None
    scores, rows = call.tensors[0], trace.rows_of(call.tensors[0], state)
    if rows is None or rows.columns.shape[1] != 1 or len(torch.unique(rows.columns)) != rows.columns.numel():
        return None
    family, noise = trace.draws.family(rows.columns.reshape(-1)), trace.draws.values(rows.columns.reshape(-1))
    # What normal noise hides as a whole has a trade-off curve of its own, that of the place has none.
    if family is None or family is NORMAL or family.cdf is None or noise is None or bool((rows.scales <= 0).any()):
        return None
    count = _largest_few(call, scores)
    dim = _dimension(call, scores) if count is None else -1
    if dim is None:
        return None
    shape, dim = (torch.Size([scores.numel()]), 0) if dim == _ALL and count is None else (scores.shape, dim)
    scale = rows.scales.reshape(shape)
    drawn = noise.reshape(shape) * scale
    laws = [
        _largest_law((world.detach().double().reshape(shape) - drawn).movedim(dim, -1), scale.movedim(dim, -1), family)
        for world in (scores, trace.table.other(scores))
    ]
    if count is not None:
        ordered = [_in_order(law, count) for law in laws] if _is_softmax(scale, family) else [None]
        if any(law is None for law in ordered):
            return None
        laws = [law for law in ordered if law is not None]
    out = call.op(*call.args, **call.kwargs)
    # Noisy values that come with the places have no law of their own.
    for result in call.results(out):
        kept = trace.mark(result, state.taint, state.seals, masked=False)
        if result.dtype == torch.int64:
            seal_choice(trace, result, kept, (laws[0], laws[1]), rows.columns.reshape(-1), call.name)
        else:
            kept.opaque = rows.columns.reshape(-1)
    return out


def _is_softmax(scale: Tensor, family: Family) -> bool:
    """Whether places in falling order are softmax draws, one after another, of those that are left."""
    return family is GUMBEL and bool((scale == scale[..., :1]).all())


def _largest_few(call: Call, scores: Tensor) -> int | None:
    """How many places of the largest entries of each row `topk` gives, in falling order; None of other operations."""
    dim = call.args[2] if len(call.args) > 2 else call.kwargs.get("dim", -1)
    falling = (len(call.args) <= 3 or call.args[3]) and call.kwargs.get("largest", True)
    return int(call.args[1]) if call.name == "topk" and dim in (-1, scores.dim() - 1) and falling else None


def _dimension(call: Call, scores: Tensor) -> int | None:
    """The dimension along which an operation gives the place of the largest entry, found by trying it out."""
    generator = torch.Generator().manual_seed(2)
    random = torch.randn(scores.shape, generator=generator, dtype=torch.float64)
    try:
        answers = call.again({0: random})
    except (RuntimeError, IndexError):
        return None
    if len(answers) != 1 or answers[0].dtype != torch.int64:
        return None
    if answers[0].numel() == 1 and int(answers[0]) == int(random.argmax()):
        return _ALL
    for dim in range(scores.dim()):
        wanted = random.argmax(dim)
        if wanted.numel() == answers[0].numel() and torch.equal(answers[0].reshape(-1), wanted.reshape(-1)):
            return dim
    return None


def _largest_law(scores: Tensor, scale: Tensor, family: Family) -> Tensor:
    """P[the place of the largest score], (rows, places); the scores stand along the last dimension."""
    scores, scale = scores.reshape(-1, scores.shape[-1]), scale.reshape(-1, scale.shape[-1])
    if _is_softmax(scale, family):
        return torch.softmax(scores / scale, 1)
    assert family.cdf is not None
    levels = (torch.arange(4000, dtype=torch.float64) + 0.5) / 4000
    standard = family.quantile(levels)
    law = torch.zeros_like(scores)
    for place in range(scores.shape[1]):
        value = scores[:, place, None] + scale[:, place, None] * standard
        inside = torch.ones_like(value)
        for rival in range(scores.shape[1]):
            if rival != place:
                inside = inside * family.cdf((value - scores[:, rival, None]) / scale[:, rival, None])
        law[:, place] = inside.mean(1)
    return law / law.sum(1, keepdim=True)
