"""What every page of a card has: its story, its definition, its table, its lessons, its files."""

import ast
import functools
import inspect
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import fields
from pathlib import Path

import attnlab
from attnlab.catalog import pages
from attnlab.core.card import Card
from attnlab.core.story import Story
from docs.lessons import module_path, read
from docs.places import ROOT, fenced, html_block, on_the_web
from tools.readme import Lesson, lessons

SEVERAL = 3  # pages
_LABEL = re.compile(r"(?<=\n\n)([A-Z][a-z’']+(?: [a-z’']+){0,2}[.:])(?=\s)")
NAMED_BY = ("attention", "positions", "embedding", "feed", "join", "depth", "objective")


def sentence(text: str) -> str:
    text = text.strip()
    return text[:1].upper() + text[1:]


def labelled(story: str) -> str:
    """The words that open a paragraph on several pages, such as Departures, stand out."""
    return _LABEL.sub(lambda found: f"**{found[1]}**" if found[1] in _labels() else found[0], story)


@functools.cache
def _labels() -> set[str]:
    stories = (Story(card.story or "").rest for card in attnlab.cards())
    counted = Counter(label for story in stories for label in set(_LABEL.findall(story)))
    return {label for label, count in counted.items() if count >= SEVERAL}


def paper(card: Card) -> str:
    paper = card.paper
    title = f"[{paper.title}]({paper.url})" if paper.url else paper.title
    return f"{paper.authors}. {title}. {paper.venue}, {paper.year}"


def definition(card: Card) -> Iterator[str]:
    yield (
        "`naive` is the definition, without any trick; other forms equal it in values and in "
        "gradients."
    )
    function = inspect.unwrap(card.forms["naive"])
    while isinstance(function, functools.partial):
        function = inspect.unwrap(function.func)
    try:
        yield fenced(inspect.getsource(function), "python")
    except (OSError, TypeError):
        yield f"It is made by `{type(function).__name__}`."


def table(card: Card, rows: Sequence[tuple[str, str]]) -> str:
    """The card: its name, what it claims (``rows``), and what stands on every card."""
    rows = [
        ("name", f'`attnlab.build("{card.name}", …)`'),
        ("role", f"`{card.role}`"),
        *rows,
        ("forms", ", ".join(f"`{form}`" for form in card.every_form)),
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


def _options(card: Card) -> Iterator[tuple[str, str]]:
    letters = {option: letter for letter, option in card.letters.items()}
    for field in fields(card.options):
        known = letters.get(field.name, field.name)
        letter = f" (${known}$ in the costs)" if known != field.name else ""
        yield "option", f"`{field.name} = {field.default!r}`{letter}"


def ending(card: Card, taught: Sequence[Lesson]) -> Iterator[str]:
    """Lessons, and the source."""
    path = module_path(pages()[card.name])
    if taught:
        yield "## Lessons that use it"
        yield "\n".join(
            f"- [{lesson.number:02} · {lesson.question}](../lessons/{Path(lesson.path).stem}.md)"
            for lesson in taught
        )
    yield "## The whole page"
    yield f"[{path}]({on_the_web(path)}) in the repository."
    yield from _files(path)


def _files(path: str) -> Iterator[str]:
    full = ROOT / path
    for file in sorted(full.rglob("*.py")) if full.is_dir() else [full]:
        name = file.relative_to(ROOT).as_posix()
        yield html_block(f'<details class="source"><summary><code>{name}</code></summary>')
        yield fenced(file.read_text(encoding="utf-8"), "python")
        yield html_block("</details>")


# ---- lessons


@functools.cache
def taught_in() -> dict[str, list[Lesson]]:
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
