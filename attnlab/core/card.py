"""What a mechanism claims.

Every page of the shelf ends with a ``CARD``. Catalogue, claim tests, figures, benchmark, README
table and widget menus are derived from the cards; nothing is listed by hand. Costs are sympy
expressions in the house's letters, so the LaTeX that a reader sees, the number that a table prints
and the exponent that a test expects come from one place.
"""

import functools
import importlib
import inspect
import typing
from collections.abc import Callable, Iterable, Mapping
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, NamedTuple

import sympy
from torch import nn

from attnlab.core.claims import ROLES, Claims, Cost, Mixing
from attnlab.core.markup import escape
from attnlab.core.moved import renamed
from attnlab.core.options import Options, annotations_of, check_value, parameters_of
from attnlab.core.positions import DistanceBias, Rotation
from attnlab.core.story import Paper as Paper
from attnlab.core.story import story
from attnlab.core.suggest import choose
from attnlab.core.typeset import (
    house_letters,
    in_plain_text,
    letters_in,
    of_option,
    symbol,
    typeset,
)

CAUSAL = ("never", "optional", "always")
GIVEN = ("dim", "heads", "causal", "options", "positions")
"""The parameters of ``build`` that are no options of the mechanism."""


def letters(names: str) -> tuple[sympy.Symbol, ...]:
    """The house's letters as positive integers: ``n, d, h = letters("n d h")``."""
    return tuple(sympy.Symbol(name, positive=True, integer=True) for name in names.split())


UNSAID = Paper("", "", "", 0)

LIKE_N = letters("m n_E")
"""Keys and edges: where a cost is to depend on n alone, there are as many of them as n."""


