r"""Reformer (LSH attention): a query attends to the keys that a hash puts into its bucket.

A softmax is decided by its largest scores, so a query needs only the keys that are near to it.
Queries and keys are the same vectors here, keys of unit length, $k_j = q_j / |q_j|$, and a hash of
angles puts near ones into one bucket: with a random matrix R (d × b/2) and b buckets

$$h(x) = \arg\max\,[x R;\, -x R],$$

the direction, among b/2 random ones and their opposites, that x is nearest to. In each round, with
an R of its own, tokens are sorted by (bucket, position) and cut into chunks of m; a query attends
to the tokens of its bucket $P_i$ in its chunk and the one before it, $\tilde P_i$. It does not
attend to itself, where its score is always the largest, unless it has no other key. The rounds
together are one softmax over the union of what they find (eq. 12 to 16):

$$o_i = \sum_r e^{z_i^{(r)} - z_i}\, o_i^{(r)},\qquad o_i^{(r)} = \sum_{j \in \tilde P_i^{(r)} \cap
P_i^{(r)}} e^{q_i \cdot k_j - \log N_{ij} - z_i^{(r)}}\, v_j,$$

$z_i^{(r)}$ and $z_i$ the logarithms of the sums of those powers in one round and in all. A pair
that several rounds find is divided by $N_{ij}$, the number of rounds that find it.

Cost: $4 h r m (d + e) n$ FLOPs for r rounds, and $h r b\, d\, n$ for the hash. The paper sets
b = 2 n / m; with b fixed, as here, both are linear in n.

``naive``    the equation: the n × n weights, and which of them are allowed, dense.
``chunked``  sorts, gathers chunks, keeps nothing of the size n × m for the backward pass.

The paper's letters: l is our n, $n_r$ our r (``rounds``), $n_{buckets}$ our b. $N_{ij}$ as printed
counts the rounds in which i and j share a bucket (``count="buckets"``). Where a bucket is larger
than its chunks, such a round need not have the pair, and dividing by it makes the weight too small;
``count="attended"`` counts the rounds that have it.

Causal attention as printed leaks. Chunks are counted from the first of the sorted tokens, so where
they begin depends on how many *later* tokens fall into buckets that come before: those change which
keys an earlier query attends to (values do not leak). So a causal query attends to the m tokens
before it in its bucket instead (``causal_window="nearest"``): as many scores to compute, and
exact. ``causal_window="chunks"`` is as printed, to see the leak.

Readings. The scale 1/√d, which the paper omits for clarity, multiplies q·k with k of unit length.
The first chunk has none before it. Rotations are drawn once for each head and round and redrawn by
``redraw``; the authors' code draws new ones for each batch. Padded tokens are sorted to the end,
and are nobody's keys. A sequence that m does not divide is filled up inside. There is no decoding
step by step: chunks as printed have no fixed beginning while tokens are added, and with
``causal_window="nearest"`` a step would have to look through the buckets of all past tokens.

Other implementations. Transformers (Hugging Face) does not compare buckets within chunks, divides
by no $N_{ij}$, uses the scale 1 and lets the first chunk of a round look back at the last of the
round before. By default reformer-pytorch compares no buckets and divides by no $N_{ij}$ either, and
its first chunk looks back at the last one. Both leak as described above.

Departures.
- a causal query attends to the m tokens before it in its bucket; as printed, later tokens decide
  where chunks begin
- a pair is divided by the number of rounds that have it; as printed, by those in which the two
  share a bucket
- the number of buckets is an option, not 2 n / m
- rotations are drawn once, not for each batch
- the scale is 1/√d
- no decoding token by token: a step would look through the buckets of all past tokens

Gives up. A query attends only to keys with the same hash, which are usually the similar ones.

Kitaev, Kaiser, Levskaya. Reformer: The Efficient Transformer. ICLR 2020, arXiv:2001.04451, section
2 and appendix A. Reversible layers and chunked feed-forward layers: ``attnlab.architecture``.
"""

