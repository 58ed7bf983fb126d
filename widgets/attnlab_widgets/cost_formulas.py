"""The cost expressions of the cards as nested lists, which ``cost_lab/costs.js`` evaluates.

A number stands for itself, a text for a letter, and ``["+", a, b]``, ``["*", a, b]``,
``["^", a, b]``, ``["log", a]`` for what they say. So sliders move without Python.
"""

import math
from collections.abc import Mapping
from typing import Any

import sympy

from attnlab.core.card import Card, letters
from attnlab_widgets.wall_cards import claim_of, growth

_SIGNS: dict[Any, str] = {sympy.Add: "+", sympy.Mul: "*", sympy.Pow: "^", sympy.log: "log"}
_STEPS = 3
"""An option goes from an eighth of what is usual to eight times as much."""


def tree(expression: sympy.Expr) -> Any:
    """The expression as nested lists. Raises ValueError for a function that the page has not."""
    if expression.is_Symbol:
        return expression.name
    if expression.is_number:
        return float(expression)
    sign = _SIGNS.get(expression.func)
    if sign is None:
        raise ValueError(f"the page cannot evaluate {expression.func.__name__} in {expression}")
    return [sign, *map(tree, expression.args)]


def told(card: Card) -> dict[str, Any]:
    """What the page is told of a mechanism: its formulas, and the options that stand in them."""
    chosen = card.options()
    formulas = {what: claim_of(card, what, {})[1] for what in ("time", "memory")}
    used = {symbol.name for claim in formulas.values() for symbol in claim.free_symbols}
    sliders = {}
    for letter, name in card.letters.items():
        value = getattr(chosen, name)
        if letter in used and type(value) is int and value > 0:
            sliders[letter] = {"option": name, "usual": value, "values": steps(value)}
    fixed = {
        letters(letter)[0]: getattr(chosen, name)
        for letter, name in card.letters.items()
        if letter not in sliders and letter in used
    }
    return {
        "name": card.name,
        "title": card.title,
        "family": card.family,
        "year": card.paper.year,
        "form": list(card.forms)[-1],
        "order": growth(card, "time", {}),
        "letters": sliders,
        **{what: tree(claim.subs(fixed)) for what, claim in formulas.items()},
    }


def steps(usual: int) -> list[int]:
    """The usual value of an option with its halves and doubles, from 1 up."""
    found = {round(usual * 2.0**power) for power in range(-_STEPS, _STEPS + 1)}
    return sorted(value for value in found if value)


def value(formula: Any, known: Mapping[str, float]) -> float:
    """A nested list as a number, as ``evaluate`` of ``cost_lab/costs.js`` does it."""
    if isinstance(formula, str):
        return known[formula]
    if not isinstance(formula, list):
        return float(formula)
    sign, *parts = formula
    numbers = [value(part, known) for part in parts]
    if sign == "+":
        return math.fsum(numbers)
    if sign == "*":
        return math.prod(numbers)
    return float(numbers[0] ** numbers[1]) if sign == "^" else math.log(numbers[0])
