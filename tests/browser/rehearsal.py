"""Rehearsed trainings: `make test` runs every cell of every lesson, but ``fit`` takes few steps.

Most of what the lessons compute is the training of small models, some twenty minutes of it. Whether
a cell runs and draws does not depend on how well its model has learned. So where ``VARIABLE`` is
set, a lesson's kernel computes the ``FIRST`` steps of a run, every ``EVERY``-th after them and the
last; the steps between have a row, evaluations and callbacks as always, but the weights stay. What
the tag `holds-with-room` says of trained models is compared only where all steps are taken: by
`make check`, which runs the lessons that a change touches, and by `make check-lessons`, which runs
all. Lessons that cannot do without are in ``WHOLE``.
"""

from pathlib import Path
from typing import Any

VARIABLE = "ATTNLAB_REHEARSED_TRAINING"
FIRST, EVERY = 10, 10
WHOLE: frozenset[str] = frozenset()
"""Lessons that are always trained whole."""


def rehearse(lesson: str) -> None:
    """From now on, in this process, a run computes few of its steps, if the lesson allows it."""
    if Path(lesson).stem in WHOLE:
        return
    from attnlab.train.step import Stepper

    whole = Stepper.step

    def step(self: Stepper, wrapped: Any, step: int, at: int | None = None) -> dict[str, Any]:
        last = getattr(self, "_last_row", None)
        computed = step <= FIRST or step % EVERY == 0 or step == self.settings.steps
        if last is None or computed or self.documents is not None:
            self._last_row = whole(self, wrapped, step, at)  # type: ignore[attr-defined]
            return self._last_row  # type: ignore[attr-defined,no-any-return]
        return last | {"step": step}

    Stepper.step = step  # type: ignore[method-assign]
