"""The web site, built once and opened from the disk without a network."""

import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

import pytest

import attnlab
from tests.browser.conftest import PATIENCE
from tools.readme import lessons

pytestmark = pytest.mark.timeout(30 * PATIENCE)  # the whole site is built before the first

ROOT = Path(__file__).parents[2]
PARTS = [card for card in attnlab.cards() if card.role in attnlab.catalog.TITLES]
LESSON = "lessons/00_start_here.html"


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The folder of the site, as ``make site`` builds it."""
    target = tmp_path_factory.mktemp("site") / "site"
    done = subprocess.run(
        [sys.executable, "-m", "docs", str(target)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    return target


@pytest.fixture
def go(site, page):
    def to(name: str):
        page.goto(f"{site.as_uri()}/{name}")
        return page

    return to


class Links(HTMLParser):
    """What a page asks for when it is opened, and where it leads."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.asks: list[str] = []
        self.leads: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value for name, value in attrs if value}
        if tag == "a" and "href" in given:
            self.leads.append(given["href"])
        elif tag == "link" and given.get("rel") in ("stylesheet", "icon", "preload"):
            self.asks.append(given["href"])
        elif "src" in given:
            self.asks.append(given["src"])


def local(address: str) -> bool:
    return not re.match(r"[a-z]+:", address)


def pages(site: Path) -> list[Path]:
    return [page for page in sorted(site.rglob("*.html")) if "widgets" not in page.parts]


def test_every_lesson_and_every_mechanism_has_a_page(site):
    names = {page.relative_to(site).as_posix() for page in pages(site)}
    assert {f"lessons/{Path(lesson.path).stem}.html" for lesson in lessons(ROOT)} <= names
    assert {f"mechanisms/{card.name}.html" for card in attnlab.catalog.shelf()} <= names
    assert {f"parts/{card.name}.html" for card in PARTS} <= names


def test_a_page_of_the_other_shelves_has_its_picture_and_its_demonstration(go, expect):
    for name in dict.fromkeys(card.role for card in PARTS):
        expect(go(f"parts/role_{name}.html").locator("ul.tiles.parts svg").first).to_be_visible()
    page = go("parts/pre_norm.html")
    expect(page.get_by_role("img", name="the variance of the stream after")).to_be_visible()
    expect(page.locator(".highlight-pycon")).to_contain_text('attnlab.build("pre_norm", dim=64)')
    expect(page.locator("table.docutils").first).to_contain_text("variance after L sublayers")
    page.locator("a", has_text="Joins").first.click()
    page.locator("ul.tiles a", has_text="Post-norm").click()
    expect(page.locator("h1")).to_have_text(re.compile("Post-norm"))


def test_every_link_leads_somewhere_and_pages_need_nothing_from_elsewhere(site):
    asked, broken = [], []
    for page in pages(site):
        links = Links(page.read_text(encoding="utf-8"))
        asked += [(page.name, address) for address in links.asks if not local(address)]
        for address in filter(local, links.asks + links.leads):
            path = unquote(re.sub("[?#].*", "", address))
            if path and not (page.parent / path).exists():
                broken.append((page.name, address))
    assert [address for _, address in asked if not address.startswith("data:")] == []
    assert broken == []


def test_every_formula_is_drawn_whole(site):
    """What the converter does not know it leaves as LaTeX, with its backslash."""
    formulas = [
        re.sub("<[^>]*>", "", formula)
        for page in pages(site)
        for formula in re.findall("<math.*?</math>", page.read_text(encoding="utf-8"), re.DOTALL)
    ]
    assert len(formulas) > 1000
    assert [formula for formula in formulas if "\\" in formula or "5C;" in formula] == []


def opened_for_all(site: Path) -> list[Path]:
    """Every page that moves, and of each folder one of those that differ in their text alone: they
    have the same scripts, and elements of the same classes for them."""
    chosen = {}
    for page in pages(site):
        text = page.read_text(encoding="utf-8")
        article = text[text.index("<article") : text.index("</article>")]
        moves = re.search("<iframe|data-figure|<script|<form|<input", article)
        scripts = tuple(re.findall("<script.*?</script>", text, re.DOTALL))
        classes = frozenset(re.findall(r'class="([^"]{4,})"', article))
        chosen[page if moves else (page.parent, scripts, classes)] = page
    return list(chosen.values())


def test_every_page_opens_without_a_complaint(site, page):
    """That of the console and of requests is asserted after each test."""
    chosen = opened_for_all(site)
    assert {name.parent for name in chosen} == {name.parent for name in pages(site)}
    for name in chosen:
        page.goto(name.as_uri(), wait_until="load")
        assert page.locator("article").count() == 1, name


