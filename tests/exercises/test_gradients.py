"""Lesson 01's check of attention and its gradients."""

import torch
from torch import Tensor

from attnlab.exercises import check_backward
from tests.exercises.frame import answers_to

Parts = tuple[Tensor, ...]


def by_autograd(q: Tensor, k: Tensor, v: Tensor, grad: Tensor) -> Parts:
    given = [x.clone().requires_grad_() for x in (q, k, v)]
    out = torch.nn.functional.scaled_dot_product_attention(*(x[None] for x in given))[0]
    return (out.detach(), *torch.autograd.grad(out, given, grad))


def by_jacobian(q: Tensor, k: Tensor, v: Tensor, grad: Tensor) -> Parts:
    """Row by row, with the whole Jacobian diag(w) − w wᵀ."""
    d = q.shape[-1]
    w = (q @ k.T / d**0.5).softmax(-1)
    dw = grad @ v.T
    ds = torch.stack(
        [(row.diag() - torch.outer(row, row)) @ g for row, g in zip(w, dw, strict=True)]
    )
    return w @ v, ds @ k / d**0.5, ds.T @ q / d**0.5, w.T @ grad


RIGHT = [(check_backward, by_autograd), (check_backward, by_jacobian)]
WRONG = {
    "three": ("gave 3 values", lambda *given: by_autograd(*given)[:3]),
}

TestAnswers = answers_to(RIGHT, [(check_backward, WRONG)])
