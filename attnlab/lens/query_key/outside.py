"""What a model adds to its scores that queries and keys do not hold, said in a sentence.

Where the score is q·k and a bias, two vectors can be near and the bias still keep the query from
attending to the key. A map of queries and keys cannot show that, so it has to be said beside it.
"""

import math

import torch
from torch import Tensor

from attnlab.lens.record import Attention

_SAME = 1e-4  # of the largest bias


def outside_products(record: Attention) -> str | None:
    """None where the scores are scaled products q·k, else a sentence that names what is added."""
    if record.doubt is not None:
        return f"{record.name} may be no attention: {record.doubt}"
    if record.scale is None:
        return (
            f"{record.name} changes its scores by another function after q·k, so equal products "
            "may get different weights."
        )
    bias = record.bias
    if bias is None:
        return None
    mask = torch.ones((), dtype=torch.bool, device=bias.device)
    kind = kind_of_bias(
        bias.detach().expand(record.shape),
        (mask if record.mask is None else record.mask).expand(record.shape),
    )
    return (
        f"{record.name} adds {kind} to its scores. It is not in the queries and keys, so near "
        "points may attend little, and far points much."
    )


def kind_of_bias(bias: Tensor, allowed: Tensor) -> str:
    """The kind of a bias (b, h, n, m) by what it depends on, among the allowed pairs."""
    rounding = max(_SAME, 4 * torch.finfo(bias.dtype).eps)
    bias = bias.float()
    tolerance = rounding * float(bias.masked_fill(~allowed, 0).abs().max())
    step, pairs = bias.diff(dim=-1), allowed[..., 1:] & allowed[..., :-1]
    low, high = _range(step, pairs & _before(step))
    if bool(((low > 0) & (high - low <= tolerance)).all()):
        return "a bias that falls evenly with distance (ALiBi)"
    along = bias[..., 1:, 1:] - bias[..., :-1, :-1]
    low, high = _range(along, allowed[..., 1:, 1:] & allowed[..., :-1, :-1])
    if bool(((low >= -tolerance) & (high <= tolerance)).all()):
        return "a bias that depends on distance alone (as that of T5)"
    return "a bias"


def _range(values: Tensor, among: Tensor) -> tuple[Tensor, Tensor]:
    """(h,), (h,): the smallest and the largest of each head; NaN where there are none."""
    by_head, known = values.transpose(0, 1).flatten(1), among.transpose(0, 1).flatten(1)
    low = by_head.masked_fill(~known, math.inf).amin(dim=1)
    high = by_head.masked_fill(~known, -math.inf).amax(dim=1)
    none = ~known.any(dim=1)
    return low.masked_fill(none, math.nan), high.masked_fill(none, math.nan)


def _before(step: Tensor) -> Tensor:
    """(n, m - 1): the steps between two keys neither of which comes after the query."""
    n, m = step.shape[-2], step.shape[-1] + 1
    i = torch.arange(m - n, m, device=step.device)[:, None]
    return torch.arange(1, m, device=step.device) <= i
