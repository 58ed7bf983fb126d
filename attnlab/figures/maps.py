"""Attention maps: one, all heads at once, one over training steps.

Queries are rows, keys are columns, brighter means more attention. Weights of attention have one
scale in all maps, their square root from 0 to 1, unless the bar says otherwise. Masked pairs are
hatched, so that "may not attend" and "does not attend" look different. A masked pair that carries
weight is drawn with its weight, so that a leak is visible. The only key of a query, as that of the
first query of a causal map, gets all of its weight whatever the model: it is framed, not coloured.
"""

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
import plotly.graph_objects as go

from attnlab.core.arguments import check_flag, check_list, check_texts
from attnlab.core.arrays import Array, booleans, numbers, tokens_for
from attnlab.figures.labels import sentence, visible
from attnlab.figures.layout import add_player, say_untrained
from attnlab.figures.map_drawing import (
    bar_length,
    borders,
    grid_layout,
    one_map_layout,
    packed,
    small_map,
    trace,
)
from attnlab.figures.picture import Picture, Row
from attnlab.figures.scales import ALL, colour_axis, named, scale_end
from attnlab.figures.theme import colours, theme_name

LARGEST_MAP = 512
EXACT_CELLS = 128 * 128
MOST_CELLS = 300_000
AXES = ("queries", "keys")
"""What the rows and the columns of a map of attention are."""


def heat_map(
    weights: Any,
    queries: Sequence[Any] | None = None,
    keys: Sequence[Any] | None = None,
    *,
    title: str,
    mask: Any = None,
    groups: tuple[Sequence[int], Sequence[int]] | None = None,
    largest: float | None = None,
    quantity: str | None = None,
    root: bool | None = None,
    axes: tuple[str, str] = AXES,
    untrained: bool = False,
    theme: str | None = None,
) -> Picture:
    """One map (n, m) with a label per query (rows) and per key (columns).

    ``keys`` default to ``queries`` where the map is square. ``mask`` (n, m), True = may attend.
    ``groups`` holds a group of each row and of each column, such as its bucket, cluster or block: a
    line parts neighbours of different groups.
    ``quantity`` says what the cells are where they are not weights of attention: its colours are
    linear up to the largest value. ``root=True`` gives it the scale of weights of attention (a mean
    of weights), ``root=False`` gives weights a linear one. ``largest`` is another end of the scale;
    give the same to maps that are to be compared. Negative values get a two-sided scale around
    zero. ``axes`` says what rows and columns are where they are not queries and keys ("block size",
    "character"). ``untrained=True`` labels what nobody trained.
    """
    check_texts(title=title)
    quantity, root = named(quantity, root)
    check_flag("untrained", untrained)
    axes = _axes(axes)
    weights = _map("weights", weights, "n m")
    n, m = weights.shape
    keys = queries if keys is None and n == m else keys
    queries = tokens_for("queries", queries, n, "queries (rows of `weights`)")
    keys = tokens_for("keys", keys, m, "keys (columns of `weights`)")
    shown = _shown(weights, mask)
    theme = theme_name(theme)
    look = colours(theme)
    low, high = _range(weights, largest, root)
    cells, unit = _stored(shown)
    only = _only_keys(weights, mask, root)
    page = one_map_layout(theme, title, queries, keys, np.isnan(shown), only, axes)
    if untrained:
        say_untrained(page, look)
    page["coloraxis"] = colour_axis(look, low, high, unit, quantity, bar_length(page), root=root)
    page["shapes"] = [] if groups is None else borders(look, *_groups(groups, n, m))
    return Picture(
        [trace(cells, quantity, unit, _each(axes))],
        page,
        description=_description(title, weights, shown, queries, keys, quantity, axes)
        + _of_nobody(untrained),
        rows=_rows(shown, queries, keys, axes),
        theme=theme,
    )


