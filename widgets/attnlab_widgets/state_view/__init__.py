"""What does the state of a linear recurrence hold, and what does its transition do to it?

    StateView()                                              # eight facts, DeltaNet
    StateView(family="kimi_delta", decay=0.8, step=1.0)
    StateView([("Ada", "red"), ("Bob", "blue"), ("Ada", "gold")])    # facts of your own

A token writes a fact, a key and a value, into the matrix S. Linear attention, retention, SSD, GLA,
DeltaNet, Gated DeltaNet, Kimi Delta Attention and RWKV-7 differ in the transition A by which S is
multiplied before. Everything is computed on the page, so a saved file stays alive.
"""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import torch
import traitlets
from torch import Tensor

from attnlab.core.arguments import check_list, check_number
from attnlab.core.suggest import choose
from attnlab.figures.drawing import Drawing
from attnlab.figures.labels import visible
from attnlab_widgets.base import STATIC, BaseWidget, Checked, Choice, as_trait_error, check_range
from attnlab_widgets.state_view import rules
from attnlab_widgets.state_view.picture import picture
from attnlab_widgets.state_view.rules import RULES, Rule
from attnlab_widgets.state_view.words import best, sentence

MOST_FACTS, MOST_NAMES, MOST_FORGOTTEN = 16, 6, 20.0
LARGEST = {"decay": 1.0, "step": 2.5, "overlap": 0.9}

_NAMES, _VALUES = ["Ada", "Bob", "Cleo", "Dan"], ["red", "green", "blue", "gold"]
_TOLD = "Ada red, Bob green, Cleo blue, Ada gold, Dan red, Bob blue, Ada green, Cleo gold"


def _facts(text: str, forget: dict[int, float] | None = None, other: float = 1.0) -> list[Any]:
    pairs = [one.split() for one in text.split(", ")]
    return [[*pair, (forget or {}).get(at, other)] for at, pair in enumerate(pairs)]


PRESETS: dict[str, dict[str, Any]] = {
    "told anew": {
        "facts": _facts(_TOLD),
        "decay": 0.9, "step": 1.0, "overlap": 0.0, "token": 3,
        "try": "Choose linear attention: Ada returns red or gold. Retention prefers the newer one, "
        "and loses Bob and Cleo little by little. DeltaNet erases red alone.",
    },
    "similar keys": {
        "facts": _facts(_TOLD),
        "decay": 0.9, "step": 1.0, "overlap": 0.6, "token": 4,
        "try": "The keys resemble each other, so each reads a part of what the others wrote. "
        "Compare linear attention with DeltaNet, and move the overlap.",
    },
    "a new topic": {
        "facts": _facts(
            "Ada red, Bob green, Cleo blue, Dan gold, Bob red, Cleo red, Cleo green, Bob gold",
            {4: 12.0}, 0.0,
        ),
        "decay": 0.6, "step": 1.0, "overlap": 0.0, "token": 4,
        "try": "Only the fifth token forgets (f = 12). Retention decays at every token, SSD here "
        "alone, and gated linear attention keeps the first channel, Ada's.",
    },
    "beyond the projection": {
        "facts": _facts(
            "Ada red, Bob green, Ada red, Bob green, Ada red, Bob green, Ada red, Bob green"
        ),
        "decay": 0.9, "step": 2.0, "overlap": 0.0, "token": 3,
        "try": "With b = 2 DeltaNet reflects the state: its eigenvalue is −1, and what Ada "
        "returns goes up and down. With b above 2 it explodes.",
    },
}  # fmt: skip
_START = "told anew"
_OF_PRESETS = ("facts", "decay", "step", "overlap")


