"""MemoryFilm in JupyterLab and as a file: what is shown there is what Python recorded."""

from typing import Any

import pytest
from attnlab_widgets.memory_film import MemoryFilm

from tests.browser.widget_pages import in_a_notebook, in_both, said, saved, slide, told
from tests.lens.test_memories import layer, vectors

pytestmark = pytest.mark.browser

MAKE = """
import torch
from attnlab_widgets.memory_film import MemoryFilm
from attnlab.models.tiny import TinyTransformer

torch.manual_seed(0)
sizes = {"segment": 4, "memory": 4, "compressed": 3, "rate": 2}
model = TinyTransformer(26, dim=12, layers=2, heads=2, max_len=64, attention_options=[sizes, {}],
                        attention=["compressive_transformer", "rwkv"])
words = ["<img src=x onerror=alert(1)>", *(f"w{i}" for i in range(29))]
film = MemoryFilm(model, torch.randint(26, (30,)), tokens=words, query=13)
film.save_html("film.html", title="<Film>")
film
"""
ASK = """
import json
print(json.dumps({"said": film.description(), "query": film.query, "layer": film.layer}))
"""


def begin(film: Any) -> None:
    film.get_by_test_id("layer").select_option("0")
    film.get_by_test_id("token").nth(13).click()
    film.get_by_test_id("summary").filter(has_text="Token 13").wait_for()


notebook = in_a_notebook("memory_film", MAKE, ASK)
film = in_both("memory-film", "film.html", begin)


def classes(film: Any) -> list[str]:
    return film.get_by_test_id("token").evaluate_all(
        "all => all.map(node => node.className.replace('ts-token', '').trim())"
    )


def test_the_text_shows_what_is_kept_and_lost(film: Any, soon: Any) -> None:
    assert classes(film)[:14] == [
        *["mf-lost"] * 2, *["mf-far"] * 6, *["mf-near"] * 4, *["mf-segment"] * 2,
    ]  # fmt: skip
    assert classes(film)[14] == "mf-ahead"
    text = said(film)
    assert "3 compressed vectors stand for 6 tokens. 2 of the 13 tokens before it" in text
    film.get_by_test_id("token").first.click()
    soon(lambda: "It is the first token." in said(film), True)
    assert film.get_by_test_id("token").first.inner_text().startswith("<img")
    assert film.locator("img").count() == 0


def test_the_film_plays_segment_by_segment_and_keys_go_on(film: Any, soon: Any) -> None:
    play = film.get_by_test_id("play")
    play.click()
    assert play.inner_text() == "Pause"
    soon(lambda: said(film).startswith("Token 29"), True)  # by way of 17, 21 and 25
    soon(play.inner_text, "Play")
    film.get_by_test_id("token").nth(22).click()
    film.page.keyboard.press("ArrowLeft")
    soon(lambda: said(film).startswith("Token 21"), True)
    slide(film, "moment", 0)
    soon(lambda: said(film).startswith("Token 1 "), True)


def test_a_column_is_read_and_clicked(film: Any, soon: Any, still: Any) -> None:
    still(film)
    canvas = film.get_by_test_id("columns")
    box = canvas.bounding_box()

    def over(j: int) -> dict[str, float]:
        return {"x": 46 + (j + 0.5) * (box["width"] - 46) / 30, "y": 60}

    canvas.hover(position=over(0))
    readout = film.get_by_test_id("readout")
    soon(lambda: "has fallen out: this layer no longer reaches it" in readout.inner_text(), True)
    canvas.hover(position=over(3))
    soon(lambda: "in the vector of tokens 2 to 3: weight 0." in readout.inner_text(), True)
    canvas.hover(position=over(20))
    soon(lambda: "is not read yet" in readout.inner_text(), True)
    canvas.click(position=over(9))
    soon(lambda: said(film).startswith("Token 9"), True)


def test_a_state_is_an_image_with_keys_and_a_table(film: Any, soon: Any) -> None:
    film.get_by_test_id("layer").select_option("1")
    soon(lambda: "half-life" in said(film), True)
    image, readout = film.get_by_test_id("state"), film.get_by_test_id("state-readout")
    assert not film.get_by_test_id("columns").is_visible()
    image.focus()
    film.page.keyboard.press("ArrowDown")
    soon(lambda: readout.inner_text().startswith("Channel 1 after token 13"), True)
    film.page.keyboard.press("ArrowRight")
    soon(lambda: said(film).startswith("After token 14"), True)
    film.get_by_test_id("order").select_option("holds")
    film.get_by_test_id("as-tables").locator("summary").click()
    column = film.get_by_test_id("channels-table").locator("tbody tr td:nth-child(3)")
    holds = soon(column.all_inner_texts, lambda found: len(found) == 12)
    assert [float(x) for x in holds] == sorted(map(float, holds), reverse=True)
    film.get_by_test_id("order").select_option("number")
    film.get_by_test_id("as-tables").locator("summary").click()


def test_tables_have_the_weights(film: Any, soon: Any) -> None:
    film.get_by_test_id("as-tables").locator("summary").click()
    rows = film.get_by_test_id("keys-table").locator("tbody tr")
    soon(lambda: rows.count(), 14)
    first, third = rows.nth(0).locator("td"), rows.nth(2).locator("td")
    assert first.nth(2).inner_text() == "lost"
    assert third.nth(2).inner_text() == "compressed memory"
    segments = film.get_by_test_id("segments-table").locator("tbody tr")
    assert segments.count() == 8
    film.get_by_test_id("as-tables").locator("summary").click()


def test_python_has_the_same_words(notebook: Any, soon: Any) -> None:
    widget = notebook.output(0).get_by_test_id("memory-film")
    widget.get_by_test_id("layer").select_option("0")
    widget.get_by_test_id("token").nth(26).click()
    widget.get_by_test_id("head").select_option("1")
    soon(
        lambda: said(widget).startswith("Token 26 “w25” in segment 7 of 8 attends, in head 1"),
        True,
    )
    told(notebook, lambda now: now["said"] == said(widget))


def test_what_nobody_trained_says_so_beside_its_sentence(page: Any, tmp_path: Any) -> None:
    for untrained in (True, False):
        gru = MemoryFilm(layer("gru"), vectors(11), untrained=untrained)
        shown = saved(page, gru.save_html(tmp_path / "gru.html"), "memory-film")
        assert shown.get_by_text("untrained", exact=True).count() == int(untrained)
        assert gru.description() in said(shown)
