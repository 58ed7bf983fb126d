from itertools import pairwise

import pytest

from attnlab.figures import theme
from attnlab.figures.maps import heat_map


@pytest.fixture(autouse=True)
def _as_before():
    before = theme.theme_name()
    yield
    theme.use_theme(before)


def test_contrast_is_the_wcag_ratio():
    assert theme.contrast("#ffffff", "#000000") == pytest.approx(21)
    assert theme.contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.01)
    assert theme.contrast("#123456", "#123456") == 1


@pytest.mark.parametrize("look", [theme.LIGHT, theme.DARK], ids=["light", "dark"])
def test_text_and_series_can_be_read_on_both_papers(look):
    for ground in (look.paper, look.panel):
        assert theme.contrast(look.ink, ground) >= 7
        assert theme.contrast(look.quiet, ground) >= 4.5
        assert theme.contrast("#0072b2", ground) >= 3
    for colour in theme.SERIES:
        assert theme.contrast(colour, look.paper) >= 3 or colour == "#cc79a7"
        assert theme.contrast(colour, look.paper) >= 2.99


def test_cividis_grows_brighter_evenly():
    luminance = [0.05 * theme.contrast(c, "#000000") - 0.05 for c in theme.CIVIDIS]
    lightness = [116 * value ** (1 / 3) - 16 for value in luminance]
    steps = [b - a for a, b in pairwise(lightness)]
    assert min(steps) > 6
    assert max(steps) < 12


def test_categories_differ_in_shape_as_well_as_colour():
    for marks in (theme.SERIES, theme.MARKERS, theme.DASHES):
        assert len(set(marks)) == len(marks)
    assert theme.QUERY[0] != theme.KEY[0]
    assert theme.QUERY[1] != theme.KEY[1]


def test_hatching_is_seen_on_its_ground():
    for ground, line in theme.HATCHING.values():
        assert theme.contrast(ground, line) > 2


def test_blend_meets_the_ends_and_stays_inside():
    assert theme.blend(("#000000", "#ffffff"), 0.5) == "#808080"
    assert theme.blend(theme.CIVIDIS, 0) == theme.CIVIDIS[0]
    assert theme.blend(theme.CIVIDIS, 7.0) == theme.CIVIDIS[-1]


def test_the_theme_is_set_once_or_per_figure(attention):
    weights = attention(3, 5)
    theme.use_theme("dark")
    assert heat_map(weights, title="Dark").layout.paper_bgcolor == theme.DARK.paper
    assert heat_map(weights, title="Light", theme="light").layout.paper_bgcolor == "#fefefd"
    theme.use_theme("light")
    assert heat_map(weights, title="Light").layout.font.color == theme.LIGHT.ink


def test_auto_is_light_and_brings_the_rules_that_darken_it(attention):
    auto = heat_map(attention(3, 5), title="Auto", theme="auto")
    assert auto.layout.paper_bgcolor == theme.LIGHT.paper
    for light, dark in (("paper", "paper"), ("ink", "ink"), ("grid", "grid")):
        triple = "rgb({}, {}, {})".format(*theme.rgb(getattr(theme.LIGHT, light)))
        assert triple in auto.folded()
        assert getattr(theme.DARK, dark) in auto.folded()
    assert "<style>" not in heat_map(attention(3, 5), title="Light", theme="light").folded()


def test_the_hatching_is_found_by_the_rule_that_inverts_it(attention):
    import numpy as np

    mask = np.tril(np.ones((5, 5), bool))
    picture = heat_map(attention(5, 5, causal=True), mask=mask, title="Hatched")
    assert picture.layout.images[0].source.startswith(theme.HATCHING_START)


def test_an_unknown_theme_is_named():
    with pytest.raises(ValueError, match="no theme 'drak'; did you mean 'dark'"):
        theme.use_theme("drak")
    with pytest.raises(ValueError, match="no theme 'blue'"):
        heat_map([[1.0]], title="Blue", theme="blue")
