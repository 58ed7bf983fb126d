"""Bars where processes work, dotted lines where they wait: places, panels, words and refusals."""

import numpy as np
import pytest

from attnlab.figures.timeline import process_timeline

FIRST = {
    "process <0>": [("work", 10, 12), ("wait", 12, 15.5), ("work", 15.5, 16)],
    "process 1": [("work", 11, 13)],
}
PANELS = {"contiguous": FIRST, "zigzag": {"process 0": [("wait", 3, 5)]}}


def test_each_time_is_a_piece_of_a_line_at_its_process(drawn) -> None:
    picture = process_timeline(PANELS, title="Who waits")
    work, wait = (drawn(picture, place) for place in (0, 1))
    nan = np.nan
    np.testing.assert_allclose(work["x"], [0, 2, nan, 5.5, 6, nan, 1, 3, nan])
    np.testing.assert_allclose(work["y"], [0, 0, nan, 0, 0, nan, 1, 1, nan])
    np.testing.assert_allclose(wait["x"], [2, 5.5, nan])
    np.testing.assert_allclose(drawn(picture, 3)["x"], [0, 2, nan])  # from its own first start


def test_working_and_waiting_differ_by_more_than_colour() -> None:
    work, wait, *others = process_timeline(PANELS, title="Who waits").data
    assert (work.line.dash, wait.line.dash) == ("solid", "dot")
    assert work.line.width > 4 * wait.line.width
    assert [trace.showlegend for trace in (work, wait, *others)] == [True, True, False, False]


def test_panels_stand_below_one_another_on_one_scale() -> None:
    layout = process_timeline(PANELS, title="Who waits").layout
    assert layout.xaxis.range == layout.xaxis2.range
    assert layout.xaxis.range[1] > 6
    assert layout.yaxis.domain[0] > layout.yaxis2.domain[1] > layout.yaxis2.domain[0] >= 0
    assert layout.yaxis.domain[1] == 1
    assert list(layout.yaxis.ticktext) == ["process &#60;0&#62;", "process 1"]
    assert [each.text for each in layout.annotations] == ["<b>contiguous</b>", "<b>zigzag</b>"]


def test_words_and_table_say_the_same() -> None:
    picture = process_timeline(PANELS, title="Who waits", unit="s")
    assert picture.rows[0] == {
        "panel": "contiguous", "process": "process <0>", "work (s)": 2.5, "wait (s)": 3.5
    }  # fmt: skip
    assert "contiguous, process <0>: works 2.5 s, waits 3.5." in picture.description
    assert "zigzag" in picture.svg()


@pytest.mark.parametrize(
    ("times", "sentence"),
    [
        ([("work", 1)], r"a time of 'p' should be \(kind, start, end\), got 2 parts"),
        ([("sleep", 0, 1)], "kind of a time of 'p'"),
        ([("work", 2, 1)], "a time of 'p' ends at 1, before it starts at 2"),
        ([("work", 0, 1, 2)], "got 4 parts"),
        ([], "'x' should hold a time of at least one process"),
    ],
)
def test_what_is_no_time_is_refused(times, sentence) -> None:
    with pytest.raises(ValueError, match=sentence):
        process_timeline({"x": {"p": times}}, title="t")
