"""KernelLab without a browser: its maps beside other computations, its words, and its manners."""

import threading
from io import BytesIO

import numpy as np
import pytest
import torch

pytest.importorskip("ipywidgets")

from attnlab_widgets import kernel_lab
from attnlab_widgets.kernel_lab import KernelLab, trained_heads
from PIL import Image

from attnlab.figures import svg
from attnlab.figures.drawing import Drawing
from attnlab.figures.theme import DARK, LIGHT, SIGNED, rgb
from attnlab.lens.kernel_maps import KINDS, RANDOM, Choice, approximate

N, D = 11, 5
WAIT = 300


def made(n=N, m=N, d=D, scale=1.0):
    generator = torch.Generator().manual_seed(0)
    q = torch.randn(n, d, generator=generator, dtype=torch.float64)
    return scale * q, scale * torch.randn(m, d, generator=generator, dtype=torch.float64)


@pytest.fixture
def make(monkeypatch):
    """Labs on small heads, timed at once; closed after the test with their threads."""
    monkeypatch.setattr(kernel_lab, "EVERY", 0.01)
    labs = []

    def lab(heads=None, *arguments, **options):
        options = {"length": 64, "features": 7} | options
        labs.append(KernelLab(heads or {"one": made()}, *arguments, **options))
        return labs[-1]

    yield lab
    for one in labs:
        one.close()
        assert one.wait(WAIT)
    assert not [t for t in threading.enumerate() if t.name.startswith("attnlab-")]


# ---- the widget


def test_it_begins_with_trained_heads_worth_seeing():
    heads, tokens = trained_heads()
    gentle, sharp = (
        approximate(q, k, Choice("positive", 256), causal=True).error for q, k in heads.values()
    )
    assert gentle < 0.25 < 0.35 < sharp
    assert [len(names) for names in tokens.values()] == [len(q) for q, _ in heads.values()]


def test_a_choice_changes_maps_words_and_speed(make):
    lab = make()
    lab.feature.value = "trigonometric"
    lab.features.value = 16
    q, k = made()
    wanted = approximate(q, k, Choice("trigonometric", 16), causal=True)
    torch.testing.assert_close(lab.approximation.map, wanted.map)
    assert "Random: cos and sin, 32 features, orthogonal, seed 0" in lab.description
    assert lab.description in repr(lab)
    assert lab.wait(WAIT)
    assert lab.measured.ratio == pytest.approx(lab.measured.own / lab.measured.exact, rel=9)
    assert "64 tokens" in lab._speed.value
    assert "exact softmax" in lab._speed.value


def test_controls_that_do_nothing_are_off(make):
    lab = make()
    off = {}
    for name in KINDS:
        lab.feature.value = name
        off[name] = (lab.features.disabled, lab.orthogonal.disabled, lab.seed.disabled)
    assert all(off[name] == (False, False, False) for name in RANDOM)
    assert off["dpfp"] == (False, True, True)
    assert off["softmax"] == off["elu"] == off["relu"] == (True, True, True)


@pytest.mark.parametrize(("control", "value"), [("seed", 5), ("orthogonal", False)])
def test_another_draw_is_another_map(make, control, value):
    lab = make()
    before = lab.approximation.map
    getattr(lab, control).value = value
    assert not torch.equal(lab.approximation.map, before)


def test_what_was_tried_stays_in_a_short_table(make):
    lab = make()
    for seed in range(9):
        lab.seed.value = seed
    rows = lab._table.value.split("<tbody>")[1].split("<tr>")[1:]
    assert len(rows) == kernel_lab.KEPT
    assert "seed 8" in rows[-1]
    assert "seed 3" in rows[0]


def test_the_description_says_each_row(make):
    lab = make({"one": made()}, [f"t{i}" for i in range(N)])
    rows = lab._look.value.split("<tbody>")[1].split("<tr>")[1:]
    assert len(rows) == N
    j = int(lab.approximation.exact[-1].argmax())
    assert f"<td>t{N - 1} ({N - 1})</td><td>t{j} ({j}), " in rows[-1]
    assert "mathjax_ignore" in lab._look.value


