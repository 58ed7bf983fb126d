"""Lesson 01's check of attention and its gradients."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from attnlab.exercises import check_backward

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


def made(
    step: Callable[[Tensor, Tensor], Tensor] | None = None, *,
    scale: Callable[[int], float] = lambda d: d**-0.5,
    query: float = 1, key: float = 1, value: Callable[..., Tensor] | None = None,
) -> Callable[..., Parts]:  # fmt: skip
    def backward(q: Tensor, k: Tensor, v: Tensor, grad: Tensor) -> Parts:
        d = q.shape[-1]
        w = (q @ k.T * scale(d)).softmax(-1)
        dw = grad @ v.T
        ds = w * (dw - (w * dw).sum(-1, keepdim=True)) if step is None else step(w, dw)
        dv = w.T @ grad if value is None else value(w, ds, grad, v)
        return w @ v, ds @ k * d ** (-query / 2), ds.T @ q * d ** (-key / 2), dv

    return backward


WRONG = {
    "no softmax": ("The softmax has no derivative", made(lambda w, dw: dw)),
    "no row": ("That is w · dw", made(lambda w, dw: w * dw)),
    "diagonal": ("by its own score only", made(lambda w, dw: w * (1 - w) * dw)),
    "axis": ("runs over the queries", made(lambda w, dw: w * (dw - (w * dw).sum(-2, True)))),
    "mean": ("the mean weighted by w", made(lambda w, dw: w * (dw - dw.mean(-1, True)))),
    "sum": ("without the weights", made(lambda w, dw: w * (dw - dw.sum(-1, True)))),
    "unscaled": ("scores are not scaled", made(scale=lambda d: 1.0)),
    "by d": ("divide them by √d", made(scale=lambda d: 1 / d)),
    "queries": ("1/√d is missing in this gradient", made(query=0)),
    "queries twice": ("1/√d stands twice", made(query=2)),
    "values": ("A value enters the output", made(value=lambda w, ds, g, v: ds.T @ g)),
    "shares": (
        "Every query has the same share",
        made(value=lambda w, ds, g, v: g.mean(0).expand_as(v)),
    ),
    "three": ("gave 3 values", lambda *given: by_autograd(*given)[:3]),
    "one": ("gave one tensor", lambda q, k, v, grad: q),
    "transpose": ("raised RuntimeError", lambda q, k, v, grad: (q @ k).softmax(-1)),
    "not yet": ("`return`", lambda *given: None),
}


@pytest.mark.parametrize("solution", [by_autograd, by_jacobian, made()])
def test_written_differently_is_right(solution: Callable[..., Parts]) -> None:
    verdict = check_backward(solution)
    assert verdict.right, verdict.message


@pytest.mark.parametrize(("words", "solution"), WRONG.values(), ids=WRONG)
def test_mistakes_by_name(words: str, solution: Callable, refuses: Callable) -> None:
    refuses(check_backward(solution), words)


@pytest.mark.parametrize(("power", "words"), [(0, "is missing"), (2, "stands twice")])
def test_the_keys_alone(power: int, words: str, refuses: Callable) -> None:
    refuses(check_backward(made(key=power)), words)


def test_messages_differ(tells_apart: Callable) -> None:
    tells_apart(check_backward, WRONG)


def test_arguments_stay(refuses: Callable) -> None:
    def in_place(q: Tensor, k: Tensor, v: Tensor, grad: Tensor) -> Parts:
        found = by_autograd(q, k, v, grad)
        grad.zero_()
        return found

    refuses(check_backward(in_place), "`grad` changed in place")
