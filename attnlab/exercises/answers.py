"""Checks of answers that are numbers: a count of FLOPs, the bytes of a cache."""

import math
import numbers
import reprlib
import textwrap
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from decimal import Decimal

import numpy as np
from torch import Tensor

from attnlab.exercises.attempt import as_float64
from attnlab.exercises.check import Check
from attnlab.exercises.verdict import Verdict, type_name

# What a simple ratio of the answer to the right number usually means, by unit.
_UNITS: dict[str, dict[float, str]] = {
    "bytes": {
        1 / 4: "That is the number of elements: each float32 takes 4 bytes.",
        1 / 2: (
            "Half of it. Were too few bytes per element taken, or keys counted without values?"
        ),
        2: "Twice too much. Was something counted twice, or the bytes per element taken too large?",
        4: "Four times too much: elements of 4 bytes were multiplied by 4 once more.",
        8: "Those are bits: 8 of them make a byte.",
        32: "That is 32 per element, the number of bits: a float32 has 32 bits, which are 4 bytes.",
    },
    "bits": {1 / 8: "Those are bytes: each has 8 bits."},
    "elements": {
        4: "Those are bytes: a float32 element takes 4. The answer should be in elements.",
        2: ("Twice too much. Are these bytes of 2-byte elements, or was something counted twice?"),
    },
    "FLOPs": {
        1 / 2: "Half of it: a multiply-add counts as two FLOPs.",
        2: "Twice too much. A multiply-add counts as two FLOPs: was the factor 2 used twice?",
    },
}
_ANY_UNIT: dict[float, str] = {
    2: "Twice too much: was something counted twice?",
    1 / 2: "Half of it: does something occur twice that was counted once?",
    -1: "The sign is wrong.",
}
_SMALL = {1: "One", 2: "Two"}
MOST_OFF = max(_SMALL)
_PREFIXES = {
    1e3: "a thousand",
    1e6: "a million",
    1e9: "a billion",
    2.0**10: "1024",
    2.0**20: "1024²",
    2.0**30: "1024³",
}


@dataclass(frozen=True, eq=False, repr=False)
class NumberExercise(Check):
    """An exercise whose answer is a number; calling it with one gives the `Verdict`.

    `mistakes` maps wrong numbers to sentences. `unit` and `tolerance` are those of `check_number`.
    """

    _: KW_ONLY
    right: float
    mistakes: Mapping[float, str]
    unit: str = ""
    tolerance: float = 1e-6

    @property
    def sentences(self) -> tuple[str, ...]:
        """What it can say of a known mistake, after the wrong number."""
        return sentences_of(self.mistakes)

    def __call__(self, answer: object) -> Verdict:
        """Is the number right?"""
        return check_number(
            answer,
            self.right,
            tolerance=self.tolerance,
            unit=self.unit,
            mistakes=self.mistakes,
        )


def sentences_of(mistakes: Mapping[float, str]) -> tuple[str, ...]:
    """Each wrong number with its sentence."""
    return tuple(f"{_shown(wrong)}: {text}" for wrong, text in mistakes.items())


def check_number(
    given: object,
    expected: float,
    *,
    tolerance: float = 1e-6,
    unit: str = "",
    mistakes: Mapping[float, str] | None = None,
) -> Verdict:
    """Is the number right, up to a relative `tolerance`, or rounded to two digits or more?

    `unit` names what is counted ("bytes", "bits", "elements", "FLOPs", or any other word).
    `mistakes` maps common wrong answers to a sentence about each; they are compared first. Raises
    TypeError or ValueError where the exercise itself is wrong: an expected number that is not
    finite, or a mistake within the tolerance of the right answer.
    """
    mistakes = {} if mistakes is None else mistakes
    expected = _validated(expected, tolerance, unit, mistakes)
    value = _as_number(given)
    if isinstance(value, str):
        return Verdict(False, value)
    in_units = f" {unit}" if unit else ""
    listed = [text for wrong, text in mistakes.items() if _near(value, wrong, tolerance)]
    if _near(value, expected, tolerance) or (not listed and _rounded(value, expected)):
        return Verdict(True, f"{_shown(expected)}{in_units}.")
    text = listed[0] if listed else _ratio(value, expected, tolerance, unit)
    return Verdict(False, f"{_shown(value)}{in_units}: {text[0].lower()}{text[1:]}")


def _validated(
    expected: object, tolerance: object, unit: object, mistakes: Mapping[float, str]
) -> float:
    """``expected`` as a number; the exercise itself is wrong where this raises."""
    right = _finite("expected", expected)
    relative = _finite("tolerance", tolerance)
    if not 0 <= relative < 1:
        raise ValueError(f"tolerance is relative, between 0 and 1, got {tolerance}")
    if not isinstance(unit, str):
        raise TypeError(f"unit should be a word, got {unit!r}")
    if not isinstance(mistakes, Mapping) or not all(
        isinstance(text, str) and text for text in mistakes.values()
    ):
        raise TypeError(f"mistakes should be a dict from numbers to sentences, got {mistakes!r}")
    for wrong in mistakes:
        if _near(_finite("a mistake", wrong), right, relative):
            raise ValueError(f"mistakes lists {wrong}, which is the right answer {expected}")
    return right


