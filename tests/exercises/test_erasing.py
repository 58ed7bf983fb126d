"""Lesson 27's checks: a write that erases, parity, a swap, a gated delta rule."""

import torch

from attnlab.core.chunks import advance
from attnlab.exercises import check_gated_delta, check_overwrite, check_signs, check_swap
from attnlab.mechanisms.recurrence.deltanet import DeltaNetOptions, naive
from tests.exercises.frame import answers_to


def overwrite(S, k, v, b):
    """A step of gradient descent on the squared error of what the key reads."""
    k = k / k.norm()
    S = S.detach().clone().requires_grad_()
    loss = (k @ S - v).square().sum() / 2
    (gradient,) = torch.autograd.grad(loss, S)
    return (S - b * gradient).detach()


def signs(bits):
    """By counting."""
    return torch.tensor([(-1.0) ** sum(bits[: n + 1].tolist()) for n in range(len(bits))]).to(bits)


def swap(S, i, j):
    """By indexing."""
    rows = list(range(len(S)))
    rows[i], rows[j] = j, i
    return S[rows]


def gated_delta(q, k, v, a, b):
    """By the chunks of the library."""
    each = {"log_decay": a.log()[None, None, :, None], "erase": b[None, None, :, None]}
    start = q.new_zeros(1, 1, k.shape[1], v.shape[1])
    return advance(*(x[None, None] for x in (q, k, v)), start, 3, **each)[0][0, 0]


TestAnswers = answers_to(
    [
        (check_overwrite, overwrite),
        (check_signs, signs),
        (check_swap, swap),
        (check_gated_delta, gated_delta),
    ]
)


def test_the_write_is_that_of_the_page() -> None:
    """From an empty state: the page divides queries by √d, and takes the logit of the step."""
    k, v, b = torch.randn(1, 1, 1, 5).double(), torch.randn(1, 1, 1, 3).double(), torch.tensor(0.7)
    found = naive(k, k, v, b.logit().double().view(1, 1, 1), options=DeltaNetOptions())
    mine = check_overwrite.right(torch.zeros(5, 3).double(), k[0, 0, 0], v[0, 0, 0], 0.7)
    read = k[0, 0, 0] / k.norm() @ mine
    torch.testing.assert_close(found[0, 0, 0], read * 5**-0.5, rtol=1e-5, atol=1e-5)