@renamed(because="causal_reason", small="small_options", takes="position_roles")
@dataclass(frozen=True)
class Card:
    """The claims of one page of a shelf.

    A page that mixes positions says ``causal``, ``time`` and ``memory``; any other gives the
    ``claims`` of its role, a class of ``attnlab.core.claims``.

    ``story``     the docstring of its page. Title, paper, departures and what it gives up are read
                  from it (``attnlab.core.story`` says how) unless they are given.
    ``forms``     name → function; the first is ``naive``, the definition that the others must
                  equal.
    ``kernels``   name → function: forms of one kernel that is compiled for a GPU. They equal
                  ``naive`` where they run, and refuse with the reason elsewhere.
    ``causal``    "never" (refuses), "optional" (``causal=True`` of its module) or "always".
    ``causal_reason``  why, where it is never or always causal.
    ``positions_reason``  why its layer takes no rotation of queries and keys, where it takes none.
    ``time``      FLOPs (two per multiply-add) of the mixing itself on one sequence, projections
                  apart; one expression for all forms, or one per form. In n, the widths d, e and
                  dim, the number of heads h, and options: what grows with n is written in n.
    ``memory``    a bound of the elements of the largest tensor a form makes, likewise.
    ``launches``  form → how the number of operations that both passes call on a GPU, where each of
                  them launches a kernel, grows with n; views apart, in n and options. Forms that
                  are not named call as many at any length. On a CPU some call more, of pieces that
                  fit its caches.
    ``build``     ``build(dim=…, heads=…, options=…, …) -> nn.Module``; takes ``causal`` where that
                  is optional.
    ``options``   the class of its options; ``build`` and the forms that have options take one as
                  ``options``.
    ``letters``   letter of the costs → option that it stands for (``{"s": "stride"}``).
    ``notes``     form → names that it notes for ``attnlab.core.probe``.
    ``structure`` the class of what its layer is told beside the sequence, as
                  ``layer(x, structure=…)``; its ``example(padding)`` is one for each sequence.
    ``variants``  options under which the claims are tested, beside the defaults; each form, and
                  ``build``, takes those that it has.
    ``aliases``   other names under which the catalogue finds it.
    ``gives_up``  what full attention has and it has not: one short plain sentence.
    ``small_options``  options under which its map is drawn for some thirty tokens, where
                  the defaults are for thousands.
    ``demo``      what it does, in ten seconds: a few lines with prompts (``>>>``) and what they
                  print. ``attnlab`` and ``torch`` are imported, and the seed is set.
    """

    story: str | None = field(default="", repr=False)
    _: KW_ONLY
    name: str
    family: str
    role: str
    forms: Mapping[str, Callable[..., Any]]
    build: Callable[..., nn.Module]
    kernels: Mapping[str, Callable[..., Any]] = field(default_factory=dict)
    causal: str = ""
    time: Cost | Mapping[str, Cost] | None = None
    memory: Cost | Mapping[str, Cost] | None = None
    launches: Mapping[str, Cost] = field(default_factory=dict)
    claims: Claims = field(default=None, repr=False)  # type: ignore[assignment]
    title: str = ""
    paper: Paper = UNSAID
    causal_reason: str = ""
    positions_reason: str = ""
    options: type[Options] = Options
    structure: type[Any] | None = None
    letters: Mapping[str, str] = field(default_factory=dict)
    notes: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    departures: tuple[str, ...] = ()
    variants: tuple[Mapping[str, Any], ...] = ()
    aliases: tuple[str, ...] = ()
    gives_up: str = ""
    small_options: Mapping[str, Any] = field(default_factory=dict)
    demo: str = ""

    def __hash__(self) -> int:
        return hash(self.name)

    def __post_init__(self) -> None:
        if self.role not in ROLES:
            raise ValueError(
                f"card {self.name!r}: role should be one of {ROLES}, got {self.role!r}"
            )
        self._check_claims()
        if next(iter(self.forms), None) != "naive":
            raise ValueError(f"card {self.name!r}: the first form is `naive`, the definition")
        self._read()

    def _check_claims(self) -> None:
        """Gather the claims of a page that mixes positions; those of other roles are given."""
        if self.role in Mixing.ROLES:
            if self.causal not in CAUSAL:
                raise ValueError(
                    f"card {self.name!r}: causal should be one of {CAUSAL}, got {self.causal!r}"
                )
            if self.time is None or self.memory is None:
                raise TypeError(f"card {self.name!r}: give its time and its memory")
            for each in self.launches:
                choose("form", each, self.every_form)
            claims: Claims = Mixing(
                causal=self.causal,
                causal_reason=self.causal_reason,
                time=self.time,
                memory=self.memory,
                launches=self.launches,
                letters=self.letters,
            )
            object.__setattr__(self, "claims", claims)
        elif self.role not in getattr(self.claims, "ROLES", ()):
            raise TypeError(
                f"card {self.name!r}: a page of the role {self.role!r} gives its claims as "
                f"claims={self.role.capitalize()}(…) of attnlab.core.claims, got {self.claims!r}"
            )

    def _read(self) -> None:
        """Take from the story what was not given."""
        told = story(self.story)
        known = {
            "story": told.text,
            "title": self.title or told.title,
            "paper": (told.paper or UNSAID) if self.paper == UNSAID else self.paper,
            "departures": self.departures or told.departures,
            "gives_up": self.gives_up or told.gives_up,
            "demo": inspect.cleandoc(self.demo),
        }
        for name, value in known.items():
            object.__setattr__(self, name, value)
        if not self.title or self.paper == UNSAID:
            raise ValueError(f"card {self.name!r}: {told.faults()[0]}; or give title= and paper=")

    @property
    def every_form(self) -> dict[str, Callable[..., Any]]:
        """The forms, then those that are kernels."""
        return {**self.forms, **self.kernels}

    def forms_text(self) -> str:
        """The names of the forms: naive, blocked; on a GPU flex."""
        text = ", ".join(self.forms)
        return f"{text}; on a GPU {', '.join(self.kernels)}" if self.kernels else text

    @property
    def mixes(self) -> bool:
        """Whether ``build`` gives a layer (b, n, dim) → (b, n, dim) that mixes the positions."""
        return self.role in ("attend", "mix")

    @property
    def position_roles(self) -> tuple[str, ...]:
        """The roles of position schemes that its layer takes: some of "encode" and "bias"."""
        kinds = {"encode": Rotation, "bias": DistanceBias}
        annotation = parameters_of(self.build).get("positions", type(None)) if self.mixes else None
        classes = typing.get_args(annotation) or (annotation,)
        return tuple(
            role
            for role, kind in kinds.items()
            if any(isinstance(c, type) and issubclass(kind, c) for c in classes)
        )

    def _positions_taken(self) -> str:
        inside = {"encode": "rotated queries and keys", "bias": "biases by distance"}
        taken = ", ".join(
            ("added at the embedding", *(inside[role] for role in self.position_roles))
        )
        if self.positions_reason:
            taken += f"; no rotated queries and keys: {self.positions_reason}"
        if self.biases_reason:
            taken += f"; no biases by distance: {self.biases_reason}"
        return taken

    @property
    def biases_reason(self) -> str:
        """Why a layer that compares queries with keys takes no biases by distance."""
        if self.role != "attend" or "bias" in self.position_roles:
            return ""
        return f"its forms ({', '.join(self.forms)}) are given none to add to the scores of pairs"

    def cost(
        self, what: str, form: str = "naive", options: Options | None = None, causal: bool = False
    ) -> sympy.Expr:
        """The claimed ``"time"`` or ``"memory"`` of a form, by default under default options, of a
        page that mixes positions; of its ``"launches"`` how they grow, 1 where they do not.

        ``causal`` matters where a claim takes it: a causal layer may group its tokens otherwise.
        """
        choose("form", form, self.every_form)
        check_value("options", options, Options | None)
        check_value("causal", causal, bool)
        if not isinstance(self.claims, Mixing):
            raise ValueError(f"{self.name} mixes no positions; its claims are {self.claims}")
        constant: Mapping[str, Cost] = dict.fromkeys(self.every_form, sympy.Integer(1))
        known: Mapping[str, Cost | Mapping[str, Cost]] = {
            "time": self.claims.time,
            "memory": self.claims.memory,
            "launches": {**constant, **self.claims.launches},
        }
        claim = choose("cost", what, known)
        claim = claim[form] if isinstance(claim, Mapping) else claim
        if isinstance(claim, sympy.Basic):
            return claim
        told = {"causal": causal} if "causal" in inspect.signature(claim).parameters else {}
        return claim(self.options() if options is None else options, **told)

    def option_names(self) -> dict[str, Any]:
        """What ``attnlab.build`` takes beside dim, heads and causal → its annotation."""
        own = {
            name: annotation
            for name, annotation in parameters_of(self.build).items()
            if name not in GIVEN
        }
        return annotations_of(self.options) | own

    def arguments(self, function: Callable[..., Any], given: Mapping[str, Any]) -> dict[str, Any]:
        """Select the ``given`` options that ``function`` takes, as its keyword arguments.

        ``function`` is ``build`` or one of the forms; fields of ``options`` are gathered into one.
        """
        takes, fields = parameters_of(function), annotations_of(self.options)
        arguments = {
            name: check_value(name, value, takes[name])
            for name, value in given.items()
            if name in takes
        }
        if "options" in takes:
            own = {name: value for name, value in given.items() if name in fields}
            arguments["options"] = self.options(**own)
        return arguments

    def order(self, what: str, form: str = "naive") -> sympy.Expr:
        """The claim as an order of growth in n: its leading term, m = n and constants dropped."""
        return _leading(self.cost(what, form))

    def order_latex(self, what: str, form: str = "naive") -> str:
        order = self.order(what, form)
        words = {x: rf"\mathrm{{{x}}}" for x in order.free_symbols if len(x.name) > 2}
        return rf"O({sympy.latex(order, symbol_names=words)})"

    def order_html(self, what: str, form: str = "naive") -> str:
        """The order of growth as HTML that every notebook shows."""
        return f"<i>O</i>({typeset(self.order(what, form))})"

    def order_text(self, what: str, form: str = "naive") -> str:
        """The order of growth as plain text: O(h n² (d + e))."""
        return f"O({in_plain_text(self.order(what, form))})"

    def launches_text(self) -> str:
        """How many kernels its forms launch, in words: the growths, each with its forms."""
        forms: dict[str, list[str]] = {}
        for form in self.every_form:
            order = self.order("launches", form)
            growth = "as many at any length" if order == 1 else f"grow as {in_plain_text(order)}"
            forms.setdefault(growth, []).append(form)
        if len(forms) == 1:
            return next(iter(forms))
        return "; ".join(f"{', '.join(names)}: {growth}" for growth, names in forms.items())

    def __repr__(self) -> str:
        return f"Card({self.name!r}: {self.title}, {self.paper.year}; forms {self.forms_text()})"

    def rows(self) -> list[tuple[str, str]]:
        """The card as (label, text) lines, for tables and screen readers."""
        costs = [(what, form, _UNITS[what]) for what, form in self._costs()]
        return [
            ("name", self.name),
            ("family", self.family),
            ("role", self.role),
            ("paper", str(self.paper)),
            *([("causal", self.causal)] if self.causal else []),
            *([("gives up", self.gives_up)] if self.gives_up else []),
            *([("positions", self._positions_taken())] if self.mixes else []),
            ("forms", self.forms_text()),
            *((f"{what}, {form}", f"{self.cost(what, form)} {unit}") for what, form, unit in costs),
            *([("kernels launched", self.launches_text())] if costs else []),
            *self.claims.rows(),
            *([("seen inside", ", ".join(self._noted()))] if self.notes else []),
            *(("departs from the paper", departure) for departure in self.departures),
        ]

    def _noted(self) -> list[str]:
        return sorted({name for names in self.notes.values() for name in names})

    def _costs(self) -> list[tuple[str, str]]:
        """What is claimed for each form: ("time", form), …"""
        kinds = _UNITS if isinstance(self.claims, Mixing) else ()
        return [(what, form) for what in kinds for form in self.every_form]

    def explained(self, expressions: Iterable[sympy.Expr]) -> dict[str, str]:
        """Letter → meaning, for the letters of these costs; the class explains options."""
        house = house_letters()
        return {
            name: of_option(self.options, self.letters[name])
            if name in self.letters
            else house.get(name, "")
            for name in letters_in(expressions)
        }

    def _repr_html_(self) -> str:
        beside = shown_beside(self)
        costs = {(what, form): self.cost(what, form) for what, form in self._costs()}
        rows = [(label, escape(text)) for label, text in self.rows()]
        typed = {
            f"{what}, {form}": f"{typeset(cost)} {_UNITS[what]}"
            for (what, form), cost in costs.items()
        }
        rows = [(label, typed.get(label, text)) for label, text in rows]
        letters = "<br>".join(
            f"{symbol(name)}: {escape(text)}"
            for name, text in self.explained(costs.values()).items()
        )
        rows += [("letters", letters)] if letters else []
        rows += [("see also", beside.links)] if beside.links else []
        picture = "implied map" if isinstance(self.claims, Mixing) else "picture"
        rows += [(picture, f"{beside.picture}<br>{beside.caption}")] if beside.picture else []
        rows += [("in ten seconds", f"<pre>{escape(self.demo)}</pre>")] if self.demo else []
        body = "".join(
            f'<tr><th scope="row" style="text-align:left">{escape(label)}</th>'
            f'<td style="text-align:left">{text}</td></tr>'
            for label, text in rows
        )
        return f"<table><caption>{escape(self.title)}</caption><tbody>{body}</tbody></table>"


