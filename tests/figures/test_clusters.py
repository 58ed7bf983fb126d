"""Clusters in panels: where points and ellipses stand, what is said, what is refused."""

import numpy as np
import pytest

from attnlab.figures.clusters import cluster_grid

POINTS = np.array([[[0.0, 0.0], [1.0, 0.0], [5.0, 5.0]], [[2.0, 1.0], [3.0, 1.0], [2.0, 2.0]]])
TRUE = np.array([[[0.5, 0.0, 0.5, 0.1], [5.0, 5.0, 0.3, 0.3]], [[2.0, 1.0, 1.0, 1.0]] * 2])
FOUND = {"before": TRUE[:, :1] + [3.0, 0.0, 0.0, 0.0], "after": TRUE}


def test_every_panel_has_its_points_and_ellipses():
    picture = cluster_grid(POINTS, FOUND, true=TRUE, title="t", columns=["one", "two"])
    assert len(picture.data) == 2 * 2 * 3
    points, true, found = picture.data[3:6]  # before, two
    assert (points.xaxis, points.yaxis) == ("x2", "y2")
    assert list(points.x) == [2.0, 3.0, 2.0]
    assert np.isnan(true.x).sum() == 2
    assert np.nanmax(found.x) == pytest.approx(5.0 + 2 * 1.0)  # centre 5, two deviations of 1
    assert np.nanmin(found.y) == pytest.approx(1 - 2 * 1.0)
    layout = picture.layout
    assert layout.yaxis.domain[0] > layout.yaxis3.domain[1]  # rows go down
    assert layout.xaxis.domain[1] < layout.xaxis2.domain[0]
    inner = layout.width - layout.margin.l - layout.margin.r
    side = (layout.xaxis.domain[1] - layout.xaxis.domain[0]) * inner
    tall = layout.height - layout.margin.t - layout.margin.b
    assert side == pytest.approx((layout.yaxis.domain[1] - layout.yaxis.domain[0]) * tall, rel=0.02)
    assert layout.xaxis.range[1] - layout.xaxis.range[0] == pytest.approx(
        layout.yaxis.range[1] - layout.yaxis.range[0]
    )
    for trace in picture.data:
        assert np.nanmin(trace.x) >= layout.xaxis.range[0]
        assert np.nanmax(trace.y) <= layout.yaxis.range[1]


def test_the_words_say_how_many_points_are_in_an_ellipse():
    picture = cluster_grid(POINTS, FOUND, true=TRUE, title="Two sets")
    shares = [row["points inside an ellipse (%)"] for row in picture.rows]
    assert shares == [0.0, 33.3, 100.0, 100.0]
    assert picture.rows[1]["clusters"] == 1
    assert "after: 100 % of the points lie in an ellipse" in picture.description
    assert "<svg" in picture.svg()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"true": TRUE[:1]}, r"`true` should have shape \(2, any number, 4\)"),
        ({"found": {"a": TRUE[..., :2]}}, r"`found: a` should have shape \(2, any number, 4\)"),
        ({"found": {"a": -TRUE}}, "`found: a` has a standard deviation that is not above 0"),
        ({"found": {}}, "`found` is empty"),
        ({"found": {str(i): TRUE for i in range(13)}}, "at most 24 panels"),
        ({"points": POINTS[..., :1]}, r"`points` should have shape \(2, any number, 2\)"),
    ],
)
def test_what_cannot_be_drawn_is_refused(change, words):
    with pytest.raises(ValueError, match=words):
        cluster_grid(**{"points": POINTS, "found": FOUND, "true": TRUE, "title": "t", **change})
