"""The first page: the wall of mechanisms, and where to go from there."""

import json
from copy import deepcopy
from html import escape
from pathlib import Path

from attnlab_widgets import CircuitBoard, Walk
from attnlab_widgets.circuit_board import TITLE as CIRCUIT
from attnlab_widgets.walk import TITLE as WALK

import attnlab
from attnlab.core.card import Card
from docs import parts
from docs.lessons import by_part
from docs.maps import wall
from docs.mechanisms import families, title_of
from docs.places import HOME, ROOT, Sources, address_of, html_block
from docs.widgets import frame, framed
from tools.readme import lessons


def write(sources: Sources) -> None:
    sources.add("widgets/wall.html", framed(_wall()))
    sources.write("index.md", _page())
    sources.add("widgets/walk.html", framed(Walk().page(WALK)))
    sources.write("walk.md", _walk())
    sources.add("widgets/circuit_board.html", framed(CircuitBoard().page(CIRCUIT)))
    sources.write("circuit_board.md", _circuit())


def _walk() -> str:
    """A small language model that the reader's browser runs."""
    return f"""---
description: {json.dumps("A language model of 107,776 parameters runs in this page, step by step")}
hide-toc: true
---

# {WALK}

A language model of 107,776 parameters runs in this page. Type letters, go through one pass from
the letters to the answer, silence a head, and let it write on.

{html_block(frame("widgets/walk.html", WALK))}

It was trained to continue letters that repeat
([lesson 00](lessons/{Path(lessons(ROOT)[0].path).stem}.md) trains one), so it knows no words: after
a word that begins again it expects what came after the first time. In Python it is
`attnlab.pretrained.load("induction")`, and this page is `attnlab_widgets.Walk().save_html(…)`,
which takes other small models, too.
"""


def _circuit() -> str:
    """The heads of the same model as chips, with wires that the reader cuts."""
    lesson = next(each for each in lessons(ROOT) if each.number == 67)
    return f"""---
description: {json.dumps("All heads of a language model as chips: click a wire, and it is cut")}
hide-toc: true
---

# {CIRCUIT}

The four heads of the same model as [the walk](walk.md) goes through, as chips on a board. A wire is
as thick as what its cut does to the answer: every one of these cuts is computed in this page. Click
a wire, and the model answers without it.

{html_block(frame("widgets/circuit_board.html", CIRCUIT))}

A cut wire carries something else in place of what its sender adds: what the sender makes of another
text, its mean, or zeros; what is found depends on that choice, and the board says which it is.
[Lesson {lesson.number}](lessons/{Path(lesson.path).stem}.md) asks by the same cuts who writes the
answer. In Python the board is `attnlab_widgets.CircuitBoard()`; it takes other small models, too.
"""


def _wall() -> str:
    """The wall alive on a page of its own; its lessons and mechanisms are pages of this site."""
    told = deepcopy(wall()._wall)
    for tile in told["tiles"]:
        tile["address"] = f"../mechanisms/{tile['name']}.html"
    for page in wall()._pages:
        page["address"] = f"../parts/{page['name']}.html"
    for tile in (*told["tiles"], *wall()._pages):
        for lesson in tile["lessons"]:
            lesson["path"] = f"../lessons/{Path(lesson['path']).stem}.html"
    wall()._wall = told
    return wall().page("The wall of mechanisms")


def _link(card: Card) -> str:
    return f'<a href="{address_of(card.name)}.html">{escape(card.title)}</a>'


def _page() -> str:
    every = lessons(ROOT)
    first = f"lessons/{Path(every[0].path).stem}.html"
    count = len(attnlab.catalog.shelf())
    hero = f"""
<div class="hero">
<p class="claim">A laboratory for attention: {count} mechanisms, each on one readable page,
proved against its own equation, and open to look inside.</p>
<p class="ways"><a class="way first" href="{first}">Start with lesson 00</a>
<a class="way" href="walk.html">{WALK}</a>
<a class="way" href="circuit_board.html">{CIRCUIT}</a>
<a class="way" href="lessons/index.html">All {len(every)} lessons</a>
<a class="way" href="mechanisms/index.html">All mechanisms</a>
<a class="way" href="parts/index.html">{parts.TITLE}</a>
<a class="way" href="guides/index.html">Use it, build on it</a>
<a class="way" href="https://github.com/{HOME.slug}">Source</a></p>
</div>
{frame("widgets/wall.html", "The wall of mechanisms")}
"""
    shelf = "".join(
        f'<li><a href="mechanisms/family_{family}.html">{escape(title_of(family))}</a> '
        f"<span>{' '.join(map(_link, members))}</span></li>"
        for family, members in families().items()
    )
    around = "".join(
        f'<li><a href="parts/role_{role}.html">{escape(parts.title_of(role))}</a> '
        f"<span>{' '.join(map(_link, members))}</span></li>"
        for role, members in parts.roles().items()
    )
    return f"""---
description: {json.dumps("The wall of mechanisms, and the way to lessons and pages")}
hide-toc: true
---

# attnlab

{html_block(hero)}

## Lessons

{html_block(by_part("lessons/"))}

## Mechanisms

{html_block(f'<ul class="families">{shelf}</ul>')}

## {parts.TITLE}

{html_block(f'<ul class="families">{around}</ul>')}

```{{toctree}}
:hidden:

walk
circuit_board
lessons/index
mechanisms/index
parts/index
guides/index
reference/index
```
"""