from dataclasses import replace
from typing import Literal

import torch
from jaxtyping import Bool
from torch import Tensor, nn

from attnlab.core.card import Card, letters
from attnlab.core.forms import form
from attnlab.core.heads import Heads, zero_nonfinite_padding
from attnlab.core.layer import Layer
from attnlab.core.options import Size
from attnlab.core.probe import note
from attnlab.core.shapes import Outputs, Queries, SelfValues, TokenPadding, Tokens, checked
from attnlab.core.softmax import masked_softmax
from attnlab.mechanisms.learned.reformer.chunks import over_rounds
from attnlab.mechanisms.learned.reformer.hashing import (
    Buckets,
    Places,
    ReformerOptions,
    Rotations,
    hash_buckets,
)

__all__ = [
    "CARD", "FORMS", "Buckets", "Places", "Reformer", "ReformerOptions", "Rotations", "attended",
    "chunked", "hash_buckets", "naive", "unit",
]  # fmt: skip

# ---- naive


@form
def naive(
    q: Queries, v: SelfValues, rotations: Rotations, *,
    causal: bool = False, padding: TokenPadding = None,
    options: ReformerOptions = ReformerOptions(),
) -> Outputs:  # fmt: skip
    """One softmax over the union of all rounds, dense. ``rotations`` (h, r, d, k): r rounds of 2k
    buckets."""
    places = _places(q, rotations, padding, options, causal=causal)
    scores = q @ unit(q).mT * options.scale_of(q.shape[-1])
    times, divided = (x.to(scores.dtype) for x in _counted(places, options))
    scores = scores + (times / divided).log()
    weights = masked_softmax(scores, times > 0)
    weights = weights + _alone(weights.sum(dim=-1), padding).diag_embed()
    return note("weights", weights) @ v


def unit(q: Tensor) -> Tensor:
    """Keys: the queries at unit length; of a zero vector, zero."""
    length = q.norm(dim=-1, keepdim=True)
    return q / (length + (length == 0))


def _places(
    q: Tensor, rotations: Tensor, padding: Tensor | None, options: ReformerOptions, *, causal: bool
) -> Places:
    found = hash_buckets(q, rotations)
    places = Places.of(found, 2 * rotations.shape[-1], padding, options, causal=causal)
    note("buckets", places.buckets)
    return places


@checked
def attended(
    q: Queries, rotations: Rotations, *,
    causal: bool = False, padding: TokenPadding = None,
    options: ReformerOptions = ReformerOptions(),
) -> Bool[Tensor, "b h n n"]:  # fmt: skip
    """Dense: whether query i (rows) attends to key j (columns) in any round.

    What a token without another key attends to, itself, is left out.
    """
    places = _places(q, rotations, padding, options, causal=causal)
    found = places.attended(0)
    for index in range(1, rotations.shape[1]):
        found |= places.attended(index)
    return found


def _counted(places: Places, options: ReformerOptions) -> tuple[Tensor, Tensor]:
    """For each pair: the rounds in which it attends, and N_ij, by which they are divided."""
    rounds = range(places.rank.shape[2])
    times = torch.stack([places.attended(r) for r in rounds]).sum(dim=0)
    if options.count == "attended":
        return times, times.clamp(min=1)
    return times, torch.stack([places.same_bucket(r) for r in rounds]).sum(dim=0).clamp(min=1)


def _alone(total: Tensor, padding: Tensor | None) -> Tensor:
    """1 at tokens (b, h, n) without another key, which attend to themselves, elsewhere 0."""
    alone = total == 0
    return (alone if padding is None else alone & padding[:, None]).to(total.dtype)


# ---- chunked