def test_the_front_page_is_alive(go, expect):
    page = go("index.html")
    expect(page.locator("h1")).to_have_text(re.compile("attnlab"))
    wall = page.frame_locator("iframe.widget").locator("[data-attnlab-widget]")
    expect(wall.locator("canvas, svg").first).to_be_visible()
    page.frame_locator("iframe.widget").get_by_text("Longformer", exact=True).first.click()
    opened = page.frame_locator("iframe.widget").get_by_test_id("links")
    opened.get_by_role("link", name="Longformer", exact=True).click()
    expect(page.locator("h1")).to_have_text(re.compile("Longformer"))
    page.go_back()
    page.locator("ul.families a", has_text="Longformer").click()
    expect(page.locator("h1")).to_have_text(re.compile("Longformer"))


def test_figures_and_widgets_of_a_lesson_are_alive(go, expect, soon):
    page = go(LESSON)
    figure = page.locator("[data-figure]").first
    figure.scroll_into_view_if_needed()
    expect(figure.locator(".plotly .main-svg").first).to_be_visible()
    widget = page.locator("iframe.widget").first
    widget.scroll_into_view_if_needed()
    inside = page.frame_locator("iframe.widget").first.locator("[data-attnlab-widget]")
    expect(inside.locator("canvas, svg").first).to_be_visible()
    needed = inside.evaluate("() => document.documentElement.getBoundingClientRect().height")
    soon(lambda: widget.bounding_box()["height"] >= needed > 200, True)


def test_a_question_is_answered_when_a_guess_is_committed(go, expect):
    page = go(LESSON)
    question = page.locator(
        ".output", has_text="From the second p, to which letter does this head attend?"
    )
    question.get_by_label("to the first y").check()
    question.get_by_role("button", name="Commit, then look").click()
    expect(question.get_by_role("status")).to_contain_text("✓ Yes: to the first y.")


def test_what_was_folded_stays_folded(go, expect):
    page = go(LESSON)
    source = page.locator("details.source").first
    expect(source.locator(".highlight")).to_be_hidden()
    source.locator("summary").click()
    expect(source.locator(".highlight")).to_be_visible()
    hint = page.locator("article details", has_text="Solution").last
    assert hint.get_attribute("open") is None


def test_a_mechanism_shows_equation_map_code_and_costs(go, expect):
    page = go("mechanisms/longformer.html")
    formula = page.locator("math[display=block]").first
    expect(formula).to_be_visible()
    assert formula.bounding_box()["width"] > 100
    expect(page.locator("figure.map svg").first).to_be_visible()
    expect(page.locator(".highlight", has_text="def naive").first).to_be_visible()
    expect(page.locator("tr", has_text="time, naive").locator("math").first).to_be_visible()
    page.get_by_role("link", name=re.compile("^11 ·")).last.click()
    expect(page.locator("h1")).to_have_text(re.compile("^11 ·"))


@pytest.mark.parametrize(
    ("words", "title", "said"),
    [
        ("longformer", "Longformer", "Fixed patterns"),
        ("relative shift", "42 ·", "Lesson 42"),
        ("induction head", "61 ·", "Lesson 61"),
        ("mixing_matrix", "attnlab.lens.mixing.mixing_matrix", None),
    ],
)
def test_search_answers(go, expect, words, title, said):
    page = go("index.html")
    page.get_by_role("textbox", name="Search").fill(words)
    page.keyboard.press("Enter")
    found = page.locator("#search-results li", has_text=title)
    expect(found.filter(has_text=said or title).first).to_be_visible()


@pytest.mark.parametrize("term", ["induction head", "Induction heads"])
def test_the_lesson_on_a_term_comes_before_those_that_mention_it(go, expect, term):
    page = go("index.html")
    page.get_by_role("textbox", name="Search").fill(term)
    page.keyboard.press("Enter")
    expect(page.locator("#search-results li").first).to_contain_text("61 ·")


def test_the_lessons_stand_under_the_parts_of_the_course(go, expect):
    for address in ("index.html", "lessons/index.html"):
        page = go(address)
        expect(page.locator("ol.lessons a")).to_have_count(len(lessons(ROOT)))
        expect(page.locator("p.part").first).to_have_text("Foundations")
        last = page.locator("p.part", has_text="Smaller models")
        expect(last.locator("+ ol.lessons a").first).to_contain_text("80")


def test_dark_reaches_the_page_its_figures_and_its_widgets(site, tabs, expect):
    page = tabs.open(dark=True, offline=True)
    page.goto(f"{site.as_uri()}/{LESSON}")
    inside = page.frame_locator("iframe.widget").first.locator("html")
    page.locator("iframe.widget").first.scroll_into_view_if_needed()
    for theme, paper in (("dark", "rgb(22, 24, 29)"), ("light", "rgb(254, 254, 253)")):
        while page.locator("html").get_attribute("theme") != theme:
            page.locator(".theme-toggle-content button").click()
        expect(inside).to_have_attribute("theme", theme)
        title = page.locator("article section").first
        expect(page.locator("body")).to_have_css("background-color", paper)
        expect(title).to_be_visible()
    page.close()
