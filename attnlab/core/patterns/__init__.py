"""Patterns: who may see whom, as predicates of positions.

A pattern answers ``(i, j) -> bool``: may the query at position i see the key at position j? One
object is drawn, masks the naive form and steers the fast ones. Patterns compose with ``&``, ``|``
and ``~``.

    local(2) | global_([0])                  a window, and one that sees all and is seen by all
    (local(1) | random(3)).blocks(64)        the same between blocks of 64 positions
    (local(127) | strided(128)).causal()     the past only

With fewer queries than keys (decoding with a cache) the queries are the *last* n of the m
positions, so that ``causal()`` is aligned at the bottom right: query row r stands at position ``i =
r + (m - n)``.

A pattern also tells for blocks of rows by blocks of columns whether they are full, empty or mixed,
without making them (``covers``, by interval arithmetic; ``cover`` for one block). Compositions
follow Kleene's three-valued logic, so that a sparse form can skip what nobody may see at the price
of a few comparisons, and never needs an n × n tensor.
"""

import torch
from jaxtyping import Bool
from torch import Tensor

from attnlab.core.patterns.algebra import (
    FULL,
    And,
    Blocks,
    Causal,
    Cover,
    Full,
    Not,
    Or,
    Order,
    Pattern,
    Shifted,
    both,
)
from attnlab.core.patterns.primitives import (
    Before,
    Documents,
    Drawn,
    Edges,
    Local,
    Local2d,
    Padding,
    PerHead,
    Places,
    Random,
    Shape,
    Strided,
    Summaries,
    axial,
    block_diagonal,
    blocks,
    causal,
    dilated,
    document,
    edges,
    fixed,
    full,
    global_,
    hub,
    listed,
    local,
    local_2d,
    padding,
    per_head,
    places,
    prefix,
    random,
    strided,
    summaries,
)
from attnlab.core.patterns.reach import Reach, reach
from attnlab.core.patterns.reading import read, readable
from attnlab.core.patterns.spans import Coverage, Spans

__all__ = [
    "FULL",
    "And",
    "Before",
    "Blocks",
    "Causal",
    "Cover",
    "Coverage",
    "Documents",
    "Drawn",
    "Edges",
    "Full",
    "Local",
    "Local2d",
    "Not",
    "Or",
    "Order",
    "Padding",
    "Pattern",
    "PerHead",
    "Places",
    "Random",
    "Reach",
    "Shape",
    "Shifted",
    "Spans",
    "Strided",
    "Summaries",
    "as_mask",
    "axial",
    "block_diagonal",
    "blocks",
    "both",
    "causal",
    "dilated",
    "document",
    "edges",
    "fixed",
    "full",
    "global_",
    "hub",
    "is_causal",
    "listed",
    "local",
    "local_2d",
    "padding",
    "per_head",
    "places",
    "prefix",
    "random",
    "reach",
    "read",
    "readable",
    "strided",
    "summaries",
    "visible",
]


def visible(
    causally: bool,
    padding_: Tensor | None = None,
    context: Tensor | None = None,
    context_padding: Tensor | None = None,
) -> Pattern:
    """What a layer's queries may see of itself or, if it is given one, of its context."""
    if context is None:
        if context_padding is not None:
            raise ValueError("context_padding was given without a context")
        # Not by `&`: torch.compile follows that operator between objects only from PyTorch 2.7 on.
        return both(causal() if causally else full(), padding(padding_))
    if causally:
        raise ValueError("a causal layer cannot look at a context: build it with causal=False")
    if padding_ is not None:
        raise ValueError("with a context it is the context that is looked at: give context_padding")
    return padding(context_padding)


def is_causal(pattern: object) -> bool:
    """Whether ``pattern`` is exactly ``causal()``, for forms that have a faster way to say so."""
    return isinstance(pattern, Causal)


def as_mask(
    mask: Bool[Tensor, "... n m"] | Pattern | None,
    n: int,
    m: int,
    device: torch.device,
    b: int | None = None,
) -> Bool[Tensor, "... n m"] | None:
    """The dense mask of a mask, a pattern or None; None where everything is allowed.

    A pattern for other than m keys or b sequences is refused.
    """
    if not isinstance(mask, Pattern):
        return mask
    mask.refuse_misfit(m, b)
    if isinstance(mask, Full):
        return None
    # Whether a pattern happens to allow everything is a question to numbers: not while compiling.
    allows_all = not torch.compiler.is_compiling() and mask.sized(m).cover(
        range(m - n, m), range(m)
    )
    return None if allows_all else mask.dense(n, m, device)
