"""Patterns: which query may attend to which key, as predicates of positions.

A pattern answers ``(i, j) -> bool``: may the query at position i attend to the key at position j?
The same object is drawn in figures, gives the mask of the naive form, and tells the sparse forms
which blocks to compute. Patterns compose with ``&``, ``|`` and ``~``.

    local(2) | global_([0])                  a window, and one global position: it attends to all
                                             positions, and all positions attend to it
    (local(1) | random(3)).blocks(64)        the same between blocks of 64 positions
    (local(127) | strided(128)).causal()     the past only

With fewer queries than keys (decoding with a cache) the queries are the *last* n of the m
positions, so that ``causal()`` is aligned at the bottom right: query row r stands at position ``i =
r + (m - n)``.

``covers`` classifies blocks (some rows by some columns) as full, empty or mixed by interval
arithmetic, without computing their pairs; ``cover`` does so for one block. Compositions follow
Kleene's three-valued logic. So a sparse form finds the empty blocks, which it skips, by a few
comparisons, and never needs an n × n tensor.
"""

from attnlab.core.patterns.algebra import (
    FULL,
    And,
    Blocks,
    Cover,
    Not,
    Or,
    Order,
    Pattern,
    Primitive,
    Shifted,
    both,
    causal,
    full,
)
from attnlab.core.patterns.arguments import Argument
from attnlab.core.patterns.by_distance import local, strided
from attnlab.core.patterns.by_grid import axial, local_2d
from attnlab.core.patterns.by_place import edges, places, prefix, summaries
from attnlab.core.patterns.by_table import Padding, document, listed, padding, random
from attnlab.core.patterns.intervals import Coverage, Intervals
from attnlab.core.patterns.masks import Mask, as_mask, dense_of, is_causal, visible
from attnlab.core.patterns.per_head import per_head
from attnlab.core.patterns.primitives import primitives
from attnlab.core.patterns.reading import read, readable
from attnlab.core.patterns.receptive_field import ReceptiveField, receptive_field
from attnlab.core.patterns.shorthands import block_diagonal, blocks, dilated, fixed, global_, hub

__all__ = [
    "FULL",
    "And",
    "Argument",
    "Blocks",
    "Cover",
    "Coverage",
    "Intervals",
    "Mask",
    "Not",
    "Or",
    "Order",
    "Padding",
    "Pattern",
    "Primitive",
    "ReceptiveField",
    "Shifted",
    "as_mask",
    "axial",
    "block_diagonal",
    "blocks",
    "both",
    "causal",
    "dense_of",
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
    "primitives",
    "random",
    "read",
    "readable",
    "receptive_field",
    "strided",
    "summaries",
    "visible",
]
