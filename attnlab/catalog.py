"""The catalogue: walks the shelves and yields every card. No list is written by hand.

``SHELVES`` names the shelves: mechanisms, and what stands around them. A name means the same page
wherever it is used, so names are unique over all shelves.

Mechanisms of others join it by ``register``, or by an entry point of the group
``attnlab.mechanisms`` of an installed package, which names a card or the module that holds one as
``CARD``.
"""

import functools
import importlib
import importlib.metadata
import inspect
import pkgutil
import reprlib
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, TypeVar

import torch
from torch import nn

from attnlab.core.card import Beside, Card, shown_beside
from attnlab.core.claims import Feed, Mixing, Objective
from attnlab.core.markup import escape
from attnlab.core.options import Size, check_value, parameters_of, takes_visibility
from attnlab.core.positions import DistanceBias, PositionScheme
from attnlab.core.suggest import check_choice, choose, suggestion
from attnlab.core.typeset import symbol

SHELVES = ("mechanisms", "architecture", "objectives", "compression")


class Catalog(tuple[Card, ...]):
    """Cards, in the order of the shelves; shows as a table of each shelf in a notebook."""

    def __repr__(self) -> str:
        return "\n".join(
            f"{c.name:<16} {c.family:<10} {c.paper.year}  {c.title} ({c.forms_text()})"
            for c in self
        )

    def _repr_html_(self) -> str:
        mixing = Catalog(card for card in self if isinstance(card.claims, Mixing))
        others: dict[str, list[Card]] = {}
        for card in self:
            if not isinstance(card.claims, Mixing):
                others.setdefault(card.role, []).append(card)
        tables = [mixing._of_mechanisms()] if mixing else []
        return "".join([*tables, *(_claimed(role, found) for role, found in others.items())])

    def _of_mechanisms(self) -> str:
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


_LEFT = "text-align:left;padding:5px 4px"
TITLES = {
    "feed": "Feed-forward layers: each position alone",
    "join": "Joins: how a sublayer joins the stream",
    "depth": "Depth: the way through the layers",
    "objective": "Objectives: what a model learns from",
    "compress": "Compression: a smaller module",
}
"""Of the roles of the other shelves."""


def _claimed(role: str, found: list[Card]) -> str:
    """The table of the pages of one role: what each claims, by the names of its claims. Why it is
    not so stands behind a colon, and on the page alone."""
    labels = [label for label, _ in found[0].claims.rows()]
    beside = [shown_beside(card) for card in found]
    drawn = any(one.thumbnail for one in beside)
    head = [*(["picture"] if drawn else []), "page", *map(escape, labels), "forms", "paper, page"]
    heading = _row(head).replace("<td", '<th scope="col"').replace("</td", "</th")
    body = "".join(
        _row(
            [
                *([one.thumbnail or "–"] if drawn else []),
                f"{escape(card.title)}<br><code>{escape(card.name)}</code>",
                *(escape(text.partition(": ")[0]) for _, text in card.claims.rows()),
                escape(card.forms_text()),
                _places(card, one),
            ]
        )
        for card, one in zip(found, beside, strict=True)
    )
    title = f"<caption>{TITLES[role]}</caption>"
    return f"<table>{title}<thead>{heading}</thead><tbody>{body}</tbody></table>"


_UNMAPPED = "Without a map (–) are those that give each position a vector of its own and mix none."


def _cells(card: Card, beside: Beside) -> list[str]:
    form = list(card.forms)[-1]
    return [
        f"{escape(card.title)}<br><code>{escape(card.name)}</code>",
        escape(card.family),
        *(card.order_html(what, form) for what in ("time", "memory")),
        escape(card.causal),
        escape(card.forms_text()),
        _places(card, beside),
    ]


def _places(card: Card, beside: Beside) -> str:
    """Where to read on: the paper, the page, a lesson."""
    paper = escape(card.paper.short)
    links = [f'<a href="{card.paper.url}">{paper}</a>' if card.paper.url else paper]
    return "<br>".join([*links, *([beside.links] if beside.links else [])])


def _row(cells: Iterable[str]) -> str:
    columns = "".join(f'<td style="{_LEFT}">{cell}</td>' for cell in cells)
    return f"<tr>{columns}</tr>"


Function = TypeVar("Function", bound=Callable[..., Any])
_REMEMBERED: list[Any] = []


def remembered(function: Function) -> Function:
    """Keeps what ``function`` returned for its arguments until a card is registered."""
    kept: Any = functools.lru_cache(maxsize=20_000)(function)
    _REMEMBERED.append(kept)
    return kept


@remembered
def cards() -> Catalog:
    """Every card: paper, year, family, cost, forms. First those of the shelves (mechanisms, what
    stands between them, objectives, compression), then those of others."""
    _load_installed()
    return Catalog((*(card for name in SHELVES for card in shelf(name)), *_OTHERS.values()))


@functools.cache
def shelf(name: str = "mechanisms") -> Catalog:
    """The pages of one shelf that come with attnlab."""
    check_choice("shelf", name, SHELVES)
    return Catalog(card for module in _pages(name) for card in cards_of(module))


