"""Where the position scheme of a model goes: to the embedding, or into every attention layer.

At the embedding a scheme is added to the vectors of the tokens, or makes them itself (complex word
embeddings).
"""

from collections.abc import Mapping
from typing import Any, cast

from torch import nn

from attnlab import catalog
from attnlab.core.card import Card
from attnlab.core.complex_linear import refuse_odd
from attnlab.core.options import parameters_of
from attnlab.core.positions import PositionScheme
from attnlab.core.suggest import choose
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


def at_embedding(o: Options) -> nn.Module | None:
    """What is added to the tokens before the first layer; None for other schemes."""
    card = schemes()[o.positions]
    if card.role != "embed" or card.name == "none" or makes_vectors(card):
        return None
    decided = {"max_len": o.max_len, "std": embedding_std(o.dim)}
    takes = parameters_of(card.build)
    given = {name: value for name, value in decided.items() if name in takes}
    return _built(card, o, causal=False, given=given)


def of_tokens(o: Options) -> nn.Module | None:
    """What makes the vectors of tokens at positions; None where those of a table are added to."""
    card = schemes()[o.positions]
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
    options = {**given, **(o.position_options or {})}
    return catalog.build(card.name, dim=o.dim // 2, **options)


def makes_vectors(card: Card) -> bool:
    """Whether it turns tokens themselves into vectors, by where they stand."""
    return card.role == "embed" and "tokens" in parameters_of(card.forms["naive"])


def starting_at(scheme: str, std: float) -> dict[str, float]:
    """The option that sets the standard deviation of what a scheme learns, where it has one."""
    takes = choose("position scheme", scheme, schemes()).option_names()
    return {name: std for name in ("std", "scale") if name in takes}


def refuse_in_layers(o: Options) -> None:
    """A ValueError for schemes that go into attention layers, for models that have none."""
    if schemes()[o.positions].role != "embed":
        usable = [name for name, card in schemes().items() if card.role == "embed"]
        raise ValueError(
            f"{o.positions!r} goes into attention layers, and this model has none; schemes that "
            f"work at the embedding: {', '.join(sorted(usable))}"
        )


def in_layers(o: Options, causal: bool) -> PositionScheme | None:
    """What every attention layer of a stack shares; None for other schemes."""
    card = schemes()[o.positions]
    if card.role not in ("encode", "bias"):
        return None
    return cast(PositionScheme, _built(card, o, causal=causal, given={}))


def _built(card: Card, o: Options, *, causal: bool, given: Mapping[str, Any]) -> nn.Module:
    options = {**given, **(o.position_options or {})}
    return catalog.build(card.name, dim=o.dim, heads=o.heads, causal=causal, **options)
