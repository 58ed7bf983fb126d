"""Cases that Python computes and the pages' tests read, in widgets/test.

A test compares them and never writes them: ``python -m tests.widgets.test_signal_lab`` does, and
likewise for the other widgets. Numbers are compared with a tolerance, because another processor
adds them up in another order.
"""

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parents[2] / "widgets/test"
NEAR = 1e-9
"""Of float64, a million times its rounding; both of a number and in itself, as most are near 1."""
NEAR_FLOAT32 = 1e-5
"""Where cases come from parameters in float32: a hundred times its rounding."""


def stored(file: str) -> Any:
    return json.loads((FOLDER / file).read_text("utf-8"))


def write(file: str, cases: Any) -> None:
    (FOLDER / file).write_text(json.dumps(cases, ensure_ascii=False) + "\n", encoding="utf-8")


def assert_fresh(
    file: str, cases: Any, near: float = NEAR, opened: Callable[[Any], Any] = lambda cases: cases
) -> None:
    """``opened`` makes numbers of what holds them as text, such as base64."""
    wrong = unlike(opened(json.loads(json.dumps(cases))), opened(stored(file)), file, near)
    assert not wrong, f"{wrong}. Run this test file as a module, then `npm test` in widgets"


def unlike(found: Any, known: Any, at: str, near: float = NEAR) -> str:
    """Where two cases differ, in words; empty if they are alike."""
    if isinstance(known, dict) and isinstance(found, dict) and found.keys() == known.keys():
        parts = [(found[key], known[key], f"{at} {key}") for key in known]
    elif isinstance(known, list) and isinstance(found, list) and len(found) == len(known):
        parts = [(one, known[i], f"{at} {i}") for i, one in enumerate(found)]
    elif isinstance(known, float) and isinstance(found, float):
        alike = math.isclose(found, known, rel_tol=near, abs_tol=near)
        return "" if alike else f"{at} is {found}, and {known} is stored"
    else:
        return "" if found == known else f"{at} is {found!r}, and {known!r} is stored"
    return next(filter(None, (unlike(*each, near) for each in parts)), "")
