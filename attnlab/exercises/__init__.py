"""Instant checks beside the exercises of the lessons.

A check takes the learner's function (or number), calls it on small numbers that are the same every
time, and gives a `Verdict`: right, or not yet with the misconception by its name. It never raises
for a wrong solution; an exception in the learner's code becomes a sentence.
"""

import importlib
from typing import Any

from attnlab.core.lazy import modules_of
from attnlab.core.suggest import suggestion
from attnlab.exercises.contents import pages_of, table
from attnlab.exercises.verdict import Verdict

_PAGES = pages_of(__name__, __path__)
_HOMES = {name: page.module for page in _PAGES for name in page.questions}
_module_named = modules_of(__name__)

__doc__ += table(_PAGES)
__all__ = ["Verdict", *sorted(_HOMES)]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    try:
        return _module_named(name)
    except AttributeError:
        near = "" if name.startswith("_") else suggestion(name, __all__)
        raise AttributeError(f"{__name__} has no {name!r}{near}") from None


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
