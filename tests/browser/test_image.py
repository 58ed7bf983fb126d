"""The image panel of AttentionView: patches are chosen in the picture, in a file on the disk."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from attnlab_widgets.attention_view import AttentionView

from attnlab.lens.sources.patches import Patch

pytestmark = pytest.mark.browser

LAYERS, HEADS, ROWS, COLUMNS = 2, 3, 3, 4
N = 1 + ROWS * COLUMNS
WORDS = 5
FRAME = "() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))"


def weights(seed: int, *shape: int) -> torch.Tensor:
    return (2 * torch.randn(*shape, generator=torch.Generator().manual_seed(seed))).softmax(-1)


@pytest.fixture(scope="module")
def maps() -> list[torch.Tensor]:
    return [weights(1, HEADS, N, N), weights(2, HEADS, N, N), weights(3, HEADS, WORDS, WORDS)]


@pytest.fixture
def view(maps: list[torch.Tensor], tmp_path: Path, page: Any) -> Any:
    """Two layers on an image, then one on a text; the image is wider than high."""
    image = np.zeros((30, 40, 3), np.uint8)
    image[10:20, 20:30] = (255, 120, 0)
    made = AttentionView(maps, [*"abcde"], image=image, grid=(ROWS, COLUMNS))
    page.goto(made.save_html(tmp_path / "image.html").as_uri())
    page.set_viewport_size({"width": 1025, "height": 800})
    view = page.get_by_test_id("attention-view")
    view.get_by_test_id("image").wait_for()
    view.evaluate(FRAME)
    return view


def point(view: Any, row: int, column: int) -> None:
    box = view.get_by_test_id("image").bounding_box()
    x = box["x"] + (column + 0.5) * box["width"] / COLUMNS
    view.page.mouse.move(x, box["y"] + (row + 0.5) * box["height"] / ROWS)
    view.evaluate(FRAME)


def strongest(maps: torch.Tensor, query: int) -> str:
    best = int(maps[0, query].argmax())
    if best == 0:
        return "[CLS]"
    return f"row {(best - 1) // COLUMNS}, column {(best - 1) % COLUMNS}"


def test_the_picture_is_there_in_its_form(view: Any) -> None:
    picture = view.get_by_test_id("image").locator("img")
    assert picture.evaluate("img => [img.naturalWidth, img.naturalHeight]") == [40, 30]
    box = picture.bounding_box()
    assert box["width"] / box["height"] == pytest.approx(4 / 3, rel=0.02)
    assert not view.get_by_test_id("strip").is_visible()
    assert view.bounding_box()["height"] <= 760


def test_pointing_at_a_patch_makes_it_the_query(view: Any, maps: list[torch.Tensor]) -> None:
    for row, column in ((0, 0), (1, 2), (2, 3)):
        query = 1 + row * COLUMNS + column
        point(view, row, column)
        assert f"query {query} “{row}, {column}”" in view.get_by_test_id("readout").inner_text()
        said = view.get_by_test_id("image-readout").inner_text()
        assert said.startswith(f"row {row}, column {column} → {strongest(maps[0], query)}: ")
        weight = float(said.rpartition(": ")[2].split(" ")[0])
        assert weight == pytest.approx(float(maps[0][0, query].max()), abs=0.002)


SEEN = """([x, y]) => {
  const sheet = document.querySelector('[data-testid="image"] canvas');
  const at = [x * sheet.width, y * sheet.height, 1, 1];
  return [...sheet.getContext('2d').getImageData(...at).data];
}"""


def test_what_a_patch_attends_to_lights_up(view: Any, maps: list[torch.Tensor]) -> None:
    point(view, 1, 1)
    own = maps[0][0, 1 + COLUMNS + 1, 1:]
    alpha = {}
    for patch in (int(own.argmax()), int(own.argmin())):
        red, _, blue, veil = view.page.evaluate(
            SEEN, [(patch % COLUMNS + 0.5) / COLUMNS, (patch // COLUMNS + 0.5) / ROWS]
        )
        alpha[patch] = (red > blue, veil)
    assert alpha[int(own.argmax())][0], "the strongest is yellow"
    assert not alpha[int(own.argmin())][0], "the weakest is dark"
    assert alpha[int(own.argmin())][1] > 80


def test_a_click_pins_and_the_keyboard_walks(view: Any) -> None:
    stage, readout = view.get_by_test_id("image"), view.get_by_test_id("image-readout")
    point(view, 2, 0)
    view.page.mouse.down()
    view.page.mouse.up()
    view.page.mouse.move(1, 1)
    view.evaluate(FRAME)
    assert readout.inner_text().startswith("row 2, column 0 →")
    assert view.get_by_test_id("unpin").is_enabled()
    stage.focus()
    view.page.keyboard.press("ArrowRight")
    view.evaluate(FRAME)
    assert readout.inner_text().startswith("row 2, column 1 →")
    view.page.keyboard.press("ArrowUp")
    view.page.keyboard.press("Enter")
    view.page.keyboard.press("Tab")
    view.evaluate(FRAME)
    assert readout.inner_text().startswith("row 1, column 1 →")


def test_the_class_token_is_a_button(view: Any, maps: list[torch.Tensor]) -> None:
    button = view.get_by_test_id("image-token-0")
    assert button.inner_text() == "[CLS]"
    button.hover()
    view.evaluate(FRAME)
    assert button.get_attribute("aria-pressed") == "true"
    said = view.get_by_test_id("image-readout").inner_text()
    assert said.startswith(f"[CLS] → {strongest(maps[0], 0)}: ")


def test_a_layer_of_text_has_its_lines(view: Any) -> None:
    view.get_by_test_id("head-2-0").click()
    view.evaluate(FRAME)
    assert not view.get_by_test_id("image").is_visible()
    assert view.get_by_test_id("strip").is_visible()
    assert view.get_by_role("heading", name="Lines").is_visible()
    view.get_by_test_id("head-1-0").click()
    view.evaluate(FRAME)
    assert view.get_by_test_id("image").is_visible()
    assert not view.get_by_role("heading", name="Lines").is_visible()


@pytest.mark.parametrize("wide", [732, 1440])
def test_it_fits(view: Any, wide: int) -> None:
    view.page.set_viewport_size({"width": wide, "height": 800})
    view.evaluate(FRAME)
    assert view.bounding_box()["height"] <= 760
    assert view.page.evaluate("document.documentElement.scrollWidth") <= wide


TEXT = ["<s>", *(Patch(row, column) for row in range(2) for column in range(2)), "a", "three"]


@pytest.fixture
def between_words(tmp_path: Path, page: Any) -> Any:
    """A causal text in which an image of 2 × 2 patches stands; and words that look at an image."""
    causal = weights(4, 1, 7, 7) * torch.ones(7, 7).tril()
    causal = causal / causal.sum(-1, keepdim=True)
    maps = [causal, weights(5, 1, 7, 4)]
    image = np.full((20, 20, 3), 200, np.uint8)
    made = AttentionView(maps, TEXT, image=image, grid=(2, 2))
    page.goto(made.save_html(tmp_path / "between.html").as_uri())
    page.set_viewport_size({"width": 993, "height": 760})
    view = page.get_by_test_id("attention-view")
    view.get_by_test_id("image").wait_for()
    view.evaluate(FRAME)
    return view, maps


def test_a_word_between_patches_says_which_it_reads_and_a_patch_who_reads_it(
    between_words: Any,
) -> None:
    view, maps = between_words
    strip, said = view.get_by_test_id("strip"), view.get_by_test_id("image-readout")
    assert strip.is_visible()
    view.get_by_test_id("word-6").hover()
    view.evaluate(FRAME)
    best = int(maps[0][0, 6].argmax())
    assert said.inner_text().startswith("three → ")
    assert view.page.evaluate(SEEN, [0.5, 0.5])[3] > 0, "the image lies under a veil"
    view.get_by_test_id("way-by").click()
    view.evaluate(FRAME)
    box = view.get_by_test_id("image").bounding_box()
    view.page.mouse.move(box["x"] + 0.75 * box["width"], box["y"] + 0.25 * box["height"])
    view.evaluate(FRAME)
    readers = maps[0][0, :, 2]
    weight = float(said.inner_text().rpartition(": ")[2].split(" ")[0])
    assert said.inner_text().startswith("row 0, column 1 ← ")
    assert weight == pytest.approx(float(readers.max()), abs=0.002)
    assert "av-own-word" in view.get_by_test_id("word-2").get_attribute("class")
    assert best < 7


def test_words_beside_an_image_say_which_patches_they_read(between_words: Any) -> None:
    view, maps = between_words
    view.get_by_test_id("head-1-0").click()
    view.evaluate(FRAME)
    view.get_by_test_id("query-word-5").hover()
    view.evaluate(FRAME)
    best = divmod(int(maps[1][0, 5].argmax()), 2)
    said = view.get_by_test_id("image-readout").inner_text()
    assert said.startswith(f"a → row {best[0]}, column {best[1]}: ")
    assert not view.get_by_test_id("key-text").is_visible()


def test_what_is_read_out_is_not_cut(between_words: Any) -> None:
    view, _ = between_words
    readout = view.get_by_test_id("image-readout")
    for wide in (993, 700, 390):
        view.page.set_viewport_size({"width": wide, "height": 760})
        view.evaluate(FRAME)
        room = readout.evaluate(
            "p => [p.scrollWidth - p.clientWidth, p.scrollHeight - p.clientHeight]"
        )
        assert room == [0, 0], wide


def opened(page: Any, made: AttentionView, path: Path) -> Any:
    page.goto(made.save_html(path).as_uri())
    page.set_viewport_size({"width": 993, "height": 760})
    view = page.get_by_test_id("attention-view")
    view.get_by_test_id("image").wait_for()
    view.evaluate(FRAME)
    return view


def test_a_short_text_before_an_image_is_text(page: Any, tmp_path: Path) -> None:
    """As many tokens as a class token and registers may be, and words all the same."""
    text = [*"abc", *(Patch(row, column) for row in range(2) for column in range(2))]
    made = AttentionView([weights(6, 1, 7, 7)], text, image=np.ones((8, 8)), grid=(2, 2))
    view = opened(page, made, tmp_path / "short.html")
    assert view.get_by_test_id("strip").is_visible()
    assert view.get_by_test_id("image-token-0").count() == 0


def test_a_patch_of_two_vectors_is_read_out_whole(page: Any, tmp_path: Path) -> None:
    """What both get together, as bright as the picture shows it; and what they give on the mean."""
    maps = torch.tensor([
        [1.0, 0, 0, 0, 0], [0.2, 0.8, 0, 0, 0], [0.6, 0.2, 0.2, 0, 0],
        [0.25, 0.25, 0.25, 0.25, 0], [0.3, 0.25, 0.25, 0.2, 0],
    ])[None]  # fmt: skip
    text = ["a", Patch(0, 0), Patch(0, 0), Patch(0, 1), "b"]
    made = AttentionView([maps], text, image=np.ones((8, 16)), grid=(1, 2))
    view = opened(page, made, tmp_path / "two.html")
    said = view.get_by_test_id("image-readout")
    view.get_by_test_id("word-4").hover()
    view.evaluate(FRAME)
    assert said.inner_text().startswith("b → row 0, column 0 (2 vectors): 0.50")
    box = view.get_by_test_id("image").bounding_box()
    view.page.mouse.move(box["x"] + 0.25 * box["width"], box["y"] + 0.5 * box["height"])
    view.evaluate(FRAME)
    own = "row 0, column 0 (2 vectors)"
    assert said.inner_text().startswith(f"{own} → {own}: 0.60")
    view.get_by_test_id("way-by").click()
    view.evaluate(FRAME)
    view.page.mouse.move(box["x"] + 0.25 * box["width"], box["y"] + 0.6 * box["height"])
    view.evaluate(FRAME)
    assert said.inner_text().startswith(f"{own} ← {own}: 0.60")
