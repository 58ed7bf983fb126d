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

import numpy as np
import torch
from torch import Tensor

import attnlab
from attnlab.catalog import goes_with, pages
from attnlab.core.card import Card
from attnlab.figures.maps import heat_map
from attnlab.figures.svg import png
from attnlab.figures.theme import CIVIDIS
from attnlab.lens.mixing import mixing_matrix
from attnlab.readme import Lesson, lessons
from docs.lessons import module_path, read
from docs.places import ROOT, Sources, fenced, html_block, on_the_web
from docs.reference import markdown

LENGTH, DIM = 24, 16
SEVERAL = 3  # pages
_LABEL = re.compile(r"(?<=\n\n)([A-Z][a-z’']+(?: [a-z’']+){0,2}[.:]) ")
NAMED_BY = ("attention", "positions", "embedding")
TITLES = {
    "dense": "Dense attention",
    "fixed": "Fixed patterns",
    "learned": "Learned patterns",
    "lowrank": "Low rank and synthetic",
    "kernelized": "Kernels",
    "memory": "Recurrence and memory",
    "spectral": "Fourier, convolution, state space",
    "structure": "Trees and other structures",
    "positions": "Positions and words",
}


def write(sources: Sources) -> None:
    taught = _taught()
    for card in attnlab.cards():
        implied = implied_map(card.name)
        if implied is not None:
            sources.add(thumbnail(card), small(implied[0]))
        page = "\n\n".join(_page(card, taught.get(card.name, []), implied, sources))
        sources.write(f"mechanisms/{card.name}.md", f"{page}\n")
    for family, members in families().items():
        sources.write(f"mechanisms/family_{family}.md", _family(family, members, sources))
    sources.write("mechanisms/index.md", _index(sources))


def families() -> dict[str, list[Card]]:
    """The mechanisms of each family, in the order of the shelf."""
    found: dict[str, list[Card]] = {}
    for card in attnlab.cards():
        found.setdefault(card.family, []).append(card)
    return found


def title_of(family: str) -> str:
    return TITLES.get(family, family.capitalize())


# ---- maps


@functools.cache
def implied_map(name: str) -> tuple[Tensor, str] | None:
    """How much each position takes from each other one, in a fresh small layer, and what that
    number is; of a position scheme, in full attention that uses it. None where nothing mixes."""
    card = attnlab.card(name)
    layer = _layer(card)
    if layer is None:
        return None
    torch.manual_seed(0)
    x = torch.randn(1, LENGTH, DIM)
    structure = None
    if card.structure is not None:
        structure = card.structure.example(torch.ones(1, LENGTH, dtype=torch.bool))
    found = mixing_matrix(layer, x, structure=structure)
    matrix = found.matrix[0].detach()
    return (matrix[0] if matrix.ndim == 3 else matrix).float(), found.how


def _layer(card: Card) -> torch.nn.Module | None:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        causal = card.causal == "always"
        small = getattr(card, "small", {})
        if card.mixes:
            return attnlab.build(card.name, dim=DIM, heads=2, causal=causal, **small).eval()
        if card.role in ("encode", "bias") and goes_with("full", card.name):
            return attnlab.build("full", dim=DIM, heads=2, positions=card.name).eval()
    return None


def thumbnail(card: Card) -> str:
    return f"maps/{card.name}.png"


def small(matrix: Tensor) -> bytes:
    """One pixel a cell, for a picture that the browser enlarges."""
    amounts = matrix.abs()
    share = (amounts / amounts.max().clamp_min(1e-12)).sqrt()  # the faint ones are seen, too
    levels = (share * (len(CIVIDIS) - 1)).round().to(torch.uint8).numpy()
    return png(np.ascontiguousarray(levels), CIVIDIS)


# ---- a page


