r"""BigBird: a window, a few global blocks, and a few blocks drawn at random.

The sequence is cut into blocks of B positions, and blocks attend to blocks. Block i attends to its
window, i − (w−1)/2 … i + (w−1)/2; the G global blocks, half of them at either end, attend to all
and all attend to them; every other block attends to r more, drawn at random. As a graph, this
combines a random graph, a lattice and a star: any two positions are at most two steps apart.

$$o_i = \sum_{j \in S_i} \mathrm{softmax}_{j \in S_i}\!\left(\frac{q_i \cdot k_j}{\sqrt d}\right)
v_j,\qquad S_i = \mathrm{window} \cup \mathrm{global} \cup \mathrm{random}$$

S is a set: a key that is in the window *and* drawn counts once. One softmax runs over all of it.

There are two kinds of global positions (section 2 and appendix D):

ITC  (internal) existing blocks become global: ``global_blocks=2``, the first and the last.
ETC  (extended) the first t positions are extra global tokens, and blocks are counted after them:
     ``global_blocks=0, global_tokens=t, random=0``.

The allowed blocks are those of the official code: windows do not wrap around the ends, so a block
near an end has a smaller window (block 1 attends to 0, 1, 2, the last, and r more); blocks are
drawn from those that are neither global nor in the window; block 1 and the last but one never draw
each other. With N = 64 blocks and r = 3 that makes 2 N + 2 (4 + r) + (N − 4)(5 + r) = 622 of 4096
pairs of blocks.

Cost: $2h\,(d + e)$ FLOPs a pair, and about n (B (w + 2G + r) + 2t) pairs, linear in n.

The paper's letters: $b$ is our B; $g$, $w$, $r$ are counted there in positions (g = 2b, w = 3b, r =
3b), here in blocks; its base models have b = 64 (ITC), or b = 84, g = 256, r = 0 (ETC).

A common mistake: code that gathers the keys of window, global and drawn blocks one after the other
counts a block twice if it is in two of them. Hugging Face's does so in eval mode, where all draws
are block 0: its output there is not the masked softmax (in train mode it is).

Readings. Not causal: the global blocks at the end are in the future of all others. The draw depends
on the length and the seed alone, and is the same in each head unless ``per_head``.

Departures.
- any length: the last block may be short; few blocks are not turned into full attention. The
  official code wants multiples, and falls back to full attention where fewer than r blocks are
  left; here all of these are drawn.
- a last block that is not global is never drawn. It may be short (ETC; ``global_blocks`` below 2).

Gives up. Most far pairs are left out; the others are drawn at random.

Zaheer, Guruganesh, Dubey, Ainslie, Alberti, Ontanon, Pham, Ravula, Wang, Yang, Ahmed. Big Bird:
Transformers for Longer Sequences. NeurIPS 2020, arXiv:2007.14062, section 2 and appendix D.
"""

from dataclasses import dataclass
from typing import ClassVar

import sympy

from attnlab.core import patterns
from attnlab.core.card import letters
from attnlab.core.options import Count, Size
from attnlab.core.patterns import Pattern
from attnlab.core.sparse.attention import PatternOptions, pattern_card

# ---- the pattern


@dataclass(frozen=True, kw_only=True)
class BigBirdOptions(PatternOptions):
    """Window, global and random blocks.

    ``block``          the paper's b: how many positions a block has.
    ``window``         how many blocks the window has, the block itself included; odd.
    ``random``         how many more blocks each block draws, once the length is known.
    ``global_blocks``  how many blocks are global, half of them at either end.
    ``global_tokens``  how many extra global tokens stand before the blocks.
    ``seed``           seed of the draws; layers with different seeds draw differently.
    ``per_head``       whether each head has its own draw.
    """

    CAUSAL: ClassVar[str] = "never"
    CAUSAL_REASON: ClassVar[str] = (
        "its global positions attend to later positions, and all positions attend to them; "
        "take a window of the past instead, as longformer has"
    )

    block: Size = 64
    window: Size = 3
    random: Count = 3
    global_blocks: Count = 2
    global_tokens: Count = 0
    seed: int = 0
    per_head: bool = False

    def allowed(self, heads: int) -> Pattern:
        if not self.per_head:
            return self._drawn(self.seed)
        return patterns.per_head(*(self._drawn(self.seed * heads + head) for head in range(heads)))

    def _drawn(self, seed: int) -> Pattern:
        tokens = self.global_tokens
        inner = self.among_blocks(seed).blocks(self.block).shifted(tokens)
        return _global(tokens) | inner if tokens else inner

    def among_blocks(self, seed: int) -> Pattern:
        """Which blocks attend to which blocks."""
        first, last = (self.global_blocks + 1) // 2, self.global_blocks // 2
        seen = patterns.local(self.window // 2)
        if self.global_blocks:
            seen = seen | _global(first, last)
        if not self.random:
            return seen
        drawable = ~(seen | _never_drawn(first, last))
        return seen | patterns.random(self.random, seed, among=drawable)

    def check(self) -> None:
        if self.window % 2 == 0:
            raise ValueError(
                f"the window has its own block in the middle, so window is odd: got {self.window}, "
                f"try {self.window + 1}"
            )
        if self.global_blocks and self.global_tokens:
            raise ValueError(
                "either blocks are global or extra tokens are: got "
                f"global_blocks={self.global_blocks} and global_tokens={self.global_tokens}; "
                "for the latter give global_blocks=0"
            )


def _global(first: int, last: int = 0) -> Pattern:
    """The first and last positions are global, as many of them as given."""
    seen = patterns.edges(first, last, of="column")
    return seen | patterns.edges(first, last, of="row")


def _never_drawn(first: int, last: int) -> Pattern:
    """With global blocks at both ends, the inner blocks next to them do not draw each other;
    otherwise the last block, which may be short, is never drawn."""
    right = patterns.edges(0, last + 1, of="column")
    if not last:
        return right
    top, bottom = patterns.edges(first + 1, of="row"), patterns.edges(0, last + 1, of="row")
    left = patterns.edges(first + 1, of="column")
    return (top & right) | (left & bottom)


# ---- card

n, B, w, r, G, t = letters("n B w r G t")

CARD = pattern_card(
    __doc__,
    name="bigbird",
    options=BigBirdOptions,
    pairs=lambda _: n * (B * (w + 2 * G + r) + 2 * t),
    launches=sympy.sqrt(n),
    letters={
        "B": "block",
        "w": "window",
        "r": "random",
        "G": "global_blocks",
        "t": "global_tokens",
    },
    variants=(
        {"block": 32, "window": 1, "random": 2},
        {"block": 4, "random": 1},
        {"block": 2, "random": 2, "seed": 3, "per_head": True},
        {"block": 3, "global_blocks": 0, "global_tokens": 2, "random": 0},
        {"block": 1, "window": 5, "global_blocks": 0, "global_tokens": 1, "random": 2},
        {"block": 3, "window": 1, "global_blocks": 1, "random": 2},
        {"block": 2, "window": 5, "global_blocks": 3},
    ),
    small_options={"block": 2, "window": 3, "random": 1},
)