def head_grid(
    weights: Any,
    tokens: Sequence[Any] | None = None,
    *,
    title: str,
    mask: Any = None,
    largest: float | None = None,
    quantity: str | None = None,
    root: bool | None = None,
    untrained: bool = False,
    theme: str | None = None,
) -> Picture:
    """Every head of every layer as a small map, on one colour scale: (layers, heads, n, m).

    Of more than 16,384 cells in all the weights are rounded (to one part in ten thousand, or finer
    where all are small), which keeps a notebook light; ``heat_map`` shows one head exactly.
    ``largest``, ``quantity``, ``root`` and ``untrained`` are those of ``heat_map``.
    """
    check_texts(title=title)
    quantity, root = named(quantity, root)
    check_flag("untrained", untrained)
    weights = _map("weights", weights, "layers heads n m")
    layers, heads, n, m = weights.shape
    queries = tokens_for("tokens", tokens, n, "queries")[:n]
    keys = queries if n == m else tokens_for("tokens", None, m, "keys")
    shown = np.stack([[_shown(head, mask) for head in layer] for layer in weights])
    theme = theme_name(theme)
    low, high = _range(weights, largest, root)
    cells, unit = _stored(shown)
    size = max(64, min(128, 600 / heads, 720 / layers))
    only = np.stack([[_only_keys(head, mask, root) for head in layer] for layer in weights])
    page = grid_layout(theme, title, queries, keys, size, np.isnan(shown), only)
    look = colours(theme)
    if untrained:
        say_untrained(page, look)
    page["coloraxis"] = colour_axis(look, low, high, unit, quantity, bar_length(page), root=root)
    traces = [
        small_map(cells[layer, head], layer, head, unit)
        for layer in range(layers)
        for head in range(heads)
    ]
    return Picture(
        traces,
        page,
        description=_grid_description(title, shown, high) + _of_nobody(untrained),
        rows=_grid_rows(shown),
        theme=theme,
    )


def film(
    weights: Any,
    steps: Sequence[Any],
    tokens: Sequence[Any] | None = None,
    *,
    title: str,
    along: str = "training step",
    mask: Any = None,
    largest: float | None = None,
    quantity: str | None = None,
    root: bool | None = None,
    untrained: bool | Collection[Any] = False,
    theme: str | None = None,
) -> Picture:
    """One map at several training steps, (t, n, m), with a slider and a play button.

    ``along`` says what the steps are where they are not those of a training ("scale").
    ``untrained`` is True where nobody trained any of the maps, or holds the steps at which that is
    so: their stops of the slider say it. ``largest``, ``quantity`` and ``root`` are those of
    ``heat_map``. The last map is shown first. The slider lives in the figure: it works on a page
    without a kernel.
    """
    check_texts(title=title, along=along)
    quantity, root = named(quantity, root)
    weights = _map("weights", weights, "t n m")
    n, m = weights.shape[1:]
    steps = check_list("steps", steps)
    steps = tokens_for("steps", steps, len(weights), "maps (first axis of `weights`)")
    if len({str(step) for step in steps}) < len(steps):
        raise ValueError(f"`steps` should differ, got {steps}")
    of_nobody = _steps_of_nobody(untrained, steps)
    queries = tokens_for("tokens", tokens, n, "queries (rows of `weights`)")
    keys = queries if n == m else list(range(m))
    shown = np.stack([_shown(moment, mask) for moment in weights])
    theme = theme_name(theme)
    look = colours(theme)
    low, high = _range(weights, largest, root)
    cells, unit = _stored(shown)
    only: Any = np.stack([_only_keys(moment, mask, root) for moment in weights]).all(0)
    hidden: Any = np.isnan(shown).all(0)
    page = one_map_layout(theme, title, queries, keys, hidden, only, AXES)
    if untrained is True:
        say_untrained(page, look)
    page["coloraxis"] = colour_axis(look, low, high, unit, quantity, bar_length(page), root=root)
    stops = [f"{step} · untrained" if str(step) in of_nobody else str(step) for step in steps]
    add_player(page, look, steps, along, stops)
    frames = [
        go.Frame(name=str(step), data=[{"type": "heatmap", "z": packed(moment)}])
        for step, moment in zip(steps, cells, strict=True)
    ]
    return Picture(
        [trace(cells[-1], quantity, unit, _each(AXES))],
        page,
        frames,
        description=f"{sentence(title)} {len(steps)} attention maps, from {along} {steps[0]} to "
        f"{along} {steps[-1]}. {_film_words(steps, along, shown)}"
        + (_of_nobody(untrained is True) or _of_nobody_at(along, of_nobody)),
        rows=_film_rows(steps, along, shown, queries, keys),
        theme=theme,
    )


# what may be drawn


