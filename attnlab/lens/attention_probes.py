r"""Can all heads together find a relation, from nothing but their attention weights?

A relation is given as pairs of places: a token and its partner (``attnlab.lens.relations`` asks
single heads for it). The probe is a classifier over the partners i of a token j whose only inputs
are the weights of all heads k between the two tokens, in both directions:

$$p(i \mid j) \propto \exp\Big(\sum_k w_k\, \alpha^k_{ij} + u_k\, \alpha^k_{ji}\Big)$$

With two numbers for each head it can weigh heads against each other, and little else. With words,
$w_k$ becomes $w_k + a_k^\top v_i + b_k^\top v_j$ (and $u_k$ likewise), where v are vectors of the
words alone, so that a head can count more for some words than for others.

Two controls belong beside the share of partners that it finds: the **best fixed offset**
(``relation(…).right_offset``), and the same probe on the attention of a model with untrained
weights. With words, a third: ``AttentionProbe`` on attention that is the same for all pairs, which
shows what the words alone give away.

Departure: the paper's tokens without a partner have the root, whose score is made of the attention
to [CLS] and [SEP]; here only tokens with a partner are asked, and the root is none.

Clark, Khandelwal, Levy, Manning. What Does BERT Look At? BlackboxNLP 2019, arXiv:1906.04341,
section 5.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from attnlab.core.integers import check_integer
from attnlab.lens.heads import check_weights
from attnlab.lens.record import Seen
from attnlab.lens.recorded_layers import layers_of
from attnlab.lens.relations import Finder, Pairs, places_of

STEPS, RATE, DECAY = 200, 0.2, 1e-3
"""Of Adam, each step over all pairs; DECAY times the squares of all weights joins the loss."""


class Asked(NamedTuple):
    """What the probe sees of each pair, and the answer."""

    weights: Float[Tensor, "p k n"]
    """Between the token and each other token: of all heads to the token, then from it."""
    possible: Tensor
    """(p, n) bool: the other real tokens."""
    partner: Tensor
    """(p,)"""
    words: Float[Tensor, "p n d"] | None
    """Of each possible partner."""
    word: Float[Tensor, "p d"] | None
    """Of the token."""


class AttentionProbe(nn.Module):
    """Two numbers for each head; with words of ``dim`` numbers, also two vectors for each.

    ``heads`` are (layer, head). It starts from zeros, where all partners are equally probable.
    """

    def __init__(self, heads: list[tuple[int, int]], dim: int = 0) -> None:
        super().__init__()
        self.heads = heads
        k = 2 * len(heads)
        self.weight = nn.Parameter(torch.zeros(k, dtype=torch.float64))
        self.of_partner = nn.Parameter(torch.zeros(k, dim, dtype=torch.float64))
        self.of_token = nn.Parameter(torch.zeros(k, dim, dtype=torch.float64))

    def forward(self, asked: Asked) -> Float[Tensor, "p n"]:
        """log p(i | j) of each pair's token j; −inf where no partner can be."""
        each = self.weight[:, None].expand(-1, asked.weights.shape[-1])
        if asked.words is not None:
            assert asked.word is not None
            each = each + torch.einsum("kd,pnd->pkn", self.of_partner, asked.words)
            each = each + torch.einsum("kd,pd->pk", self.of_token, asked.word)[..., None]
        scores = (each * asked.weights).sum(-2)
        return scores.masked_fill(~asked.possible, -torch.inf).log_softmax(-1)

    def rows(self) -> list[dict[str, Any]]:
        """One plain dict for each head and direction, the largest weight first. A head that attends
        from the token to the partner is "forward", as in ``relations``."""
        directions = ("transposed", "forward")
        finders = [Finder(*head, way) for way in directions for head in self.heads]
        found = zip(finders, self.weight.tolist(), strict=True)
        order = sorted(found, key=lambda each: -each[1])
        return [{**finder._asdict(), "weight": weight} for finder, weight in order]

    @torch.no_grad()
    def right(
        self, seen: Seen | Mapping[str, Tensor], pairs: Pairs, *, padding: Tensor | None = None,
        vectors: Float[Tensor, "b n d"] | None = None,
    ) -> float:  # fmt: skip
        """The share of pairs whose partner it finds the most probable; of equal ones, the first."""
        asked = asked_of(seen, pairs, padding=padding, vectors=vectors)
        if asked.weights.shape[1] != 2 * len(self.heads):
            raise ValueError(
                f"the probe weighs {len(self.heads)} heads, and these have "
                f"{asked.weights.shape[1] // 2}: ask it of the model that it was trained on"
            )
        if self.of_token.shape[1] != (0 if vectors is None else vectors.shape[-1]):
            raise ValueError(
                f"the probe was trained on words of {self.of_token.shape[1]} numbers: give "
                "`vectors` as in training"
            )
        return float((self(asked).argmax(-1) == asked.partner).double().mean())


