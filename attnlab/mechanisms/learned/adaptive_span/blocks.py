"""Some blocks of queries at a time, with the keys within the longest span."""

import torch
from torch import Tensor

from attnlab.mechanisms.learned.adaptive_span.spans import AdaptiveSpanOptions


def powers(scores: Tensor) -> Tensor:
    """e^s in units of the largest of a row; zeros where all s are −∞."""
    largest = scores.detach().amax(-1, keepdim=True)
    return torch.exp(scores - largest.masked_fill(largest == -torch.inf, 0))


def some_blocks(
    q: Tensor, k: Tensor, v: Tensor, span: Tensor, real: Tensor, *,
    c: int, options: AdaptiveSpanOptions,
) -> Tensor:  # fmt: skip
    """Some blocks of c queries; the last column of v is 1, for the sum of weights."""
    reach = k.shape[-2] - q.shape[-2]
    queries = q.unflatten(-2, (-1, c))
    keys, values, seen = (x.unfold(-2, c + reach, c).mT for x in (k, v, real))
    distances = torch.arange(c, device=q.device)[:, None] + reach
    distances = distances - torch.arange(c + reach, device=q.device)
    mask = options.mask(distances, span.unflatten(-2, (-1, c if span.shape[-2] > 1 else 1)))
    scores = (queries @ keys.mT).masked_fill(mask <= 0, -torch.inf)
    scores = scores.masked_fill(~seen.mT, -torch.inf)  # nor any key before the first
    sums = (mask * powers(scores)) @ values
    total = sums[..., -1:]
    return (sums[..., :-1] / (total + (total == 0))).flatten(2, 3)
