"""The fastest form for a pattern, chosen by an estimate of its cost, with the reason in words.

A sparse form computes fewer pairs, but each pair costs more, because keys have to be gathered and
matrix products are small. Where a pattern excludes few pairs, or the sequence is short, the dense
kernel is faster. FlexAttention leaves out blocks of 128 × 128 pairs of which none is allowed: a
stride of up to 128 leaves none out, so its blocks are counted.
"""

import warnings
from dataclasses import dataclass

from torch import Tensor
from torch.nn import functional as F

from attnlab.core.patterns import Pattern, dense_of
from attnlab.core.probe import note
from attnlab.core.shapes import Keys, Outputs, Queries, Values, checked
from attnlab.core.sparse.blocked import blocked, by_pattern, check_dropout, without_padding
from attnlab.core.sparse.flex import CannotCompile, flex, has_full_row, refusal, visited_share
from attnlab.core.sparse.layout import layout

SHORT = 512  # up to so many keys, one dense call is faster than any blocks on a CPU
SHORT_GPU = 2048  # and on a GPU (H100, 16 heads in all, 64 wide, both passes, bfloat16 and float32)
FULL_ROWS = 16_384  # and there up to so many, where some query attends to every key
PRICE = 2.0  # cost of a pair in blocks relative to one in the dense kernel, measured on a CPU
PRICE_GPU = 16.0  # and to one in FlexAttention's kernel: estimated, since scores go through memory


def on_cpu(x: Tensor) -> bool:
    """True on the CPU alone: the meta device stands for a GPU here."""
    return x.device.type == "cpu"


@dataclass(frozen=True)
class Choice:
    """Which form runs, and why."""

    form: str
    why: str

    def __str__(self) -> str:
        return f"{self.form}: {self.why}"


@checked
def auto(
    q: Queries, k: Keys, v: Values, pattern: Pattern, *,
    scale: float | None = None, dropout: float = 0.0, allow_fully_masked: bool = False,
) -> Outputs:  # fmt: skip
    """Attention over ``pattern`` by the form that ``choose`` names, which is noted as "choice".

    ``blocked`` takes the place of ``flex`` where this fails to compile, with a warning the first
    time. ``allow_fully_masked`` is for ``blocked``, which otherwise warns.
    """
    check_dropout(dropout)
    choice = choose(q, k, v, pattern, dropout=dropout)
    if choice.form == "flex":
        try:
            out = flex(q, k, v, pattern, scale=scale)
        except CannotCompile as error:
            warnings.warn(f"{error}, which runs in its place", stacklevel=3)
            choice = choose(q, k, v, pattern)  # it is known now
        else:
            note("choice", choice)
            return out
    note("choice", choice)
    if choice.form == "blocked":
        return blocked(
            q, k, v, pattern,
            scale=scale, dropout=dropout, allow_fully_masked=allow_fully_masked,
        )  # fmt: skip
    mask = dense_of(pattern, q, k)
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, dropout_p=dropout, scale=scale)


def choose(q: Tensor, k: Tensor, v: Tensor, pattern: Pattern, *, dropout: float = 0.0) -> Choice:
    """``dense``, ``blocked`` or ``flex`` for these tensors, with the reason in words."""
    n, m = q.shape[-2], k.shape[-2]
    on_the_cpu = on_cpu(q)
    if m <= (SHORT if on_the_cpu else SHORT_GPU):
        return Choice("dense", f"{m} keys are few: one dense call costs less than any bookkeeping")
    if n > m:
        return Choice("dense", f"{n} queries cannot stand last among {m} keys, as blocks require")
    structure = without_padding(pattern)[0]
    groups = by_pattern(structure, q.shape[1])
    cost = sum(layout(of_heads, n, m).cost * len(heads) for heads, of_heads in groups)
    share = cost / (n * m * q.shape[1])
    estimate = f"in blocks it costs as much as {share:.1%} of the {n * m:,} pairs of a head"
    if PRICE * share >= 1:
        return Choice("dense", f"{estimate}, and each pair about {PRICE:g} times a dense one")
    if on_the_cpu or dropout:
        why = "FlexAttention has no dropout" if dropout else "on a CPU it also computes gradients"
        return Choice("blocked", f"{estimate}; {why}")
    reason = refusal(q, k, v, pattern)
    if reason:
        return Choice("blocked", f"{estimate}; flex cannot run here: {reason}")
    visited = sum(visited_share(of, n, m) * len(heads) for heads, of in groups) / q.shape[1]
    if PRICE_GPU * share < visited:
        why = (
            f"FlexAttention visits {visited:.1%}, at about a {PRICE_GPU:g}th of the cost of a pair"
        )
        return Choice("blocked", f"{estimate}; {why}")
    if m < FULL_ROWS and any(has_full_row(of_heads, n, m) for _, of_heads in groups):
        why = "FlexAttention visits the keys of a query one after the other, and some see all"
        return Choice("dense", f"{estimate}; {why}")
    return Choice("flex", f"{estimate}; on this device FlexAttention has a compiled kernel")