def asked_of(
    seen: Seen | Mapping[str, Tensor], pairs: Pairs, *, padding: Tensor | None = None,
    vectors: Float[Tensor, "b n d"] | None = None,
) -> Asked:  # fmt: skip
    """The inputs and answers of the probe in one batch."""
    layers = [(name, weights.detach()) for name, weights, _ in layers_of(seen)]
    row, token, partner = places_of(pairs, layers)
    for _, weights in layers:
        check_weights(weights)
    maps = torch.cat([weights.double() for _, weights in layers], dim=1).cpu()
    b, _, n, _ = maps.shape
    to, read = maps[row, :, :, token], maps[row, :, token, :]  # (p, heads, n) each
    real = torch.ones(b, n, dtype=torch.bool) if padding is None else padding.cpu()
    possible = real[row] & (torch.arange(n) != token[:, None])
    if not bool(possible[torch.arange(len(row)), partner].all()):
        raise ValueError("a partner is padding, so that no probe could find it; leave its pair out")
    words = word = None
    if vectors is not None:
        if vectors.shape[:2] != (b, n):
            raise ValueError(
                f"vectors should be (b, n, d) with (b, n) = {(b, n)}, got {tuple(vectors.shape)}"
            )
        own = vectors.detach().double().cpu()
        words, word = own[row], own[row, token]
    return Asked(torch.cat([to, read], dim=1), possible, partner, words, word)


def attention_probe(
    seen: Seen | Mapping[str, Tensor], pairs: Pairs, *, padding: Tensor | None = None,
    vectors: Float[Tensor, "b n d"] | None = None, steps: int = STEPS,
) -> AttentionProbe:  # fmt: skip
    """A probe that was trained on one batch; ``probe.right`` asks it of another.

    ``seen``     what ``attnlab.watch`` recorded, or weights as {layer's name: (b, h, n, n)}
    ``pairs``    for each sequence of the batch its pairs (token, partner), two different places
    ``padding``  (b, n) bool, True = a real token, which alone may be a partner
    ``vectors``  (b, n, d) of the words alone, such as rows of the model's embedding

    The loss is convex, and the start is zeros: there is no chance in it. Memory: (pairs, 2 heads,
    n) in float64.
    """
    check_integer("steps", steps, at_least=1)
    asked = asked_of(seen, pairs, padding=padding, vectors=vectors)
    heads = [
        (layer, head)
        for layer, (_, weights, _) in enumerate(layers_of(seen))
        for head in range(weights.shape[1])
    ]
    probe = AttentionProbe(heads, 0 if vectors is None else vectors.shape[-1])
    optimiser = torch.optim.Adam(probe.parameters(), lr=RATE)
    with torch.enable_grad():
        for _ in range(steps):
            optimiser.zero_grad()
            answers = probe(asked).gather(-1, asked.partner[:, None])
            squares = sum((p**2).sum() for p in probe.parameters())
            (DECAY * squares - answers.mean()).backward()
            optimiser.step()
    return probe
