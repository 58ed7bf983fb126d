"""What the story of a page says of its mechanism: title, paper, departures, what it gives up.

The story is the docstring of the page. Four of its paragraphs have a form of their own:

- the first line: ``Title: what it is.``, or ``Title: with a colon. What it is.``
- ``Departures.`` and below it a list; the first sentence of each item stands on the card, the
  others explain it
- ``Gives up.`` and one sentence: what full attention has and the mechanism has not
- the last: ``Authors. Title. Venue 2020, arXiv:2001.00001, section 3.`` More may follow
"""

import ast
import inspect
import re
import reprlib
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

CITATION = re.compile(
    r"(?P<authors>[^.]+?(?: et al(?=\.))?)\. (?P<title>(?:[^.?]|[.?](?! ))+\??)\.? "
    r"(?:(?P<venue>[^.]+?)(?: \d+\(\d+\))?,? )?(?P<year>\d{4})"
    r"(?:, arXiv:(?P<arxiv>\d{4}\.\d{4,5}))?(?=[.,;:]|$)"
)
DEPARTURES, GIVES_UP = "Departures.", "Gives up."


@dataclass(frozen=True)
class Paper:
    """Where a mechanism comes from."""

    authors: str
    title: str
    venue: str
    year: int
    arxiv: str | None = None

    @property
    def url(self) -> str | None:
        return f"https://arxiv.org/abs/{self.arxiv}" if self.arxiv else None

    @property
    def short(self) -> str:
        """Authors and year as a text cites them: Press et al., 2022."""
        first, *others = self.authors.split(", ")
        names = f"{first} and {others[0]}" if len(others) == 1 else first + " et al." * bool(others)
        return f"{names}, {self.year}"

    def __str__(self) -> str:
        where = f", arXiv:{self.arxiv}" if self.arxiv else ""
        authors = self.authors.removesuffix(".")  # of "et al."
        return f"{authors}. {self.title}. {self.venue}, {self.year}{where}."


@dataclass(frozen=True)
class Story:
    """A docstring, read. What it does not say is empty, and its ``paper`` is None.

    ``summary``  the first line without the title
    ``rest``     all but the first line
    """

    text: str

    @property
    def paragraphs(self) -> list[str]:
        return [part.strip() for part in re.split(r"\n\s*\n", inspect.cleandoc(self.text))]

    @property
    def title(self) -> str:
        return self._head()[0]

    @property
    def summary(self) -> str:
        return self._head()[1]

    @property
    def rest(self) -> str:
        return "\n\n".join(self.paragraphs[1:])

    @property
    def departures(self) -> tuple[str, ...]:
        items = [
            item
            for part in self._under(DEPARTURES)
            for item in re.split(r"^- ", part, flags=re.M)[1:]
        ]
        lines = (_one_line(item).replace("``", "") for item in items)  # a card is plain text
        return tuple(line.split(". ")[0].removesuffix(".") for line in lines)

    @property
    def gives_up(self) -> str:
        return " ".join(_one_line(part) for part in self._under(GIVES_UP))

    @property
    def paper(self) -> Paper | None:
        found = CITATION.match(_one_line(self.paragraphs[-1]))
        if found is None:
            return None
        authors = found["authors"] + ("." if found["authors"].endswith(" et al") else "")
        venue, year = found["venue"] or "arXiv", int(found["year"])
        return Paper(authors, found["title"], venue, year, found["arxiv"])

    def faults(self) -> list[str]:
        """What cannot be read of it, each as a sentence for its author."""
        found = []
        if not self.title:
            found.append(
                "the story should begin with its title, as 'Title: what it is.', "
                f"got {self.summary!r}"
            )
        if self.paper is None:
            found.append(
                "the last paragraph of the story should be a citation, as "
                "'Authors. Title. Venue 2020, arXiv:2001.00001.', "
                f"got {reprlib.repr(_one_line(self.paragraphs[-1]))}"
            )
        for part in self.paragraphs[1:-1]:
            first, *items = re.split(r"\n(?=\S)", part)
            if re.match("departures?[.:]", first, re.I) and not (
                first == DEPARTURES and items and all(item.startswith("- ") for item in items)
            ):
                found.append(f"below the line 'Departures.' a list should follow, got {first!r}")
            if re.match("gives? up[.:]", first, re.I) and not re.fullmatch(
                r"Gives up\. .+\.", _one_line(part)
            ):
                found.append(f"'Gives up.' and a sentence should be one paragraph, got {first!r}")
        return found

    def _head(self) -> tuple[str, str]:
        first = _one_line(self.paragraphs[0])
        sentences = first.split(". ", 1)
        title, found, summary = (
            first.partition(": ") if len(sentences) == 1 else (sentences[0], ". ", sentences[1])
        )
        return (title, summary) if found else ("", first)

    def _under(self, label: str) -> list[str]:
        """What follows the label in the paragraphs that begin with it."""
        return [part.removeprefix(label) for part in self.paragraphs if part.startswith(label)]


def story(docstring: str | None) -> Story:
    """The story that a docstring tells.

    ``python -OO`` leaves docstrings out. Then the story is read from the source file of the module
    that is being imported.
    """
    return Story(_from_source() if docstring is None else docstring)


def _from_source() -> str:
    frame: FrameType | None = inspect.currentframe()
    while frame is not None and frame.f_code.co_name != "<module>":
        frame = frame.f_back
    file = Path(frame.f_globals.get("__file__") or "") if frame else Path()
    if not file.is_file():
        return ""
    return ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))) or ""


def _one_line(text: str) -> str:
    return " ".join(text.split())
