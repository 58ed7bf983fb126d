r"""MobileBERT: a wide stream between narrow layers, and its teacher, narrow between wide ones.

A deep model of narrow layers is small but hard to train. MobileBERT is trained by layer after layer
of a teacher: for that its stream is as wide as the teacher's (512), while the layers compute at
another width (128). A layer reads the stream $x$ through two bottlenecks:

$$l = N(W_{in} x), \quad s = N(W_{qk} x), \quad q = W_q s, \quad k = W_k s, \quad v = W_v x$$
$$y = N(W_o\, \mathrm{heads}(q, k, v) + l), \quad \text{four times } y \leftarrow
N(W_2\, \mathrm{relu}(W_1 y) + y), \quad x' = N(W_{out}\, y + x)$$

Queries and keys share a bottleneck; **values read the wide stream itself**. So attention has more
parameters beside the feed-forward layers than in BERT; four of these after each other restore the
ratio. $N$ is NoNorm, $\gamma \odot x + \beta$: no statistics, which cost time on a phone. The table
of tokens is narrow (128), and a token's vector is made of three rows:

$$e_t = W_e\,[E_{t+1}\,; E_t\,; E_{t-1}] + p_t, \qquad \text{zeros beyond the ends}$$

The teacher, IB-BERT, is the same with a wide inside (1,024), q, k and v all from the stream, one
feed-forward layer and layer norms. Both streams are 512 wide, so maps of features and of attention
can be compared without a projection (equations in section 3.4 of the paper).

``TinyTransformer(block="mobilebert")`` stacks these layers, and ``block="ib_bert"`` the teacher's,
between an embedding and an output of its own; ``MobileBERT`` is the model of the paper, with the
embedding of three tokens. A layer decides norm, projections and widths together, so the options of
a ``TinyTransformer`` that would choose them are refused beside it.

Common mistakes: values from the bottleneck; the order next, present, previous of the embedding
turned round; counting the masked-LM output, whose 384 × V further numbers are in no printed count.

Departures.
- a row has one segment unless ``types`` says otherwise; dropout is left out
- a mean over the tokens classifies, where the paper takes the first token's vector

Sun, Yu, Song, Liu, Yang, Zhou. MobileBERT: a Compact Task-Agnostic BERT for Resource-Limited
Devices. ACL 2020, arXiv:2004.02984, sections 3.1 to 3.3 and table 1.
"""

from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from attnlab.core import patterns
from attnlab.core.heads import check_input, zero_nonfinite_padding
from attnlab.core.options import Options, Size
from attnlab.core.probe import note
from attnlab.mechanisms.dense.full import fused


@dataclass(frozen=True, kw_only=True)
class MobileBERTOptions(Options):
    """The sizes of one layer; the defaults are MobileBERT's.

    dim: width of the stream.
    inside: width at which a layer computes.
    heads: of attention, each inside / heads wide.
    hidden: width of each feed-forward layer's hidden layer.
    feeds: how many feed-forward layers follow each other.
    reads: what queries and keys are made of: a bottleneck of their own ("shared"), the one that the
        layer computes in, which values then read too ("bottleneck", MobileBERT-tiny), or the stream
        ("stream", IB-BERT).
    norm: "none" is NoNorm, "layer" a layer norm.
    curve: "relu", or "gelu" as in the released configuration of the teacher.
    """

    dim: Size = 512
    inside: Size = 128
    heads: Size = 4
    hidden: Size = 512
    feeds: Size = 4
    reads: Literal["shared", "bottleneck", "stream"] = "shared"
    norm: Literal["none", "layer"] = "none"
    curve: Literal["relu", "gelu"] = "relu"

    def check(self) -> None:
        if self.inside % self.heads:
            raise ValueError(
                f"heads should divide inside={self.inside}, the width at which a layer computes, "
                f"got heads={self.heads}"
            )


MOBILE = MobileBERTOptions()
TINY = MobileBERTOptions(feeds=2, reads="bottleneck")
TEACHER = MobileBERTOptions(
    inside=1024, hidden=4096, feeds=1, reads="stream", norm="layer", curve="gelu"
)
"""IB-BERT, of which MobileBERT learns."""