def _finite(name: str, value: object) -> float:
    found = _as_number(value)
    if isinstance(found, str):
        kind = ValueError if isinstance(value, numbers.Real) else TypeError
        raise kind(f"{name} should be a finite number, got {reprlib.repr(value)}")
    return found


def _near(value: float, expected: float, tolerance: float) -> bool:
    return math.isclose(
        value, expected, rel_tol=tolerance, abs_tol=tolerance if not expected else 0
    )


def _rounded(value: float, expected: float) -> bool:
    """Is it the right number, which is not whole, rounded to at least two digits?"""
    digits = len(Decimal(repr(value)).normalize().as_tuple().digits)
    whole = float(expected).is_integer()
    return digits >= 2 and not whole and float(f"{expected:.{digits}g}") == value


def _as_number(given: object) -> float | str:
    """The answer as a number, or a sentence that says what it is."""
    if given is None or given is Ellipsis:
        return "There is no number yet: put your answer in its place."
    if (isinstance(given, Tensor) and as_float64(given) is not None and given.numel() == 1) or (
        isinstance(given, np.generic | np.ndarray) and given.shape == ()
    ):
        given = given.item()
    if isinstance(given, bool):
        return f"The answer should be a number; {given} is a truth value."
    if isinstance(given, str):
        shown = textwrap.shorten(given, 40, placeholder=" …") or "it"
        return f"The answer should be a number, not text: write {shown} without quotes."
    if isinstance(given, Tensor):
        shape = "" if given.is_nested else f" of shape {tuple(given.shape)}"
        return f"The answer should be one number; this is a tensor{shape}."
    if callable(given):
        return "The answer should be a number; this is a function. Call it first."
    if not isinstance(given, numbers.Real):
        return f"The answer should be a number; this is {type_name(given)}."
    try:
        exact = float(given)
    except OverflowError:
        return "This number is too large by far: it does not even fit into a float."
    if not math.isfinite(exact):
        return f"The answer should be a finite number; this is {given}."
    return int(given) if isinstance(given, numbers.Integral) else exact


def _ratio(value: float, expected: float, tolerance: float, unit: str) -> str:
    """What the ratio of the answer to the right number says."""
    near = max(tolerance, 1e-6)
    if not expected:
        return "It should be exactly zero."
    if not value:
        return (
            "It is not zero: is a factor missing, or was it rounded to zero, for example by `//`?"
        )
    ratio = value / expected
    if not ratio or not math.isfinite(ratio):
        return "The order of magnitude is wrong, by more than a float can hold."
    for known, text in {**_ANY_UNIT, **_UNITS.get(unit, {})}.items():
        if math.isclose(ratio, known, rel_tol=near):
            return text
    for size, name in _PREFIXES.items():
        if math.isclose(ratio * size, 1, rel_tol=near):
            return (
                f"Too small by a factor of {name}: write it out in {unit or 'full'}, without a "
                "prefix such as kilo."
            )
        if math.isclose(ratio, size, rel_tol=near):
            return f"Too large by a factor of {name}: was a prefix (kilo, mega) counted twice?"
    if ratio < 0:
        return "The sign is wrong, and so is the size."
    power = math.log2(ratio)
    if math.isclose(power, round(power), abs_tol=near) and abs(power) < 40:
        way = "large" if ratio > 1 else "small"
        return f"Too {way} by a factor of {2 ** abs(round(power))}: some factor of two is off."
    return (_whole(value, expected) if max(ratio, 1 / ratio) <= 1.2 else "") or _magnitude(ratio)


def _whole(value: float, expected: float) -> str:
    """What a value says that is near a whole number: one off is no matter of a few per cent."""
    gap = abs(value - expected)
    if not float(expected).is_integer() or gap > MOST_OFF:
        return ""
    if not float(value).is_integer():
        return "The answer is a whole number: was something rounded, or a fraction counted?"
    if value > expected:
        return f"{_SMALL[round(gap)]} too many: what is counted that should not be?"
    return f"{_SMALL[round(gap)]} too few: what is left out?"


def _magnitude(ratio: float) -> str:
    way, size = ("large", ratio) if ratio > 1 else ("small", 1 / ratio)
    tens = math.log10(size)
    if math.isclose(tens, round(tens), abs_tol=1e-6):
        return f"Too {way} by a factor of {10 ** round(tens):,}: count the zeros."
    if size >= 10:
        return f"Too {way}: the order of magnitude is wrong, by about 10^{round(tens)}."
    if size <= 1.1:
        return f"Too {way}, by a few per cent: the main factors are right, a small part is off."
    return f"Too {way}, by a factor of about {size:.1f}: which factor is missing or too many?"


def _shown(value: float) -> str:
    """With a comma between thousands; whole numbers in full."""
    if isinstance(value, int) or float(value).is_integer():
        return f"{int(value):,}"
    return f"{value:,.6g}"
