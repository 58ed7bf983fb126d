r"""Charformer's GBST: subwords that are learned, as a weighted choice between blocks of 1 to 4.

Bytes need no vocabulary, but they are many, and one byte means little. Charformer's gradient-based
subword tokenization (GBST) reads the vectors of n characters and hands on ⌈n / d_s⌉ vectors, each
made of blocks whose size the model chooses for itself, character by character, with a softmax that
gradients pass through.

For each size s the characters are cut into blocks of s, side by side. The candidate of character i
at size s is the mean of the block that i stands in:

$$X_{s,i} = \frac{1}{|B|} \sum_{j \in B} x_j, \qquad B = \{\, j : \lfloor j/s \rfloor =
\lfloor i/s \rfloor \,\}$$

One vector w scores every candidate, a softmax over the *sizes* makes weights of the scores, and the
character becomes the weighted mean of its candidates:

$$P_i = \mathrm{softmax}_s(X_{s,i} \cdot w), \qquad \hat x_i = \sum_s P_{s,i}\, X_{s,i}$$

Last, each d_s characters become one, by their mean. What follows, a Transformer, is d_s times
shorter.

``calibrate``    lets characters agree: $\hat P = \mathrm{softmax}(P P^\top)\, P$, a softmax over
                 positions. Those with similar weights become more similar. Costs n².
``convolution``  the width of a convolution over the characters before all this (0: none). It shifts
                 what a block reads, in place of candidates for every offset of every size, and
                 tells the order within a block, which a mean forgets.

``naive``   the equations: sequence by sequence, character by character, each block cut out.
``pooled``  all blocks of a size at once; only one vector per block is scored, not one per
            character, and the n × M candidates are never stored.

Cost with M sizes: 2 n dim² t for a convolution of width t, some 4 n M dim for scores and sums,
4 n² M for the calibration. Parameters: t dim² + dim.

Never causal. With sizes 1 to 4 character 3 reads characters 0 to 5 (3 stands in the blocks 2 … 3,
3 … 5 and 0 … 3); the convolution reads to the right, and a calibrated weight depends on all. So
it is for encoders.

The paper's letters: b is our s, $M$ the number of sizes (there 1, …, M), $\hat X$ our x̂.

Readings, where the paper is silent. The last block of a size, and the last mean of d_s, are over
the characters that are there. Padding takes no place: blocks are counted over real characters, and
what comes out stands at the front, so a padded sequence gives what it gives alone, calibrated or
not. The convolution has no bias, is padded with zeros, and one of even width reaches further right.

Known elsewhere. The authors' Mesh TensorFlow code divides the last block by its full size; its
calibration works on the scores before the softmax and mixes no positions; its sizes are 2, 3, 4
and then 1. lucidrains' package divides so, too, has a depthwise convolution, and lets padded
characters take part in the calibration unless it is given a mask.

Departures.
- the last block and the last mean are over the characters that are there
- padding takes no place; what comes out stands at the front
- the convolution has no bias, and one of even width reaches further right

Tay, Tran, Ruder, Gupta, Chung, Bahri, Qin, Baumgartner, Yu, Metzler. Charformer: Fast Character
Transformers via Gradient-based Subword Tokenization. ICLR 2022, arXiv:2106.12672, section 2.
"""

from typing import Literal

import sympy
import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pad_sequence

from attnlab.core.card import Card, letters
from attnlab.core.forms import form
from attnlab.core.layer import Layer
from attnlab.core.options import Size
from attnlab.core.probe import note
from attnlab.core.shapes import TokenPadding, Tokens, checked
from attnlab.core.softmax import masked_softmax
from attnlab.mechanisms.positions.gbst.blocks import (
    BlockOptions,
    GBSTOptions,
    block_means,
    real_first,
)

__all__ = ["CARD", "FORMS", "GBST", "BlockOptions", "GBSTOptions", "naive", "pooled"]

# ---- naive


@form
def naive(
    x: Tokens, scorer: Float[Tensor, "dim"], kernel: Float[Tensor, "dim dim t"] | None, *,
    padding: TokenPadding = None, options: BlockOptions = BlockOptions(),
) -> Float[Tensor, "b k dim"]:  # fmt: skip
    """Sequence by sequence, without its padding. ``kernel`` as in ``F.conv1d``, or None."""
    _, n, dim = x.shape
    rows = list(x) if padding is None else [row[real] for row, real in zip(x, padding, strict=True)]
    parts = [_alone(row, scorer, kernel, options) for row in rows]
    note("scores", lambda: _filled([scores for scores, _, _ in parts], n))
    note("weights", lambda: _filled([weights for _, weights, _ in parts], n))
    if not parts:
        return x.new_zeros(0, options.length(n), dim)
    return _filled([out for _, _, out in parts], options.length(n))


def _alone(
    x: Tensor, scorer: Tensor, kernel: Tensor | None, options: BlockOptions
) -> tuple[Tensor, Tensor, Tensor]:
    """Scores (n, M), weights (n, M) and the shortened sequence (⌈n / d_s⌉, dim) of one sequence."""
    x = x if kernel is None else _convolved(x, kernel)
    candidates = torch.stack([_candidates(x, size) for size in options.blocks], dim=1)  # n M dim
    scores = candidates @ scorer
    weights = scores.softmax(-1)
    if options.calibrate:
        weights = (weights @ weights.mT).softmax(-1) @ weights
    mixed = (weights[..., None] * candidates).sum(1)
    return scores, weights, _means(mixed, options.downsample)