@functools.cache
def pages() -> dict[str, str]:
    """Name of each card of the shelves → the module that is its page."""
    modules = [module for name in SHELVES for module in _pages(name)]
    return {card.name: module.__name__ for module in modules for card in cards_of(module)}


def cards_of(module: Any) -> tuple[Card, ...]:
    """What a page ends with: its ``CARD``, or its ``CARDS`` where it has several mechanisms."""
    return getattr(module, "CARDS", None) or ((module.CARD,) if hasattr(module, "CARD") else ())


@remembered
def with_role(role: str) -> Mapping[str, Card]:
    """Every name of a page of this role → its card, aliases included."""
    return MappingProxyType(_by_name(card for card in cards() if card.role == role))


def module_of(card: Card) -> str:
    """The module that defines a mechanism: its page, or where somebody else wrote it."""
    return pages().get(card.name) or str(inspect.unwrap(card.forms["naive"]).__module__)


def card(name: str) -> Card:
    """The card called ``name``, or by an alias; an unknown name is answered with the nearest."""
    return choose("mechanism", name, _every_name())


@remembered
def _every_name() -> Mapping[str, Card]:
    return MappingProxyType(_by_name(cards()))


def _by_name(known: Iterable[Card]) -> dict[str, Card]:
    known = list(known)
    return {c.name: c for c in known} | {alias: c for c in known for alias in c.aliases}


def build(
    name: str,
    *,
    dim: int | None = None,
    heads: int = 1,
    causal: bool = False,
    positions: str | PositionScheme | None = None,
    **options: Any,
) -> nn.Module:
    """The module of mechanism ``name``, mapping (b, n, dim) to (b, n, dim), or the position scheme
    of that name for such a layer: of ``dim``, ``heads`` and ``causal`` it takes what it needs.
    Likewise the feed-forward layer, join, depth, objective or compression of that name, which takes
    no heads and no ``causal``.

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
    takes = parameters_of(c.build)
    dim = _width(c, dim, takes)
    heads = check_value("heads", heads, Size)
    check_value("causal", causal, bool)
    if not isinstance(c.claims, Mixing) and (heads != 1 or causal):
        raise ValueError(f"{name} has no heads and is not causal; leave heads and causal out")
    if causal and c.causal == "never":
        raise ValueError(f"{name} cannot be causal: {c.causal_reason}")
    if not causal and c.causal == "always":
        raise ValueError(f"{name} is always causal; build it with causal=True: {c.causal_reason}")
    layer: dict[str, Any] = {"dim": dim, "heads": heads, "causal": causal}
    if isinstance(positions, str):
        positions = _scheme(positions, **layer)
    if positions is not None:
        _refuse_scheme(c, positions)
        layer["positions"] = positions
    chosen = {name: value for name, value in layer.items() if name in takes}
    arguments = c.arguments(c.build, options)
    try:
        return c.build(**chosen, **arguments)
    except (RuntimeError, MemoryError) as error:
        signs = ("allocate memory", "Storage size calculation overflowed")
        of_memory = isinstance(error, MemoryError | torch.OutOfMemoryError)
        if not of_memory and not any(sign in str(error) for sign in signs):
            raise
        asked = ", ".join(f"{k}={v!r}" for k, v in {"dim": dim, "heads": heads, **options}.items())
        raise ValueError(f"{name} with {asked} needs more memory than there is") from error


def _width(c: Card, dim: int | None, takes: Mapping[str, Any]) -> int | None:
    """``dim``, if it fits; needed by all but those pages whose modules have no width."""
    if isinstance(c.claims, Mixing) or "dim" in takes:
        if dim is None:
            raise TypeError(f"{c.name} needs dim, the width of what it reads")
        return check_value("dim", dim, Size)
    if dim is not None:
        raise TypeError(f"{c.name} has no width; leave dim out")
    return None


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
    if kind not in c.position_roles:
        what = {"bias": "biases by distance", "encode": "rotated queries and keys"}[kind]
        able = [other.name for other in cards() if kind in other.position_roles]
        reason = c.positions_reason if kind == "encode" else c.biases_reason
        why = f": {reason}" if reason else ""
        raise ValueError(
            f"{c.name} cannot take {what}{why}; mechanisms that can: {', '.join(able)}"
        )


def goes_with(first: str, second: str) -> bool:
    """Whether two pages can be parts of one model.

    A mechanism and a position scheme: whether a layer of the mechanism can be told positions by
    the scheme. What is added at the embedding goes with every mechanism; rotations and biases with
    those whose layer takes them; a scheme that is an attention of its own with none.

    A feed-forward layer, a join and a depth, two of them: a depth that adds what sublayers give to
    the stream itself, such as ``reversible``, goes with the joins that only add; a join that puts a
    norm inside a sublayer with the feed-forward layers that have a place for it.

    An objective and a mechanism, or a feed-forward layer: an objective that asks for what comes
    next goes with those that can be causal, one that needs both sides with those that need not. One
    that says itself which token sees which goes with mechanisms that are told, and one that reads
    queries and keys with those that have them.

    Raises ValueError for two pages between which there is no such question.
    """
    a, b = card(first), card(second)
    of = {a.role: a, b.role: b}
    if len(of) == 2 and of.keys() <= {"feed", "join", "depth"}:
        return _fits(of)
    if "objective" in of and (a.mixes or b.mixes or "feed" in of):
        return _asked_by(of.pop("objective"), *of.values())
    if not a.mixes or b.family != "positions":
        raise ValueError(
            "goes_with takes a mechanism that mixes positions and a scheme of the family "
            "'positions'; or two of a feed-forward layer, a join and a depth; or an objective and "
            f"a mechanism or a feed-forward layer, got {first!r} and {second!r}"
        )
    return b.role == "embed" or b.role in a.position_roles


def _fits(of: Mapping[str, Card]) -> bool:
    """Whether two of a feed-forward layer, a join and a depth can stand in one model."""
    if "feed" not in of:
        adds = getattr(of["depth"].build, "reads_branches", False)
        return not adds or hasattr(of["join"].build, "branch")
    return "join" not in of or _prepares(of["join"], of["feed"])


def _prepares(join: Card, feed: Card) -> bool:
    """A join that puts a norm inside a sublayer needs one that has a place for it."""
    if not hasattr(join.build, "prepare"):
        return True
    with torch.random.fork_rng(devices=[]):
        sublayer, takes = build(feed.name, dim=4), parameters_of(join.build)
        sizes: dict[str, Any] = {"dim": 4, "layers": 2}
        given = {name: size for name, size in sizes.items() if name in takes}
        made: Any = build(join.name, **given)
    try:
        made.prepare(sublayer)
    except ValueError:
        return False
    return True


_UNFIT = {"language_model": ("never",), "encoder_decoder": ("never", "always")}
"""A kind of model → what a mechanism's card must not say of ``causal``; of others "always"."""


