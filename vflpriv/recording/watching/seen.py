"""What was seen of a watched training: who sent in which rounds, the labels of losses, and steps without a message."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from vflpriv.recording.watching.checks import Checks
from vflpriv.recording.watching.losses import targets_of
from vflpriv.recording.watching.rounds import Call, Round

if TYPE_CHECKING:
    from torch import Tensor, nn

__all__ = ["Seen"]

_ENTRIES = 256
"""Entries of an input's first row by which it is known again."""


class Seen:
    """Counts what passes, and tells the checks what does not fit together."""

    def __init__(self, checks: Checks, bottoms: Sequence[nn.Module], *, looks: bool) -> None:
        """Values are only looked at if it `looks`."""
        from torch.optim.optimizer import register_optimizer_step_post_hook

        self._checks, self._looks, self._devices = checks, looks, len(bottoms)
        self._owner = {id(p): m for m, bottom in enumerate(bottoms) for p in bottom.parameters()}
        self._rounds = 0
        self._in_rounds: Counter[int] = Counter()
        self._calls: Counter[int] = Counter()
        self._messages: Counter[int] = Counter()
        self._asking: set[int] = set()
        """Devices whose outputs have a graph."""
        self._answered: set[int] = set()
        """Devices that a gradient has come back to."""
        self._last: dict[int, int] = {}
        self._steps: WeakKeyDictionary[Any, tuple[set[int], int]] = WeakKeyDictionary()
        self._handle = register_optimizer_step_post_hook(self._stepped)

    def stop(self) -> None:
        """Look at no more steps."""
        self._handle.remove()

    def begun(self, round_: Round) -> None:
        """A round has begun."""
        self._rounds += 1
        self._checks.trained_on(round_.ids, round_.number)

    def called(self, call: Call, given: Tensor | None) -> None:
        """A party's module was given this tensor, first of all."""
        m, round_ = call.device, call.round
        self._calls[m] += 1
        if call.listened:
            self._asking.add(m)
        whole = len(call.rows.ids) == len(round_.ids)
        if self._looks and whole and given is not None and len(given):
            self._compare_inputs(m, round_, given.detach()[0].reshape(-1)[:_ENTRIES])
        round_.calls[m] = call

    def _compare_inputs(self, m: int, round_: Round, first: Tensor) -> None:
        """A party that is called again in a round, after it has learned: are these other records?"""
        known = round_.inputs.get(m)
        if known is None:
            round_.inputs[m] = first.clone()
        elif round_.spent and not (known.shape == first.shape and bool((known == first).all())):
            self._compare_labels(round_)
            round_.doubtful.add(m)

    def received(self, call: Call, gradient: Tensor) -> Tensor:
        """A gradient has arrived; one that overflowed in 16 bits, as those of scaled losses do at first, is cut off."""
        import torch

        self._answered.add(call.device)
        if not self._looks or gradient.dtype != torch.float16 or bool(gradient.isfinite().all()):
            return gradient
        line = f"round {call.round.number} is the first with gradients that overflowed 16 bits: recorded are the limits"
        self._checks.remark("overflow", line)
        return gradient.nan_to_num()

    def left_behind(self, m: int, kept: Tensor) -> None:
        """A party's output without the part of it that is sent: what comes back by it is not recorded."""

        def look(gradient: Tensor) -> None:
            if bool(gradient.count_nonzero()):
                line = f"gradients come back to bottoms[{m}] by more of its output than the part that output= takes"
                self._checks.remark(f"rest {m}", f"{line}: name all that is sent, if this is not of losses of its own")

        if self._looks:
            kept.register_hook(look)

    def evaluated(self, m: int, rows: int) -> None:
        """A party was called with more rows than its round has, after it had learned."""
        line = f"bottoms[{m}] was called with {rows} rows, more than its round has: this is taken for evaluation"
        self._checks.remark(f"evaluation {m}", f"{line}, which eval() or no_grad() would say")

    def sent(self, call: Call) -> None:
        """A party has sent something."""
        m, number = call.device, call.round.number
        self._messages[m] += 1
        if self._last.get(m) != number:
            self._in_rounds[m], self._last[m] = self._in_rounds[m] + 1, number

    def given(self, as_left: bool) -> None:
        """The server's model was given what the parties' modules gave, or what was made of it."""
        if not as_left and self._looks:
            line = "the server's model was given other values than the bottoms gave, which are those that are recorded"
            self._checks.remark("top", line)

    def losses(self, round_: Round, roots: Any) -> None:
        """A backward pass begins at these tensors: note the labels in their losses."""
        labels = self._checks.labels
        if labels is None or not self._looks:
            return
        parts = [round_.ids, *(call.rows.ids for call in round_.calls.values())]
        for target in targets_of(roots):
            ids = next((ids for ids in parts if len(ids) in (len(target), target.numel())), None)
            agrees = None if ids is None else labels.agrees(target, ids)
            if ids is None or agrees is None:
                continue
            if agrees or id(ids) not in round_.targets:
                round_.targets[id(ids)] = (agrees, target, ids)

    def _compare_labels(self, round_: Round) -> bool:
        """Compare the labels that were noted; whether there were any. Of several losses one has the labels."""
        labels, noted = self._checks.labels, list(round_.targets.values())
        round_.targets.clear()
        for agrees, target, ids in noted:
            assert labels is not None
            if agrees:
                labels.confirm(ids)
                continue
            different = labels.count(target, ids)
            if different is not None:
                self._checks.fail("labels", f"round {round_.number}: {different}")
        return bool(noted)

    def over(self, round_: Round) -> None:
        """A round has ended."""
        compared = self._compare_labels(round_)
        for m in round_.doubtful if not compared else ():
            line = f"round {round_.number}: bottoms[{m}] was called again with other inputs"
            told = "begin a round for each batch, and evaluate in eval() or no_grad()"
            self._checks.fail("again", f"{line}, and no loss shows their labels: {told}")
        for m, rows in round_.unfinished().items():
            line = f"round {round_.number}: bottoms[{m}] was given {rows} of the {len(round_.ids)} records"
            self._checks.fail("rows", f"{line}, and these are taken to be the first: begin a round with their ids")

    def _stepped(self, optimiser: Any, args: Any, kwargs: Any) -> None:
        """An optimiser has made a step: of what a party has sent since its last one?"""
        del args, kwargs
        if optimiser not in self._steps:
            groups = (p for group in optimiser.param_groups for p in group["params"])
            self._steps[optimiser] = {self._owner[id(p)] for p in groups if id(p) in self._owner}, 0
        devices, before = self._steps[optimiser]
        messages = sum(self._messages[m] for m in devices)
        self._steps[optimiser] = devices, messages
        if devices and messages == before and self._has_gradients(optimiser):
            line = f"an optimiser changed bottoms{sorted(devices)} without a recorded message"
            where = "before round 0" if not self._rounds else f"after round {self._rounds - 1}"
            self._checks.fail("steps", f"{line}, {where}: call the modules that are watched, no parts of them")

    def _has_gradients(self, optimiser: Any) -> bool:
        parameters = [p for group in optimiser.param_groups for p in group["params"] if id(p) in self._owner]
        return any(p.grad is not None and bool(p.grad.count_nonzero()) for p in parameters)

    def conclude(self, unused: int) -> None:
        """The training is over."""
        for m in range(self._devices) if self._rounds else ():
            silent = self._rounds - self._in_rounds[m]
            why = "was called without gradients, and no backward pass followed" if self._calls[m] else "was not called"
            if silent == self._rounds:
                self._checks.fail(f"device {m}", f"device {m} sent nothing in any round: bottoms[{m}] {why}")
            elif silent:
                line = f"device {m} sent nothing in {silent} of {self._rounds} rounds"
                self._checks.remark(f"device {m}", f"{line}: bottoms[{m}] was not called in them")
        for m in sorted(self._asking - self._answered):
            line = f"no gradient came back to device {m}: none is in the transcript"
            self._checks.remark(f"answers {m}", f"{line}, and attacks and the audit have seen none")
        if unused:
            self._checks.remark("unused", f"{unused} batches were fetched and no module was given them")
        labels = self._checks.labels
        if labels is not None and self._looks and self._rounds and not labels.compared:
            line = "no loss was seen to be given the labels: that ids are right rests on the script"
            self._checks.remark("labels", line)