class NoNorm(nn.Module):
    """γ ⊙ x + β: the scale and the shift of a layer norm without its statistics."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.ones(dim)), nn.Parameter(torch.zeros(dim))

    def forward(self, x: Tensor) -> Tensor:
        return x * self.weight + self.bias


NORMS = {"none": NoNorm, "layer": nn.LayerNorm}


class Layer(nn.Module):
    """One layer: (b, n, dim) → (b, n, dim), bidirectional."""

    def __init__(self, sizes: MobileBERTOptions = MOBILE) -> None:
        super().__init__()
        self.sizes = o = sizes
        norm = NORMS[o.norm]
        width = {"shared": o.inside, "bottleneck": o.inside, "stream": o.dim}[o.reads]
        self.into, self.into_norm = nn.Linear(o.dim, o.inside), norm(o.inside)
        if o.reads == "shared":
            self.shared, self.shared_norm = nn.Linear(o.dim, o.inside), norm(o.inside)
        self.query, self.key = nn.Linear(width, o.inside), nn.Linear(width, o.inside)
        wide = o.inside if o.reads == "bottleneck" else o.dim
        self.value = nn.Linear(wide, o.inside)
        self.output, self.attention_norm = nn.Linear(o.inside, o.inside), norm(o.inside)
        self.expand = nn.ModuleList(nn.Linear(o.inside, o.hidden) for _ in range(o.feeds))
        self.contract = nn.ModuleList(nn.Linear(o.hidden, o.inside) for _ in range(o.feeds))
        self.feed_norms = nn.ModuleList(norm(o.inside) for _ in range(o.feeds))
        self.out, self.out_norm = nn.Linear(o.inside, o.dim), norm(o.dim)

    def forward(
        self, x: Float[Tensor, "b n dim"], padding: Bool[Tensor, "b n"] | None = None
    ) -> Float[Tensor, "b n dim"]:
        check_input(x, "x", self.sizes.dim, self.into.weight)
        x = zero_nonfinite_padding(x, padding)
        low = self.into_norm(self.into(x))
        y: Tensor = self.attention_norm(self.output(self._attended(x, low, padding)) + low)
        curve = F.relu if self.sizes.curve == "relu" else F.gelu
        for expand, contract, norm in zip(self.expand, self.contract, self.feed_norms, strict=True):
            y = norm(contract(curve(expand(y))) + y)
        out: Tensor = self.out_norm(self.out(y) + x)
        return out

    def _attended(self, x: Tensor, low: Tensor, padding: Tensor | None) -> Tensor:
        reads = self.sizes.reads
        asked = x if reads == "stream" else low
        if reads == "shared":
            asked = self.shared_norm(self.shared(x))
        q, k = (self._split(made(asked)) for made in (self.query, self.key))
        v = self._split(self.value(low if reads == "bottleneck" else x))
        q, k, v = note("queries", q), note("keys", k), note("values", v)
        return (
            fused(q, k, v, mask=patterns.visible(False, padding, None, None))
            .transpose(1, 2)
            .flatten(-2)
        )

    def _split(self, x: Tensor) -> Tensor:
        return x.unflatten(-1, (self.sizes.heads, -1)).transpose(1, 2)


class Trigrams(nn.Module):
    """A token's vector, of its own row of a narrow table and those of its two neighbours."""

    def __init__(
        self, vocab: int, dim: int, rows: int, max_len: int, types: int, norm: str
    ) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocab, rows)
        self.three = nn.Linear(3 * rows, dim)
        self.positions, self.types = nn.Embedding(max_len, dim), nn.Embedding(types, dim)
        self.norm = NORMS[norm](dim)
        for table in (self.tokens, self.positions, self.types):
            nn.init.normal_(table.weight, std=0.02)

    def forward(
        self, tokens: Int[Tensor, "b n"], padding: Bool[Tensor, "b n"] | None = None,
        types: Int[Tensor, "b n"] | None = None,
    ) -> Float[Tensor, "b n dim"]:  # fmt: skip
        x = zero_nonfinite_padding(self.tokens(tokens), padding)
        after, before = F.pad(x[:, 1:], (0, 0, 0, 1)), F.pad(x[:, :-1], (0, 0, 1, 0))
        kinds = self.types(torch.zeros_like(tokens) if types is None else types)
        at = self.positions.weight[: tokens.shape[1]]
        out: Tensor = self.norm(self.three(torch.cat((after, x, before), dim=-1)) + at + kinds)
        return out


class MobileBERT(nn.Module):
    """Tokens → classes of each row (b, classes); ``encode`` gives the vectors (b, n, dim).

    vocab, classes: how many tokens and classes there are; without classes only ``encode`` answers.
    layers: how many.
    sizes: of each layer; ``TEACHER`` makes it IB-BERT.
    rows: width of the table of tokens.
    max_len, types: most tokens of a row, and how many kinds of segments there are.
    """

    def __init__(
        self, vocab: Size, classes: Size | None = None, *, layers: Size = 24,
        sizes: MobileBERTOptions = MOBILE, rows: Size = 128, max_len: Size = 512, types: Size = 2,
    ) -> None:  # fmt: skip
        super().__init__()
        self.vocab, self.max_len = vocab, max_len
        self.embedding = Trigrams(vocab, sizes.dim, rows, max_len, types, sizes.norm)
        self.layers = nn.ModuleList(Layer(sizes) for _ in range(layers))
        self.output = None if classes is None else nn.Linear(sizes.dim, classes)

    def encode(
        self, tokens: Int[Tensor, "b n"], padding: Bool[Tensor, "b n"] | None = None,
        types: Int[Tensor, "b n"] | None = None,
    ) -> Float[Tensor, "b n dim"]:  # fmt: skip
        if tokens.shape[1] > self.max_len:
            raise ValueError(
                f"a row should have at most max_len={self.max_len} tokens, got {tokens.shape[1]}; "
                "build the model with a larger max_len"
            )
        x: Tensor = self.embedding(tokens, padding, types)
        for layer in self.layers:
            x = layer(x, padding)
        return x

    def forward(
        self, tokens: Int[Tensor, "b n"], padding: Bool[Tensor, "b n"] | None = None
    ) -> Float[Tensor, "b classes"]:
        if self.output is None:
            raise ValueError(
                "a model built without classes classifies nothing; call encode(tokens)"
            )
        x = zero_nonfinite_padding(self.encode(tokens, padding), padding)
        real = x.new_ones(x.shape[:2]) if padding is None else padding.to(x.dtype)
        mean = torch.einsum("bnd,bn->bd", x, real) / real.sum(1, True).clamp(min=1)
        out: Tensor = self.output(mean)
        return out
