"""A page of the other shelves → a page of the site; and an index by role."""

import json
from collections.abc import Iterator
from functools import cache
from html import escape

from attnlab_widgets import part_pictures
from attnlab_widgets.what_is_hidden import WhatIsHidden

from attnlab import catalog
from attnlab.core.card import Card
from attnlab.core.story import Story
from docs.page import definition, ending, labelled, paper, sentence, table, taught_in
from docs.places import Sources, fenced, html_block
from docs.reference import markdown
from docs.widgets import frame, framed
from tools.readme import Lesson

TITLE = "What stands around attention"
ABOUT = (
    "Feed-forward layers, joins and depth are parts of a model; an objective is what it learns "
    "from; compression makes a trained module smaller. Each has one page in the library, with a "
    "story, an equation, forms, a module and a card."
)


def write(sources: Sources) -> None:
    taught = taught_in()
    for role, members in roles().items():
        for card in members:
            page = "\n\n".join(_page(card, taught.get(card.name, []), sources))
            sources.write(f"parts/{card.name}.md", f"{page}\n")
        sources.write(f"parts/role_{role}.md", _role(role, members))
    sources.write("parts/index.md", _index())


def roles() -> dict[str, list[Card]]:
    """The cards of each role, in the order of the pages of the shelves."""
    found: dict[str, list[Card]] = {role: [] for role in catalog.TITLES}
    for name in catalog.SHELVES[1:]:
        for card in catalog.shelf(name):
            found[card.role].append(card)
    return {role: members for role, members in found.items() if members}


def title_of(role: str) -> str:
    return catalog.TITLES[role].partition(":")[0]


def story_of(role: str) -> str:
    """What stands after the colon of its title, and how to read its pictures."""
    _, _, story = catalog.TITLES[role].partition(":")
    return f"{sentence(story)}. {part_pictures.CAPTIONS[role]}"


# ---- a page


def _page(card: Card, taught: list[Lesson], sources: Sources) -> Iterator[str]:
    story = Story(card.story or "")
    about = f"{title_of(card.role)} · {card.paper.short} · {story.summary}"
    yield f"---\ndescription: {json.dumps(about)}\n---"
    yield f"# {card.title}"
    yield f"[{title_of(card.role)}](role_{card.role}.md) · {paper(card)}"
    yield f"{{.lead}}\n{sentence(story.summary)}"
    yield _picture(card, sources)
    if card.role == "objective":
        yield "## On a text, beside all others"
        yield _on_a_text(card, sources)
    if card.demo:
        yield "## In ten seconds"
        yield "After `import attnlab, torch`:"
        yield fenced(card.demo, "pycon")
    yield "## How it works"
    yield labelled(markdown(story.rest))
    yield "## The equation as code"
    yield from definition(card)
    yield "## Its card"
    yield table(card, card.claims.rows())
    yield from ending(card, taught)


def _picture(card: Card, sources: Sources) -> str:
    found = part_pictures.sketch(card)
    assert found is not None, f"{card.name} has no picture"
    caption = f"<figcaption>{escape(found.words)}</figcaption>"
    file = f"_outputs/parts/{card.name}.html"
    sources.write(file, f'<figure class="map part">{found.svg()}{caption}</figure>')
    return f"```{{stored}} {file}\n```"


def _on_a_text(card: Card, sources: Sources) -> str:
    """What every objective hides of one text, this one chosen: a widget that needs no kernel."""
    view = _every_objective()
    if card.name not in view.objectives:
        return f"A plain text is not enough for it: {sentence(view.left_out[card.name])}"
    view.objective = card.name
    view.place = view.first_scored()
    title, address = f"What {card.title} hides of a text", f"widgets/objectives/{card.name}.html"
    sources.add(address, framed(view.page(title)))
    return html_block(frame(f"../{address}", title))


@cache
def _every_objective() -> WhatIsHidden:
    """One widget for all pages, because it takes a second to make the draws of all objectives."""
    return WhatIsHidden()


# ---- the index


def tiles(cards: list[Card], root: str) -> str:
    """One tile a page: its picture, title and year; ``root`` leads to the top of the site."""
    return f'<ul class="tiles parts">{"".join(_tile(card, root) for card in cards)}</ul>'


def _tile(card: Card, root: str) -> str:
    found = part_pictures.sketch(card)
    picture = "" if found is None else found.thumbnail().svg()
    label, said = card.claims.rows()[0]
    return (
        f'<li><a href="{root}parts/{card.name}.html"><span class="picture">{picture}</span>'
        f"<b>{escape(card.title)}</b><small>{card.paper.year} · {escape(label)}: {escape(said)}"
        "</small></a></li>"
    )


def _role(role: str, members: list[Card]) -> str:
    tree = "\n".join(f"{card.title} <{card.name}>" for card in members)
    return f"""---
description: {json.dumps(catalog.TITLES[role])}
---

# {title_of(role)}

{story_of(role)}

{html_block(tiles(members, "../"))}

```{{toctree}}
:hidden:

{tree}
```
"""


def _index() -> str:
    parts = "\n\n".join(
        f"## [{title_of(role)}](role_{role}.md)\n\n{story_of(role)}\n\n"
        f"{html_block(tiles(members, '../'))}"
        for role, members in roles().items()
    )
    tree = "\n".join(f"role_{role}" for role in roles())
    return f"""---
description: {json.dumps(ABOUT)}
---

# {TITLE}

{ABOUT}

{parts}

```{{toctree}}
:hidden:

{tree}
```
"""
