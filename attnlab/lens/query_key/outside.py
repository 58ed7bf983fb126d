"""What a model adds to its scores that queries and keys do not hold, said in a sentence.

Where the score is q·k and a bias, two vectors can be near and the bias still keep the query from
attending to the key. A map of queries and keys cannot show that, so it has to be said beside it.
"""

import torch
from torch import Tensor

from attnlab.lens.record import Attention

_SAME = 1e-4  # of the largest bias


def outside_products(record: Attention) -> str | None:
    """None where the scores are scaled products q·k, else a sentence that names what is added."""
    if record.scale is None:
        return (
            f"{record.name} changes its scores by another function after q·k, so equal products "
            "may get different weights."
        )
    bias = record.bias
    if bias is None:
        return None
    return (
        f"{record.name} adds {_named(bias)} to its scores. It is not in the queries and keys, so "
        "near points may attend little, and far points much."
    )


def _named(bias: Tensor) -> str:
    """The kind of a bias (b, h, n, m), by what it depends on."""
    rows = bias.detach().float().expand(*bias.shape[:2], *bias.shape[2:])
    tolerance = _SAME * float(rows.abs().max())
    if rows.shape[-1] < 3 or rows.shape[-2] < 3:
        return "a bias"
    steps = _steps_before(rows)
    if bool((steps - steps[..., :1]).abs().nan_to_num().le(tolerance).all()):
        return "a bias that falls evenly with distance (ALiBi)"
    along = rows[..., 1:, 1:] - rows[..., :-1, :-1]
    before = torch.ones(along.shape[-2:], dtype=torch.bool, device=along.device).tril()
    if bool(along.masked_fill(~before, 0).abs().le(tolerance).all()):
        return "a learned bias for each distance (as T5 does)"
    return "a bias"


def _steps_before(rows: Tensor) -> Tensor:
    """(…, pairs): from each key to the next, for keys before their query."""
    steps = rows.diff(dim=-1)
    n, m = rows.shape[-2:]
    i = torch.arange(m - n, m, device=rows.device)[:, None]
    j = torch.arange(m - 1, device=rows.device)
    return steps[..., j < i]
