"""The tables of MECHANISMS.md, written from the cards, and what lessons say of themselves.

``python -m tools.readme`` writes the tables.

The data of a lesson are in the metadata of its notebook, ``{"attnlab": {"question": …, "minutes":
…, "work_minutes": …}}`` (minutes to read, minutes to work through), those of a mechanism on its
card. A test compares MECHANISMS.md with these tables.
"""

import json
import re
from argparse import ArgumentParser
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from attnlab_widgets.survey import gains

from attnlab.catalog import SHELVES, goes_with, pages, shelf
from attnlab.core.card import Card
from attnlab.core.files import write_file
from attnlab.measure.benchmarks import compiled
from attnlab.models import positions

PAGE = "MECHANISMS.md"
_DESCRIPTION = """Without arguments: write the tables of MECHANISMS.md anew, in this clone
of the repository. All that stands outside of their markers stays."""


DESCRIBED = "The lessons in one paragraph each"


class Lesson(NamedTuple):
    path: str
    question: str
    minutes: int
    work_minutes: int | None

    @property
    def number(self) -> int:
        return int(Path(self.path).name.split("_")[0])


def lessons(root: Path) -> list[Lesson]:
    """The numbered notebooks in their order."""
    return [
        _lesson(path, path.relative_to(root).as_posix())
        for path in sorted((root / "notebooks").glob("[0-9]*_*.ipynb"))
    ]


def parts_of_the_course(root: Path) -> dict[str, list[Lesson]]:
    """The lessons by the part of the course in which notebooks/README.md describes them."""
    text = (root / "notebooks/README.md").read_text(encoding="utf-8")
    _, _, described = text.partition(f"\n## {DESCRIBED}\n")
    described, *_ = re.split(r"^## ", described, maxsplit=1, flags=re.MULTILINE)
    _, *sections = re.split(r"^### ", described, flags=re.MULTILINE)
    named = {Path(lesson.path).name: lesson for lesson in lessons(root)}
    found = {}
    for section in sections:
        title, _, rest = section.partition("\n")
        files = re.findall(r"^\*\*\[\d+\]\((\S+)\)", rest, flags=re.MULTILINE)
        found[title] = [named[file] for file in files]
    return found


def _lesson(path: Path, name: str) -> Lesson:
    metadata = json.loads(path.read_text(encoding="utf-8"))["metadata"].get("attnlab", {})
    for key, kind in (("question", str), ("minutes", int)):
        if not isinstance(metadata.get(key), kind):
            raise ValueError(
                f'{name}: its metadata need {{"attnlab": {{"{key}": …}}}}, a {kind.__name__}; '
                f"found {metadata.get(key)!r}"
            )
    work = metadata.get("work_minutes")
    if work is not None and not isinstance(work, int):
        raise ValueError(
            f"{name}: its work_minutes should be an int, or be left out; found {work!r}"
        )
    return Lesson(name, metadata["question"], metadata["minutes"], work)


def mechanism_table() -> str:
    """One row a card: page, family, paper, cost of its last form, forms."""
    rows = [
        (
            f"[{card.title}]({_page(card)})",
            card.family,
            _paper(card),
            f"${card.order_latex('time', list(card.forms)[-1])}$",
            f"${card.order_latex('memory', list(card.forms)[-1])}$",
            ", ".join(f"`{form}`" for form in card.every_form),
        )
        for card in shelf()
    ]
    return _table(("Mechanism", "Family", "Paper", "Time", "Memory", "Forms"), rows)


def parts_table() -> str:
    """One row for each card of the other shelves: page, role, paper, forms."""
    rows = [
        (
            f"[{card.title}]({_page(card)})",
            f"`{card.role}`",
            _paper(card),
            ", ".join(f"`{form}`" for form in card.every_form),
        )
        for name in SHELVES
        if name != "mechanisms"
        for card in shelf(name)
    ]
    return _table(("Page", "Role", "Paper", "Forms"), rows)


def position_table() -> str:
    """One row a mechanism that takes any, one column a position scheme that goes into layers."""
    inside = [card for card in shelf() if card.role in ("encode", "bias")]
    rows = [
        (
            f"[{card.title}]({_page(card)})",
            *("yes" if goes_with(card.name, scheme.name) else "" for scheme in inside),
        )
        for card in shelf()
        if card.mixes and any(goes_with(card.name, scheme.name) for scheme in inside)
    ]
    return _table(("Mechanism", *(f"`{scheme.name}`" for scheme in inside)), rows)