def _asked_by(objective: Card, part: Card) -> bool:
    """Whether the part fits into the first kind of model that the objective trains."""
    assert isinstance(objective.claims, Objective)
    unfit = _UNFIT.get(objective.claims.models[0], ("always",))
    orders = getattr(objective.build, "orders", "")
    if isinstance(part.claims, Feed):
        apart = orders != "placed" or not part.claims.together
        return apart and ("never" not in unfit or not part.claims.ahead)
    if getattr(objective.build, "maps", False) and part.role != "attend":
        return False
    return part.causal not in unfit and (not orders or takes_visibility(part.build))


def _pages(name: str) -> Iterator[Any]:
    home = importlib.import_module(f"attnlab.{name}")
    for found in pkgutil.walk_packages(home.__path__, home.__name__ + "."):
        yield importlib.import_module(found.name)


# ---- mechanisms of others

GROUP = "attnlab.mechanisms"
_OTHERS: dict[str, Card] = {}
_INSTALLED_ARE_IN: list[bool] = []


def register(card: Card, *, replace: bool = False) -> Card:
    """Add a mechanism of your own to the catalogue, for as long as this process runs; returns it.

    From then on it is found by its name everywhere: by ``card`` and ``build``, on wall and survey,
    by ``TinyTransformer``, when costs are counted and by the claims (``attnlab.testing``). For a
    package that is to be found without an import, name its card as an entry point of the group
    ``attnlab.mechanisms``.

    ``replace=True`` puts the card in the place of the one that you registered under this name
    before, as when a cell is run again. The names of the shelf stay as they are.
    """
    check_value("replace", replace, bool)
    _add(card, replace=replace)
    for each in _REMEMBERED:
        each.cache_clear()
    return card


def _add(card: Card, replace: bool = False) -> None:
    if not isinstance(card, Card):
        what = f"{card.__name__}, a module or class" if hasattr(card, "__name__") else repr(card)
        raise TypeError(
            f"register takes an attnlab.core.card.Card, got {reprlib.repr(what)}; "
            "give the CARD that the page of your mechanism ends with"
        )
    own = _OTHERS.get(card.name)
    if own is card:
        return
    known = (*(c for name in SHELVES for c in shelf(name)), *_OTHERS.values())
    taken = _by_name(c for c in known if not (replace and c is own))
    for name in (card.name, *card.aliases):
        if name in taken:
            again = "; replace=True puts the new card in its place" if taken[name] is own else ""
            raise ValueError(
                f"the name {name!r} is taken by {taken[name].title} ({module_of(taken[name])}); "
                f"give your card another name{again}"
            )
    _OTHERS[card.name] = card


def _load_installed() -> None:
    """Add, once, the cards that installed packages name; what fails is named in a warning."""
    if _INSTALLED_ARE_IN:
        return
    _INSTALLED_ARE_IN.append(True)  # first: a page may ask for the catalogue when it is imported
    for point in importlib.metadata.entry_points(group=GROUP):
        try:
            found = point.load()
            _add(getattr(found, "CARD", found))
        except Exception as error:
            package = f" of {point.dist.name}" if point.dist else ""
            warnings.warn(
                f"the mechanism {point.name!r}{package} is left out of the catalogue: its entry "
                f"point {point.value!r} raised {type(error).__name__}: {error}",
                stacklevel=2,
            )
