"""Every lesson, opened and run from top to bottom as its reader would."""

from pathlib import Path
from typing import Any

import pytest

PLOT = "application/vnd.plotly.v1+json"
WIDGET = "application/vnd.jupyter.widget-view+json"
pytestmark = [pytest.mark.browser, pytest.mark.slow]

LESSONS = [path.name for path in sorted((Path(__file__).parents[2] / "notebooks").glob("*.ipynb"))]


@pytest.fixture(scope="module")
def running(opened: Any) -> Any:
    """Opens a lesson and starts it; the one after it starts, too, so that no core is idle.

    Those before it are closed: a dozen kernels would leave no memory for the next.
    """
    started: dict[str, Any] = {}

    def run(name: str) -> Any:
        place = LESSONS.index(name)
        for before in [each for each in started if LESSONS.index(each) < place]:
            started.pop(before).close()
        for each in LESSONS[place : place + 2]:
            if each not in started:
                started[each] = opened(each)
                started[each].start()
        return started[name]

    return run


@pytest.mark.parametrize("name", LESSONS)
def test_a_lesson_runs_from_top_to_bottom(name, running):
    lesson = running(name)
    lesson.page.bring_to_front()
    lesson.finish(seconds=900)
    lesson.screenshot(Path(name).stem)
    said = [str(data) for shown in lesson.outputs() for *_, data in shown]
    assert sum("Not yet." in text for text in said) >= 2, "an exercise says it is not solved yet"
    plots = lesson.holding(PLOT)
    assert plots
    assert all(lesson.draws(number) for number in plots)
    assert lesson.holding(WIDGET)
