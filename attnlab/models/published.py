"""Parameter counts that papers print, beside what the same configuration counts here.

Models are built on the meta device, where parameters have shapes but take no memory.
"""

from typing import NamedTuple

import torch
from torch import nn

from attnlab.models.evolved import EvolvedTransformer
from attnlab.models.mobilebert import MOBILE, TEACHER, TINY, MobileBERT
from attnlab.models.t5 import SIZES
from attnlab.models.t5 import VOCABULARY as PIECES
from attnlab.models.tiny import TinyTransformer


class Count(NamedTuple):
    """One row of a paper's table: parameters as counted here, millions as printed there.

    ``source`` is where the printed number was read, or that it was not: ``NOT_VERIFIED`` numbers
    are quoted by others, and nobody here has had the paper's table before them.
    """

    model: str
    parameters: int
    published: float
    source: str


NOT_VERIFIED = "not verified: quoted by others, the paper's table was not available"


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
        Count(model, _base(model, max_len, vocab), published, NOT_VERIFIED)
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
    return size_of(built)


ALBERT = {
    "all shared": 12,
    "attention shared": 64,
    "feed-forward shared": 38,
    "nothing shared": 89,
    "all shared, E = 64": 10,
    "all shared, E = 256": 16,
}
"""Millions, Lan et al. (arXiv:1909.11942), tables of shared parameters and of embedding sizes: 12
layers of dim 768, hidden width 3,072, a vocabulary of 30,000; E = 128 unless it says so."""


def albert_counts() -> list[Count]:
    """ALBERT base with its pooler. A set of parameters counts once, however often it is applied.

    The rows come out as printed, but for "nothing shared": 89.65 million, printed as 89 although
    the other rows are rounded, not cut off. The embedding has tokens, 512 positions and 2 segments
    of width E, a norm, and a matrix with a bias from E to 768.
    """
    with torch.device("meta"):
        layer = nn.TransformerEncoderLayer(768, 12, 3072)
    whole = size_of(layer)
    attention = size_of(layer.self_attn) + size_of(layer.norm1)
    sets = {
        "attention": attention + 12 * (whole - attention),
        "feed-forward": whole - attention + 12 * attention,
        "nothing": 12 * whole,
    }
    found = []
    for model, published in ALBERT.items():
        width = int(model.split("= ")[1]) if "=" in model else 128
        ends = (30_000 + 512 + 2 + 2) * width + (width + 1) * 768 + (768 + 1) * 768
        counted = ends + sets.get(model.split(" shared")[0], whole)
        found.append(
            Count(model, counted, published, "quoted from arXiv:1909.11942, its tables not read")
        )
    return found


MOBILEBERT = {
    "MobileBERT": (MOBILE, 25.3),
    "MobileBERT-tiny": (TINY, 15.1),
    "IB-BERT": (TEACHER, 293.0),
}
"""Sizes, and millions as Sun et al. (arXiv:2004.02984) print them.

The sizes are those of the configurations that the authors have released (google-research,
mobilebert/config). 25.3 and 15.1 stand in several tables that quote the paper's results on GLUE;
293 was found in none, and the paper itself was not available."""


def mobilebert_counts() -> list[Count]:
    """24 layers, a vocabulary of 30,522, without pooler and output.

    None is as printed. (1) MobileBERT, 24.58 against 25.3: of the difference, 0.56 million are the
    pooler, the dense layer and the biases of the masked-LM output, and the output for the next
    sentence; 0.16 stay unexplained. The 384 × 30,522 further numbers of that output, 11.7 million,
    are in neither. (2) The tiny, 15.49 against 15.1: a matrix of 128 × 128 less in each layer would
    give 15.09, and the paper does not say which. (3) IB-BERT, 294.2 against 293: biases,
    norms, positions and segments, which its table does not list, are 0.7 of the difference.
    """
    found = []
    for model, (sizes, published) in MOBILEBERT.items():
        with torch.device("meta"):
            built = MobileBERT(30_522, sizes=sizes)
        quoted = NOT_VERIFIED if model == "IB-BERT" else "quoted from the table of results on GLUE"
        found.append(Count(model, size_of(built), published, quoted))
    return found


EVOLVED = {
    "Transformer base": 61.1,
    "Evolved Transformer base": 64.1,
    "Transformer big": 210.4,
    "Evolved Transformer big": 221.7,
}
"""Millions, So et al. (arXiv:1901.11117), table of WMT'14 En-De. Not verified: the numbers are
those that others quote, and the paper's table was not available."""

EVOLVED_VOCABULARY = 33_288
"""The paper is said to print "32K". This one, shared by source, target and output, brings the row
of the base Transformer to 61.1 million; the three other rows then come out as quoted."""


def evolved_counts(*, vocab: int = EVOLVED_VOCABULARY) -> list[Count]:
    """6 + 6 layers of a transformer, or 3 + 4 cells; base is of dim 512, big of 1,024.

    The hidden layer of a decoder cell's feed-forward layer has a norm in the released code, but not
    in the paper's figure: without it the Evolved Transformer base would have 64.0 million.
    """
    found = []
    for model, published in EVOLVED.items():
        dim, heads = (512, 8) if model.endswith("base") else (1024, 16)
        with torch.device("meta"):
            if model.startswith("Evolved"):
                cells = EvolvedTransformer(dim, heads)
                count = size_of(cells) + vocab * dim
            else:
                count = size_of(_translator(dim, heads, vocab))
        found.append(Count(model, count, published, NOT_VERIFIED))
    return found


def _translator(dim: int, heads: int, vocab: int) -> TinyTransformer:
    return TinyTransformer(
        vocab, dim=dim, layers=6, heads=heads, kind="encoder_decoder", positions="sinusoidal"
    )


T5 = {"small": 60, "base": 220, "large": 770, "3b": 2800, "11b": 11_000}
"""Millions, Raffel et al. (arXiv:1910.10683, section 3.7), of the sizes that are named there."""


def t5_counts() -> list[Count]:
    """The five sizes of T5, with the vocabulary of the released models.

    Small, 3B and 11B come out as printed: 60.5 million, 2.85 and 11.3 billion. Base has 222.9,
    which the paper calls about 220. Large does not: it has 737.7, and would have the printed 770
    with a second table of tokens, 32.9 million numbers, which none of the other rows has.
    """
    found = []
    for size, published in T5.items():
        with torch.device("meta"):
            built = TinyTransformer(PIECES, **SIZES[size].model())
        source = "quoted from arXiv:1910.10683, section 3.7"
        found.append(Count(f"T5-{size}", size_of(built), published, source))
    return found


def size_of(module: nn.Module) -> int:
    """How many parameters a module has, each counted once."""
    return sum(parameter.numel() for parameter in module.parameters())
