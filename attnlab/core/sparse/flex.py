"""Attention under a pattern by PyTorch's FlexAttention.

FlexAttention compiles a kernel that computes the blocks listed in a ``BlockMask`` and evaluates a
predicate in the mixed ones. PyTorch makes a BlockMask by evaluating the predicate on n × m pairs;
here it is made from ``Pattern.covers``, which needs no tensor of that size.

It needs a GPU; or, on a CPU, a C++ compiler, heads at least 16 wide and no gradients (``refusal``).
Without compilation FlexAttention would compute every pair, so it is never called that way.
"""

import copy
import functools
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool
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
    n, m = q.shape[-2], k.shape[-2]
    groups = _by_group(pattern, n, m, q.shape[1], valid is not None, q.device)
    outs = []
    for heads, visits in groups:
        qs, ks, vs = (x if len(groups) == 1 else x[:, heads] for x in (q, k, v))
        mask = visits.mask if valid is None else visits.under(valid)
        with torch._dynamo.config.patch(recompile_limit=COMPILED):
            outs.append(_compiled()(qs, ks, vs, block_mask=mask, scale=scale))
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
        return (
            f"on a CPU heads should be at least 16 wide, these are {min(q.shape[-1], v.shape[-1])}"
        )
    if torch.backends.cpu.get_cpu_capability() == "DEFAULT":
        return "PyTorch does not compile it for a CPU without AVX2"
    if not any(shutil.which(name) for name in (os.environ.get("CXX", "g++"), "clang++", "cl")):
        return "there is no C++ compiler (g++ or clang++) to compile it with"
    return None


def _differs(pattern: Pattern, m: int, heads: int) -> bool:
    """Whether sequences have different patterns, apart from their padding."""
    return _structure_differs(without_padding(pattern)[0], m, heads)


@functools.lru_cache(maxsize=64)
def _structure_differs(structure: Pattern, m: int, heads: int) -> bool:
    first = torch.zeros((), dtype=torch.long)
    return any(of.allows(first, first).dim() > 0 for _, of in by_pattern(structure.sized(m), heads))


@dataclass(frozen=True)
class _Visits:
    """The blocks that FlexAttention visits for a pattern, as its ``BlockMask``."""

    mask: Any
    pattern: Pattern
    past: int

    def under(self, valid: Bool[Tensor, "b m"]) -> Any:
        """The same blocks, in which keys that are not valid are not attended to."""
        masked = copy.copy(self.mask)
        masked.mask_mod = _predicate(self.pattern, valid, self.past)
        return masked


@functools.lru_cache(maxsize=64)
def _by_group(
    pattern: Pattern, n: int, m: int, heads: int, padded: bool, device: torch.device
) -> list[tuple[list[int], _Visits]]:
    """For each group of heads with equal patterns what is visited. It is kept, because making it
    takes longer than attending to some thousand tokens."""
    from torch.nn.attention.flex_attention import BlockMask

    found = []
    for chosen, of_heads in by_pattern(pattern.sized(m), heads):
        there = of_heads.to(device)  # a kernel cannot fetch a table from elsewhere
        mask = BlockMask.from_kv_blocks(
            *_blocks(of_heads, n, m, padded, device),
            BLOCK_SIZE=BLOCK, mask_mod=_predicate(there, None, m - n), seq_lengths=(n, m),
        )  # fmt: skip
        found.append((chosen, _Visits(mask, there, m - n)))
    return found


@functools.lru_cache(maxsize=64)
def has_full_row(pattern: Pattern, n: int, m: int) -> bool:
    """Whether some block of queries visits every block of keys."""
    mixed, _, full, _ = _blocks(pattern.sized(m), n, m, False, torch.device("cpu"))
    return int((mixed + full).max()) == -(-m // BLOCK)


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
