"""Attention under a pattern by PyTorch's FlexAttention.

FlexAttention compiles a kernel that computes the blocks listed in a ``BlockMask`` and evaluates a
predicate in the mixed ones. PyTorch makes a BlockMask by evaluating the predicate on n × m pairs;
here it is made from ``Pattern.covers``, which needs no tensor of that size.

It needs a GPU; or, on a CPU, a C++ compiler, heads at least 16 wide and no gradients (``refusal``).
Without compilation FlexAttention would compute every pair, so it is never called that way.
"""

import functools
import os
import shutil
from collections.abc import Callable

import torch
from torch import Tensor

from attnlab.core.patterns import FULL, Intervals, Pattern
from attnlab.core.shapes import Keys, Outputs, Queries, Values, checked
from attnlab.core.sparse.blocked import by_pattern, without_padding
from attnlab.core.sparse.layout import refuse_lengths

BLOCK = 128
COMPILED = 64  # how many combinations of pattern and shape one process may compile


@checked
def flex(
    q: Queries, k: Keys, v: Values, pattern: Pattern, *, scale: float | None = None
) -> Outputs:
    """Softmax attention over the pairs that ``pattern`` allows, by FlexAttention.

    Compiled once for each pattern and shape (seconds, the first time). Raises ValueError, with the
    reason, where it cannot run.
    """
    refuse_lengths(q.shape[-2], k.shape[-2])
    pattern.refuse_misfit(k.shape[-2], q.shape[0])
    reason = refusal(q, k, v, pattern)
    if reason:
        raise ValueError(f"flex cannot run here: {reason}; use blocked")
    pattern, valid = without_padding(pattern)
    valid = None if valid is None else valid.to(q.device).expand(len(q), -1)
    groups = by_pattern(pattern.sized(k.shape[-2]), q.shape[1])
    outs = []
    for heads, of_heads in groups:
        qs, ks, vs = (x if len(groups) == 1 else x[:, heads] for x in (q, k, v))
        outs.append(_attend(qs, ks, vs, of_heads, valid, scale))
    order = torch.tensor([head for heads, _ in groups for head in heads]).argsort()
    return outs[0] if len(outs) == 1 else torch.cat(outs, dim=1)[:, order]


def refusal(q: Tensor, k: Tensor, v: Tensor, pattern: Pattern = FULL) -> str | None:
    """Why FlexAttention cannot run on these tensors, in words; None if it can."""
    if q.dtype == torch.float64:
        return "it has no float64"
    if _differs(pattern, k.shape[-2], q.shape[1]):
        return "the pattern differs between sequences"
    if q.device.type != "cpu":
        return None
    if torch.is_grad_enabled() and any(x.requires_grad for x in (q, k, v)):
        return "on a CPU it computes no gradients (under torch.no_grad() it would run)"
    if min(q.shape[-1], v.shape[-1]) < 16:
        return f"on a CPU heads must be at least 16 wide, these are {min(q.shape[-1], v.shape[-1])}"
    if torch.backends.cpu.get_cpu_capability() == "DEFAULT":
        return "PyTorch does not compile it for a CPU without AVX2"
    if not any(shutil.which(name) for name in (os.environ.get("CXX", "g++"), "clang++", "cl")):
        return "there is no C++ compiler (g++ or clang++) to compile it with"
    return None


def _differs(pattern: Pattern, m: int, heads: int) -> bool:
    """Whether sequences have different patterns, apart from their padding."""
    structure, first = without_padding(pattern)[0].sized(m), torch.zeros((), dtype=torch.long)
    return any(of.allows(first, first).dim() > 0 for _, of in by_pattern(structure, heads))


def _attend(
    q: Tensor, k: Tensor, v: Tensor, pattern: Pattern, valid: Tensor | None, scale: float | None
) -> Tensor:
    from torch.nn.attention.flex_attention import BlockMask

    n, m = q.shape[-2], k.shape[-2]
    allows = _predicate(pattern, valid, m - n)
    visited = _blocks(pattern, n, m, valid is not None, q.device)
    mask = BlockMask.from_kv_blocks(*visited, BLOCK_SIZE=BLOCK, mask_mod=allows, seq_lengths=(n, m))
    with torch._dynamo.config.patch(recompile_limit=COMPILED):
        out: Tensor = _compiled()(q, k, v, block_mask=mask, scale=scale)
    return out


@functools.cache
def _compiled() -> Callable[..., Tensor]:
    from torch.nn.attention.flex_attention import flex_attention

    return torch.compile(flex_attention, fullgraph=True, dynamic=False)


def _predicate(pattern: Pattern, valid: Tensor | None, past: int) -> Callable[..., Tensor]:
    """The predicate of FlexAttention: whether a pair of one head of one sequence is allowed."""

    def allows(b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        allowed = pattern.allows(i + past, j)
        return allowed if valid is None else allowed & valid[b, j]

    return allows


def _blocks(
    pattern: Pattern, n: int, m: int, padded: bool, device: torch.device
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Number and indices of the mixed blocks in each row of blocks, and of the full blocks."""
    rows, columns = Intervals.blocks(m - n, m, BLOCK), Intervals.blocks(0, m, BLOCK)
    covered = pattern.covers(rows[:, None], columns)
    whole = (rows.last - rows.first + 1 == BLOCK)[:, None] & (columns.last % BLOCK == BLOCK - 1)
    full = covered.every & whole & (not padded)
    mixed = covered.some & ~full
    return tuple(  # type: ignore[return-value]
        x[None, None].to(torch.int32).to(device)
        for kind in (mixed, full)
        for x in (kind.sum(-1), kind.int().argsort(dim=-1, descending=True, stable=True))
    )