@form
def chunked(
    q: Queries, v: SelfValues, rotations: Rotations, *,
    causal: bool = False, padding: TokenPadding = None,
    options: ReformerOptions = ReformerOptions(),
) -> Outputs:  # fmt: skip
    """Each round sorted and cut into chunks: r · 2m scores for each query."""
    places = _places(q, rotations, padding, options, causal=causal)
    exact = options.count == "attended"
    scaled, values = q * options.scale_of(q.shape[-1]), v.flatten(0, 1)
    given = (scaled.flatten(0, 1), unit(q).flatten(0, 1), values)
    out, log_sum = over_rounds(*given, places, options.chunk, exact=exact)
    found = log_sum.unflatten(0, q.shape[:2]) > -torch.inf
    out = out.unflatten(0, q.shape[:2]) + _alone(found, padding)[..., None] * v
    return out


FORMS = {"naive": naive, "chunked": chunked}

# ---- module


class Reformer(Layer):
    """Multi-head LSH attention with shared queries and keys: (b, n, dim) → (b, n, dim).

    ``rotations`` (h, rounds, d, buckets / 2) are drawn by a generator seeded with the option
    ``seed`` and kept as a buffer, so that the same input has the same output; ``redraw`` draws new
    ones. ``layer.options`` may be replaced by others with the same buckets and rounds.
    """

    rotations: Tensor

    @checked
    def __init__(
        self, dim: Size, heads: Size, *, causal: bool = False,
        form: Literal["naive", "chunked"] = "chunked", options: ReformerOptions = ReformerOptions(),
    ) -> None:  # fmt: skip
        super().__init__()
        self.heads = Heads(dim, heads, queries=False)
        self.query = nn.Linear(dim, dim, bias=False)
        self.causal, self.form, self.options = causal, form, options
        drawn = self._drawn(options, torch.Generator().manual_seed(options.seed))
        self.register_buffer("rotations", drawn)

    def _drawn(self, options: ReformerOptions, generator: torch.Generator) -> Tensor:
        return options.draw(self.heads.heads, self.heads.value_dim, generator)

    @torch.no_grad()
    def redraw(self, generator: torch.Generator, rounds: Size | None = None) -> None:
        """New rotations, from ``generator``; as many rounds as before, or ``rounds``.

        A layer may be given more rounds after training than it was trained with.
        """
        if rounds is not None:
            self.options = replace(self.options, rounds=rounds)
        self.rotations = self._drawn(self.options, generator).to(self.rotations)

    @checked
    def forward(self, x: Tokens, padding: TokenPadding = None) -> Tokens:
        self.heads.check_input(x, "x")
        x = zero_nonfinite_padding(x, padding)
        q = note("queries", self.heads.split(self.query(x), self.heads.value_dim))
        v = note("values", self.heads.values(x))
        note("keys", lambda: unit(q))
        out = FORMS[self.form](
            *(q, v, self.rotations), causal=self.causal, padding=padding, options=self.options
        )
        return self.heads.merge(out)


# ---- card

h, n, d, e, r, b, m = letters("h n d e r b c")

CARD = Card(
    __doc__,
    name="reformer",
    family="learned",
    role="attend",
    forms=FORMS,
    causal="optional",
    options=ReformerOptions,
    letters={"b": "buckets", "c": "chunk", "r": "rounds"},
    positions_reason="its buckets are of queries by content, and turned ones would be put into "
    "buckets by position as well",
    time={
        "naive": 2 * h * n**2 * (d + e) + h * r * b * d * n,
        "chunked": 4 * h * r * m * n * (d + e + 1) + h * r * b * d * n,
    },
    memory={"naive": h * r * n**2, "chunked": h * n * (b / 2 + r + d + e + 1)},
    notes={"naive": ("buckets", "weights"), "chunked": ("buckets",)},
    variants=(
        {"buckets": 2, "chunk": 3, "rounds": 2},
        {"buckets": 4, "chunk": 5, "rounds": 2, "count": "buckets", "scale": 1.0},
    ),
    build=Reformer,
    aliases=("lsh", "lsh attention"),
    small_options={"buckets": 4, "chunk": 8, "rounds": 2},
)
