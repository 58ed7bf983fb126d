r"""Sparse Transformer: two sparse patterns that together reach the whole past in two steps.

Most of the n²/2 pairs of causal attention have weights near zero. Child et al. let each position
attend to a subset $S_i$ of its past, made of two factors of about $\sqrt n$ keys each. Together
they reach every past position in two steps, one in each factor:

$$o_i = \mathrm{softmax}\!\left(\frac{q_i K_{S_i}^\top}{\sqrt d}\right) V_{S_i},\qquad S_i \subseteq
\{j : j \le i\}$$

With the stride s (near $\sqrt n$) the factors are

**strided**, for images and sound, where s is the length of a line: $A^1_i$ = the last s positions
and i itself; $A^2_i = \{j : (i - j) \bmod s = 0\}$, the column above i.

**fixed**, for text, which has no lines: $A^1_i$ = the block of s positions that contains i;
$A^2_i$ = the last c positions of every block, which summarise it for later positions.

Heads use them in three ways (section 5.1). *Merged*: every head uses $A^1_i \cup A^2_i$ (the
default). *Interleaved*: layer r uses one factor, $A^{1 + r \bmod 2}$ (``layer=r``). *Separate*:
head a uses one, $A^{1 + a \bmod 2}$ (``separate=True``). The paper prefers heads with different
summary columns to heads with the same ones: with ``distinct=True`` the a-th head that uses the
second fixed factor takes the a-th set of c positions, counted from the end of a block.

Time: with $s \approx \sqrt n$, $O(n \sqrt n)$; c summary columns cost c times the second factor.

The forms and the layer are those of every fixed pattern (``attnlab.core.sparse.attention``). In
natural order a stride has keys in every block, so ``blocked`` orders the positions by residue,
where a stride is local. Decoding keeps the keys that are still needed: the own block and the past
summaries (fixed), or the whole past (strided).

The papers' letters: $l$ (stride) is our s; $p$ is always 2 here; $A^{(m)}$ as above; $W_p$ is the
output projection of ``attnlab.core.heads``.

Readings. The strided window has l + 1 positions in the paper's formula, "the previous l" in its
text, and l in the released code: ``window="paper"`` follows the formula, ``window="code"`` the
code; both reach the whole past in two layers. In the formula the fixed columns run to residue l,
which does not occur: we take the c columns l − c … l − 1, like the released kernels and the paper's
own example.
Other implementations differ: one adds residue 0 (c + 1 columns), one takes c + 1 columns that
straddle blocks.

Common mistakes. Section 4.2 states that $S_i$ lies in the past. In section 4.3 the strided window
ends at i, but the other three sets are printed without $j \le i$. The strided column as printed
leaks in two layers: a later position of the column has the next token in its window. The second
fixed factor alone has empty rows (before the first summary): their output is zero here; code that
adds −10⁹ gives them the uniform mean of all positions, future included. The two fixed factors in
successive layers do not reach the near past; merged heads, or the residual connections, do. A
stride as long as the sequence is allowed, and gives dense causal attention.

Left to the model: the two-dimensional position embeddings, the initialisation and the recomputation
of section 5.

Departures.
- the strided window is the formula's l + 1 positions; the code's l is an option
- the fixed columns are l − c … l − 1 (residue l of the formula does not occur)

Gives up. In one layer a query attends to a small part of the past; two layers reach it all.

Child, Gray, Radford, Sutskever. Generating Long Sequences with Sparse Transformers. 2019,
arXiv:1904.10509, sections 4.2, 4.3 and 5.1.
"""

from dataclasses import dataclass
from typing import ClassVar, Literal

import sympy

from attnlab.core import patterns
from attnlab.core.card import letters
from attnlab.core.options import Count, Size
from attnlab.core.patterns import Pattern
from attnlab.core.sparse.attention import PatternOptions, pattern_card
from attnlab.core.sparse.flex import BLOCK

# ---- the pattern