_UNITS = {"time": "FLOPs", "memory": "elements"}


class Beside(NamedTuple):
    """What a notebook shows beside a card, as HTML: its map or other picture, what that is, links,
    and the picture in the size of a table."""

    picture: str = ""
    caption: str = ""
    links: str = ""
    thumbnail: str = ""


def shown_beside(card: Card) -> Beside:
    """The map and the links of a card, which the widgets draw; empty where they are not installed.

    They stand on a floor above this one, so they are imported when a card is shown.
    """
    try:
        maps = importlib.import_module("attnlab_widgets.card_maps")
    except ModuleNotFoundError:
        return Beside()
    return maps.beside(card)


@functools.cache
def _leading(cost: sympy.Expr) -> sympy.Expr:
    n, m, log = letters("n m log_n")
    plain = cost.subs(m, n).replace(sympy.log, lambda x: log if x.has(n) else sympy.log(x))
    terms = sympy.Add.make_args(sympy.expand(plain))
    growth = max(_growth(term, n, log) for term in terms)
    leading = sum(term for term in terms if _growth(term, n, log) == growth)
    leading = sympy.factor(leading).as_independent(*leading.free_symbols)[1]
    return leading.subs(log, sympy.log(n))


def _growth(term: sympy.Expr, n: sympy.Symbol, log: sympy.Symbol) -> tuple[Any, Any]:
    """The powers of n and of log n in a product."""
    return term.as_coeff_exponent(n)[1], term.as_coeff_exponent(log)[1]
