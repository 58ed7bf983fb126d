"""The catalogue: walks the shelf and yields every card. No list is written by hand."""

import functools
import importlib
import pkgutil
from collections.abc import Iterable, Iterator
from html import escape
from typing import Any

import torch
from torch import nn

import attnlab.mechanisms
from attnlab.core.card import Beside, Card, shown_beside
from attnlab.core.options import Size, check_value, parameters_of
from attnlab.core.positions import DistanceBias, PositionScheme
from attnlab.core.suggest import choose, suggestion
from attnlab.core.typeset import symbol


class Catalog(tuple[Card, ...]):
    """All cards, in the order of the shelf; shows as a table in a notebook."""

    def __repr__(self) -> str:
        return "\n".join(
            f"{c.name:<16} {c.family:<10} {c.paper.year}  {c.title} ({', '.join(c.forms)})"
            for c in self
        )

    def _repr_html_(self) -> str:
        beside = [shown_beside(card) for card in self]
        drawn = any(one.picture for one in beside)
        head = ["mechanism", "family", "time", "memory", "causal", "forms", "paper, page, lesson"]
        head = ["implied map", *head] if drawn else head
        body = "".join(
            _row([*([one.picture or "–"] if drawn else []), *_cells(card, one)])
            for card, one in zip(self, beside, strict=True)
        )
        header = "".join(f'<th scope="col" style="{_LEFT}">{escape(x)}</th>' for x in head)
        table = f"<table><thead><tr>{header}</tr></thead><tbody>{body}</tbody></table>"
        return (
            table + self._letters() + (f"<p>{beside[0].caption} {_UNMAPPED}</p>" if drawn else "")
        )

    def _letters(self) -> str:
        """Below the table: the letters of the house, and those of the mechanisms."""
        house: dict[str, str] = {}
        own = []
        for card in self:
            form = list(card.forms)[-1]
            found = card.explained([card.order(what, form) for what in ("time", "memory")])
            named = {name: text for name, text in found.items() if name in card.letters}
            house |= {name: text for name, text in found.items() if name not in named}
            if named:
                texts = "; ".join(f"{symbol(x)}: {escape(text)}" for x, text in named.items())
                own.append(f"<li>{escape(card.title)}: {texts}</li>")
        shared = "; ".join(f"{symbol(name)}: {escape(text)}" for name, text in house.items())
        return (
            f"<p>Costs are those of the last form, on one sequence. Letters: {shared}.</p>"
            f"<ul>{''.join(own)}</ul>"
        )


_LEFT = "text-align:left"
_UNMAPPED = "Without a map (–) are those that give each position a vector of its own and mix none."


def _cells(card: Card, beside: Beside) -> list[str]:
    form = list(card.forms)[-1]
    paper = escape(card.paper.short)
    links = [f'<a href="{card.paper.url}">{paper}</a>' if card.paper.url else paper]
    return [
        f"{escape(card.title)}<br><code>{escape(card.name)}</code>",
        escape(card.family),
        *(card.order_html(what, form) for what in ("time", "memory")),
        escape(card.causal),
        escape(", ".join(card.forms)),
        "<br>".join([*links, *([beside.links] if beside.links else [])]),
    ]


def _row(cells: Iterable[str]) -> str:
    columns = "".join(f'<td style="{_LEFT}">{cell}</td>' for cell in cells)
    return f"<tr>{columns}</tr>"


@functools.cache
def cards() -> Catalog:
    """Every mechanism on the shelf: paper, year, family, cost, forms."""
    return Catalog(module.CARD for module in _pages() if hasattr(module, "CARD"))


@functools.cache
def pages() -> dict[str, str]:
    """Name of each mechanism → the module that is its page."""
    return {module.CARD.name: module.__name__ for module in _pages() if hasattr(module, "CARD")}


def card(name: str) -> Card:
    """The card called ``name``, or by an alias; an unknown name is answered with the nearest."""
    names = {c.name: c for c in cards()}
    return choose("mechanism", name, names | {alias: c for c in cards() for alias in c.aliases})


