"""Figures on the page: their numbers, in light and dark, and as a file without a network."""

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from attnlab.figures.theme import DARK, LIGHT, contrast

pytestmark = pytest.mark.browser

MAKE = """
import numpy as np
from attnlab.figures.losses import loss_curves
from attnlab.figures.maps import film, heat_map
weights = np.random.default_rng(5).dirichlet(np.ones(7), size=5)
queries, keys = list("abcde"), ["<b>", "&", "ש", "🙂", "$x$", "\\n", "k" * 10_000]
picture = heat_map(weights, queries, keys, title="A map of five by seven")
picture.save_html("picture.html")
np.save("weights.npy", weights)
"""
FILM = """
steps = np.stack([np.full((3, 3), 1 / 3), np.eye(3)])
film(steps, [1, 30], list("abc"), title="A head that makes up its mind")
"""
CURVES = """
rows = [{"step": s, "loss": 5 / s} for s in range(1, 12)]
loss_curves({"one": [rows]}, title="A curve that falls")
"""


@pytest.fixture(scope="module")
def shown(opened: Any) -> Any:
    notebook = opened("figures.ipynb", [MAKE + "picture", FILM, CURVES])
    notebook.run_all()
    return notebook


CELLS = """() => {
  const plot = document.querySelector('.js-plotly-plot');
  return JSON.stringify(Array.from(plot._fullData[0].z, row => Array.from(row)));
}"""


def test_the_page_holds_the_numbers_of_the_figure(shown, weights, expect):
    plot = shown.output(0).locator(".js-plotly-plot")
    plot.wait_for()
    close(json.loads(shown.page.evaluate(CELLS)), weights)
    expect(shown.code.locator(".js-plotly-plot")).to_have_count(3)


def test_hovering_a_cell_names_both_tokens_and_the_weight(shown, weights, hovered):
    message = hovered(shown.page, shown.output(0), row=3, column=2)
    assert message[:2] == ["query 3: d", "key 2: \u2068ש\u2069"]
    assert message[2] == f"attention weight {weights[3][2]:.4g}"


def test_the_description_unfolds(shown, expect):
    folded = shown.output(0).locator("details")
    expect(folded.locator("table")).to_be_hidden()
    folded.locator("summary").click()
    expect(folded.locator("table")).to_be_visible()
    expect(folded).to_contain_text("A map of five by seven")
    folded.locator("summary").click()


def test_the_film_moves_from_the_first_step_to_the_last(shown, soon, still):
    shot = shown.output(1)
    plot = shot.locator(".js-plotly-plot")
    plot.wait_for()
    assert plot.evaluate("plot => plot.layout.sliders[0].steps.length") == 2
    soon(lambda: plot.evaluate("plot => plot._transitionData?._frames.length"), 2)
    rail = still(shot.locator(".slider-rail-touch-rect"))
    middle = rail["y"] + rail["height"] / 2

    def clicked(place: float) -> float:
        """The spread of the weights after a click; while a frame moves, the slider takes none."""
        shown.page.mouse.click(place, middle)
        shown.page.wait_for_timeout(300)
        return plot.evaluate(SPREAD)  # type: ignore[no-any-return]

    soon(lambda: clicked(rail["x"] + 2), lambda spread: spread < 0.01)
    soon(lambda: clicked(rail["x"] + rail["width"] - 2), lambda spread: spread > 0.99)


SPREAD = """plot => {
  const cells = Array.from(plot._fullData[0].z, row => Array.from(row)).flat();
  return Math.max(...cells) - Math.min(...cells);
}"""


def test_dark_pages_have_dark_figures(shown, soon, expect):
    soon(lambda: paper(shown.page), rgb(LIGHT.paper))
    with shown.dark():
        soon(lambda: paper(shown.page), rgb(DARK.paper))
        title = shown.page.locator(".js-plotly-plot .gtitle").first
        expect(title).to_have_css("fill", rgb(DARK.ink))
        assert contrast(DARK.ink, DARK.paper) > 7
        shown.screenshot("figures-dark")
    soon(lambda: paper(shown.page), rgb(LIGHT.paper))


@pytest.mark.parametrize("dark", [False, True])
def test_a_saved_page_lives_on_its_own(shown, lab, tabs, weights, hovered, soon, dark):
    page = tabs.open(offline=True, dark=dark)
    page.goto((lab.folder / "picture.html").as_uri())
    page.locator(".js-plotly-plot .main-svg").first.wait_for()
    assert page.evaluate("performance.getEntriesByType('resource').map(entry => entry.name)") == []
    assert page.title() == "A map of five by seven"
    close(json.loads(page.evaluate(CELLS)), weights)
    soon(lambda: paper(page), rgb((DARK if dark else LIGHT).paper))
    assert hovered(page, page.locator("body"), row=1, column=0)[1] == "key 0: <b>"
    page.close()


