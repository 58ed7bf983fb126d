"""The mask of a layer: made from the module's arguments, and as a dense tensor where needed."""

import torch
from jaxtyping import Bool
from torch import Tensor

from attnlab.core.patterns.algebra import FULL, Causal, Full, Pattern, both
from attnlab.core.patterns.by_table import padding as valid_keys

Mask = Bool[Tensor, "#b #h #n #m"] | Bool[Tensor, "#n #m"] | Pattern | None
"""The masks that the forms of dense attention take: True = may attend; None = all may."""


def visible(
    causal: bool,
    padding: Tensor | None = None,
    context: Tensor | None = None,
    context_padding: Tensor | None = None,
) -> Pattern:
    """What the queries of a layer may attend to: its own keys or those of its context, if any."""
    if context is None:
        if context_padding is not None:
            raise ValueError("context_padding was given without a context")
        # Not by `&`: torch.compile follows that operator between objects only from PyTorch 2.7 on.
        return both(Causal() if causal else FULL, valid_keys(padding))
    if causal:
        raise ValueError("a causal layer cannot look at a context: build it with causal=False")
    if padding is not None:
        raise ValueError(
            "with a context its keys are masked, not the input's: give context_padding"
        )
    return valid_keys(context_padding)


def is_causal(pattern: object) -> bool:
    """Whether ``pattern`` is exactly ``causal()``, for forms with a faster way to compute it."""
    return isinstance(pattern, Causal)


def as_mask(
    mask: Bool[Tensor, "... n m"] | Pattern | None,
    n: int,
    m: int,
    device: torch.device,
    b: int | None = None,
    heads: int | None = None,
) -> Bool[Tensor, "... n m"] | None:
    """The dense mask of a mask, a pattern or None; None where everything is allowed.

    A pattern for another number of keys, sequences or heads is refused.
    """
    if not isinstance(mask, Pattern):
        return mask
    mask.refuse_misfit(m, b, heads)
    if isinstance(mask, Full):
        return None
    # Whether a pattern allows every pair depends on its values: not checked while compiling.
    allows_all = not torch.compiler.is_compiling() and mask.sized(m).cover(
        range(m - n, m), range(m)
    )
    return None if allows_all else mask.dense(n, m, device)


def dense_of(
    mask: Bool[Tensor, "... n m"] | Pattern | None, q: Tensor, k: Tensor
) -> Bool[Tensor, "... n m"] | None:
    """The dense mask of queries (b, h, n, …) and keys (b, h, m, …); None where all is allowed."""
    return as_mask(mask, q.shape[2], k.shape[2], q.device, *q.shape[:2])