class StateView(BaseWidget):
    """The state S of a linear recurrence, as facts are written into it one by one.

    ``facts``    1 to 16 of (key, value) or (key, value, forget), keys and values by name, at most 6
                 of each; ``forget`` f is the power of the decay at that token, 1 unless given
    ``family``   the rule, one of ``RULES``, by its name in the catalogue
    ``decay``    a, from 0 to 1. A rule with a number per token decays by a to the power f, one with
                 a number per channel by a to f times 0 (the first channel) to 2 (the last)
    ``step``     b, from 0 to 2.5
    ``overlap``  the dot product of any two keys, from 0 to 0.9; a key has length 1
    ``token``    the fact that is read last, the last one unless given
    ``preset``   the name of one of ``PRESETS``, in place of facts

    All but the preset can be read and set; the names, and how many facts there are, stay.
    """

    _esm = STATIC / "state_view.js"

    family = Choice(tuple(RULES), "deltanet").tag(sync=True)
    facts: Any = Checked().tag(sync=True)
    decay = traitlets.Float(0.9).tag(sync=True)
    step = traitlets.Float(1.0).tag(sync=True)
    overlap = traitlets.Float(0.0).tag(sync=True)
    token = traitlets.Int(0).tag(sync=True)
    _names: Any = traitlets.List().tag(sync=True)
    _values: Any = traitlets.List().tag(sync=True)
    _rules: Any = traitlets.List().tag(sync=True)
    _presets: Any = traitlets.List().tag(sync=True)

    def __init__(
        self,
        facts: Sequence[Sequence[Any]] | None = None,
        *,
        family: str = "deltanet",
        decay: float | None = None,
        step: float | None = None,
        overlap: float | None = None,
        token: int | None = None,
        preset: str | None = None,
        theme: str = "auto",
    ) -> None:
        if preset is not None and facts is not None:
            raise ValueError("`preset` brings its own facts: give `preset` or `facts`, not both")
        choose("family", family, RULES)
        own = facts is not None
        found = _checked(facts) if own else []
        names, values = ([*dict.fromkeys(fact[at] for fact in found)] for at in (0, 1))
        for what, few in (("keys", names), ("values", values)):
            if len(few) > MOST_NAMES:
                raise ValueError(
                    f"`facts` should name at most {MOST_NAMES} different {what}, got {len(few)}"
                )
        chosen = choose("preset", _START if preset is None else preset, PRESETS)
        state = {name: chosen[name] for name in (*_OF_PRESETS, "token")}
        if own:
            state = {"facts": found, "decay": 0.9, "step": 1.0, "overlap": 0.0}
            state["token"] = len(found) - 1
        given = {"decay": decay, "step": step, "overlap": overlap}
        state |= {name: _within(name, one) for name, one in given.items() if one is not None}
        if token is not None:
            state["token"] = check_range("token", token, len(state["facts"]))
        mine = {**state, "name": "as given", "try": "Switch the rule: only the transition changes."}
        presets = [{**one, "name": name} for name, one in PRESETS.items()]
        super().__init__(
            _names=names if own else _NAMES, _values=values if own else _VALUES,
            _rules=[{"name": name, **asdict(rule)} for name, rule in RULES.items()],
            _presets=[mine] if own else presets, family=family, theme=theme, **state,
        )  # fmt: skip

    # What follows from the state; of another ``family`` than the present one where it is given

    @property
    def rule(self) -> Rule:
        """The present one."""
        return RULES[self.family]

    @property
    def names(self) -> list[str]:
        """The names of the keys, made visible."""
        return list(self._names)

    @property
    def values(self) -> list[str]:
        """The names of the values, made visible; the columns of the state."""
        return list(self._values)

    def keys_and_values(self) -> tuple[Tensor, Tensor]:
        """The key (n, d) and the value (n, e) of every fact; float64."""
        keys, values = self._keys(), torch.eye(len(self._values), dtype=torch.float64)
        rows = [(self._names.index(key), self._values.index(value)) for key, value, _ in self.facts]
        return keys[[i for i, _ in rows]], values[[j for _, j in rows]]

    def decays(self, family: str | None = None) -> Tensor:
        """(n, d): what each token multiplies the rows of the state by."""
        rule, d = RULES[family or self.family], len(self._names)
        return torch.stack([rules.decays(rule, d, self.decay, f) for *_, f in self.facts])

    def transitions(self, family: str | None = None) -> Tensor:
        """(n, d, d): A of every token."""
        rule = RULES[family or self.family]
        pairs = zip(self.keys_and_values()[0], self.decays(family), strict=True)
        return torch.stack([rules.transition(rule, k, a, self.step) for k, a in pairs])

    def eigenvalues(self) -> Tensor:
        """(n, d): those of A of every token, from the least to the largest."""
        pairs = zip(self.keys_and_values()[0], self.decays(), strict=True)
        return torch.stack([rules.eigenvalues(self.rule, k, a, self.step) for k, a in pairs])

    def states(self, family: str | None = None) -> Tensor:
        """(n + 1, d, e): S before the first token and after each."""
        keys, values = self.keys_and_values()
        size = rules.written(RULES[family or self.family], self.step)
        S = [keys.new_zeros(keys.shape[1], values.shape[1])]
        for A, k, v in zip(self.transitions(family), keys, values, strict=True):
            S.append(A @ S[-1] + size * torch.outer(k, v))
        return torch.stack(S)

    def readings(self, family: str | None = None) -> Tensor:
        """(m, e): what each key reads of the state after the present token."""
        return self._keys() @ self.states(family)[self.token + 1]

    def newest(self) -> list[int | None]:
        """The value, by its place, that was last written to each key; None where there is none."""
        found: dict[str, int] = {}
        for key, value, _ in self.facts[: self.token + 1]:
            found[key] = self._values.index(value)
        return [found.get(name) for name in self._names]

    def right(self) -> dict[str, int]:
        """For each rule, how many keys return their newest value after the present token."""
        newest = self.newest()
        return {
            family: sum(
                best(row) == [value]
                for row, value in zip(self.readings(family).tolist(), newest, strict=True)
            )
            for family in RULES
        }

    def description(self) -> str:
        """What the transition does, and what each key returns, in two sentences."""
        return sentence(
            self.rule.title, self.token + 1, len(self.facts), self.facts[self.token],
            self.eigenvalues()[self.token].tolist(), self._names, self._values,
            self.readings().tolist(), self.newest(),
        )  # fmt: skip

    def still(self) -> Drawing:
        """The present token: transition, state, what is written, and what is read."""
        return picture(self)

    def __repr__(self) -> str:
        return f"StateView: {self.description()}"

    def _keys(self) -> Tensor:
        return rules.keys_of(len(self._names), self.overlap)

    # What may be set

    @traitlets.validate("facts")
    def _as_many_facts(self, proposal: Any) -> list[list[Any]]:
        found = as_trait_error(_checked, proposal["value"], self._names, self._values)
        count = len(self._presets[0]["facts"])
        if len(found) != count:
            raise traitlets.TraitError(
                f"`facts` should hold {count} facts, as before, got {len(found)}; make another "
                "StateView for another number"
            )
        return found

    @traitlets.validate("decay", "step", "overlap")
    def _a_number(self, proposal: Any) -> float:
        return as_trait_error(_within, proposal["trait"].name, proposal["value"])

    @traitlets.validate("token")
    def _a_token(self, proposal: Any) -> int:
        return as_trait_error(check_range, "token", proposal["value"], len(self.facts))


