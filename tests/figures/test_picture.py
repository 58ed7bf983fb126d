import copy
import re
import struct
import zlib
from xml.etree import ElementTree

import numpy as np
import pytest

from attnlab.figures.costs import cost_curves
from attnlab.figures.examples import image_sequence, token_strip
from attnlab.figures.losses import loss_curves
from attnlab.figures.maps import film, head_grid, heat_map
from attnlab.figures.picture import PLOTLY, Picture
from attnlab.figures.svg import png
from attnlab.figures.theme import CIVIDIS

SVG = "{http://www.w3.org/2000/svg}"


def pictures(theme="light"):
    rng = np.random.default_rng(0)
    mask = np.tril(np.ones((5, 5), bool))
    seeds = [[{"step": i, "loss": 3.0 - i + seed} for i in range(2)] for seed in range(2)]
    return {
        "heat_map": heat_map(rng.random((5, 5)) * mask, mask=mask, title="A", theme=theme),
        "head_grid": head_grid(rng.random((2, 3, 5, 7)), title="B", theme=theme),
        "film": film(rng.random((2, 3, 3)), [0, 10], title="C", theme=theme),
        "loss_curves": loss_curves({"a<b": seeds}, title="D", theme=theme),
        "cost_curves": cost_curves({"a": [(3, 1), (5, 2)]}, quantity="s", title="E", theme=theme),
        "token_strip": token_strip(["a", "<"], scored=[True, False], title="F", theme=theme),
        "image_sequence": image_sequence(rng.random((4, 6)), patch=2, title="G", theme=theme),
    }


NAMES = list(pictures())


@pytest.mark.parametrize("theme", ["light", "dark", "auto"])
@pytest.mark.parametrize("name", NAMES)
def test_every_picture_has_a_description_a_table_and_three_forms(name, theme):
    picture = pictures(theme)[name]
    assert isinstance(picture, Picture)
    assert picture.description.startswith(f"{'ABCDEFG'[NAMES.index(name)]}. ")
    assert picture.rows
    assert picture.table().count("<tr>") == len(picture.rows) + 1
    bundle = picture._repr_mimebundle_()
    assert list(bundle) == [PLOTLY, "text/html", "text/plain"]
    assert bundle["text/plain"] == picture.description
    assert 'class="tex2jax_ignore mathjax_ignore"' in picture.folded()
    assert "<summary>This figure in words</summary>" in picture.folded()


@pytest.mark.parametrize("name", NAMES)
def test_nothing_is_left_to_plotlys_defaults_or_fetched(name):
    picture = pictures()[name]
    layout = picture.layout
    assert layout.width
    assert layout.height
    for axis in [key for key in layout.to_plotly_json() if re.match(r"[xy]axis", key)]:
        assert layout[axis].range is not None, axis
    assert picture._repr_mimebundle_()[PLOTLY]["config"]["showSendToCloud"] is False
    bundle = str(picture._repr_mimebundle_()) + picture.folded()
    addresses = set(re.findall(r"https?://[\w./]+", bundle))
    assert addresses <= {"http://www.w3.org/2000/svg"}


@pytest.mark.parametrize("name", NAMES)
def test_the_svg_is_well_formed_and_named(name, tmp_path):
    picture = pictures()[name]
    root = ElementTree.fromstring(picture.save_svg(tmp_path / "a.svg").read_text("utf-8"))
    assert root.get("role") == "img"
    assert root.get("aria-label") == picture.description
    texts = ["".join(element.itertext()) for element in root.iter(f"{SVG}text")]
    assert "ABCDEFG"[NAMES.index(name)] in texts


def test_the_svg_holds_the_map_pixel_by_pixel():
    levels = np.array([[-1, 0, 9], [3, 4, 5]])
    data = png(levels, CIVIDIS)
    assert struct.unpack(">II", data[16:24]) == (3, 2)
    start = data.index(b"IDAT") + 4
    rows = np.frombuffer(zlib.decompress(data[start:]), np.uint8).reshape(2, 4)
    np.testing.assert_array_equal(rows[:, 1:], levels + 1)
    assert data[data.index(b"PLTE") + 7 :][:3] == bytes.fromhex(CIVIDIS[0][1:])


def test_the_svg_puts_points_where_the_axes_say():
    picture = cost_curves({"a": [(10, 1), (1000, 100)]}, quantity="s", title="Places")
    root = ElementTree.fromstring(picture.svg())
    circles = [(float(c.get("cx")), float(c.get("cy"))) for c in root.iter(f"{SVG}circle")]
    left, right = circles[:2]
    margin, layout = picture.layout.margin, picture.layout
    inner = layout.width - margin.l - margin.r
    assert left[0] == pytest.approx(margin.l + inner * 0.04 / 1.08, abs=0.1)
    assert right[0] == pytest.approx(margin.l + inner * 1.04 / 1.08, abs=0.1)
    assert right[1] < left[1]


def test_zero_is_written_without_a_sign():
    runs = {"a": [{"step": step, "loss": 2.0 - step / 300} for step in range(400)]}
    root = ElementTree.fromstring(loss_curves(runs, title="Zero").svg())
    texts = {element.text for element in root.iter(f"{SVG}text")}
    assert "0" in texts
    assert "-0" not in texts


def test_a_film_on_a_page_without_a_kernel_has_a_slider():
    html = pictures()["film"]._repr_mimebundle_()["text/html"]
    assert html.count("data-frame=") == 2
    assert 'type="range" min="0" max="1" value="1"' in html


def test_a_saved_page_needs_nothing_from_elsewhere(tmp_path):
    page = pictures("auto")["token_strip"].save_html(tmp_path / "page.html").read_text("utf-8")
    assert 'role="figure" aria-label="F. ' in page
    assert "<title>F</title>" in page
    assert '"showSendToCloud": false' in page
    assert "prefers-color-scheme:dark" in page
    assert not re.findall(r"<script[^>]+src=|<link[^>]+href=", page)


def test_a_notebook_gets_the_figure_and_the_folded_description(monkeypatch):
    shown = []
    monkeypatch.setattr("IPython.display.display", lambda data, raw: shown.append(data))
    picture = pictures()["heat_map"]
    picture._ipython_display_()
    assert [sorted(data) for data in shown] == [
        [PLOTLY, "text/html", "text/plain"],
        ["text/html", "text/plain"],
    ]
    assert "<details" in shown[1]["text/html"]


def test_colab_gets_what_colab_can_show(monkeypatch):
    import sys
    import types

    monkeypatch.setitem(sys.modules, "google.colab", types.ModuleType("google.colab"))
    bundle = pictures()["heat_map"]._repr_mimebundle_()
    assert list(bundle) == ["text/html", "text/plain"]
    assert "Plotly.newPlot" in bundle["text/html"]


def test_long_tables_say_what_they_leave_out():
    picture = heat_map(np.ones((67, 2)), title="Long")
    assert picture.table().count("<tr>") == 65
    assert "3 more rows" in picture.table()


def test_copies_keep_the_description():
    picture = pictures()["heat_map"]
    for other in (copy.deepcopy(picture), copy.copy(picture)):
        assert other.description == picture.description
        assert other.rows == picture.rows
        assert other.theme == "light"


def test_the_same_input_gives_the_same_bytes():
    first, second = pictures()["loss_curves"], pictures()["loss_curves"]
    assert first._repr_mimebundle_() == second._repr_mimebundle_()
