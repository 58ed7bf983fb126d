"""Attention under a pattern by PyTorch's FlexAttention.

FlexAttention compiles a kernel that computes the blocks listed in a ``BlockMask`` and evaluates a
predicate in the mixed ones. PyTorch makes a BlockMask by evaluating the predicate on n × m pairs;
here it is made from ``Pattern.covers``, which needs no tensor of that size.

It needs heads at least 16 wide, and a GPU for which Triton compiles; or, on a CPU, a C++ compiler
and no gradients (``refusal``). Without compilation FlexAttention would compute every pair, so it is
never called that way.
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
from attnlab.core.tracing import transformed

BLOCK = 128
COMPILED = 64  # how many combinations of pattern and shape one process may compile
NARROWEST = 16  # the width of heads from which on its products have a kernel
DTYPES = [torch.float32, torch.float16, torch.bfloat16]
BY_TRITON = ["cuda", "xpu"]  # devices for which PyTorch compiles it, by Triton
OLDEST_GPU = (7, 0)  # the compute capability from which on Triton compiles for CUDA


class CannotCompile(ValueError):
    """PyTorch's compiler failed on FlexAttention for such tensors."""


_FAILED: dict[tuple[Any, ...], str] = {}
"""What was tried to compile, and in vain → what the compiler said."""


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
        outs.append(_run(qs, ks, vs, mask, scale))
    order = torch.tensor([head for heads, _ in groups for head in heads]).argsort().to(q.device)
    return outs[0] if len(outs) == 1 else torch.cat(outs, dim=1)[:, order]


def _run(q: Tensor, k: Tensor, v: Tensor, mask: Any, scale: float | None) -> Tensor:
    """FlexAttention; a ``CannotCompile`` with the compiler's words where it fails to compile."""
    try:
        with torch._dynamo.config.patch(recompile_limit=COMPILED):
            return _compiled()(q, k, v, block_mask=mask, scale=scale)
    except Exception as error:
        if not _of_the_compiler(error):
            raise
        words = " ".join((str(error).strip() or type(error).__name__).split())
        _FAILED[_kind(q, v)] = f"PyTorch could not compile it ({words[:200]})"
        raise CannotCompile(f"flex cannot run here: {_FAILED[_kind(q, v)]}; use blocked") from error


def _of_the_compiler(error: Exception) -> bool:
    from torch._dynamo.exc import TorchDynamoException

    tuned = ("NoTritonConfigsError", "OutOfResources")  # no size of its blocks fits the GPU
    return isinstance(error, TorchDynamoException) or type(error).__name__ in tuned


def _kind(q: Tensor, v: Tensor) -> tuple[Any, ...]:
    """What the compiler's success depends on, apart from the pattern."""
    return q.device.type, q.dtype, q.shape[-1], v.shape[-1]


def refusal(q: Tensor, k: Tensor, v: Tensor, pattern: Pattern = FULL) -> str | None:
    """Why FlexAttention cannot run on these tensors, in words; None if it can."""
    if q.dtype not in DTYPES:
        return f"it has no {str(q.dtype).removeprefix('torch.')}"
    if _differs(pattern, k.shape[-2], q.shape[1]):
        return "the pattern differs between sequences"
    if (narrowest := min(q.shape[-1], v.shape[-1])) < NARROWEST:
        return f"heads should be at least {NARROWEST} wide, these are {narrowest}"
    if torch.compiler.is_compiling() or transformed():
        return "torch.compile and torch.func do not follow the making of its mask"
    if failed := _FAILED.get(_kind(q, v)):
        return failed
    if q.device.type == "cpu":
        return _refusal_of_a_cpu(any(x.requires_grad for x in (q, k, v)))
    return _refusal_of_a_gpu(q.device)


def _refusal_of_a_gpu(device: torch.device) -> str | None:
    if device.type == "meta":  # it stands for any GPU
        return None
    if device.type not in BY_TRITON:
        return f"PyTorch compiles it for {', '.join(BY_TRITON)} and cpu, not for {device.type}"
    if device.type == "cuda":
        from torch.utils._triton import has_triton_package

        if not has_triton_package():
            return "Triton is not installed, with which PyTorch compiles it (pip install triton)"
        capability = torch.cuda.get_device_capability(device)
        if capability < OLDEST_GPU:
            old, needed = ("{}.{}".format(*each) for each in (capability, OLDEST_GPU))
            return f"Triton needs a GPU of compute capability {needed}, this one has {old}"
    return None


def _refusal_of_a_cpu(differentiable: bool) -> str | None:
    if torch.is_grad_enabled() and differentiable:
        return "on a CPU it computes no gradients (under torch.no_grad() it would run)"
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


def has_full_row(pattern: Pattern, n: int, m: int) -> bool:
    """Whether some block of queries visits every block of keys."""
    return max(_visited(pattern, n, m)) == -(-m // BLOCK)


def visited_share(pattern: Pattern, n: int, m: int) -> float:
    """The share of all blocks of 128 × 128 pairs that are visited, whatever is masked in them."""
    of_rows = _visited(pattern, n, m)
    return sum(of_rows) / (len(of_rows) * -(-m // BLOCK))


@functools.lru_cache(maxsize=64)
def _visited(pattern: Pattern, n: int, m: int) -> tuple[int, ...]:
    """How many blocks of keys each block of queries visits."""
    mixed, _, full, _ = _blocks(pattern.sized(m), n, m, False, torch.device("cpu"))
    return tuple((mixed + full).flatten().tolist())


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
