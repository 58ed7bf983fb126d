r"""α-entmax with a backward pass of its own, which needs the weights alone.

The threshold c of a row solves $P(c) = \sum_i \exp_\alpha(z_i - c) = 1$. For α ≤ 2 the function
$P^{\alpha - 1}$ is convex (it is a norm of the positive parts), and for equal scores it is linear:
from the left Newton's method converges to the root without ever passing it, in some six steps. For
α > 2 it may not be, and each step is one of bisection.

With the slopes $s_i = p_i^{2 - \alpha}$ on the support (0 elsewhere), $\bar g = \sum_i s_i g_i /
\sum_i s_i$ for the gradient g that arrives, and $\ell_i = \log p_i$,

$$\frac{\partial}{\partial z_i} = s_i (g_i - \bar g),\qquad
\frac{\partial}{\partial \alpha} = \sum_i p_i r_i (g_i - \bar g),\qquad
r_i = \frac{1 - e^{-(\alpha - 1) \ell_i} - (\alpha - 1) \ell_i}{(\alpha - 1)^2}$$

and for α → 1 the r_i tend to $-\ell_i^2 / 2$ (Correia et al. 2019, proposition 1).

Rows are computed some at a time, so that on a CPU all steps of a row find it in the cache, and no
second tensor of the size of the scores is made.
"""

from typing import Any

import torch
from torch import Tensor

from attnlab.core.derivatives import forbid_double_backward
from attnlab.core.tracing import is_abstract, on_cpu
from attnlab.mechanisms.learned.entmax.definition import bisected, excess, shifted, slopes_of

PIECE = 1 << 17  # scores that are computed at once on a CPU
STEPS = 24  # of Newton's method, at most: random rows take six, the hardest of the tests fewer
ENTMAX15, SPARSEMAX = 0.5, 1.0  # α - 1 of the two whose powers are cheap
SMALL = 0.05  # where the series is exact to eleven digits


def entmax(scores: Tensor, alpha: float | Tensor, mask: Tensor | None = None) -> Tensor:
    """The weights of each row of ``scores`` (…, m) for an α that fits (…, 1); first derivatives.

    ``mask`` is True where a key is allowed; a row without any gives zeros.
    """
    if isinstance(alpha, Tensor):
        return _Entmax.apply(scores, alpha.expand(*scores.shape[:-1], 1), mask)
    return _Entmax.apply(scores, alpha, mask)


class _Entmax(torch.autograd.Function):
    @staticmethod
    def forward(scores: Tensor, alpha: float | Tensor, mask: Tensor | None) -> Tensor:
        z = shifted(scores, mask).reshape(-1, scores.shape[-1])
        t = excess(alpha, z)
        for rows in _pieces(z):
            z[rows] = _solved(z[rows], _of_rows(t, rows))
        return z.reshape(scores.shape)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.alpha = inputs[1] if isinstance(inputs[1], float | int) else None
        ctx.save_for_backward(output, None if ctx.alpha is not None else inputs[1])

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor | None, None]:
        forbid_double_backward("α-entmax in its implicit form")
        weights, alpha = ctx.saved_tensors
        p = weights.reshape(-1, weights.shape[-1])
        t = excess(ctx.alpha if alpha is None else alpha, p)
        g, of_alpha = grad.reshape(p.shape), []
        of_scores = torch.empty_like(p)
        for rows in _pieces(p):
            slopes = _slopes(p[rows], _of_rows(t, rows))
            total = slopes.sum(-1, keepdim=True)
            mean = (slopes * g[rows]).sum(-1, keepdim=True) / (total + (total == 0))
            centred = g[rows] - mean
            torch.mul(slopes, centred, out=of_scores[rows])
            if ctx.needs_input_grad[1]:
                rates = _rates(p[rows], slopes, _of_rows(t, rows))
                of_alpha.append((rates * centred).sum(-1))
        by_alpha = torch.cat(of_alpha).reshape(alpha.shape).to(alpha.dtype) if of_alpha else None
        return of_scores.reshape(grad.shape), by_alpha, None


def _pieces(z: Tensor) -> list[slice]:
    rows = max(1, PIECE // z.shape[-1]) if on_cpu(z) else max(1, len(z))
    return [slice(start, start + rows) for start in range(0, len(z), rows)]


def _of_rows(t: float | Tensor, rows: slice) -> float | Tensor:
    return t.reshape(-1, 1)[rows] if isinstance(t, Tensor) else t


def _solved(z: Tensor, t: float | Tensor) -> Tensor:
    """The weights of some rows of shifted scores."""
    p, _ = _powers(z - (_newton(z, t) if _convex(t) else bisected(z, t)), t)
    sums = p.sum(-1, keepdim=True)
    return p.div_(sums + (sums == 0))


def _convex(t: float | Tensor) -> bool:
    if isinstance(t, Tensor):
        return not is_abstract(t) and bool((t <= 1).all())
    return t <= 1


def _newton(z: Tensor, t: float | Tensor) -> Tensor:
    c, precision = torch.zeros_like(z[:, :1]), 16 * torch.finfo(z.dtype).eps
    moves = torch.ones_like(c, dtype=torch.bool)  # each row ends by itself, whatever others need
    for _ in range(STEPS):
        p, slopes = (each.sum(-1, keepdim=True) for each in _powers(z - c, t))
        p, slopes = p + (p == 0), slopes + (slopes == 0)  # a row without keys stays where it is
        step = -p * torch.expm1(-t * p.log()) / (t * slopes)
        c = c + step.where(moves, 0)
        moves = moves & (step.abs() > precision)
        if not is_abstract(z) and not bool(moves.any()):
            break
    return c


def _powers(x: Tensor, t: float | Tensor) -> tuple[Tensor, Tensor]:
    r"""$p = [1 + t x]_+^{1/t}$ and its derivative, $p / [1 + t x]_+$; x is overwritten."""
    y = x.mul_(t).clamp_(min=-1)
    fixed = None if isinstance(t, Tensor) else t
    if fixed == SPARSEMAX:
        return y + 1, (y > -1).to(y.dtype)
    if fixed == ENTMAX15:
        u = y.add_(1)
        return u.square(), u
    p = torch.log1p(y).div_(t).exp_()
    u = y.add_(1)
    return p, p / (u + (u == 0))


def _slopes(p: Tensor, t: float | Tensor) -> Tensor:
    fixed = None if isinstance(t, Tensor) else t
    if fixed == SPARSEMAX:
        return (p > 0).to(p.dtype)
    return p.sqrt() if fixed == ENTMAX15 else slopes_of(p, t)


def _rates(p: Tensor, slopes: Tensor, t: float | Tensor) -> Tensor:
    """p r of the derivative by α; by a series where t log p is small."""
    log = p.where(p > 0, 1).log()
    x = -t * log
    series = 1 / 2 + x * (1 / 6 + x * (1 / 24 + x * (1 / 120 + x * (1 / 720 + x / 5040))))
    return -torch.where(x < SMALL, p * log**2 * series, (slopes - p * (1 + x)) / t**2)