def test_masked_is_hatched_and_no_difference_is_the_paper(make):
    """Whatever the page: where nothing differs the map lets the paper show through."""
    lab = make({"one": made()})
    assert lab._look.value.count('class="attnlab-hatch"') == 3
    levels = {part["palette"][127] for kind, part in lab.still().parts if kind == "map"}
    assert {colour[7:] for colour in levels} == {"", "00"}
    drawing = Drawing(20, 20, DARK)
    drawing.map(np.array([[127, 254]]), kernel_lab._SIGNED, 0, 0, 20, 20)
    image = Image.open(BytesIO(drawing.png()))
    assert image.getpixel((5, 5)) == rgb(DARK.paper)
    assert image.getpixel((35, 5)) == rgb(SIGNED[-1])
    colours = svg.png(np.array([[127, 254]]), kernel_lab._SIGNED)
    found = Image.open(BytesIO(colours)).convert("RGBA")
    assert found.getpixel((0, 0))[3] == 0
    assert found.getpixel((1, 0)) == (*rgb(SIGNED[-1]), 255)
    full = make({"one": made()}, causal=False)
    assert "attnlab-hatch" not in full._look.value


def test_tokens_cannot_be_html(make):
    lab = make({"one": made()}, ["<b>"] * N)
    assert "<b>" not in lab._look.value
    assert "&lt;b&gt;" in lab._look.value


def test_an_error_is_reported_and_passes(make, monkeypatch):
    lab = make()

    def broken(*_, **__):
        raise RuntimeError("no room")

    with monkeypatch.context() as patch:
        patch.setattr(kernel_lab, "approximate", broken)
        patch.setattr(kernel_lab, "speed", broken)
        lab.seed.value = 1
        lab.wait(WAIT)
        assert "These maps could not be made." in lab._alert.value
        assert "no room" in lab._speed.value
    lab.seed.value = 2
    assert lab._alert.value == ""


def test_a_closed_lab_measures_no_more(make):
    lab = make()
    lab.close()
    lab.wait(WAIT)
    lab._ask()
    assert lab.wait(WAIT)


WRONG = [
    (ValueError, "pick one sequence and one head", {"heads": {"a": (torch.zeros(1, 3, 2),) * 2}}),
    (ValueError, "between 1 and 128", {"heads": {"a": made(129, 129)}}),
    (ValueError, "use causal=False", {"heads": {"a": made(7, 5)}}),
    (ValueError, "NaN", {"heads": {"a": (torch.full((3, 2), torch.nan), torch.zeros(3, 2))}}),
    (TypeError, "at least one head", {"heads": [made()]}),
    (TypeError, "a pair", {"heads": {"a": torch.zeros(3, 2)}}),
    (ValueError, "list of 11", {"tokens": ["a"]}),
    (ValueError, "positive", {"feature": "positiv"}),
    (ValueError, "`features`", {"features": 0}),
    (ValueError, "`features`", {"features": 20_000}),
    (ValueError, "`temperature`", {"temperature": 0.0}),
    (ValueError, "`seed`", {"seed": -1}),
    (ValueError, "`length`", {"length": 0}),
]


@pytest.mark.parametrize(("kind", "words", "options"), WRONG, ids=[w[1] for w in WRONG])
def test_wrong_arguments_are_reported(kind, words, options):
    with pytest.raises(kind, match=words.replace("`", ".")):
        KernelLab(**({"heads": {"one": made()}} | options))


def test_a_patch_covers_what_lies_below():
    drawing = Drawing(40, 40, LIGHT)
    drawing.patch([(0, 0), (20, 0), (0, 20)], "#d55e00")
    image = Image.open(BytesIO(drawing.png()))
    assert image.getpixel((6, 6)) == (0xD5, 0x5E, 0)
    assert image.getpixel((60, 60)) != (0xD5, 0x5E, 0)
    assert '<polygon points="0.0,0.0 20.0,0.0 0.0,20.0" fill="#d55e00"/>' in drawing.svg("a")
