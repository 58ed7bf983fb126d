r"""α-entmax by its definition: a threshold for each row, which sorting or bisection finds.

The threshold is written as a number $c$ that is subtracted from the scores, as the logarithm of the
sum is in a softmax: with $\exp_\alpha(x) = [1 + (\alpha - 1)\, x]_+^{1/(\alpha - 1)}$, which tends
to $e^x$ for $\alpha \to 1$,

$$p_i = \exp_\alpha(z_i - \max_j z_j - c),\qquad \sum_i p_i = 1$$

The papers' threshold is $\tau = (\alpha - 1)(\max_j z_j + c) - 1$.
"""

import math

import torch
from torch import Tensor

STEEPEST = 1e12
"""The largest slope of a weight: for α > 2 it is infinite at the border of the support."""


def shifted(scores: Tensor, mask: Tensor | None) -> Tensor:
    """Scores minus the largest allowed one of their row; -∞ where the mask forbids."""
    z = scores if mask is None else scores.masked_fill(~mask, -torch.inf)
    largest = z.detach().amax(-1, keepdim=True)
    return z - largest.masked_fill(largest == -torch.inf, 0)


def excess(alpha: float | Tensor, like: Tensor) -> float | Tensor:
    """α - 1, at least the precision of the numbers: at that distance from 1 it is a softmax."""
    least = torch.finfo(like.dtype).eps
    if isinstance(alpha, Tensor):
        return (alpha.to(like.dtype) - 1).clamp_min(least)
    return max(alpha - 1, least)


def exponential(x: Tensor, t: float | Tensor) -> Tensor:
    r"""$[1 + t x]_+^{1/t}$, by a logarithm that is exact for small t = α - 1."""
    inside = t * x > -1
    return torch.where(inside, torch.exp(torch.log1p(t * x.where(inside, 0)) / t), 0)


def largest_shift(t: float | Tensor, m: int) -> float | Tensor:
    """The c of m equal scores; all others need less."""
    if isinstance(t, Tensor):
        return -torch.expm1(-t * math.log(m)) / t
    return -math.expm1(-t * math.log(m)) / t


def bisected(z: Tensor, t: float | Tensor) -> Tensor:
    """c (…, 1) of each row by bisection, as near as the precision allows, from below."""
    low = torch.zeros_like(z[..., :1])
    high = low + largest_shift(t, z.shape[-1])
    for _ in range(6 - round(math.log2(torch.finfo(z.dtype).eps))):
        middle = (low + high) / 2
        enough = exponential(z - middle, t).sum(-1, keepdim=True) >= 1
        low, high = middle.where(enough, low), high.where(enough, middle)
    return low


def by_bisection(z: Tensor, alpha: float | Tensor) -> Tensor:
    """The weights of shifted scores, for any α ≥ 1.

    Bisection has no derivative. At a root the derivative of a step of Newton's method is that of c
    (implicit function theorem), so such a step is added, without its value. Last, the weights are
    divided by their sum, so that they sum to one exactly.
    """
    t = excess(alpha, z)
    with torch.no_grad():
        c = bisected(z, t)
        slopes = slopes_of(exponential(z - c, t), t).sum(-1, keepdim=True)
    sums = exponential(z - c, t).sum(-1, keepdim=True)
    step = torch.where(slopes > 0, (sums - 1) / slopes, 0)
    p = exponential(z - (c + step - step.detach()), t)
    sums = p.sum(-1, keepdim=True)
    return p / (sums + (sums == 0))


def slopes_of(p: Tensor, t: float | Tensor) -> Tensor:
    """The derivative of the weights by their scores: p^{1 - t} on the support."""
    return torch.where(p > 0, p.where(p > 0, 1) ** (1 - t), 0).clamp(max=STEEPEST)


def by_sorting(z: Tensor, alpha: float) -> Tensor:
    r"""The weights of shifted scores for α = 2 (sparsemax) and 1.5, in closed form.

    The k largest of $x = (\alpha - 1) z$ would have the threshold (for α = 2, for 1.5)

    $$\tau_k = \frac{\sum x - 1}{k},\qquad \tau_k = \bar x - \sqrt{\frac{1 - \sum (x - \bar x)^2}
    {k}}$$

    and the support is the largest k whose smallest x exceeds it.
    """
    threshold = {2: _threshold_of_sparsemax, 1.5: _threshold_of_entmax15}[alpha]
    x = (alpha - 1) * z.clamp_min(-2 / (alpha - 1))  # below -1 nothing is in the support
    with torch.no_grad():
        ordered = x.sort(-1, descending=True).values
        k = torch.arange(1, x.shape[-1] + 1, device=x.device)
        tau = threshold(ordered.cumsum(-1), ordered.square().cumsum(-1), k)
        size = (ordered > tau).sum(-1, keepdim=True)
        support = x >= ordered.gather(-1, size - 1)
    inside = x.where(support, 0)
    sums = inside.sum(-1, keepdim=True), inside.square().sum(-1, keepdim=True)
    p = (x - threshold(*sums, support.sum(-1, keepdim=True))).clamp_min(0) ** (1 / (alpha - 1))
    return p.where(z > -torch.inf, 0)


def _threshold_of_sparsemax(total: Tensor, _: Tensor, k: Tensor) -> Tensor:
    return (total - 1) / k


def _threshold_of_entmax15(total: Tensor, squares: Tensor, k: Tensor) -> Tensor:
    spread = squares - total**2 / k
    return total / k - ((1 - spread) / k).clamp_min(0).sqrt()