@dataclass(frozen=True, kw_only=True)
class SparseTransformerOptions(PatternOptions):
    """Two factors of the past, and which of them a head uses.

    ``stride``    the paper's l: the length of a line, or of a block.
    ``kind``      "strided" or "fixed".
    ``columns``   the paper's c, the summaries of a block (fixed).
    ``window``    the strided window: "paper", the formula's l + 1 positions, or "code", l.
    ``layer``     the number of the layer, from 0, if layers take the factors in turn.
    ``separate``  heads take the factors in turn.
    ``distinct``  heads use different summaries of a block (fixed).
    """

    CAUSAL: ClassVar[str] = "always"
    CAUSAL_REASON: ClassVar[str] = "its factors are subsets of the past"

    stride: Size = 128
    kind: Literal["strided", "fixed"] = "strided"
    columns: Size = 1
    window: Literal["paper", "code"] = "paper"
    layer: Count | None = None
    separate: bool = False
    distinct: bool = False

    def factors(self, turn: int = 0) -> tuple[Pattern, Pattern]:
        """$A^1$ and $A^2$ before causality; ``turn`` counts sets of summaries from the end of a
        block."""
        if self.kind == "strided":
            radius = self.stride if self.window == "paper" else self.stride - 1
            return patterns.local(radius), patterns.strided(self.stride)
        turn %= self.stride // self.columns
        summaries = patterns.summaries(self.stride, self.columns, turn * self.columns)
        return patterns.block_diagonal(self.stride), summaries

    def allowed(self, heads: int) -> Pattern:
        """The union of the factors, or one of them; per head where heads differ."""
        if self.separate and heads < 2:
            raise ValueError(f"separate=True needs 2 heads, one for each factor, got {heads}")
        if not (self.separate or self.distinct):
            return self._seen(None if self.layer is None else self.layer % 2, 0)
        return patterns.per_head(*(self._of_head(a) for a in range(heads)))

    def _of_head(self, a: int) -> Pattern:
        if self.separate:
            return self._seen(a % 2, a // 2 if self.distinct else 0)
        return self._seen(None if self.layer is None else self.layer % 2, a)

    def _seen(self, factor: int | None, turn: int) -> Pattern:
        near, far = self.factors(turn)
        return near | far if factor is None else (near, far)[factor]

    def check(self) -> None:
        if self.kind == "strided" and (self.columns != 1 or self.distinct):
            raise ValueError(
                'the strided kind has no summary columns: columns are for kind="fixed"'
            )
        if self.kind == "fixed" and self.window != "paper":
            raise ValueError('the fixed kind has blocks, no window: window is for kind="strided"')
        if self.kind == "fixed" and self.columns > self.stride:
            raise ValueError(
                f"{self.columns} summary columns do not fit into blocks of {self.stride}"
            )
        if self.layer is not None and self.separate:
            raise ValueError(
                "layer=… takes the factors in turn layer by layer, separate=True head by head: "
                "choose one"
            )
        if self.distinct and 2 * self.columns > self.stride:
            raise ValueError(
                f"a block of {self.stride} holds one set of {self.columns} summary columns only, "
                "so heads cannot read distinct ones: choose columns ≤ stride / 2"
            )


# ---- card

n, s, c = letters("n s c")


def pairs(chosen: SparseTransformerOptions) -> sympy.Expr:
    """The allowed pairs of n queries of one head; the mean over heads where they differ."""
    near, far = (
        (n * s, n**2 / (2 * s)) if chosen.kind == "strided" else (n * s / 2, c * n**2 / (2 * s))
    )
    if chosen.separate:
        return (near + far) / 2
    return near + far if chosen.layer is None else (near, far)[chosen.layer % 2]


def kernel_pairs(chosen: SparseTransformerOptions) -> sympy.Expr:
    """The pairs of the blocks of 128 × 128 in which some pair is allowed. A stride of up to 128
    leaves none of the past out."""
    if chosen.stride > BLOCK or (chosen.layer is not None and chosen.layer % 2 == 0):
        return pairs(chosen)
    return n**2 / (4 if chosen.separate else 2)


CARD = pattern_card(
    __doc__,
    name="sparse_transformer",
    options=SparseTransformerOptions,
    pairs=pairs,
    kernel_pairs=kernel_pairs,
    launches=n,
    letters={"s": "stride", "c": "columns"},
    variants=(
        {"kind": "fixed", "stride": 24},
        {"kind": "strided", "stride": 5},
        {"kind": "strided", "stride": 3, "window": "code", "separate": True},
        {"kind": "strided", "stride": 4, "layer": 1},
        {"kind": "fixed", "stride": 5, "columns": 2, "distinct": True},
        {"kind": "fixed", "stride": 7, "columns": 2, "separate": True, "distinct": True},
    ),
    small_options={"stride": 6},
)
