"""Parameter counts that papers print, beside what the same configuration counts here.

Models are built on the meta device, where parameters have shapes but take no memory.
"""

from typing import NamedTuple

import torch

from attnlab.models.tiny import TinyTransformer


class Count(NamedTuple):
    """One row of a paper's table: parameters as counted here, millions as printed there."""

    model: str
    parameters: int
    published: int


SYNTHESIZER = {
    "transformer": 67,
    "fixed_random": 61,
    "random": 67,
    "dense": 62,
    "random_dense": 67,
    "dense_vanilla": 74,
    "random_vanilla": 73,
}
"""Millions of parameters, Tay et al. (arXiv:2005.00743), table of WMT'14 En-De and En-Fr results.

The paper itself was not available when this was written: the numbers are those that public
summaries of that table agree on. They leave out the two factorized models, so these are missing."""

VOCABULARY = 45_000
"""The paper does not print its vocabulary. This one, shared by source, target and output, brings
the Transformer's row to 67 million; it is the same in every row, so no order depends on it."""


def synthesizer_counts(*, max_len: int = 256, vocab: int = VOCABULARY) -> list[Count]:
    """The paper's base configuration (dim 512, 8 heads, 6 + 6 layers, hidden width 2048) with
    every self-attention replaced; cross-attention stays what it is.

    L = 256 is what the paper's numbers imply: 8 tables of 256 × 256 are exactly as many parameters
    as W_Q and W_K (2 · 512²), and the Random row equals the Transformer's; Fixed Random lacks
    them, Random + Vanilla has both. These rows come out as printed.

    What does not: (1) Dense. Here each head's F reads the whole token (dim² + dim·L per layer, the
    paper's formula), which costs 4.8 million, not 1. An F that reads only its head's slice of x,
    d² + d·L per head, would cost 2.0. (2) The
    mixtures with Dense. The printed rows do not add up for any F: over Fixed Random, Dense costs
    one million, in Random + Dense nothing, in Dense + Vanilla seven. Here a mixture is the sum of
    its parts, so Dense + Vanilla stays below Random + Vanilla, and equals Random + Dense.
    """
    return [
        Count(model, _base(model, max_len, vocab), published)
        for model, published in SYNTHESIZER.items()
    ]


def _base(model: str, max_len: int, vocab: int) -> int:
    synthetic = model != "transformer"
    with torch.device("meta"):
        built = TinyTransformer(
            vocab,
            dim=512,
            layers=6,
            heads=8,
            hidden=2048,
            kind="encoder_decoder",
            positions="sinusoidal",
            norm="post",
            max_len=max_len,
            attention="synthesizer" if synthetic else "full",
            attention_options={"variant": model, "max_len": max_len} if synthetic else None,
        )
    return sum(parameter.numel() for parameter in built.parameters())
