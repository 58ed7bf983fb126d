"""Where the position scheme of a model goes: to the embedding, or into every attention layer.

At the embedding a scheme is added to the vectors of the tokens, or makes them itself (complex word
embeddings).
"""

from collections.abc import Mapping
from typing import Any, NamedTuple, cast

from torch import nn

from attnlab import catalog
from attnlab.core.card import Card
from attnlab.core.complex_linear import refuse_odd
from attnlab.core.options import parameters_of
from attnlab.core.positions import PositionScheme
from attnlab.core.suggest import check_choice, choose
from attnlab.models.layers import embedding_std
from attnlab.models.options import Options


@catalog.remembered
def schemes() -> Mapping[str, Card]:
    """Every name that ``TinyTransformer(positions=…)`` takes → its card, aliases included."""
    found = [card for card in catalog.cards() if card.family == "positions" and _is_scheme(card)]
    return {name: card for card in found for name in (card.name, *card.aliases)}


def _is_scheme(card: Card) -> bool:
    """False for cards that make vectors of tokens without using their positions."""
    inputs = {"positions", "structure"} & set(parameters_of(card.forms["naive"]))
    return card.role != "embed" or bool(inputs)


def check(o: Options) -> None:
    """A ValueError for unknown names, and for schemes that the layers cannot have one by one."""
    for name, _ in o.positions_of_layers:
        check_choice("positions", name, tuple(schemes()))
        if o.places_by_layer and schemes()[name].role == "embed" and schemes()[name].name != "none":
            raise ValueError(
                f"positions={name!r} stands at the embedding, before all layers; those that layers "
                "can have one by one go into attention, such as 'rope' or 'alibi', or are 'none'"
            )


def _of_all(o: Options) -> Card:
    """The card of the scheme of all layers; that of "none" where layers have their own."""
    return schemes()["none"] if o.places_by_layer else schemes()[cast(str, o.positions)]


def at_embedding(o: Options) -> nn.Module | None:
    """What is added to the tokens before the first layer; None for other schemes."""
    card = _of_all(o)
    if card.role != "embed" or card.name == "none" or makes_vectors(card):
        return None
    decided = {"max_len": o.max_len, "std": embedding_std(o.dim)}
    takes = parameters_of(card.build)
    given = {name: value for name, value in decided.items() if name in takes}
    return _built(card, o, {**given, **_options_of_all(o)}, causal=False)


def of_tokens(o: Options) -> nn.Module | None:
    """What makes the vectors of tokens at positions; None where those of a table are added to."""
    card = _of_all(o)
    if not makes_vectors(card):
        return None
    if o.vocab is None:
        raise ValueError(
            f"positions={o.positions!r} makes vectors of tokens, and a model with features has none"
        )
    if o.embedding_rank is not None:
        raise ValueError(
            f"positions={o.positions!r} makes the vectors of tokens itself, so there is no table "
            "for embedding_rank to factorize; leave one of the two out"
        )
    refuse_odd("dim", o.dim)
    given = {"vocab": o.vocab, "output": "pairs", "scale": embedding_std(o.dim)}
    return catalog.build(card.name, dim=o.dim // 2, **{**given, **_options_of_all(o)})


def _options_of_all(o: Options) -> Mapping[str, Any]:
    return o.positions_of_layers[0][1]


def makes_vectors(card: Card) -> bool:
    """Whether it turns tokens themselves into vectors, by where they stand."""
    return card.role == "embed" and "tokens" in parameters_of(card.forms["naive"])


def starting_at(scheme: str, std: float) -> dict[str, float]:
    """The option that sets the standard deviation of what a scheme learns, where it has one."""
    takes = choose("position scheme", scheme, schemes()).option_names()
    return {name: std for name in ("std", "scale") if name in takes}


def refuse_in_layers(o: Options) -> None:
    """A ValueError for schemes that go into attention layers, for models that have none."""
    found = [name for name, _ in o.positions_of_layers if schemes()[name].role != "embed"]
    if found:
        usable = [name for name, card in schemes().items() if card.role == "embed"]
        raise ValueError(
            f"{found[0]!r} goes into attention layers, and this model has none; schemes that "
            f"work at the embedding: {', '.join(sorted(usable))}"
        )


class Placed(NamedTuple):
    """The positions of one layer: the ``name`` and options that the model was given, the card, and
    the scheme that goes into the layer; None where none does."""

    name: str
    options: Mapping[str, Any]
    card: Card
    scheme: PositionScheme | None


def in_layers(o: Options, causal: bool) -> list[Placed]:
    """The positions of each layer of a stack; equal schemes are one module."""
    placed: list[Placed] = []
    for name, own in o.positions_of_layers:
        earlier = [each for each in placed if (each.name, each.options) == (name, own)]
        placed.append(earlier[0] if earlier else _placed(name, own, o, causal))
    return placed


def _placed(name: str, own: Mapping[str, Any], o: Options, causal: bool) -> Placed:
    card = schemes()[name]
    if card.role not in ("encode", "bias"):
        return Placed(name, own, card, None)
    return Placed(name, own, card, cast(PositionScheme, _built(card, o, own, causal=causal)))


def _built(card: Card, o: Options, options: Mapping[str, Any], *, causal: bool) -> nn.Module:
    return catalog.build(card.name, dim=o.dim, heads=o.heads, causal=causal, **options)
