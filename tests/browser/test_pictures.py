"""The pictures in README: drawn by `make pictures`, and here compared with what would be drawn now.

A picture keeps the words that it shows. Those are compared without their numbers, and the picture
in coarse squares, because neither fonts nor the last digits are the same on every machine.
"""

import io
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image, PngImagePlugin

pytestmark = pytest.mark.browser

IMAGES = Path(__file__).parents[2] / "docs/images"
WIDE = {"wall": 1500, "heads": 720, "explorer": 1200}
CELLS = [
    """import attnlab
from attnlab.figures.maps import head_grid
from attnlab_widgets.attention_explorer import AttentionExplorer
attnlab.wall("If the object is a string, the method returns the string; if a list, the list.")""",
    """import torch
model, text = attnlab.pretrained.load("documentation")
ids = text.encode("If the object is a class, the name of the class is used; "
                  "if the object is a function, the name of the function is used.")
with attnlab.watch(model) as seen, torch.no_grad():
    model(ids[None])
head_grid(torch.stack([call.weights[0] for call in seen]), text.tokens(ids),
          largest=0.5, mask=seen[0].mask[0, 0],
          title="Sixteen heads of a small language model on one sentence")""",
    """explorer = AttentionExplorer(steps=60)
explorer.train()
explorer.wait(300)
explorer""",
]
WHOLE = ".wl-frame { max-height: none !important; }"
SQUARES = 12
LARGEST_DIFFERENCE = 15  # of 255, on average over the squares


@pytest.fixture(scope="module")
def book(opened: Any) -> Iterator[Any]:
    book = opened("pictures.ipynb", CELLS)
    book.page.emulate_media(reduced_motion="reduce")  # else the wall plays its cross once
    book.run_all()
    whole = book.page.add_style_tag(content=WHOLE)
    yield book
    whole.evaluate("style => style.remove()")


def drawn(book: Any, name: str) -> Image.Image:
    """A cell's output as a picture, with the words that it shows."""
    number = list(WIDE).index(name)
    book.shown_at(number, WIDE[name])
    shown = book.output(number).locator(".jp-OutputArea-output").first
    high = shown.evaluate("node => node.scrollHeight")
    book.page.set_viewport_size({**book.page.viewport_size, "height": int(high) + 400})
    book.page.mouse.move(0, 0)
    shown.scroll_into_view_if_needed()
    image = Image.open(io.BytesIO(shown.screenshot(animations="disabled")))
    image.info["words"] = " ".join(shown.inner_text().split())
    return image


def squares(image: Image.Image) -> np.ndarray:
    return np.asarray(image.convert("L").resize((SQUARES, SQUARES), Image.Resampling.BOX), float)


def words(image: Image.Image) -> str:
    return re.sub(r"[\d.,]+", "#", image.info.get("words", ""))


@pytest.mark.parametrize("name", list(WIDE))
def test_a_picture_is_as_it_is_drawn_now(name: str, book: Any, pytestconfig: pytest.Config) -> None:
    now = drawn(book, name)
    if folder := pytestconfig.getoption("--pictures"):
        told = PngImagePlugin.PngInfo()
        told.add_itxt("words", now.info["words"])
        now.convert("P", palette=Image.Palette.ADAPTIVE).save(
            Path(folder, f"{name}.png"), optimize=True, pnginfo=told
        )
        return
    with Image.open(IMAGES / f"{name}.png") as kept:
        assert words(kept) == words(now), "draw it anew: make pictures"
        assert kept.size == pytest.approx(now.size, rel=0.1), "draw it anew: make pictures"
        difference = abs(squares(kept) - squares(now)).mean()
    assert difference < LARGEST_DIFFERENCE, "draw it anew: make pictures"
