"""Norms of the blocks of a Jacobian: how strongly each output position answers to each input one.

The Jacobian of n positions of width dim has (n · dim)² entries. Two things make its blocks cheap.
Output rows that depend on disjoint sets of input rows share one backward pass (Curtis, Powell and
Reid, On the Estimation of Sparse Jacobian Matrices, 1974): of a tree, all nodes of one height. And
all channels of a row are one batch of backward passes.
"""

import warnings
from collections.abc import Callable

import torch
from torch import Tensor

AT_ONCE = 128  # backward passes


@torch.enable_grad()
def block_norms(
    run: Callable[[Tensor], Tensor], x: Tensor, directions: int | None = None
) -> Tensor:
    """(b, n, m): the Frobenius norm of ∂y_i/∂x_j for y = run(x), (b, n, e) of (b, m, dim).

    Rows of the batch must be independent. With fewer ``directions`` than e, the norms are estimated
    from so many random ones, orthogonal to each other, of the outputs.
    """
    x = x.detach().requires_grad_()
    y = run(x)
    if not y.requires_grad:
        raise ValueError("the output does not depend on the input in a differentiable way")
    depends = _dependence(y, x)
    basis = _basis(y.shape[-1], directions).to(y)
    groups = _disjoint(depends.any(0))
    squares = torch.zeros_like(depends, dtype=x.dtype)
    for rows, total in zip(groups, _squares(groups, basis, y, x), strict=True):
        squares[:, rows] = total[:, None] * depends[:, rows]
    return squares.sqrt()


def _basis(e: int, directions: int | None) -> Tensor:
    """(directions, e): all channels one by one, or fewer directions, longer in proportion."""
    if directions is None or directions >= e:
        return torch.eye(e, dtype=torch.float64)
    generator = torch.Generator().manual_seed(0)
    drawn = torch.randn(e, directions, generator=generator, dtype=torch.float64)
    return torch.linalg.qr(drawn).Q.mT * (e / directions) ** 0.5


def _dependence(y: Tensor, x: Tensor) -> Tensor:
    """(b, n, m) bool: where output rows depend on input rows, by one random direction each."""
    generator = torch.Generator().manual_seed(0)
    direction = torch.rand(1, y.shape[-1], generator=generator, dtype=torch.float64).to(y) + 0.5
    each = [[row] for row in range(y.shape[1])]
    return _squares(each, direction, y, x).transpose(0, 1) > 0


def _disjoint(depends: Tensor) -> list[list[int]]:
    """Rows in groups, of each of which no two depend on the same column."""
    groups: list[list[int]] = []
    taken: list[Tensor] = []
    for row, own in enumerate(depends.cpu()):
        fits = (at for at, columns in enumerate(taken) if not bool((columns & own).any()))
        at = next(fits, len(groups))
        if at == len(groups):
            groups.append([])
            taken.append(torch.zeros_like(own))
        groups[at].append(row)
        taken[at] |= own
    return groups


def _squares(groups: list[list[int]], basis: Tensor, y: Tensor, x: Tensor) -> Tensor:
    """(groups, b, m): for each group of output rows, the sum over the directions of ``basis`` of
    the squared gradients at each input row."""
    total = x.new_zeros(len(groups), *x.shape[:2])
    count = len(basis)
    for part in torch.arange(len(groups) * count, device=y.device).split(AT_ONCE):
        arriving = y.new_zeros(len(part), *y.shape)
        for at, number in enumerate(part.tolist()):
            arriving[at, :, groups[number // count]] = basis[number % count]
        found = _backward(y, x, arriving)
        total.index_add_(0, part // count, found.square().sum(-1))
    return total


def _backward(y: Tensor, x: Tensor, arriving: Tensor) -> Tensor:
    """One gradient for each of the gradients that arrive at y: together where PyTorch can."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # operations that cannot be batched warn, and are slow
        try:
            (found,) = torch.autograd.grad(y, x, arriving, retain_graph=True, is_grads_batched=True)
        except (RuntimeError, UserWarning):
            found = torch.stack(
                [torch.autograd.grad(y, x, one, retain_graph=True)[0] for one in arriving]
            )
    return found.detach()
