"""A mechanism → a page, from its card and its module; and the index by family."""

import functools
import importlib
import inspect
import json
from collections.abc import Iterator
from html import escape

from attnlab_widgets.wall_cards import growth

import attnlab
from attnlab.core.card import Card
from attnlab.core.story import Story
from attnlab.figures.maps import heat_map
from attnlab.figures.static import draw
from docs.maps import TITLE, Implied, implied, small
from docs.page import definition, ending, labelled, paper, sentence, table, taught_in
from docs.places import Sources, html_block
from docs.reference import markdown
from tools.readme import Lesson


def write(sources: Sources) -> None:
    taught = taught_in()
    for card in attnlab.catalog.shelf():
        found = implied(card.name)
        if found is not None:
            sources.add(thumbnail(card), small(found))
        page = "\n\n".join(_page(card, taught.get(card.name, []), sources))
        sources.write(f"mechanisms/{card.name}.md", f"{page}\n")
    for family, members in families().items():
        sources.write(f"mechanisms/family_{family}.md", _family(family, members, sources))
    sources.write("mechanisms/index.md", _index(sources))


def families() -> dict[str, list[Card]]:
    """The mechanisms of each family, in the order of the shelf."""
    found: dict[str, list[Card]] = {}
    for card in attnlab.catalog.shelf():
        found.setdefault(card.family, []).append(card)
    return found


def thumbnail(card: Card) -> str:
    return f"maps/{card.name}.png"


@functools.cache
def story_of(family: str) -> tuple[str, str]:
    """Title and story of a family: its folder's docstring, before and after the first colon."""
    said = inspect.getdoc(importlib.import_module(f"attnlab.mechanisms.{family}")) or family
    title, _, story = said.partition(":")
    return title.strip(), sentence(story)


def title_of(family: str) -> str:
    return story_of(family)[0]


# ---- a page


def _page(card: Card, taught: list[Lesson], sources: Sources) -> Iterator[str]:
    story = Story(card.story or "")
    about = f"{title_of(card.family)} · {card.paper.short} · {story.summary}"
    yield f"---\ndescription: {json.dumps(about)}\n---"
    yield f"# {card.title}"
    yield f"[{title_of(card.family)}](family_{card.family}.md) · {paper(card)}"
    yield f"{{.lead}}\n{sentence(story.summary)}"
    found = implied(card.name)
    if found is not None:
        yield _map(card, found, sources)
    yield labelled(markdown(story.rest))
    yield "## The equation as code"
    yield from definition(card)
    yield "## Its card"
    yield _card(card)
    yield from ending(card, taught)


def _map(card: Card, found: Implied, sources: Sources) -> str:
    signed = bool((found.weights < 0).any())
    square = found.weights.shape[0] == found.weights.shape[1]
    beyond = [f"summary {i}" for i in range(found.weights.shape[1] - len(found.rows))]
    picture = heat_map(
        found.weights,
        found.rows,
        None if square else [*found.rows, *beyond],
        title=TITLE,
        mask=None if signed else ~found.masked,
        quantity="weight",
    )
    drawn = draw(picture, picture.description)
    file = f"_outputs/maps/{card.name}.html"
    sources.write(
        file,
        f'<figure class="map">{drawn}<figcaption>{escape(found.caption)}</figcaption></figure>',
    )
    return f"```{{stored}} {file}\n```"


def _card(card: Card) -> str:
    rows = [
        ("causal", card.causal + (f": {card.causal_reason}" if card.causal_reason else "")),
        *([("gives up", card.gives_up)] if card.gives_up else []),
        *_costs(card),
    ]
    return table(card, rows)


def _costs(card: Card) -> Iterator[tuple[str, str]]:
    import sympy

    for what, unit in (("time", "FLOPs"), ("memory", "elements of the largest tensor")):
        for form in card.every_form:
            claim = card.cost(what, form)
            words = {x: rf"\mathrm{{{x}}}" for x in claim.free_symbols if len(x.name) > 2}
            latex = sympy.latex(claim, symbol_names=words)
            yield f"{what}, `{form}`", f"${latex}$ {unit}: ${card.order_latex(what, form)}$"


# ---- the index


def tiles(cards: list[Card], root: str) -> str:
    """One tile a mechanism: its map, title and year; ``root`` leads to the top of the site."""
    return f'<ul class="tiles">{"".join(_tile(card, root) for card in cards)}</ul>'


def _tile(card: Card, root: str) -> str:
    picture = ""
    if implied(card.name) is not None:
        picture = f'<img src="{root}{thumbnail(card)}" alt="" loading="lazy">'
    return (
        f'<li><a href="{root}mechanisms/{card.name}.html"><span class="map">{picture}</span>'
        f"<b>{escape(card.title)}</b><small>{card.paper.year} · {_growth(card)}</small></a></li>"
    )


def _growth(card: Card) -> str:
    """How its time grows with the length."""
    order = growth(card, "time", {})
    return "costs nothing" if order == "0" else f"time O({escape(order)})"


def _family(family: str, members: list[Card], sources: Sources) -> str:
    tree = "\n".join(f"{card.title} <{card.name}>" for card in members)
    return f"""---
description: A family of mechanisms
---

# {title_of(family)}

{story_of(family)[1]}

{html_block(tiles(members, "../"))}

```{{toctree}}
:hidden:

{tree}
```
"""


def _index(sources: Sources) -> str:
    parts = "\n\n".join(
        f"## [{title_of(family)}](family_{family}.md)\n\n{story_of(family)[1]}\n\n"
        f"{html_block(tiles(members, '../'))}"
        for family, members in families().items()
    )
    tree = "\n".join(f"family_{family}" for family in families())
    return f"""---
description: All mechanisms, by family
---

# Mechanisms

Every mechanism has one page in the library: its story, its equation, its forms, its layer and its
card. The pictures are implied maps: what each position (row) takes from each other one (column).

{parts}

```{{toctree}}
:hidden:

{tree}
```
"""