def _convolved(x: Tensor, kernel: Tensor) -> Tensor:
    """Σ_o K_o x_{i+o}, with zeros outside of the sequence."""
    width = kernel.shape[-1]
    before = (width - 1) // 2
    around = F.pad(x, (0, 0, before, width - 1 - before))
    return sum(
        (around[o : o + len(x)] @ kernel[..., o].mT for o in range(width)), torch.zeros_like(x)
    )


def _candidates(x: Tensor, size: int) -> Tensor:
    """(n, dim): for each character the mean of its block."""
    if not len(x):
        return x
    starts = [i // size * size for i in range(len(x))]
    return torch.stack([x[start : start + size].mean(0) for start in starts])


def _means(x: Tensor, size: int) -> Tensor:
    """(⌈n / size⌉, dim): the mean of each ``size`` characters."""
    means = [x[start : start + size].mean(0) for start in range(0, len(x), size)]
    return torch.stack(means) if means else x


def _filled(rows: list[Tensor], length: int) -> Tensor:
    """(b, length, …): rows of their own lengths, filled up with zeros."""
    longest = pad_sequence(rows, batch_first=True)
    return F.pad(longest, (0, 0, 0, length - longest.shape[1]))


# ---- pooled


@form(autocast=True)
def pooled(
    x: Tokens, scorer: Float[Tensor, "dim"], kernel: Float[Tensor, "dim dim t"] | None, *,
    padding: TokenPadding = None, options: BlockOptions = BlockOptions(),
) -> Float[Tensor, "b k dim"]:  # fmt: skip
    """All blocks of a size at once."""
    chars, real = real_first(x, padding)
    n = chars.shape[1]
    if kernel is not None:
        before = (kernel.shape[-1] - 1) // 2
        around = F.pad(chars.mT, (before, kernel.shape[-1] - 1 - before))
        chars = F.conv1d(around, kernel).mT * real[..., None]
    means = {size: block_means(chars, real, size) for size in options.blocks}
    scores = [_repeated(mean @ scorer, size, n) for size, mean in means.items()]
    weights = note("scores", torch.stack(scores, dim=-1)).softmax(-1)
    if options.calibrate:
        weights = masked_softmax(weights @ weights.mT, real[:, None]) @ weights
    weights = note("weights", weights * real[..., None])
    mixed = torch.zeros_like(chars)
    for place, (size, mean) in enumerate(means.items()):
        mixed = mixed + weights[..., place, None] * _repeated(mean, size, n)
    return block_means(mixed, real, options.downsample)


def _repeated(blocks: Tensor, size: int, n: int) -> Tensor:
    """(b, blocks, …) → (b, n, …): what a block holds, for each of its characters."""
    return blocks.repeat_interleave(min(size, n), dim=1)[:, :n]


FORMS = {"naive": naive, "pooled": pooled}

# ---- module


class GBST(Layer):
    """Characters to latent subwords: (b, n, dim) → (b, ⌈n / d_s⌉, dim), and which are real."""

    @checked
    def __init__(
        self, dim: Size, *,
        form: Literal["naive", "pooled"] = "pooled", options: GBSTOptions = GBSTOptions(),
    ) -> None:  # fmt: skip
        super().__init__()
        width = options.convolution
        self.form, self.options = form, options
        self.scorer = nn.Parameter(torch.randn(dim) * dim**-0.5)
        kernel = torch.randn(dim, dim, width) * (dim * max(width, 1)) ** -0.5
        self.kernel = nn.Parameter(kernel) if width else None

    @checked
    def forward(
        self, x: Tokens, padding: TokenPadding = None
    ) -> tuple[Float[Tensor, "b k dim"], Bool[Tensor, "b k"] | None]:
        """The shortened sequence and its padding (None if none was given). What is real stands at
        the front, wherever the padding stood."""
        if x.shape[-1] != len(self.scorer):
            raise ValueError(
                f"x should be vectors of width dim={len(self.scorer)}, got {x.shape[-1]}"
            )
        out = FORMS[self.form](x, self.scorer, self.kernel, padding=padding, options=self.options)
        if padding is None:
            return out, None
        lengths = padding.sum(1).add(self.options.downsample - 1) // self.options.downsample
        return out, torch.arange(out.shape[1], device=out.device) < lengths[:, None]


# ---- card

n, dim = letters("n dim")


def _time(options: GBSTOptions, scored: sympy.Expr) -> sympy.Expr:
    """FLOPs of the convolution, ``scored`` candidates, sums over sizes and the calibration."""
    sizes = len(options.blocks)
    own = 2 * n * dim**2 * options.convolution + 2 * dim * (scored + n * sizes)
    return own + 4 * n**2 * sizes * int(options.calibrate)


CARD = Card(
    __doc__,
    name="gbst",
    family="positions",
    role="embed",
    forms=FORMS,
    causal="never",
    causal_reason="a block, and the convolution, hold characters after the one that reads them",
    options=GBSTOptions,
    time={
        "naive": lambda chosen: _time(chosen, n * len(chosen.blocks)),
        "pooled": lambda chosen: _time(chosen, sum(n / size for size in chosen.blocks)),
    },
    memory={
        "naive": lambda chosen: n * dim * len(chosen.blocks) + n**2 * int(chosen.calibrate),
        "pooled": lambda chosen: n * (dim + len(chosen.blocks)) + n**2 * int(chosen.calibrate),
    },
    notes=dict.fromkeys(FORMS, ("scores", "weights")),
    variants=(
        {"calibrate": True},
        {"blocks": (1,), "convolution": 0, "downsample": 1},
        {"blocks": (2, 5, 3), "convolution": 2, "downsample": 3},
    ),
    aliases=("charformer",),
    build=GBST,
)
