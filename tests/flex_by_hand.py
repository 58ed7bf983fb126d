"""FlexAttention by hand: what its kernels compute from the lists of a BlockMask, in plain PyTorch.

PyTorch's own kernels need a GPU; without one this reads the same lists, and differentiates.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

import torch
from torch import Tensor

from attnlab.core.softmax import masked_softmax
from attnlab.core.sparse import flex as compiled

WAYS = ("kv", "q")  # the forward pass visits keys for queries, the backward pass also queries


def visited(block_mask: Any, way: str, kind: str) -> Tensor:
    """The blocks in the lists of one kind, as a matrix (queries, keys) of booleans."""
    numbers, indices = (
        getattr(block_mask, f"{kind}{way}_{each}")[0, 0].cpu() for each in ("num_blocks", "indices")
    )
    seen = torch.zeros(len(indices), max(len(indices[0]), int(indices.max()) + 1), dtype=torch.bool)
    for row, (number, index) in enumerate(zip(numbers.tolist(), indices.tolist(), strict=True)):
        assert len(set(index[:number])) == number, "a block is listed twice"
        seen[row, index[:number]] = True
    return seen if way == "kv" else seen.T


def allowed(block_mask: Any, b: int, n: int, m: int, device: Any = "cpu") -> Tensor:
    """(b, 1, n, m): the pairs that a kernel computes; no predicate is asked in full blocks."""
    i, j = torch.arange(n, device=device)[:, None], torch.arange(m, device=device)
    sequence = torch.arange(b, device=device)[:, None, None]
    by_pair = block_mask.mask_mod(sequence, torch.zeros_like(sequence), i, j).expand(b, n, m)
    mixed, full = (
        visited(block_mask, "kv", kind)
        .repeat_interleave(compiled.BLOCK, 0)
        .repeat_interleave(compiled.BLOCK, 1)[:n, :m]
        .to(device)
        for kind in ("", "full_")
    )
    return ((mixed & by_pair) | full)[:, None]


def by_hand(
    q: Tensor, k: Tensor, v: Tensor, *, block_mask: Any, scale: float | None = None
) -> Tensor:
    """What FlexAttention gives for these lists."""
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    seen = allowed(block_mask, len(q), q.shape[-2], k.shape[-2], q.device)
    return masked_softmax(q @ k.mT * scale, seen) @ v


@contextmanager
def computed_by_hand(*devices: str) -> Iterator[None]:
    """Within it FlexAttention takes any tensors, on ``devices`` as on GPUs, and is ``by_hand``."""
    with ExitStack() as stack:
        for name, value in (
            ("NARROWEST", 1),
            ("BY_TRITON", [*compiled.BY_TRITON, *devices]),
            ("_refusal_of_a_cpu", lambda differentiable: None),
            ("DTYPES", [*compiled.DTYPES, torch.float64]),
            ("_compiled", lambda: by_hand),
        ):
            stack.enter_context(mock.patch.object(compiled, name, value))
        yield