def _checked(
    given: Any, names: Sequence[str] | None = None, values: Sequence[str] | None = None
) -> list[list[Any]]:
    """Facts as [key, value, forget]; keys and values of these names, or of any."""
    rows = check_list("facts", given)
    if not 1 <= len(rows) <= MOST_FACTS:
        raise ValueError(f"`facts` should hold 1 to {MOST_FACTS} facts, got {len(rows)}")
    return [_fact(row, names, values) for row in rows]


def _fact(row: Any, names: Sequence[str] | None, values: Sequence[str] | None) -> list[Any]:
    if not isinstance(row, list | tuple) or len(row) not in (2, 3):
        raise TypeError(
            f"each of `facts` should be (key, value) or (key, value, forget), got {row!r}"
        )
    key, value = (_named(*each) for each in (("key", row[0], names), ("value", row[1], values)))
    forget = check_number("forget", row[2]) if len(row) == 3 else 1.0
    if not 0 <= forget <= MOST_FORGOTTEN:
        raise ValueError(f"`forget` should be from 0 to {MOST_FORGOTTEN:g}, got {forget:g}")
    return [key, value, forget]


def _named(what: str, given: Any, known: Sequence[str] | None) -> str:
    if not isinstance(given, str):
        raise TypeError(f"the {what} of each of `facts` should be a name, got {given!r}")
    if known is None:
        return visible(given)
    if given not in known:
        raise ValueError(f"`facts` has a {what} {given!r}; this StateView has {', '.join(known)}")
    return given


def _within(name: str, value: Any) -> float:
    found = check_number(name, value)
    if not 0 <= found <= LARGEST[name]:
        raise ValueError(f"`{name}` should be from 0 to {LARGEST[name]:g}, got {found:g}")
    return found
