"""What a training says of itself where it is the last line of a cell."""

import math
import xml.etree.ElementTree as ET

import pytest

from attnlab.train.history import History


@pytest.mark.parametrize("steps", [0, 1, 2, 5000])
def test_a_history_is_told_in_one_line_and_drawn_small(steps: int) -> None:
    rows = [{"step": at, "loss": 1 / at} for at in range(1, steps + 1)]
    page = ET.fromstring(f"<p>{History(rows)._repr_html_()}</p>")
    assert page.find("div").text == repr(History(rows))
    assert len(repr(History(rows))) < 100
    drawn = page.find("svg/polyline")
    assert (drawn is not None) == (steps > 1)
    if steps > 1:
        points = [tuple(map(float, p.split(","))) for p in drawn.get("points").split()]
        assert 2 <= len(points) <= 320
        assert points[0][1] == 2, "the largest loss stands at the top"
        assert all(0 <= x <= 320 and 0 <= y <= 80 for x, y in points)


def test_what_is_not_finite_is_said_and_left_out_of_the_curve() -> None:
    losses = [3.0, math.nan, 2.0, math.inf]
    history = History([{"step": at, "loss": loss} for at, loss in enumerate(losses, 1)])
    assert repr(history) == "History of steps 1 to 4: loss 3 to inf"
    assert "nan" not in history._repr_html_()
    history.rows[1]["validation_loss"] = 2.5
    assert repr(history).endswith(", validation loss 2.5")
