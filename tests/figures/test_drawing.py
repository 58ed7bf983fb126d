"""A drawing as SVG and as PNG: sizes, colours, hatching, dashes."""

from io import BytesIO
from typing import Any

import numpy as np
import pytest
from PIL import Image

from attnlab.figures.drawing import Drawing, _dashed, _stripes
from attnlab.figures.theme import DARK, HATCHING, LIGHT, rgb


def test_a_picture_that_is_too_large_has_fewer_pixels() -> None:
    drawing = Drawing(400, 300, LIGHT)
    noise = np.random.default_rng(0).integers(0, 64, (300, 400))
    drawing.map(noise, [f"#{4 * level:02x}40{level:02x}" for level in range(64)], 0, 0, 400, 300)
    assert len(drawing.png()) > 60_000
    small = drawing.png(64, most=60_000)
    assert len(small) <= 60_000
    assert Image.open(BytesIO(small)).size[0] in (600, 400, 300, 200)


def _near(paper: str) -> list[str]:
    """255 colours, all but one a little different from that of the paper."""
    red, green, blue = rgb(paper)
    return [f"#{red ^ i % 16:02x}{green ^ i // 16:02x}{blue:02x}" for i in range(255)]


def test_few_colours_leave_the_paper_its_own() -> None:
    for look in (LIGHT, DARK):
        drawing = Drawing(50, 50, look)
        drawing.map(np.arange(255)[None], _near(look.paper), 9, 9, 30, 30)
        image = Image.open(BytesIO(drawing.png(16))).convert("RGB")
        assert image.getpixel((0, 0)) == rgb(look.paper)


@pytest.mark.parametrize("look", [LIGHT, DARK])
def test_the_hatching_covers_masked_cells_only(look: Any) -> None:
    drawing = Drawing(80, 80, look)
    masked = ~np.tri(4, dtype=bool)
    drawing.map(np.zeros((4, 4), int), ["#0072b2"], 0, 0, 80, 80)
    drawing.hatch(masked, 0, 0, 80, 80)
    pixels = np.asarray(Image.open(BytesIO(drawing.png())))
    name = "dark" if look == DARK else "light"
    ground, stroke = rgb(look.panel), rgb(HATCHING[name][1])
    for i in range(4):
        for j in range(4):
            cell = pixels[40 * i + 3 : 40 * i + 37, 40 * j + 3 : 40 * j + 37].reshape(-1, 3)
            found = {tuple(map(int, pixel)) for pixel in cell}
            assert found == ({ground, stroke} if masked[i, j] else {rgb("#0072b2")}), (i, j)
    assert drawing.svg("").count('class="attnlab-hatch"') == 1


def test_stripes_stay_inside_and_dashes_have_their_lengths() -> None:
    masked = np.array([[True, False]])
    for (a, b), (c, d) in _stripes(masked, (10, 20, 40, 30)):
        assert 10 <= a <= c <= 30
        assert 20 <= d <= b <= 50
    strokes = _dashed([(0, 0), (10, 0), (10, 10)], [7, 4])
    assert strokes == [[(0, 0), (7, 0)], [(10, 1), (10, 8)]]


def test_a_drawing_put_into_another_is_moved() -> None:
    small, large = Drawing(20, 20, LIGHT), Drawing(60, 60, LIGHT)
    small.box(0, 0, 5, 5, "#d55e00")
    small.line([(0, 10), (5, 10)], "#d55e00", 2)
    small.disc(15, 15, 3, "#d55e00")
    large.put(small, 30, 30)
    image = Image.open(BytesIO(large.png()))
    for x, y in ((2, 2), (2, 10), (15, 15)):
        assert image.getpixel((2 * (30 + x), 2 * (30 + y))) == rgb("#d55e00")
        assert image.getpixel((2 * x, 2 * y)) == rgb(LIGHT.paper)


def test_a_patch_covers_what_lies_below() -> None:
    drawing = Drawing(40, 40, LIGHT)
    drawing.patch([(0, 0), (20, 0), (0, 20)], "#d55e00")
    image = Image.open(BytesIO(drawing.png()))
    assert image.getpixel((6, 6)) == (0xD5, 0x5E, 0)
    assert image.getpixel((60, 60)) != (0xD5, 0x5E, 0)
    assert '<polygon points="0.0,0.0 20.0,0.0 0.0,20.0" fill="#d55e00"/>' in drawing.svg("a")


def test_a_transparent_colour_lets_the_paper_show_through() -> None:
    drawing = Drawing(20, 20, DARK)
    drawing.map(np.array([[0, 1]]), ["#d55e0000", "#d55e00"], 0, 0, 20, 20)
    image = Image.open(BytesIO(drawing.png()))
    assert image.getpixel((5, 5)) == rgb(DARK.paper)
    assert image.getpixel((35, 5)) == rgb("#d55e00")
