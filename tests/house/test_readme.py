"""MECHANISMS.md is current, addresses lead somewhere, and small files agree on the version."""

import json
import re
import tomllib
from pathlib import Path

import pytest

import attnlab
from attnlab.catalog import cards
from attnlab.core.home import home
from attnlab.models.positions import schemes
from tools import readme

ROOT = Path(__file__).parents[2]
PAPERS = ("README.md", "MECHANISMS.md", "CONTRIBUTING.md", "CHANGELOG.md")


def addresses(text: str) -> list[str]:
    """Where the links and pictures of a Markdown text lead, in order."""
    return re.findall(r"\]\(([^)\s]+)\)", text)


def plant_lesson(root: Path, name: str, **message: object) -> None:
    (root / "notebooks").mkdir(exist_ok=True)
    lesson = {"cells": [], "metadata": {"attnlab": message}}
    (root / "notebooks" / name).write_text(json.dumps(lesson))


@pytest.fixture
def clone(tmp_path):
    (tmp_path / "pyproject.toml").write_text('[tool.attnlab]\nslug = "us/lab"\nbranch = "trunk"\n')
    return tmp_path


def test_the_tables_are_current():
    text = (ROOT / "MECHANISMS.md").read_text(encoding="utf-8")
    assert readme.current(ROOT) == text, "run `make readme`"


def test_a_stale_table_is_seen(tmp_path):
    fresh = (ROOT / "MECHANISMS.md").read_text(encoding="utf-8")
    stale = fresh.replace(f"[{cards()[0].title}]", "[An older title]", 1)
    assert stale != fresh
    assert readme.filled(stale, {"mechanisms": readme.mechanism_table()}) == fresh


def test_every_mechanism_has_a_row_that_leads_to_its_page():
    table = readme.mechanism_table().splitlines()
    table += readme.parts_table().splitlines()[2:]
    for card, row in zip(cards(), table[2:], strict=True):
        page = ROOT / addresses(row)[0]
        text = (page / "__init__.py" if page.is_dir() else page).read_text(encoding="utf-8")
        assert re.search(r"^CARDS? = ", text, re.MULTILINE), page
        assert card.title in row
        assert str(card.paper.year) in row
        assert all(f"`{form}`" in row for form in card.forms)


def test_lessons_come_in_their_order_with_both_times(clone):
    plant_lesson(clone, "07_windows.ipynb", question="How far?", minutes=23, work_minutes=50)
    plant_lesson(clone, "02_heads.ipynb", question="Why?", minutes=20)
    (clone / "notebooks/draft.ipynb").write_text("{}")
    assert [(one.number, one.minutes, one.work_minutes) for one in readme.lessons(clone)] == [
        (2, 20, None),
        (7, 23, 50),
    ]
    plant_lesson(clone, "02_heads.ipynb", question="Why?", minutes=20, work_minutes="50")
    with pytest.raises(ValueError, match="work_minutes should be an int"):
        readme.lessons(clone)


@pytest.mark.parametrize(
    ("message", "missing"),
    [({"minutes": 20}, "question"), ({"question": "Why?"}, "minutes"), ({}, "question")],
)
def test_a_lesson_that_says_nothing_of_itself_is_named(clone, message, missing):
    plant_lesson(clone, "03_tiles.ipynb", **message)
    with pytest.raises(ValueError, match=rf"notebooks/03_tiles.ipynb: .*{missing}"):
        readme.lessons(clone)


@pytest.mark.parametrize("lesson", readme.lessons(ROOT), ids=lambda lesson: lesson.path)
def test_a_lesson_opens_with_its_question_and_badges(lesson):
    header = "".join(json.loads((ROOT / lesson.path).read_text())["cells"][0]["source"])
    place = home(ROOT)
    assert lesson.question in header
    assert f"{lesson.minutes} min" in header
    assert place.colab(lesson.path).split("(")[-1] in header
    assert place.binder(lesson.path).split("(")[-1] in header


def test_numbers_of_lessons_are_not_used_twice():
    numbers = [lesson.number for lesson in readme.lessons(ROOT)]
    assert numbers == sorted(set(numbers))


@pytest.mark.parametrize(
    "text", ["", "<!-- lessons -->", "<!-- lessons -->\n<!-- /lessons -->" * 2]
)
def test_missing_markers_are_named(text):
    with pytest.raises(ValueError, match=r"the page needs one <!-- lessons -->"):
        readme.filled(text, {"lessons": "| a |"})


def test_a_table_is_taken_as_it_is():
    text = "a\n<!-- lessons -->\nold\n<!-- /lessons -->\nb"
    written = readme.filled(text, {"lessons": r"| \1 $O(n^{2})$ \g<2> |"})
    assert written == "a\n<!-- lessons -->\n| \\1 $O(n^{2})$ \\g<2> |\n<!-- /lessons -->\nb"
    assert readme.filled(written, {"lessons": "old"}) == text


@pytest.mark.parametrize("paper", PAPERS)
def test_addresses_inside_the_repository_lead_somewhere(paper):
    inside = [each for each in addresses((ROOT / paper).read_text()) if "://" not in each]
    assert [each for each in inside if not (ROOT / each.split("#")[0]).exists()] == []


def test_the_first_page_is_two_screens():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert len(text) < 6000
    assert len(text.splitlines()) < 100


def test_every_address_names_the_slug_that_pyproject_names():
    place = home(ROOT)
    files = [ROOT / name for name in ("README.md", "CITATION.cff", "pyproject.toml")]
    for path in files:
        for slug in re.findall(
            r"(?:github\.com|/gh|colab\.research\.google\.com/github)/([\w.-]+/[\w.-]+)",
            path.read_text(),
        ):
            assert slug == place.slug, path.name
    badge = place.binder("notebooks/00_start_here.ipynb").split("](")[-1].rstrip(")")
    assert badge in (ROOT / "README.md").read_text()


def test_one_version_everywhere():
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    citation = (ROOT / "CITATION.cff").read_text()
    changes = (ROOT / "CHANGELOG.md").read_text()
    assert attnlab.__version__ == version
    assert re.search(r"^version: (.+)$", citation, re.MULTILINE)[1] == version
    assert re.search(r"^## (\S+)", changes, re.MULTILINE)[1] == version


def test_commands_that_the_readme_names_exist():
    makefile = (ROOT / "Makefile").read_text()
    named = {
        goal
        for paper in PAPERS
        for goal in re.findall(r"(?:`|^)make ([a-z-]+)", (ROOT / paper).read_text(), re.MULTILINE)
    }
    assert {"lab", "test", "readme", "constraints"} <= named
    assert [
        goal for goal in sorted(named) if not re.search(rf"^{goal}:", makefile, re.MULTILINE)
    ] == []


def test_every_scheme_stands_in_one_place():
    lines = readme.scheme_list()
    named = re.findall(r"`([a-z0-9_]+)`", lines)
    assert sorted(named) == sorted({card.name for card in schemes().values()})
    assert all(line.count(": ") == 1 and line.startswith("- `") for line in lines.splitlines())
