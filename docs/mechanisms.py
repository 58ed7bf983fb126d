"""A mechanism → a page, from its card and its module; and the index by family."""

import ast
import functools
import importlib
import inspect
import json
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import fields
from html import escape
from pathlib import Path

from attnlab_widgets.wall_cards import growth

import attnlab
from attnlab.catalog import pages
from attnlab.core.card import Card
from attnlab.core.story import Story
from attnlab.figures.maps import heat_map
from attnlab.figures.static import draw
from docs.lessons import module_path, read
from docs.maps import TITLE, Implied, implied, small
from docs.places import ROOT, Sources, fenced, html_block, on_the_web
from docs.reference import markdown
from tools.readme import Lesson, lessons

SEVERAL = 3  # pages
_LABEL = re.compile(r"(?<=\n\n)([A-Z][a-z’']+(?: [a-z’']+){0,2}[.:])(?=\s)")
NAMED_BY = ("attention", "positions", "embedding")


def write(sources: Sources) -> None:
    taught = _taught()
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
    return title.strip(), _sentence(story)


def title_of(family: str) -> str:
    return story_of(family)[0]


def _sentence(text: str) -> str:
    text = text.strip()
    return text[:1].upper() + text[1:]


# ---- a page


def _page(card: Card, taught: list[Lesson], sources: Sources) -> Iterator[str]:
    module = pages()[card.name]
    path = module_path(module)
    story = Story(card.story or "")
    about = f"{title_of(card.family)} · {card.paper.short} · {story.summary}"
    yield f"---\ndescription: {json.dumps(about)}\n---"
    yield f"# {card.title}"
    yield f"[{title_of(card.family)}](family_{card.family}.md) · {_paper(card)}"
    yield f"{{.lead}}\n{_sentence(story.summary)}"
    found = implied(card.name)
    if found is not None:
        yield _map(card, found, sources)
    yield _labelled(markdown(story.rest))
    yield "## The equation as code"
    yield (
        "`naive` is the definition, without any trick; the other forms equal it in values and in "
        "gradients."
    )
    yield from _naive(card)
    yield "## Its card"
    yield _card(card)
    if taught:
        yield "## Lessons that use it"
        yield "\n".join(
            f"- [{lesson.number:02} · {lesson.question}](../lessons/{Path(lesson.path).stem}.md)"
            for lesson in taught
        )
    yield "## The whole page"
    yield f"[{path}]({on_the_web(path)}) in the repository."
    yield from _files(path)


def _labelled(story: str) -> str:
    """The words that open a paragraph on several pages, such as Departures, stand out."""
    return _LABEL.sub(lambda found: f"**{found[1]}**" if found[1] in _labels() else found[0], story)


@functools.cache
def _labels() -> set[str]:
    stories = (Story(card.story or "").rest for card in attnlab.catalog.shelf())
    counted = Counter(label for story in stories for label in set(_LABEL.findall(story)))
    return {label for label, count in counted.items() if count >= SEVERAL}


def _paper(card: Card) -> str:
    paper = card.paper
    title = f"[{paper.title}]({paper.url})" if paper.url else paper.title
    return f"{paper.authors}. {title}. {paper.venue}, {paper.year}"


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


def _naive(card: Card) -> Iterator[str]:
    function = inspect.unwrap(card.forms["naive"])
    while isinstance(function, functools.partial):
        function = inspect.unwrap(function.func)
    try:
        yield fenced(inspect.getsource(function), "python")
    except (OSError, TypeError):
        yield f"It is made by `{type(function).__name__}`."


def _card(card: Card) -> str:
    rows = [
        ("name", f'`attnlab.build("{card.name}", …)`'),
        ("role", f"`{card.role}`"),
        ("causal", card.causal + (f": {card.because}" if card.because else "")),
        *([("gives up", card.gives_up)] if card.gives_up else []),
        *(_costs(card)),
        ("forms", ", ".join(f"`{form}`" for form in card.forms)),
        *_options(card),
    ]
    inside = sorted({name for names in card.notes.values() for name in names})
    if inside:
        rows.append(("seen inside", ", ".join(f"`{name}`" for name in inside)))
    rows += [("departs from the paper", departure) for departure in card.departures]
    above = ["", *(label for label, _ in rows)]  # a label stands once for all of its rows
    body = "\n".join(
        f"| {'' if label == last else label} | {_cell(text)} |"
        for last, (label, text) in zip(above, rows, strict=False)
    )
    return f"|  |  |\n| --- | --- |\n{body}"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", r"\|")


def _costs(card: Card) -> Iterator[tuple[str, str]]:
    import sympy

    for what, unit in (("time", "FLOPs"), ("memory", "elements of the largest tensor")):
        for form in card.forms:
            claim = card.cost(what, form)
            words = {x: rf"\mathrm{{{x}}}" for x in claim.free_symbols if len(x.name) > 2}
            latex = sympy.latex(claim, symbol_names=words)
            yield f"{what}, `{form}`", f"${latex}$ {unit}: ${card.order_latex(what, form)}$"


def _options(card: Card) -> Iterator[tuple[str, str]]:
    letters = {option: letter for letter, option in card.letters.items()}
    for field in fields(card.options):
        known = letters.get(field.name, field.name)
        letter = f" (${known}$ in the costs)" if known != field.name else ""
        yield "option", f"`{field.name} = {field.default!r}`{letter}"


def _files(path: str) -> Iterator[str]:
    full = ROOT / path
    for file in sorted(full.rglob("*.py")) if full.is_dir() else [full]:
        name = file.relative_to(ROOT).as_posix()
        yield html_block(f'<details class="source"><summary><code>{name}</code></summary>')
        yield fenced(file.read_text(encoding="utf-8"), "python")
        yield html_block("</details>")


# ---- lessons


def _taught() -> dict[str, list[Lesson]]:
    """Name of a mechanism → the lessons whose code imports its page or names it."""
    found: dict[str, list[Lesson]] = {}
    for lesson in lessons(ROOT):
        sources = ("".join(c["source"]) for c in read(lesson)["cells"] if c["cell_type"] == "code")
        named = {name for source in sources for name in _named(source)}
        for name, module in pages().items():
            if named & {name, module}:
                found.setdefault(name, []).append(lesson)
    return found


def _named(source: str) -> Iterator[str]:
    """The modules that a cell imports, and the names of the mechanisms that it asks for."""
    python = "\n".join(line for line in source.split("\n") if not line.lstrip().startswith("%"))
    try:
        tree = ast.parse(python)
    except SyntaxError:  # an exercise that is still to be filled in
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            yield str(node.module)
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Call):
            called = ast.unparse(node.func).rpartition(".")[2]
            given = [word.value for word in node.keywords if word.arg in NAMED_BY]
            given += node.args[:1] if called in ("build", "card", "goes_with") else []
            yield from (str(value.value) for value in given if isinstance(value, ast.Constant))


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
