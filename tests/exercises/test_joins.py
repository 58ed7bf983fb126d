"""The checks of lesson 07 name each mistake, and accept every way of writing the right answer."""

import torch
from torch import Tensor
from torch.nn import functional as F

from attnlab.exercises import check_deep_norm, check_drop_path, check_gradients_by_depth
from tests.exercises.frame import answers_to


def by_layer_norm(x: Tensor, added: Tensor, alpha: float) -> Tensor:
    return F.layer_norm(alpha * x + added, x.shape[-1:], eps=0)


def by_moments(x: Tensor, added: Tensor, alpha: float) -> Tensor:
    total = x + added / alpha
    centred = total - total.mean(-1, keepdim=True)
    return centred / centred.square().mean(-1, keepdim=True).sqrt()


TestDeepNorm = answers_to([(check_deep_norm, solution) for solution in [by_layer_norm, by_moments]])


def by_rows(x: Tensor, added: Tensor, kept: Tensor, p: float) -> Tensor:
    rows = [one + more / (1 - p) if k else one for one, more, k in zip(x, added, kept, strict=True)]
    return torch.stack(rows)


def by_where(x: Tensor, added: Tensor, kept: Tensor, p: float) -> Tensor:
    return torch.where(kept[:, None, None], x + added / (1 - p), x)


TestDropPath = answers_to([(check_drop_path, solution) for solution in [by_rows, by_where]])


def by_hand(x: Tensor, matrices: Tensor, alpha: float, g: Tensor) -> Tensor:
    """The chain rule: of the norm, and of the sum."""
    kept = []
    for matrix in matrices:
        total = alpha * x + x @ matrix.mT
        spread = total.std(-1, keepdim=True, correction=0)
        x = (total - total.mean(-1, keepdim=True)) / spread
        kept.append((x, spread, matrix))
    norms = []
    for x, spread, matrix in reversed(kept):
        norms.append(g.norm())
        g = (g - g.mean(-1, keepdim=True) - x * (g * x).mean(-1, keepdim=True)) / spread
        g = alpha * g + g @ matrix
    return torch.stack(norms[::-1]) / norms[0]


def by_hooks(x: Tensor, matrices: Tensor, alpha: float, g: Tensor) -> Tensor:
    x, streams = x.clone().requires_grad_(), []
    for matrix in matrices:
        x = F.layer_norm(alpha * x + F.linear(x, matrix), x.shape[-1:], eps=0)
        x.retain_grad()
        streams.append(x)
    x.backward(g)
    norms = torch.stack([stream.grad.norm() for stream in streams])
    return norms / norms[-1]


TestGradients = answers_to(
    [(check_gradients_by_depth, solution) for solution in [by_hand, by_hooks]]
)
