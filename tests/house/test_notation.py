"""notebooks/notation.md: the letters of shapes and of lessons stand there, the terms in lessons."""

import json
import re
from functools import cache
from pathlib import Path

import pytest

from attnlab.core import shapes

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "notebooks/notation.md").read_text(encoding="utf-8")
LESSONS = sorted((ROOT / "notebooks").glob("[0-9]*_*.ipynb"))
GREEK = (
    "alpha|beta|gamma|delta|epsilon|varepsilon|theta|lambda|mu|xi|rho|sigma|tau|phi|Phi|psi|omega"
    "|ell"
)
COMMON, _, REST = PAGE.partition("## Letters with another meaning in one lesson")
OWN, _, REST = REST.partition("## Shapes")
GLOSSARY = re.findall(r"^\| \*\*(.+?)\*\* \| (.+?) \| \[\d\d\]\((.+?)\) \|$", REST, re.MULTILINE)

lesson = pytest.mark.parametrize("path", LESSONS, ids=lambda path: path.stem)


@cache
def prose(path: Path) -> str:
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    return "\n\n".join("".join(c["source"]) for c in cells if c["cell_type"] == "markdown")


def letters(text: str) -> set[str]:
    """The letters of all formulas of a text, without names of functions and words."""
    found: set[str] = set()
    for block, inline in re.findall(r"\$\$(.+?)\$\$|\$([^$\n]+?)\$", text, re.DOTALL):
        formula = re.sub(
            r"\\(mathrm|text|operatorname\*?|mathbb|mathcal|begin|end)\s*\{[^{}]*\}|_\{[a-z]{4,}\}",
            " ",
            block or inline,
        )
        found |= set(re.findall(rf"\\({GREEK})(?![a-zA-Z])", formula))
        found |= set(re.findall(r"[A-Za-z]", re.sub(r"\\[a-zA-Z]+", " ", formula)))
    return found


@cache
def of_all_lessons() -> set[str]:
    return letters(COMMON) | set(re.findall(r"^\| `(\w+)` \|", COMMON, re.MULTILINE))


def of_one_lesson(number: str) -> set[str]:
    row = re.search(rf"^\| \[{number}\].*$", OWN, re.MULTILINE)
    return letters(row[0]) if row else set()


def test_letters_are_read():
    formulas = r"$\omega_j x$ and $$\mathrm{softmax}(Q K^\top)$$"
    assert letters(formulas) == {"omega", "j", "x", "Q", "K"}


def test_letters_of_shapes_stand_there():
    told = (shapes.__doc__ or "").partition("The letters mean the same in all shapes:")[2]
    listed = set(re.findall(r"(?:^ {4}|  )([a-z]|dim)  +\w", told, re.MULTILINE))
    signatures = [getattr(shapes, name) for name in dir(shapes)]
    used = {
        letter
        for annotation in signatures
        for contract in shapes._contracts(annotation)
        for letter in contract.letters
    }
    assert {"b", "n", "m", "t", "h", "g", "dim", "d", "e"} <= used
    assert {"p", "c", "r"} <= listed
    sizes = set(re.findall(r"^\| `(\w+)` \|", COMMON, re.MULTILINE))
    assert used | listed <= sizes, f"not in notation.md: {sorted((used | listed) - sizes)}"


@lesson
def test_letters_of_a_lesson_stand_there(path: Path):
    missing = letters(prose(path)) - of_all_lessons() - of_one_lesson(path.stem[:2])
    where = f"the row of lesson {path.stem[:2]} in notation.md"
    assert not missing, f"give {', '.join(sorted(missing))} a meaning in {where}"


@lesson
def test_a_lesson_gives_no_letter_a_meaning_that_it_does_not_use(path: Path):
    unused = of_one_lesson(path.stem[:2]) - letters(prose(path))
    where = f"the row of lesson {path.stem[:2]} in notation.md"
    assert not unused, (
        f"take {', '.join(sorted(unused))} out of {where}: the lesson has no such letter"
    )


def test_terms_stand_in_the_lessons_that_introduce_them():
    assert len(GLOSSARY) > 80
    assert sorted(GLOSSARY, key=lambda row: row[0].lower()) == GLOSSARY, "in alphabetical order"
    for term, meaning, name in GLOSSARY:
        text = prose(ROOT / "notebooks" / name).lower()
        parts = re.split(r"[\s,]+", term.lower())
        assert all(part[:-1] in text for part in parts), f"{term} is not in lesson {name}"
        assert meaning.endswith("."), term
        assert meaning.count(". ") == 0, f"{term}: one sentence"


def test_links_lead_somewhere():
    targets = re.findall(r"\]\(([^)\s]+)\)", PAGE)
    assert len(targets) > 100
    assert all((ROOT / "notebooks" / target).is_file() for target in targets)
    assert "(notation.md)" in (ROOT / "notebooks/README.md").read_text(encoding="utf-8")
