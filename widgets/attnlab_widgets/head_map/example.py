"""Sixteen heads of four layers: most look back, some far."""

from collections.abc import Sequence

import torch

from attnlab_widgets.head_map import HeadMap

_TEXT = ["the", "list", "is", "sorted", ",", "and", "the", "first", "word", "of", "it", "is",
         "shown", "."]  # fmt: skip


def weights(n: int, layers: int = 4, heads: int = 4) -> dict[str, torch.Tensor]:
    """(1, heads, n, n) of each layer: causal, to the token that is one place back or more."""
    made = torch.Generator().manual_seed(5)
    i = torch.arange(n)
    later = i[None] > i[:, None]
    found = {}
    for layer in range(layers):
        back = torch.arange(heads)[:, None, None] * (layer + 1)
        scores = -((i[:, None] - i[None] - back).abs() * (1.5 / (1 + layer)))
        scores = scores + torch.randn(heads, n, n, generator=made) * 0.7
        found[f"layer {layer}"] = scores.masked_fill(later, -torch.inf).softmax(-1)[None]
    return found


def example(tokens: Sequence[str] = _TEXT) -> HeadMap:
    n = len(tokens)
    maps = weights(n)
    size = torch.linspace(0.2, 1, 16).flip(0).roll(1).view(4, 4)
    earlier = torch.ones(n, n, dtype=torch.bool).tril()[None, None]
    return HeadMap(maps, [*tokens], mask=earlier, importance=dict(zip(maps, size, strict=True)))


def hostile(words: Sequence[str]) -> HeadMap:
    return example(words)
