"""Formulas: texts that define a primitive, and that Python and JavaScript both evaluate.

A formula is an expression of Python that uses a primitive's arguments by their names, such as
``abs(i - j) <= radius``. A template is a text with formulas in braces, such as ``every
{ordinal(stride)}``. The JavaScript of PatternStudio knows numbers, names, 'texts', lists, calls of
the functions below, ``x[y]``, ``x.method(y)``, ``a if b else c``, ``or``, ``and``, comparisons of
two values, and the operators ``| & + - * // %``.
"""

import functools
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import CodeType
from typing import Any

Cases = tuple[tuple[str, str], ...]
"""Pairs of a condition (a formula) and the template of the sentence for when it holds."""

Names = Mapping[str, Any]


def value(formula: str, names: Names) -> Any:
    """The value of a formula of this package; texts of callers must go to ``reading.read``."""
    return eval(_compiled(formula), {"__builtins__": {}}, {**FUNCTIONS, **names})


def filled(template: str, names: Names) -> str:
    """The template with the values of its formulas."""
    return re.sub(r"\{([^{}]*)\}", lambda found: str(value(found[1], names)), template)


def first_match(cases: Cases, names: Names) -> str | None:
    """The filled template of the first case whose condition holds; None where none does."""
    return next(
        (filled(template, names) for condition, template in cases if value(condition, names)), None
    )


def function(parameters: str, formula: str, names: Names) -> Callable[..., Any]:
    """A formula as a function, which torch.compile can trace; ``names`` are what it may use."""
    made: Callable[..., Any] = eval(f"lambda {parameters}: {formula}", dict(names))
    return made


def of_self(formula: str, fields: Iterable[str]) -> str:
    """The formula with ``self.`` before the names of the fields."""
    fields = "|".join(fields)
    return re.sub(rf"\b({fields})\b", r"self.\1", formula) if fields else formula


@functools.cache
def _compiled(formula: str) -> CodeType:
    return compile(formula, f"<formula {formula}>", "eval")


# ---- the functions that formulas may call (in JavaScript: pattern_studio/formulas.js)


def ordinal(number: int) -> str:
    """1: "position", 2: "2nd position" …"""
    if number == 1:
        return "position"
    suffix = (
        "th" if 11 <= number % 100 <= 13 else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    )
    return f"{number}{suffix} position"


def several(noun: str, number: int) -> str:
    """The noun alone for one, else the noun and the number: "first", "first 3"."""
    return noun if number == 1 else f"{noun} {number}"


def ends(first: int, last: int) -> str:
    """How many of the first and of the last: "first 2 and the last"."""
    named = (("first", first), ("last", last))
    return " and the ".join(several(end, size) for end, size in named if size)


def listing(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, numbers))


def sizes(shape: Sequence[int]) -> str:
    return " × ".join(map(str, shape))


def outside(positions: Sequence[int], n: int) -> list[int]:
    """The given numbers that are outside a sequence of n; negative ones count from its end."""
    return [p for p in positions if not -n <= p < n]


def stride_of(shape: Sequence[int], axis: int) -> int:
    """The distance, in raster order, of two cells that are neighbours along an axis."""
    return math.prod(shape[axis % len(shape) + 1 :])


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "abs": abs,
    "len": len,
    "product": math.prod,
    "ordinal": ordinal,
    "several": several,
    "ends": ends,
    "listing": listing,
    "sizes": sizes,
    "written": str,
    "outside": outside,
    "stride_of": stride_of,
    "code": lambda pattern: pattern.code,
    "description": lambda pattern: pattern.description,
}
