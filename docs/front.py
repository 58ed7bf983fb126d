"""The first page: the wall of mechanisms, and where to go from there."""

import json
from html import escape
from pathlib import Path

import torch

import attnlab
from attnlab.readme import lessons
from docs.mechanisms import families, tiles, title_of
from docs.places import HOME, ROOT, Sources, html_block
from docs.widgets import frame, framed

TEXT = "The animal didn't cross the street because it was too tired"


def write(sources: Sources) -> None:
    sources.add("widgets/wall.html", framed(_wall()))
    sources.write("index.md", _page())


def _wall() -> str:
    """The wall alive on a page of its own."""
    from attnlab_widgets.attention_view import AttentionView

    words = TEXT.split()
    torch.manual_seed(0)
    model = attnlab.TinyTransformer(64, dim=32, heads=4, layers=2)
    with attnlab.watch(model) as seen, torch.no_grad():
        model(torch.arange(len(words))[None])
    return AttentionView(seen, words).page("The wall of mechanisms")


def _page() -> str:
    every = lessons(ROOT)
    first = f"lessons/{Path(every[0].path).stem}.html"
    count = len(attnlab.cards())
    hero = f"""
<div class="hero">
<p class="claim">A laboratory for attention: {count} mechanisms, each on one readable page,
proved against its own equation, and open to look inside.</p>
<p class="ways"><a class="way first" href="{first}">Start with lesson 00</a>
<a class="way" href="lessons/index.html">All {len(every)} lessons</a>
<a class="way" href="mechanisms/index.html">All mechanisms</a>
<a class="way" href="https://github.com/{HOME.slug}">Source</a></p>
</div>
{frame("widgets/wall.html", "The wall of mechanisms")}
"""
    parts = "\n\n".join(
        f"### {title_of(family)}\n\n{html_block(tiles(members, ''))}"
        for family, members in families().items()
    )
    rows = "".join(
        f'<li><a href="lessons/{Path(lesson.path).stem}.html"><b>{lesson.number:02}</b>'
        f"<span>{escape(lesson.question)}</span><small>{lesson.minutes} min</small></a></li>"
        for lesson in every
    )
    return f"""---
description: {json.dumps("The wall of mechanisms, and the way to lessons and pages")}
hide-toc: true
---

# attnlab

{html_block(hero)}

## Lessons

{html_block(f'<ol class="lessons">{rows}</ol>')}

## Mechanisms

{parts}

```{{toctree}}
:hidden:

lessons/index
mechanisms/index
reference/index
```
"""
