"""The parts of a model: embedding, output, and stacks of layers whose feed-forward layers, joins
and depth are named as in the catalogue.

Earlier options are answered here too: ``norm``, ``reversible`` and ``feed_forward_chunks`` are
written as the page and the option that stand for them today.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from torch import nn

from attnlab import catalog
from attnlab.core.depth import Way
from attnlab.core.options import parameters_of
from attnlab.core.suggest import check_choice
from attnlab.mechanisms.positions.factorized import (
    DEVIATION,
    FactorizedEmbedding,
    FactorizedOptions,
)
from attnlab.models import blocks
from attnlab.models.layers import Block, Stack, embedding_std, united
from attnlab.models.mixers import build_cross, build_mixers
from attnlab.models.options import CLASSIFIERS, Options, as_list, check_switch
from attnlab.models.positions import refuse_in_layers

ROLES = ("feed", "join", "depth")
NORMS = {"pre": "pre_norm", "post": "post_norm"}


def in_todays_names(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options of a model, with those of earlier versions in today's names."""
    now = dict(options)
    for earlier, translated in _EARLIER.items():
        if earlier in now:
            for name, value in translated(now.pop(earlier)).items():
                if isinstance(value, dict):
                    value = {**value, **(now.get(name) or {})}
                elif name in now:
                    raise TypeError(f"{earlier} is an earlier name of {name}; give {name} alone")
                now[name] = value
    return now


def _norm(value: object) -> dict[str, Any]:
    check_choice("norm", value, NORMS)
    return {"join": NORMS[value]}  # type: ignore[index]


def _reversible(value: object) -> dict[str, Any]:
    check_switch("reversible", value)
    return {"depth": "reversible"} if value else {}


def _chunks(value: object) -> dict[str, Any]:
    return {} if value == 1 else {"feed_options": {"chunks": value}}


_EARLIER: dict[str, Callable[[object], dict[str, Any]]] = {
    "norm": _norm,
    "reversible": _reversible,
    "feed_forward_chunks": _chunks,
}


def check(o: Options) -> None:
    """A ValueError for names that the catalogue does not know, or not in this role."""
    for role in ROLES:
        check_choice(role, getattr(o, role), catalog.with_role(role))
    check_choice("block", o.block, blocks.BLOCKS)
    blocks.check(o)
    if o.block != "layers":
        refuse_in_layers(o)
    built = any(isinstance(each, nn.Module) for each in as_list(o.attention))
    if built and hasattr(catalog.with_role("join")[o.join].build, "prepare"):
        raise ValueError(
            f"join={o.join!r} puts a norm inside attention, which would change the module that you "
            "built; give attention by its name, or a function (dim, heads, causal) that builds one"
        )


def stack(o: Options, *, causal: bool) -> Stack:
    """The encoder, or with ``causal`` the decoder, which reads the source if there is one."""
    cross = causal and o.kind == "encoder_decoder"
    way: Any = depth(o)
    if o.block != "layers":
        return Stack(blocks.stack_of(o, way, causal=causal), o.dim, way)
    place: dict[str, Any] = {}
    if o.kind == "encoder_decoder":
        place = {"side": "decoder" if causal else "encoder", "others": o.layers}
    sets = (way if isinstance(way, Way) else Way()).sets(o.layers)
    mixers = build_mixers(o, causal, sets.attention)
    made: list[Block] = []
    for layer, (mixer, number) in enumerate(zip(mixers, sets.feed, strict=True)):
        earlier = sets.feed.index(number)
        crossing = build_cross(o) if cross else None
        feeding = made[earlier].feed_forward if earlier < len(made) else feed(o, causal)
        joining = join(o, layer=layer, **place)
        made.append(Block(mixer, cross=crossing, feed=feeding, join=joining))
    return Stack(united(made, sets), o.dim, way)


def feed(o: Options, causal: bool) -> nn.Module:
    """The feed-forward layer of one block; ``causal`` in a decoder."""
    made = _built("feed", o, {} if o.hidden is None else {"hidden": o.hidden})
    if causal and getattr(made, "ahead", False):
        claims: Any = catalog.with_role("feed")[o.feed].claims
        raise ValueError(f"feed={o.feed!r} cannot stand in a decoder: {claims.ahead}")
    return made


def join(o: Options, **place: Any) -> Callable[[], nn.Module]:
    """What makes the join of each sublayer; ``place`` is which ``layer`` it is, and of which
    ``side`` where there are two."""
    return partial(_built, "join", o, {"dropout": o.dropout, **place})


def depth(o: Options) -> nn.Module:
    """The way through the layers of a stack."""
    made: Any = _built("depth", o, {})
    if made.reads_branches:
        _check_branches(o)
    return made


def _built(role: str, o: Options, given: Mapping[str, Any]) -> nn.Module:
    """By its name; ``given`` are options that the model decides, where the page has them."""
    card = catalog.with_role(role)[getattr(o, role)]
    takes = {"dim": o.dim, "layers": o.layers, **given}
    known = parameters_of(card.build)
    decided = {name: value for name, value in takes.items() if name in known}
    own = getattr(o, f"{role}_options") or {}
    for name in sorted({*own} & {*decided, "dropout", "layers"}):
        raise ValueError(f"{role}_options cannot set {name!r}: the model itself decides it")
    if role == "feed" and o.hidden is not None and "hidden" not in decided:
        raise ValueError(f"feed={card.name!r} has no hidden layer whose width is hidden={o.hidden}")
    return catalog.build(card.name, **{**decided, **own})


def _check_branches(o: Options) -> None:
    """A ValueError for what a depth that adds the branches itself cannot have."""
    if not catalog.goes_with(o.join, o.depth):
        raise ValueError(
            f"depth={o.depth!r} needs a join that only adds, such as join='pre_norm', got "
            f"join={o.join!r}, which does more than add"
        )
    if o.kind == "encoder_decoder":
        raise ValueError(
            f"depth={o.depth!r} has no cross-attention, which kind='encoder_decoder' needs; take "
            "another depth"
        )
    if o.checkpoint:
        raise ValueError(
            f"depth={o.depth!r} recomputes the layers already; leave checkpoint=True out"
        )


def embedding(o: Options) -> nn.Embedding | nn.Linear | FactorizedEmbedding:
    """What makes a vector of each token, or of each vector of features."""
    if o.vocab is None:
        assert o.features is not None
        return nn.Linear(o.features, o.dim)
    if o.embedding_rank is not None:
        factors = FactorizedEmbedding(
            o.dim, options=FactorizedOptions(vocab=o.vocab, rank=o.embedding_rank)
        )
        factors.table.data.mul_(embedding_std(o.dim) / DEVIATION)
        return factors
    table = nn.Embedding(o.vocab, o.dim)
    nn.init.normal_(table.weight, std=embedding_std(o.dim))
    return table


def output(o: Options, *, tied: bool) -> nn.Linear | None:
    """The output matrix; None where the token embedding serves."""
    classifies = o.kind in CLASSIFIERS
    if not classifies and tied:
        return None
    width = o.classes if classifies else o.vocab
    assert width is not None
    made = nn.Linear(o.dim, width, bias=classifies)
    nn.init.normal_(made.weight, std=embedding_std(o.dim))
    if made.bias is not None:
        nn.init.zeros_(made.bias)
    return made
