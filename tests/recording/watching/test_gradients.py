"""What is recorded is what was sent and what arrived, in whatever style a training is written.

A linear party's weights have the gradient Gᵀx: that shows which gradient G arrived, whatever was done on its way.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.checkpoint import checkpoint

import vflpriv
from tests.recording.watching.training import CLASSES, head_of, messages_of
from vflpriv.errors import InputError

ROWS = 6


class Top(nn.Module):
    """Keeps what it is given."""

    def __init__(self):
        super().__init__()
        self.head, self.given = nn.Linear(4, CLASSES), None

    def forward(self, joined):
        self.given = joined.detach().clone()
        return self.head(joined)


class System:
    """Two linear parties and a top, one step at a time."""

    def __init__(self, folder, *, bottoms=None, watch_top=False, **options):
        torch.manual_seed(0)
        self.folder, self.top = folder, Top()
        self.bottoms = [nn.Linear(3, 2, bias=False) for _ in range(2)] if bottoms is None else bottoms
        self.x = torch.randn(2, ROWS, 3)
        self.y = torch.arange(ROWS) % CLASSES
        top = self.top if watch_top else None
        self.wire = vflpriv.watch(
            self.bottoms, labels=self.y, classes=CLASSES, folder=folder, fresh=True, top=top, **options
        )

    def step(self, call=None, between=lambda h: h, backward=torch.Tensor.backward):
        call = call or (lambda module, x: module(x))
        self.wire.batch(torch.arange(ROWS))
        sent = [between(call(b, x)) for b, x in zip(self.bottoms, self.x, strict=True)]
        backward(cross_entropy(self.top(torch.cat(sent, 1)), self.y))
        return sent

    def recorded(self, kind):
        name = "embedding" if kind == "embeddings" else "gradient"
        found = [m for m in messages_of(self.folder) if m.kind == kind]
        return {(m.round, m.device.index): m.tensors[name][0] for m in found}

    def check(self, weights=None):
        """All gradients are those that arrived, and no check has failed."""
        self.wire.finish()
        gradients = self.recorded("embedding-gradient")
        for m, weight in enumerate(weights or [b.weight for b in self.bottoms]):
            assert torch.allclose(gradients[0, m].T @ self.x[m], weight.grad, atol=1e-6)
        assert head_of(self.folder).failed_checks == ()
        return gradients


def noisy(gradient):
    return gradient + torch.randn_like(gradient)


class NoisedBack(torch.autograd.Function):
    @staticmethod
    def forward(context, h):
        return h.view_as(h)

    @staticmethod
    def backward(context, gradient):
        return noisy(gradient)


def tensor_hook(h):
    h.register_hook(noisy)
    return h


def node_hook(h):
    h.grad_fn.register_prehook(lambda gradients: (noisy(gradients[0]),))
    return h


def several_hooks(h):
    return tensor_hook(node_hook(tensor_hook(h)))


@pytest.mark.parametrize("watch_top", [False, True])
@pytest.mark.parametrize("between", [tensor_hook, node_hook, several_hooks, NoisedBack.apply])
def test_noise_on_the_way_back_is_part_of_the_message(tmp_path, between, watch_top):
    system = System(tmp_path, watch_top=watch_top)
    system.step(between=between)
    system.check()


def module_pre_hook(system):
    for bottom in system.bottoms:
        bottom.register_full_backward_pre_hook(lambda module, gradients: (noisy(gradients[0]),))


def hook_of_top(system):
    system.top.register_full_backward_hook(lambda module, given, gradients: (noisy(given[0]),))


def hook_on_output(system):
    for bottom in system.bottoms:
        bottom.register_forward_hook(lambda module, inputs, output: tensor_hook(output * 1.0))


@pytest.mark.filterwarnings("ignore:Full backward hook is firing:UserWarning")
@pytest.mark.parametrize("watch_top", [False, True])
@pytest.mark.parametrize("install", [module_pre_hook, hook_of_top, hook_on_output])
def test_noise_of_module_hooks_is_part_of_the_message(tmp_path, install, watch_top):
    """They are registered after the parties are watched."""
    system = System(tmp_path, watch_top=watch_top)
    install(system)
    system.step()
    system.check()


def test_a_server_that_computes_on_copies_sends_what_it_hands_back(tmp_path):
    system = System(tmp_path)
    system.wire.batch(torch.arange(ROWS))
    sent = [b(x) for b, x in zip(system.bottoms, system.x, strict=True)]
    copies = [h.detach().requires_grad_() for h in sent]
    cross_entropy(system.top(torch.cat(copies, 1)), system.y).backward()
    handed = [noisy(copy.grad) for copy in copies]
    torch.autograd.backward(sent, handed)
    gradients = system.check()
    assert all(torch.equal(gradients[0, m], value) for m, value in enumerate(handed))


@pytest.mark.parametrize("where", ["a hook before", "a hook after", "in between", "a hook of the top"])
def test_noise_on_embeddings_is_part_of_the_message_if_the_top_is_watched(tmp_path, where):
    bottoms = [nn.Linear(3, 2, bias=False) for _ in range(2)]
    if where == "a hook before":
        for bottom in bottoms:
            bottom.register_forward_hook(lambda module, inputs, output: noisy(output))
    system = System(tmp_path, bottoms=bottoms, watch_top=True)
    if where == "a hook after":
        for bottom in bottoms:
            bottom.register_forward_hook(lambda module, inputs, output: noisy(output))
    if where == "a hook of the top":
        system.top.register_forward_pre_hook(lambda module, given: noisy(given[0]))
    system.step(between=noisy if where == "in between" else (lambda h: h))
    system.check()
    sent = system.recorded("embeddings")
    assert torch.equal(torch.cat([sent[0, 0], sent[0, 1]], 1), system.top.given)


def test_without_the_top_hooks_on_the_outputs_are_seen(tmp_path):
    system = System(tmp_path)
    for bottom in system.bottoms:
        bottom.register_forward_hook(lambda module, inputs, output: noisy(output))
    system.step()
    system.check()
    sent = system.recorded("embeddings")
    assert torch.equal(torch.cat([sent[0, 0], sent[0, 1]], 1), system.top.given)


def test_the_top_may_be_given_outputs_in_another_order_and_features_of_its_own(tmp_path):
    system = System(tmp_path, watch_top=True)
    system.top.head = nn.Linear(7, CLASSES)
    system.wire.batch(torch.arange(ROWS))
    left, right = (b(x) for b, x in zip(system.bottoms, system.x, strict=True))
    cross_entropy(system.top(torch.cat([torch.randn(ROWS, 3), right, left], 1)), system.y).backward()
    system.check()
    sent = system.recorded("embeddings")
    assert torch.equal(sent[0, 0], left)
    assert torch.equal(sent[0, 1], right)


@dataclass
class Output:
    hidden: torch.Tensor
    attention: torch.Tensor


class ModelOutput(OrderedDict):
    """As those of Hugging Face: a dict with attributes."""

    __getattr__ = OrderedDict.__getitem__


FORMS = {
    "dict": (lambda h: {"hidden": h, "mask": torch.ones(len(h))}, "hidden"),
    "tuple": (lambda h: (torch.zeros(len(h), 9), h), 1),
    "data class": (lambda h: Output(h, torch.zeros(2)), "hidden"),
    "model output": (lambda h: ModelOutput(logits=torch.zeros(2), hidden=h), "hidden"),
    "a function": (lambda h: {"deep": [h, None]}, lambda output: output["deep"][0]),
    "the only tensor": (lambda h: {"deep": [h, None]}, None),
}


class Wrapped(nn.Module):
    """A party whose module gives more than what it sends."""

    def __init__(self, form):
        super().__init__()
        self.net, self.form = nn.Linear(3, 2, bias=False), form

    def forward(self, x):
        return self.form(self.net(x))


@pytest.mark.parametrize("name", FORMS)
def test_output_names_the_tensor_that_is_sent(tmp_path, name):
    form, which = FORMS[name]
    bottoms = [Wrapped(form), Wrapped(lambda h: h)]
    system = System(tmp_path, bottoms=bottoms, output=[which, None])

    def call(module, x):
        given = module(x)
        if isinstance(given, torch.Tensor):
            return given
        held = list(given.values())[-1 if name == "model output" else 0] if isinstance(given, dict) else given
        held = held.hidden if isinstance(held, Output) else held
        return held if isinstance(held, torch.Tensor) else held[0 if name in ("a function", "the only tensor") else 1]

    sent = system.step(call)
    system.check([b.net.weight for b in bottoms])
    assert torch.equal(system.recorded("embeddings")[0, 0], sent[0])


def test_an_output_of_several_tensors_is_asked_for(tmp_path):
    system = System(tmp_path, bottoms=[Wrapped(FORMS["dict"][0]), Wrapped(FORMS["dict"][0])])
    with pytest.raises(InputError, match=r"name one of them with watch\(output=…\), of hidden, mask"):
        system.step()
    system = System(tmp_path / "b", bottoms=[Wrapped(FORMS["dict"][0]), Wrapped(FORMS["dict"][0])], output="hiden")
    with pytest.raises(InputError, match="one of hidden, mask"):
        system.step()
    with pytest.raises(InputError, match="2, one for each device"):
        System(tmp_path / "c", output=["a", "b", "c"])


@pytest.mark.parametrize("own", [False, True])
def test_a_part_of_an_output_is_recorded_both_ways(tmp_path, own):
    """A function takes the part, as the first token of a text, and the training takes it by itself."""
    bottoms = [Wrapped(lambda h: {"hidden": h, "mask": torch.ones(len(h))}) for _ in range(2)]
    system = System(tmp_path, bottoms=bottoms, output=lambda output: output["hidden"][:, :1])
    system.wire.batch(torch.arange(ROWS))
    wholes = [bottom(x)["hidden"] for bottom, x in zip(bottoms, system.x, strict=True)]
    sent = [whole[:, :1].clone() for whole in wholes]
    for part in sent:
        part.retain_grad()
    loss = cross_entropy(nn.functional.linear(torch.cat(sent, 1), torch.ones(CLASSES, 2).tril()), system.y)
    (loss + own * sum(whole[:, 1].square().sum() for whole in wholes)).backward()
    system.wire.finish()
    for m, part in enumerate(sent):
        assert torch.equal(system.recorded("embeddings")[0, m], part)
        assert torch.equal(system.recorded("embedding-gradient")[0, m], part.grad)
        weights = bottoms[m].net.weight.grad
        assert torch.allclose(weights[0], part.grad[:, 0] @ system.x[m])
        assert bool(weights[1].any()) == own
    assert sum("by more of its output" in line for line in head_of(tmp_path).remarks) == 2 * own


def test_what_a_function_computes_anew_has_no_gradient_that_could_be_seen(tmp_path):
    bottoms = [Wrapped(lambda h: {"hidden": h, "mask": torch.ones(len(h))}) for _ in range(2)]
    system = System(tmp_path, bottoms=bottoms, output=lambda output: output["hidden"].tanh())
    with pytest.raises(InputError, match="compute all else in the party's module"):
        system.step(lambda module, x: module(x)["hidden"])


def test_gradients_that_never_come_back_are_a_remark(tmp_path):
    system = System(tmp_path)
    system.step(between=torch.Tensor.detach)
    system.wire.finish()
    assert sum("no gradient came back" in line for line in head_of(tmp_path).remarks) == 2


def frozen(module):
    module.requires_grad_(False)


def in_eval(module):
    module.eval()


def frozen_in_eval(module):
    module.requires_grad_(False).eval()


@pytest.mark.parametrize("watch_top", [False, True])
@pytest.mark.parametrize("no_grad", [False, True])
@pytest.mark.parametrize("still", [frozen, in_eval, frozen_in_eval])
def test_a_party_that_learns_nothing_is_recorded_if_it_sends(tmp_path, still, no_grad, watch_top):
    system = System(tmp_path, watch_top=watch_top)
    still(system.bottoms[1])
    for _ in range(3):

        def call(module, x):
            with torch.set_grad_enabled(not (no_grad and module is system.bottoms[1])):
                return module(x)

        sent = system.step(call)
        with torch.no_grad():  # evaluation, which sends nothing in training
            system.top(torch.cat([b(x) for b, x in zip(system.bottoms, system.x, strict=True)], 1))
    system.wire.finish()
    found = system.recorded("embeddings")
    assert sorted(found) == [(t, m) for t in range(3) for m in range(2)]
    assert torch.equal(found[2, 1], sent[1])
    learns = still is in_eval and not no_grad
    assert sorted(system.recorded("embedding-gradient")) == [(t, m) for t in range(3) for m in range(1 + learns)]
    assert head_of(tmp_path).failed_checks == ()


def test_a_look_at_the_batch_before_the_step_is_no_message(tmp_path):
    system = System(tmp_path)
    system.wire.batch(torch.arange(ROWS))
    with torch.no_grad():
        for bottom, x in zip(system.bottoms, system.x, strict=True):
            bottom(x)
    sent = [b(x) for b, x in zip(system.bottoms, system.x, strict=True)]
    cross_entropy(system.top(torch.cat(sent, 1)), system.y).backward()
    system.wire.finish()
    assert len(messages_of(tmp_path)) == 4


def test_two_losses_on_one_batch_are_two_messages_each_way(tmp_path):
    system = System(tmp_path)
    system.wire.batch(torch.arange(ROWS))
    for sign in (1, -1):
        sent = [b(x) for b, x in zip(system.bottoms, system.x, strict=True)]
        (sign * cross_entropy(system.top(torch.cat(sent, 1)), system.y)).backward()
    system.wire.finish()
    assert len(messages_of(tmp_path)) == 8
    assert head_of(tmp_path).failed_checks == ()


@pytest.mark.parametrize("reentrant", [False, True])
def test_a_checkpointed_party_sends_once(tmp_path, reentrant):
    system = System(tmp_path)
    x = system.x.requires_grad_()
    system.step(lambda module, part: checkpoint(module, part, use_reentrant=reentrant), between=tensor_hook)
    system.x = x.detach()
    system.check()
    assert len(messages_of(tmp_path)) == 4


def test_mixed_precision_is_recorded_as_it_is_sent(tmp_path):
    system = System(tmp_path)
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        sent = system.step(backward=lambda loss: scaler.scale(loss).backward())
    system.wire.finish()
    found = system.recorded("embeddings")
    assert all(found[0, m].dtype == torch.bfloat16 and torch.equal(found[0, m], h) for m, h in enumerate(sent))
    gradients = system.recorded("embedding-gradient")
    for m, bottom in enumerate(system.bottoms):
        own = gradients[0, m].float().T @ system.x[m]
        assert torch.allclose(own, bottom.weight.grad, rtol=0.05, atol=0.05)  # sums are rounded to 8 bits
    assert head_of(tmp_path).failed_checks == ()


def test_gradients_that_overflow_are_recorded_as_far_as_they_go(tmp_path):
    """A scaled loss in 16 bits, whose step a scaler leaves out."""
    system = System(tmp_path, bottoms=[nn.Linear(3, 2, bias=False).half() for _ in range(2)])
    system.wire.batch(torch.arange(ROWS))
    sent = [b(x.half()) for b, x in zip(system.bottoms, system.x, strict=True)]
    (cross_entropy(system.top(torch.cat(sent, 1).float()), system.y) * 1e9).backward()
    system.wire.finish()
    largest = max(float(g.abs().max()) for g in system.recorded("embedding-gradient").values())
    assert largest == torch.finfo(torch.float16).max
    assert head_of(tmp_path).remarks == (
        "round 0 is the first with gradients that overflowed 16 bits: recorded are the limits",
    )


class Parallel(nn.Module):
    """A wrapper as for training in several processes."""

    def __init__(self, module):
        super().__init__()
        self.module = module

    def forward(self, *given):
        return self.module(*given)


@pytest.mark.parametrize("outer", [False, True])
def test_modules_in_a_wrapper(tmp_path, outer):
    plain = [nn.Linear(3, 2, bias=False) for _ in range(2)]
    wrapped = [Parallel(module) for module in plain]
    system = System(tmp_path, bottoms=wrapped if outer else plain)
    system.bottoms = wrapped
    system.step(between=tensor_hook)
    system.check([module.weight for module in plain])


@pytest.mark.slow
@pytest.mark.parametrize("watched", ["compiled", "plain"])
def test_compiled_modules(tmp_path, watched):
    torch._dynamo.reset()  # what was compiled before a module had hooks is called without them
    plain = [nn.Sequential(nn.Linear(3, 2, bias=False)) for _ in range(2)]
    compiled = [torch.compile(module, backend="aot_eager") for module in plain]
    system = System(tmp_path, bottoms=compiled if watched == "compiled" else plain)
    system.bottoms = compiled
    system.step(between=tensor_hook)
    system.check([module[0].weight for module in plain])
