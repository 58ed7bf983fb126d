"""Every mechanism on one sequence, side by side.

The same vectors go into each layer, and the projections of one trained layer can be put into all of
them, so that their maps differ by the mechanism alone. What a mechanism has of its own (an added
table, a kernel) stays as it was drawn, and ``Layer.drawn`` names it.
"""

import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from attnlab.catalog import build, cards
from attnlab.core.card import Card
from attnlab.core.heads import Heads, regrouped
from attnlab.core.integers import check_integer
from attnlab.core.suggest import choose
from attnlab.lens.mixing import mixing_matrix

DIRECTIONS = 16
PARTS = ("query", "key", "value", "output")


@dataclass(frozen=True)
class Layer:
    """A layer of one mechanism. ``options`` are those it was built with, ``drawn`` the parameters
    that are random; ``causal`` is whether it sees the past alone."""

    card: Card
    module: nn.Module
    options: Mapping[str, Any]
    causal: bool
    drawn: tuple[str, ...]


@dataclass(frozen=True)
class Map:
    """How a layer mixes: ``weights`` (h, n, m) and ``masked`` of the same shape.

    Columns beyond n are summaries of several tokens, which the mechanism attends to as well. A cell
    is masked if its weight is exactly zero, which no softmax gives. ``exact`` and ``how`` are those
    of ``attnlab.lens.mixing``; a layer without heads has h = 1.
    """

    weights: Tensor
    masked: Tensor
    exact: bool
    how: str


def layers(
    dim: int, heads: int, *, causal: bool = False, source: Heads | None = None, seed: int = 0
) -> Iterator[Layer]:
    """A layer of every mechanism that mixes positions, under the options of its card for a short
    sequence.

    ``causal`` asks for the past alone where a mechanism leaves the choice. The projections of
    ``source`` go into every layer that has such projections; where several of its heads share keys
    and values, these are the mean of theirs, as Ainslie et al. 2023 (section 2.1) convert a
    trained model.
    """
    for card in cards():
        if card.mixes:
            past = card.causal == "always" or (causal and card.causal == "optional")
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(seed + zlib.crc32(card.name.encode()))
                module = build(
                    card.name, dim=dim, heads=heads, causal=past, **card.small_options
                ).eval()
            drawn = tuple(name for name, _ in module.named_parameters())
            if source is not None:
                put = _put(source, module)
                drawn = tuple(name for name in drawn if name not in put)
            yield Layer(card, module, card.small_options, past, drawn)


@torch.no_grad()
def _put(source: Heads, module: nn.Module) -> set[str]:
    """The names of the parameters that were taken from ``source``."""
    heads = getattr(module, "heads", None)
    if type(heads) is not Heads or heads.heads != source.heads:
        return set()
    taken = set()
    for part in PARTS:
        own, given = getattr(heads, part, None), getattr(source, part, None)
        if not isinstance(own, nn.Linear) or not isinstance(given, nn.Linear):
            continue
        weight = given.weight
        if part in ("key", "value") and heads.kv_heads < source.kv_heads:
            weight = regrouped(weight, source.kv_heads, heads.kv_heads)
        if own.weight.shape == weight.shape:
            own.weight.copy_(weight)
            taken.add(f"heads.{part}.weight")
    return taken


def map_of(layer: Layer, x: Float[Tensor, "b n dim"]) -> Map:
    """The map of one sequence, b = 1."""
    structure = None
    if layer.card.structure is not None:
        structure = layer.card.structure.example(torch.ones(x.shape[:2], dtype=torch.bool))
    mixing = mixing_matrix(
        layer.module, x, structure=structure, per_head=True, directions=DIRECTIONS
    )
    weights = mixing.matrix[0] if mixing.matrix.dim() == 4 else mixing.matrix
    return Map(weights, weights == 0, mixing.exact, mixing.how)


def beside_trained(
    model: nn.Module, inputs: Tensor, *, family: str, layer: int = 0
) -> dict[str, Tensor]:
    """Maps (n, n) by name, for ``map_gallery``: those of the heads of one layer of a trained model,
    then of each mechanism of a ``family`` (such as "kernelized") that reads what this layer
    reads and takes over its projections.

    ``inputs`` is one sequence, b = 1, as the model takes it: tokens, or vectors where ``model`` is
    a layer of attention itself. ``layer`` counts the model's layers of attention. Of a mechanism
    the magnitudes of its heads are averaged; what it does not share with attention is untrained.
    Mechanisms whose columns are not the n tokens are left out.
    """
    choose("family", family, {card.family: card for card in cards() if card.mixes})
    own, x = _read_by(model, inputs, check_integer("layer", layer))
    heads: Heads = own.heads  # type: ignore[assignment]
    found = {
        f"trained, head {at}": weights.abs().detach()
        for at, weights in enumerate(mixing_matrix(own, x, per_head=True).matrix[0])
    }
    causal = bool(getattr(own, "causal", False))
    for other in layers(x.shape[2], heads.heads, causal=causal, source=heads):
        if other.card.family == family:
            weights = map_of(other, x).weights.detach()
            if weights.shape[-1] == x.shape[1]:
                found[other.card.title] = weights.abs().mean(0)
    return found


@torch.no_grad()
def _read_by(model: nn.Module, inputs: Tensor, layer: int) -> tuple[nn.Module, Tensor]:
    """A model's layer of attention, and the vectors (1, n, dim) that it reads."""
    for name, given, kind in (("model", model, nn.Module), ("inputs", inputs, Tensor)):
        if not isinstance(given, kind):
            raise TypeError(f"{name} should be of class {kind.__name__}, got {given!r}")
    if inputs.dim() < 2 or len(inputs) != 1:
        raise ValueError(
            f"inputs should be one sequence, (1, n) or (1, n, dim), got {tuple(inputs.shape)}"
        )
    own = [one for one in model.modules() if type(getattr(one, "heads", None)) is Heads]
    if not 0 <= layer < len(own):
        raise ValueError(
            f"layer should be below {len(own)}, the number of layers with heads in this "
            f"{type(model).__name__}, got {layer}"
        )
    read: list[Tensor] = []
    hook = own[layer].register_forward_pre_hook(lambda _, given: read.append(given[0]))
    try:
        model(inputs)
    finally:
        hook.remove()
    return own[layer], read[0]