def _axes(axes: object) -> tuple[str, str]:
    if not isinstance(axes, tuple | list) or len(axes) != 2:
        raise TypeError(
            "`axes` should be two texts, what the rows and what the columns are, such as "
            f'("block size", "character"), got {axes!r:.80}'
        )
    check_texts(**{"axes[0]": axes[0], "axes[1]": axes[1]})
    return axes[0], axes[1]


def _groups(groups: Any, n: int, m: int) -> tuple[list[int], list[int]]:
    if not isinstance(groups, tuple | list) or len(groups) != 2:
        raise TypeError(
            "`groups` should be two lists, the groups of the rows and those of the columns, got "
            f"{groups!r:.80}"
        )
    rows, columns = (numbers("groups", one, "n").tolist() for one in groups)
    if (len(rows), len(columns)) != (n, m):
        raise ValueError(
            f"`groups` should hold {n} groups of rows and {m} of columns, got {len(rows)} and "
            f"{len(columns)}"
        )
    return rows, columns


def _each(axes: tuple[str, str]) -> tuple[str, str]:
    """What one row and one column are called: a query and a key."""
    return ("query", "key") if axes == AXES else axes


def _map(name: str, weights: Any, axes: str) -> Array:
    array = numbers(name, weights, axes)
    if max(array.shape[-2:]) > LARGEST_MAP:
        raise ValueError(
            f"`{name}` is {array.shape[-2]} × {array.shape[-1]}; at most {LARGEST_MAP} tokens can "
            "be seen at once: give a part, for example weights[:128, :128]"
        )
    if array.size > MOST_CELLS:
        raise ValueError(
            f"`{name}` has {array.size:,} cells in all, more than the {MOST_CELLS:,} that keep a "
            "notebook small: give fewer layers, heads or tokens"
        )
    return array


def _shown(weights: Array, mask: Any) -> Array:
    """The weights, with NaN for masked pairs without weight, which are not drawn."""
    if mask is None:
        return weights
    allowed = booleans("mask", mask, weights.shape)
    return np.where(allowed | (weights != 0), weights, np.nan)


def _only_keys(weights: Array, mask: Any, root: bool | None) -> Array:
    """True at the one cell of a row that the mask allows, where it holds all of the row's weight.

    So a row without any allowed key has none, and what it holds is a leak.
    """
    if mask is None or not root:
        return np.zeros(weights.shape, bool)
    allowed = booleans("mask", mask, weights.shape)
    leaks = (~allowed & (weights != 0)).any(1)
    one = (allowed.sum(1) == 1) & ~allowed.all(1) & ~leaks
    found: Array = allowed & one[:, None] & (np.abs(weights - 1) < ALL)
    return found


def _of_nobody(untrained: bool) -> str:
    return " Nobody trained these weights." if untrained else ""


def _of_nobody_at(along: str, steps: Sequence[Any]) -> str:
    return f" Nobody trained the weights at {along} {', '.join(map(str, steps))}." if steps else ""


def _steps_of_nobody(untrained: object, steps: Sequence[Any]) -> list[str]:
    if isinstance(untrained, bool):
        return []
    found = check_list("untrained", untrained)
    known = [str(step) for step in steps]
    if strange := [step for step in found if str(step) not in known]:
        raise ValueError(f"`untrained` should hold some of `steps`, got {strange[0]!r:.80}")
    return [str(step) for step in found]


def _range(weights: Array, largest: float | None, root: bool | None) -> tuple[float, float]:
    signed = bool(weights.min() < 0)
    high = scale_end(float(np.abs(weights).max()), root and not signed, largest)
    return (-high if signed else 0.0), high


def _stored(shown: Array) -> tuple[Array, int | None]:
    """The cells as a figure holds them: exact, or many of them as multiples of 1/unit.

    The unit is the largest power of ten that fits two bytes. For weights up to 1 it is 10,000, so
    that under the square root neighbours differ by at most a 255th of the colours from 0.0002 on. A
    weight above zero never becomes zero.
    """
    if shown.size <= EXACT_CELLS:
        return shown, None
    known = np.nan_to_num(shown)
    top = float(np.abs(known).max()) or 1.0
    levels = 2**15 - 1 if known.min() < 0 else 2**16 - 1
    unit = 1
    while top * unit * 10 <= levels and unit < 10**9:
        unit *= 10
    rounded = np.round(shown * unit)
    return np.where((rounded == 0) & (known != 0), np.sign(shown), rounded), unit


