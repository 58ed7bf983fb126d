"""The costs stated on the cards: a bar per mechanism, with its order of growth."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import plotly.graph_objects as go
import sympy

from attnlab.core.arguments import check_list, check_mapping, check_positive, check_texts
from attnlab.core.card import LIKE_N, Card
from attnlab.core.integers import check_integer
from attnlab.core.suggest import choose
from attnlab.figures.curves import WIDTH
from attnlab.figures.labels import escaped
from attnlab.figures.layout import axis, label_width, layout
from attnlab.figures.picture import Picture
from attnlab.figures.theme import SERIES, colours, theme_name

COSTS = {
    "time": "multiply-adds and additions (FLOPs)",
    "memory": "largest tensor (elements)",
}


def claimed_costs(
    cards: Sequence[Card],
    *,
    n: int,
    title: str,
    what: str = "time",
    form: str = "naive",
    values: Mapping[str, float] | None = None,
    theme: str | None = None,
) -> Picture:
    """The costs that the cards state for one length: a bar per mechanism, with its growth order.

    ``what`` is "time" or "memory"; ``values`` gives the other letters that the claims need
    (default d = 64, h = 4, m = n), for example ``{"w": 32}`` for a window.
    """
    check_texts(title=title)
    cards = check_list("cards", cards)
    if not cards:
        raise ValueError("`cards` is empty: give at least one, for example attnlab.cards()")
    if not all(isinstance(card, Card) for card in cards):
        raise TypeError("`cards` should hold cards, for example attnlab.cards()")
    n = check_integer("`n`", n, at_least=1)
    if values is not None:
        values = check_mapping("values", values, '{"w": 32}', may_be_empty=True)
        values = {letter: check_positive(letter, value) for letter, value in values.items()}
    unit = choose("cost", what, COSTS)
    known: dict[str, float] = {"n": n, "d": 64, "e": 64, "h": 4}
    known |= {letter.name: n for letter in LIKE_N} | (values or {})
    costs = sorted((_claim(card, what, form, known) for card in cards), key=lambda c: -c[1])
    theme = theme_name(theme)
    look = colours(theme)
    names = [f"{escaped(card.title)}  {escaped(order)}" for card, _, order in costs]
    trace = go.Bar(
        x=[cost for _, cost, _ in costs],
        y=list(range(len(costs))),
        orientation="h",
        marker={"color": SERIES[0]},
        width=0.62,
        text=[_power(cost) for _, cost, _ in costs],
        textposition="outside",
        textfont={"size": 11, "color": look.ink},
        cliponaxis=False,
        customdata=names,
        hovertemplate="%{customdata}<br>%{x:,} " + unit + "<extra></extra>",
    )
    margin = {"l": 20 + max(map(label_width, names)), "r": 70, "t": 48, "b": 52}
    page = layout(
        look,
        title,
        width=max(WIDTH, margin["l"] + 380),
        height=100 + 30 * len(costs),
        margin=margin,
        xaxis=axis(look, f"{unit} at n = {n:,}", **_bar_ticks(costs[0][1])),
        yaxis=axis(
            look,
            range=[len(costs) - 0.5, -0.5],
            tickmode="array",
            tickvals=list(range(len(costs))),
            ticktext=names,
            showgrid=False,
            ticks="",
        ),
    )
    rows = [
        {"mechanism": card.title, "order": order, unit: cost, "paper": str(card.paper)}
        for card, cost, order in costs
    ]
    most, least = costs[0], costs[-1]
    description = (
        f"{title}. Bars: {unit} as claimed for n = {n:,}, form {form}. Most: {most[0].title} "
        f"with {most[1]:.3g}; least: {least[0].title} with {least[1]:.3g}."
    )
    return Picture([trace], page, description=description, rows=rows, theme=theme)


def _claim(card: Card, what: str, form: str, known: Mapping[str, float]) -> tuple[Card, float, str]:
    choose(f"form of {card.name!r}", form, card.forms)
    claim = sympy.sympify(card.cost(what, form))
    missing = sorted(str(letter) for letter in claim.free_symbols if str(letter) not in known)
    if missing:
        raise ValueError(
            f"the {what} of {card.name!r} also depends on {', '.join(missing)}: "
            f"give values={{{missing[0]!r}: …}}"
        )
    cost = float(claim.subs({letter: known[str(letter)] for letter in claim.free_symbols}))
    return card, cost, f"O({_readable(card.order(what, form))})"


def _bar_ticks(largest: float) -> dict[str, Any]:
    step = 10.0 ** math.floor(math.log10(largest))
    step = next(step * share for share in (1, 0.5, 0.2) if largest / (step * share) >= 3)
    ticks = [i * step for i in range(int(largest / step) + 1)]
    return {
        "range": [0, largest * 1.02],
        "tickmode": "array",
        "tickvals": ticks,
        "ticktext": [_power(tick) for tick in ticks],
    }


def _power(value: float) -> str:
    """A number in powers of ten where it is large: 4.29·10⁹."""
    if value < 1e5:
        return f"{value:,.3g}" if value < 1000 else f"{value:,.0f}"
    power = math.floor(math.log10(value))
    return f"{value / 10.0**power:.3g}·10<sup>{power}</sup>"


def _readable(order: sympy.Expr) -> str:
    powers = str.maketrans("23456789", "²³⁴⁵⁶⁷⁸⁹")
    parts = str(order).split("**")
    text = parts[0] + "".join(p[0].translate(powers) + p[1:] for p in parts[1:])
    return text.replace("*", "·")