def _page(
    card: Card, taught: list[Lesson], implied: tuple[Tensor, str] | None, sources: Sources
) -> Iterator[str]:
    module = pages()[card.name]
    path = module_path(module)
    story = inspect.getdoc(importlib.import_module(module)) or ""
    first, _, rest = story.partition("\n\n")
    about = f"{title_of(card.family)} · {card.paper.short} · {first.split(': ', 1)[-1]}"
    yield f"---\ndescription: {json.dumps(' '.join(about.split()))}\n---"
    yield f"# {card.title}"
    yield f"[{title_of(card.family)}](family_{card.family}.md) · {_paper(card)}"
    yield f"{{.lead}}\n{_lead(first)}"
    if implied is not None:
        yield _map(card, *implied, sources)
    yield _labelled(markdown(rest))
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
    return _LABEL.sub(
        lambda found: f"**{found[1]}** " if found[1] in _labels() else found[0], story
    )


@functools.cache
def _labels() -> set[str]:
    stories = (inspect.getdoc(importlib.import_module(module)) or "" for module in pages().values())
    counted = Counter(label for story in stories for label in set(_LABEL.findall(story)))
    return {label for label, count in counted.items() if count >= SEVERAL}


def _lead(first: str) -> str:
    text = " ".join(first.split(": ", 1)[-1].split())
    return text[:1].upper() + text[1:]


def _paper(card: Card) -> str:
    paper = card.paper
    title = f"[{paper.title}]({paper.url})" if paper.url else paper.title
    return f"{paper.authors}. {title}. {paper.venue}, {paper.year}"


def _map(card: Card, matrix: Tensor, how: str, sources: Sources) -> str:
    where = "a fresh layer" if card.mixes else "full attention with it"
    kind = "weight" if how.startswith("exact") else "response"
    signed = bool((matrix < 0).any())
    picture = heat_map(
        matrix.numpy(),
        title=f"What {where} takes from where, at {LENGTH} tokens",
        mask=None if signed else (matrix != 0).numpy(),
        quantity=kind,
    )
    drawn = picture._repr_mimebundle_()["text/html"]
    file = f"_outputs/maps/{card.name}.html"
    sources.write(
        file,
        f'<figure class="map">{drawn}<figcaption>Rows are queries, columns are keys. '
        f"{escape(how[:1].upper() + how[1:])}. Hatched: nothing flows.</figcaption></figure>",
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
        *(_costs(card)),
        ("forms", ", ".join(f"`{form}`" for form in card.forms)),
        *_options(card),
    ]
    inside = sorted({name for names in card.notes.values() for name in names})
    if inside:
        rows.append(("seen inside", ", ".join(f"`{name}`" for name in inside)))
    rows += [("departs from the paper", departure) for departure in card.departures]
    body = "\n".join(f"| {label} | {_cell(text)} |" for label, text in rows)
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
        letter = f" (${letters[field.name]}$ in the costs)" if field.name in letters else ""
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
    order = card.order_text("time", list(card.forms)[-1])
    picture = ""
    if implied_map(card.name) is not None:
        picture = f' style="background-image:url({root}{thumbnail(card)})"'
    return (
        f'<li><a href="{root}mechanisms/{card.name}.html"><span class="map"{picture}></span>'
        f"<b>{escape(card.title)}</b><small>{card.paper.year} · {escape(order)}</small></a></li>"
    )


def _family(family: str, members: list[Card], sources: Sources) -> str:
    tree = "\n".join(f"{card.title} <{card.name}>" for card in members)
    return f"""---
description: A family of mechanisms
---

# {title_of(family)}

{html_block(tiles(members, "../"))}

```{{toctree}}
:hidden:

{tree}
```
"""


def _index(sources: Sources) -> str:
    parts = "\n\n".join(
        f"## [{title_of(family)}](family_{family}.md)\n\n{html_block(tiles(members, '../'))}"
        for family, members in families().items()
    )
    tree = "\n".join(f"family_{family}" for family in families())
    return f"""---
description: All mechanisms, by family
---

# Mechanisms

Every mechanism has one page in the library: its story, its equation, its forms, its layer and its
card. The pictures are the maps that fresh layers imply: what each position (row) takes from each
other one (column).

{parts}

```{{toctree}}
:hidden:

{tree}
```
"""
