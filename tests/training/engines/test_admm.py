"""The server's ADMM steps against scipy record by record, and against what Lemma 1 says of them."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.optimize import minimize
from scipy.special import log_softmax, softmax

from vflpriv.training.engines.admm import auxiliary_and_duals, newton_steps, pull, residuals

CLASSES = 10


def problem(scale, records=24, classes=CLASSES, seed=0):
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(classes, (2, records), generator=generator)
    outputs = scale * torch.randn(2, records, classes, generator=generator)
    guesses = torch.softmax(3 * torch.randn(2, records, classes, generator=generator), -1)
    return outputs, labels, guesses - torch.nn.functional.one_hot(labels, classes)


def by_scipy(outputs, label, dual, penalty):
    """vimadmm.txt eq. (5), as its authors solve it: L-BFGS-B, one record at a time."""

    def objective(z):
        gap = z - outputs
        slope = softmax(z) - np.eye(len(z))[label] - dual + penalty * gap
        return -log_softmax(z)[label] - dual @ z + penalty / 2 * gap @ gap, slope

    options = {"ftol": 1e-16, "gtol": 1e-10, "maxiter": 1000}
    return minimize(objective, outputs, jac=True, method="L-BFGS-B", options=options).x


@pytest.mark.parametrize("scale", [0.1, 3.0])
@pytest.mark.parametrize("penalty", [0.1, 0.5, 1.0, 2.0])
def test_z_is_what_l_bfgs_b_finds_for_every_record(penalty, scale):
    outputs, labels, duals = (t.double() if t.is_floating_point() else t for t in problem(scale))
    z, _ = auxiliary_and_duals(outputs, labels, duals, penalty=penalty)
    for r in range(2):
        for j in range(labels.shape[1]):
            expected = by_scipy(outputs[r, j].numpy(), int(labels[r, j]), duals[r, j].numpy(), penalty)
            np.testing.assert_allclose(z[r, j].numpy(), expected, atol=1e-6)


@pytest.mark.parametrize("penalty", [0.01, 0.05, 0.5, 1.0, 2.0, 100.0])
def test_lemma_1_the_dual_is_the_gradient_of_the_loss_at_z(penalty):
    outputs, labels, duals = problem(5.0, records=500)
    z, new = auxiliary_and_duals(outputs, labels, duals, penalty=penalty)
    assert z.dtype == new.dtype == torch.float32
    expected = torch.softmax(z.double(), -1) - torch.nn.functional.one_hot(labels, CLASSES)
    torch.testing.assert_close(new.double(), expected, atol=2e-6 * max(1.0, float(z.abs().max()) / 10), rtol=0)
    assert torch.equal(new.argmin(-1), labels), "the one negative entry is the label"


@given(
    centre=arrays("float64", (4, 3), elements=st.floats(-1e4, 1e4)),
    duals=arrays("float64", (4, 3), elements=st.floats(-50, 50)),
    penalty=st.floats(0.01, 100),
)
def test_z_is_stationary_from_any_start(centre, duals, penalty):
    labels = torch.tensor([0, 1, 2, 0])
    outputs, old = torch.from_numpy(centre), torch.from_numpy(duals)
    z, new = auxiliary_and_duals(outputs, labels, old, penalty=penalty)
    gradient = torch.softmax(z, -1) - torch.nn.functional.one_hot(labels, 3) - new
    # What float64 leaves of a difference of numbers of this size.
    assert float(gradient.abs().max()) < 1e-9 + 1e-13 * penalty * float(z.abs().max())


def test_fewer_steps_than_promised_would_not_do(monkeypatch):
    """The count is not idle: half of it leaves some record away from its minimum."""
    outputs, labels, duals = (t.double() if t.is_floating_point() else t for t in problem(3.0, records=500))
    exact, _ = auxiliary_and_duals(outputs, labels, duals, penalty=0.01)
    monkeypatch.setattr("vflpriv.training.engines.admm.newton_steps", lambda penalty: 19)
    early, _ = auxiliary_and_duals(outputs, labels, duals, penalty=0.01)
    assert float((exact - early).abs().max()) > 1e-6
    assert (newton_steps(1.0), newton_steps(0.1), newton_steps(0.01)) == (9, 11, 38)


def test_the_dual_step_is_equation_6():
    outputs, labels, duals = problem(2.0)
    z, new = auxiliary_and_duals(outputs, labels, duals, penalty=0.7)
    torch.testing.assert_close(new, duals + 0.7 * (outputs - z), atol=1e-5, rtol=1e-5)


def test_residuals_leave_out_the_devices_own_output():
    outputs, z = torch.randn(4, 2, 5, 3), torch.randn(2, 5, 3)
    found = residuals(outputs, z)
    for k in range(4):
        torch.testing.assert_close(found[k], z - sum(outputs[i] for i in range(4) if i != k))


def test_the_pull_is_the_gradient_of_the_devices_objective():
    outputs, duals, residual = torch.randn(3, 6, 4, requires_grad=True), torch.randn(3, 6, 4), torch.randn(3, 6, 4)
    objective = (duals * outputs).sum() + 0.5 / 2 * (residual - outputs).square().sum()
    (expected,) = torch.autograd.grad(objective, outputs)
    torch.testing.assert_close(pull(outputs.detach(), duals, residual, penalty=0.5), expected)


def test_nothing_waits_for_the_host():
    outputs, labels, duals = (t.to("meta") for t in problem(1.0))
    z, new = auxiliary_and_duals(outputs, labels, duals, penalty=1.0)
    assert z.shape == new.shape == outputs.shape