def build(
    name: str,
    *,
    dim: int,
    heads: int = 1,
    causal: bool = False,
    positions: str | PositionScheme | None = None,
    **options: Any,
) -> nn.Module:
    """The module of mechanism ``name``, mapping (b, n, dim) to (b, n, dim), or the position scheme
    of that name for such a layer: of ``dim``, ``heads`` and ``causal`` it takes what it needs.

    ``positions`` is what a layer takes to know where its tokens stand: the name of a scheme, or one
    that was built. ``goes_with`` says which mechanisms can take it.

    ``options`` are those of the mechanism (``attnlab.card(name).option_names()``). An unknown
    option is refused with the nearest known, an unfit value in a sentence.

    It runs in float64, float32, bfloat16 and float16, and gives the dtype that it is given; under
    autocast PyTorch's operators choose between that and autocast's.
    """
    c = card(name)
    known = c.option_names()
    for option in options:
        if option not in known:
            every = ("dim", "heads", "causal", "positions", *known)
            raise TypeError(f"{name} has no option {option!r}{suggestion(option, every)}")
    dim, heads = check_value("dim", dim, Size), check_value("heads", heads, Size)
    check_value("causal", causal, bool)
    if causal and c.causal == "never":
        raise ValueError(f"{name} cannot be causal: {c.because}")
    if not causal and c.causal == "always":
        raise ValueError(f"{name} is always causal; build it with causal=True: {c.because}")
    layer: dict[str, Any] = {"dim": dim, "heads": heads, "causal": causal}
    if isinstance(positions, str):
        positions = _scheme(positions, **layer)
    if positions is not None:
        _refuse_scheme(c, positions)
        layer["positions"] = positions
    takes = parameters_of(c.build)
    chosen = {name: value for name, value in layer.items() if name in takes}
    arguments = c.arguments(c.build, options)
    try:
        return c.build(**chosen, **arguments)
    except RuntimeError as error:
        signs = ("allocate memory", "Storage size calculation overflowed")
        if not any(sign in str(error) for sign in signs) and not isinstance(
            error, torch.OutOfMemoryError
        ):
            raise
        asked = ", ".join(f"{k}={v!r}" for k, v in {"dim": dim, "heads": heads, **options}.items())
        raise ValueError(f"{name} with {asked} needs more memory than there is") from error


def _scheme(name: str, **layer: Any) -> PositionScheme:
    scheme = build(name, **layer)
    if not isinstance(scheme, PositionScheme):
        inside = [c.name for c in cards() if c.role in ("encode", "bias")]
        where = f"it is a layer of its own, attnlab.build({name!r}, …)"
        if card(name).role == "embed":
            where = "it belongs at the embedding, before the first layer"
        raise ValueError(
            f"positions={name!r} does not go into a layer: {where}; "
            f"those that do are {', '.join(inside)}"
        )
    return scheme


def _refuse_scheme(c: Card, positions: object) -> None:
    check_value("positions", positions, PositionScheme | str | None)
    kind = "bias" if isinstance(positions, DistanceBias) else "encode"
    if kind not in c.takes:
        what = {"bias": "biases by distance", "encode": "rotated queries and keys"}[kind]
        able = [other.name for other in cards() if kind in other.takes]
        raise ValueError(f"{c.name} cannot take {what}; mechanisms that can: {', '.join(able)}")


def goes_with(mechanism: str, scheme: str) -> bool:
    """Whether a layer of ``mechanism`` can be told positions by ``scheme``.

    What is added at the embedding goes with every mechanism; rotations and biases with those whose
    layer takes them; a scheme that is an attention of its own with none.
    """
    c, s = card(mechanism), card(scheme)
    if not c.mixes or s.family != "positions":
        raise ValueError(
            f"goes_with takes a mechanism that mixes positions and a scheme of the family "
            f"'positions', got {mechanism!r} and {scheme!r}"
        )
    return s.role == "embed" or s.role in c.takes


def _pages() -> Iterator[Any]:
    shelf = attnlab.mechanisms
    for found in pkgutil.walk_packages(shelf.__path__, shelf.__name__ + "."):
        yield importlib.import_module(found.name)
