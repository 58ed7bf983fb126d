"""Bounds whose gradient leads back within them."""

import torch

from attnlab.core.derivatives import within


def test_the_gradient_passes_unless_it_leads_outside() -> None:
    x = torch.tensor([-0.1, -0.1, 0.5, 0.5, 1.2, 1.2], requires_grad=True)
    arriving = torch.tensor([1.0, -1.0, 1.0, -1.0, 1.0, -1.0])
    (grad,) = torch.autograd.grad(within(x, 0, 1), x, arriving)
    assert grad.tolist() == [0, -1, 1, -1, 1, 0]
    assert within(x, 0, 1).tolist() == [0, 0, 0.5, 0.5, 1, 1]


def test_a_side_without_a_bound() -> None:
    x = torch.tensor([-3.0, 5.0], requires_grad=True)
    (grad,) = torch.autograd.grad(within(x, -1, float("inf")).sum(), x)
    assert grad.tolist() == [0, 1]
