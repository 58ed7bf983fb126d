"""Which head finds a relation between tokens, such as that of a verb and its subject?

A relation is given as pairs of places: a token and its partner. A head **finds** a pair if, of all
other tokens, the partner has the largest weight in the row of the token; in the transposed map,
which counts here as a second head, if the token has the largest weight in the row of the partner.
So every head is asked in both directions, and a causal head can find a pair only from the later of
its two tokens.

A head that always attends to the same distance finds every relation whose partners mostly stand at
that distance. So the **best fixed offset** stands beside every head: the distance, the same for all
tokens, that is right most often. A head says something about the relation only where it is clearly
better than the offset.

The best of many heads is ahead by chance, too. Choose the head on some texts and measure it on
others: ``found.best`` of the first, and ``other.right(*found.best)`` of the others.

Clark, Khandelwal, Levy, Manning. What Does BERT Look At? BlackboxNLP 2019, arXiv:1906.04341,
section 4.2.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from attnlab.core.suggest import check_choice
from attnlab.lens.heads import check_weights
from attnlab.lens.record import Seen
from attnlab.lens.recorded_layers import layers_of

DIRECTIONS = ("forward", "transposed")
Pairs = Sequence[Sequence[tuple[int, int]]]


class Finder(NamedTuple):
    """A head and the direction in which it was asked."""

    layer: int
    head: int
    direction: str


class Relation(NamedTuple):
    """How many pairs each head finds, and how many each fixed offset."""

    pairs: int
    found: dict[Finder, int]
    offsets: dict[int, int]
    """partner - token → the pairs at that distance."""

    def right(self, layer: int, head: int, direction: str = "forward") -> float:
        """The share of pairs that a head finds."""
        check_choice("direction", direction, DIRECTIONS)
        if (asked := Finder(layer, head, direction)) not in self.found:
            raise ValueError(f"there is no head {head} in layer {layer} among these")
        return self.found[asked] / self.pairs

    @property
    def best(self) -> Finder:
        """The head that finds most pairs; of equal ones the first."""
        return max(self.found, key=lambda finder: self.found[finder])

    @property
    def best_offset(self) -> int:
        """The offset that is right most often; of equal ones the shortest."""
        return min(self.offsets, key=lambda offset: (-self.offsets[offset], abs(offset), offset))

    def right_offset(self, offset: int) -> float:
        """The share of pairs whose partner stands ``offset`` places after the token."""
        return self.offsets.get(offset, 0) / self.pairs

    def rows(self) -> list[dict[str, Any]]:
        """One plain dict for each head and direction, the one that finds most first."""
        order = sorted(self.found, key=lambda finder: -self.found[finder])
        return [{**finder._asdict(), "right": self.right(*finder)} for finder in order]

    def __add__(self, other: object) -> "Relation":
        """Add up the pairs of two batches that one model has read."""
        if not isinstance(other, Relation):
            return NotImplemented
        if self.found.keys() != other.found.keys():
            raise ValueError("these are relations of models with other layers or heads")
        return Relation(
            self.pairs + other.pairs,
            {finder: count + other.found[finder] for finder, count in self.found.items()},
            dict(Counter(self.offsets) + Counter(other.offsets)),
        )


def relation(
    seen: Seen | Mapping[str, Tensor], pairs: Pairs, *, padding: Tensor | None = None
) -> Relation:
    """What the heads find of a relation in one batch; batches are added by +.

    ``seen``     what ``attnlab.watch`` recorded, or weights as {layer's name: (b, h, n, n)}; for
                 words that are split into pieces, weights from ``word_map``
    ``pairs``    for each sequence of the batch its pairs (token, partner), two different places
    ``padding``  (b, n) bool, True = a real token, which alone may be a partner

    Of equal largest weights the first counts; a row without any weight finds nothing. Raises a
    ValueError for places outside the sequence, and where there is no pair.
    """
    layers = [(name, weights.detach()) for name, weights, _ in layers_of(seen)]
    places = places_of(pairs, layers)
    found = Counter[Finder]()
    for layer, (_, weights) in enumerate(layers):
        check_weights(weights)
        n = weights.shape[-1]
        own = torch.eye(n, dtype=torch.bool, device=weights.device)
        others = weights.masked_fill(own, 0)
        if padding is not None:
            others = others.masked_fill(~padding.to(weights.device)[:, None, None, :], 0)
        largest, chosen = others.max(-1)
        chosen = chosen.masked_fill(largest <= 0, -1)  # (b, h, n)
        for direction in DIRECTIONS:
            row, asked, partner = places if direction == "forward" else places[[0, 2, 1]]
            right = chosen[row, :, asked] == partner[:, None].to(chosen.device)
            for head, count in enumerate(right.sum(0).tolist()):
                found[Finder(layer, head, direction)] = count
    offsets = Counter((places[2] - places[1]).tolist())
    return Relation(places.shape[1], dict(found), dict(offsets))


def places_of(pairs: object, layers: Sequence[tuple[str, Tensor]]) -> Tensor:
    """(3, pairs): the sequence, the token, its partner."""
    if isinstance(pairs, str) or not isinstance(pairs, Sequence):
        raise TypeError(
            "pairs should be a list for each sequence with its pairs (token, partner), got "
            f"{type(pairs).__name__}"
        )
    for name, weights in layers:
        b, _, n, m = weights.shape
        if n != m or len(pairs) != b:
            raise ValueError(
                f"{name!r} has {b} sequences of {n} queries and {m} keys, pairs are of "
                f"{len(pairs)} sequences: relations are found in the attention of a sequence to "
                "itself; leave other layers out by watch(model, only=…)"
            )
    n = layers[0][1].shape[-1]
    found = list[tuple[int, int, int]]()
    for row, of_one in enumerate(pairs):
        for pair in of_one:
            token, partner = pair
            if not (0 <= token < n and 0 <= partner < n) or token == partner:
                raise ValueError(
                    f"a pair should be two different places from 0 to {n - 1}, got {pair!r} in "
                    f"sequence {row}"
                )
            found.append((row, token, partner))
    if not found:
        raise ValueError("there is no pair in any sequence, so nothing can be found")
    return torch.tensor(found).T