def scheme_list() -> str:
    """One line a place where position schemes enter, with the schemes that do."""
    places = {
        "added at the embedding, with every mechanism": _adds,
        "in place of the table of tokens, with every mechanism": _embeds,
        "at the queries and keys, or at the scores, of the layers below": _enters_layers,
        'an attention of its own, in place of `attention="full"`': _attends,
    }
    schemes = {card.name: card for card in positions.schemes().values()}.values()
    return "\n".join(
        f"- {', '.join(f'`{card.name}`' for card in schemes if fits(card))}: {where}"
        for where, fits in places.items()
    )


def compiled_table() -> str:
    """One row a form of which it is stored what torch.compile gains; the rest is named."""
    found = [(one.card, one.form, gains.rows_of(one.card, one.form)) for one in compiled.forms()]
    rows = [
        (f"`{card.name}`", f"`{form}`", f"{compiled.tokens(card, form):,}", *map(_gain, each))
        for card, form, each in found
        if any(each)
    ]
    rest = [f"`{card.name}` (`{form}`)" for card, form, each in found if not any(each)]
    measured = sum(any(row and row["measured"] for row in each) for *_, each in found)
    head = ("Mechanism", "Form", "Tokens", *map(str.capitalize, compiled.PASSES))
    said = f"{measured} of {len(found)} forms are measured: {gains.machine()}."
    left = [f"{gains.NOT_YET.capitalize()}: {', '.join(rest)}."] if rest else []
    return "\n\n".join([said, _table(head, rows), *left])


def _gain(row: Mapping[str, Any] | None) -> str:
    if row is None:
        return gains.NOT_YET
    if row["measured"] is None:
        return gains.why_not(row["note"])
    quartiles = row["quartiles"]
    return f"{gains.times(row['measured'], quartiles)} × ({gains.spread(quartiles)})"


def _adds(card: Card) -> bool:
    return card.role == "embed" and not positions.makes_vectors(card)


def _embeds(card: Card) -> bool:
    return positions.makes_vectors(card)


def _enters_layers(card: Card) -> bool:
    return card.role in ("encode", "bias")


def _attends(card: Card) -> bool:
    return card.role == "attend"


def _page(card: Card) -> str:
    module = pages()[card.name]
    page = Path(__file__).parents[1] / module.replace(".", "/")
    return f"{module.replace('.', '/')}{'' if page.is_dir() else '.py'}"


def _paper(card: Card) -> str:
    title = f"[{card.paper.title}]({card.paper.url})" if card.paper.url else card.paper.title
    return f"{title}, {card.paper.year}"


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    return "\n".join(_row(line) for line in (head, ["---"] * len(head), *rows))


def _row(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cell.replace("|", r"\|") for cell in cells) + " |"


def filled(text: str, tables: Mapping[str, str]) -> str:
    """``text`` with each table between its markers, ``<!-- name -->`` and ``<!-- /name -->``."""
    for name, table in tables.items():
        between = re.compile(rf"(<!-- {name} -->\n).*?(<!-- /{name} -->)", re.DOTALL)
        if len(between.findall(text)) != 1:
            raise ValueError(
                f"the page needs one <!-- {name} --> and one <!-- /{name} --> after it"
            )
        text = between.sub(_between(table), text)
    return text


def _between(table: str) -> Callable[[re.Match[str]], str]:
    return lambda match: f"{match[1]}{table}\n{match[2]}"


def current(root: Path) -> str:
    """The up-to-date MECHANISMS.md: its own text, with the tables as they are now."""
    text = (root / PAGE).read_text(encoding="utf-8")
    tables = {
        "mechanisms": mechanism_table(),
        "parts": parts_table(),
        "schemes": scheme_list(),
        "positions": position_table(),
        "compiled": compiled_table(),
    }
    return filled(text, tables)


def main() -> None:
    ArgumentParser(prog="python -m tools.readme", description=_DESCRIPTION).parse_args()
    root = Path(__file__).parents[1]
    if not (root / PAGE).is_file():
        raise SystemExit(f"there is no {PAGE} in {root}: run this in a clone of the repository")
    write_file(root / PAGE, current(root))


if __name__ == "__main__":
    main()