def test_no_words_of_a_stored_map_meet_others_cover_cells_or_leave_the_page(tabs):
    from plotly.offline import get_plotlyjs

    page = tabs.open(offline=True)
    page.set_content("<body></body>", wait_until="commit")
    page.add_script_tag(content=get_plotlyjs())
    found = list(stored_maps())
    assert len(found) > 50
    wrong = {where: words for where, figure in found if (words := page.evaluate(MEET, figure))}
    assert not wrong
    page.close()


MEET = """async figure => {
  document.body.innerHTML = '<div id="plot"></div>';
  const plot = document.getElementById('plot');
  await Plotly.newPlot(plot, figure.data, figure.layout, {displayModeBar: false});
  const edge = plot.querySelector('.main-svg').getBoundingClientRect();
  const some = (query, name) => Array.from(plot.querySelectorAll(query))
    .map(one => [`${name} ${one.textContent.slice(0, 40)}`, one.getBoundingClientRect()]);
  const labels = [...some('.gtitle', 'title'), ...some('.cbtitle text', 'bar'),
    ...some('.annotation', 'note'), ...some('.cbaxis text', 'number')];
  const cells = some('.nsewdrag', 'cells');
  const wrong = [];
  const meet = (a, b) => Math.min(a.right, b.right) - Math.max(a.left, b.left) > 1
    && Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > 1;
  labels.forEach(([name, box], at) => {
    if (box.left < edge.left - 0.5 || box.right > edge.right + 0.5 || box.top < edge.top - 0.5
      || box.bottom > edge.bottom + 0.5) wrong.push(`${name} leaves the page`);
    for (const [other, its] of [...labels.slice(at + 1), ...cells])
      if (meet(box, its)) wrong.push(`${name} × ${other}`);
  });
  return wrong;
}
"""


def stored_maps() -> Iterator[tuple[str, Any]]:
    """The figures of the lessons that have a colour bar, and where each stands."""
    for path in sorted(Path(__file__, "../../../notebooks").resolve().glob("*.ipynb")):
        for at, cell in enumerate(json.loads(path.read_text())["cells"]):
            for output in cell.get("outputs", ()):
                figure = output.get("data", {}).get("application/vnd.plotly.v1+json", {})
                if "colorbar" in figure.get("layout", {}).get("coloraxis", {}):
                    yield f"{path.stem} cell {at}", figure


# ------------------------------------------------------------------------------------------ reading


@pytest.fixture
def weights(shown: Any, lab: Any) -> list[list[float]]:
    """What Python holds; `shown` has written it."""
    import numpy as np

    return np.load(lab.folder / "weights.npy").tolist()


def close(found: list[list[float]], expected: list[list[float]]) -> None:
    assert [len(row) for row in found] == [len(row) for row in expected]
    for mine, theirs in zip(found, expected, strict=True):
        assert all(math.isclose(a, b, abs_tol=1e-6) for a, b in zip(mine, theirs, strict=True))


@pytest.fixture
def hovered(soon: Any, still: Any) -> Any:
    def read(page: Any, around: Any, *, row: int, column: int) -> list[str]:
        """The lines that appear when the pointer rests on a cell of the 5 × 7 map."""
        area = still(around.locator(".js-plotly-plot .nsewdrag").first)
        x = area["x"] + (column + 0.5) / 7 * area["width"]
        y = area["y"] + (row + 0.5) / 5 * area["height"]
        lines = around.locator(".js-plotly-plot .hovertext .nums tspan.line")

        def pointed() -> list[str]:
            page.mouse.move(x + 1, y)
            page.mouse.move(x, y)
            return lines.all_text_contents()

        return soon(pointed, bool)

    return read


def paper(page: Any) -> str:
    ground = page.locator(".js-plotly-plot .main-svg").first
    return ground.evaluate(
        "svg => { const own = getComputedStyle(svg).backgroundColor;"
        "const rect = svg.querySelector('rect');"
        "return own === 'rgba(0, 0, 0, 0)' ? getComputedStyle(rect).fill : own; }"
    )


def rgb(colour: str) -> str:
    return "rgb({}, {}, {})".format(*bytes.fromhex(colour[1:]))