# descriptions


def _description(
    title: str,
    weights: Array,
    shown: Array,
    queries: Sequence[Any],
    keys: Sequence[Any],
    quantity: str,
    axes: tuple[str, str],
) -> str:
    n, m = weights.shape
    seen = np.where(np.isnan(shown), -np.inf, shown)
    row, column = np.unravel_index(int(seen.argmax()), seen.shape)
    size = f"{n} queries (rows) by {m} keys (columns)"
    first, arrow, second = "from query", "to", "key"
    if axes != AXES:
        size = f"{n} rows ({axes[0]}) by {m} columns ({axes[1]})"
        first, arrow, second = f"at {axes[0]}", "and", axes[1]
    sentences = [
        f"{sentence(title)} Heat map of {quantity}: {size}.",
        f"Largest: {weights[row, column]:.3g}, {first} {_named(queries, row)} {arrow} {second} "
        f"{_named(keys, column)}.",
    ]
    hidden = int(np.isnan(shown).sum())
    if hidden:
        sentences.append(f"{hidden} of {n * m} pairs are hatched: the mask does not allow them.")
    if (weights < 0).any():
        sentences.append(f"Smallest: {weights.min():.3g}; the colour scale has two sides.")
    return " ".join(sentences)


def _rows(
    shown: Array, queries: Sequence[Any], keys: Sequence[Any], axes: tuple[str, str]
) -> list[Row]:
    """For each query, the three keys with the largest weights."""
    one, other = _each(axes)
    return [
        {one: _named(queries, i), **_strongest(row, keys, min(3, len(keys)), other)}
        for i, row in enumerate(shown)
    ]


def _strongest(row: Array, keys: Sequence[Any], count: int, name: str) -> Row:
    order = np.argsort(np.where(np.isnan(row), np.inf, -row), kind="stable")[:count]
    cells = ["none" if np.isnan(row[j]) else f"{_named(keys, int(j))}: {row[j]:.3f}" for j in order]
    return dict(zip((f"strongest {name}", "second", "third"), cells, strict=False))


def _named(tokens: Sequence[Any], place: int | np.intp) -> str:
    token = tokens[int(place)]
    return str(place) if token == int(place) else f"{visible(token)} (position {place})"


def _grid_description(title: str, shown: Array, high: float) -> str:
    layers, heads, n, m = shown.shape
    return (
        f"{sentence(title)} {layers} layers (rows) by {heads} heads (columns) of attention maps, "
        f"each {n} queries by {m} keys, on one colour scale up to {high:.3g}. "
        f"The table gives each head's mean largest weight and how far back it looks."
    )


def _grid_rows(shown: Array) -> list[Row]:
    layers, heads, *_ = shown.shape
    return [
        {"layer": layer, "head": head, **_head_words(np.nan_to_num(shown[layer, head]))}
        for layer in range(layers)
        for head in range(heads)
    ]


def _head_words(weights: Array) -> Row:
    """Two numbers that summarise a head's map."""
    n, m = weights.shape
    back = (np.arange(n) + m - n)[:, None] - np.arange(m)
    total = np.abs(weights).sum() or 1.0
    distance = float((np.abs(weights) * np.abs(back)).sum() / total)
    return {
        "mean of each query's largest weight": round(float(weights.max(-1).mean()), 3),
        "mean attended distance (tokens)": round(distance, 2),
    }


def _film_words(steps: Sequence[Any], along: str, shown: Array) -> str:
    first, last = (float(np.nan_to_num(moment).max(-1).mean()) for moment in shown[[0, -1]])
    return (
        f"The mean of each query's largest weight goes from {first:.3g} at {along} {steps[0]} "
        f"to {last:.3g} at {along} {steps[-1]}."
    )


def _film_rows(
    steps: Sequence[Any], along: str, shown: Array, queries: Sequence[Any], keys: Sequence[Any]
) -> list[Row]:
    rows: list[Row] = []
    for step, moment in zip(steps, np.nan_to_num(shown), strict=True):
        row, column = np.unravel_index(int(moment.argmax()), moment.shape)
        rows.append(
            {
                along: step,
                **_head_words(moment),
                "largest weight": f"{_named(queries, row)} → {_named(keys, column)}: "
                f"{moment[row, column]:.3f}",
            }
        )
    return rows
