"""Checks of numeric answers: a count of FLOPs, the bytes of a cache."""

import math
import numbers
from collections.abc import Mapping

from torch import Tensor

from attnlab.exercises.verdict import Verdict, kind_of

# What a whole ratio between the answer and the truth usually means, by the unit.
_UNITS: dict[str, dict[float, str]] = {
    "bytes": {
        1 / 4: "That is the number of elements: each float32 takes 4 bytes.",
        1 / 2: (
            "Half of it. Were two bytes per element taken for one, four for two, or keys counted "
            "without values?"
        ),
        2: "Twice too much. Was something counted twice, or the bytes per element taken too large?",
        4: "Four times too much: elements of 4 bytes were multiplied by 4 once more.",
        8: "Those are bits: 8 of them make a byte.",
        32: "Those are bits, counted from elements: a float32 has 32 bits, but 4 bytes.",
    },
    "bits": {1 / 8: "Those are bytes: each has 8 bits."},
    "elements": {
        4: "Those are bytes: a float32 element takes 4 of them, and elements were asked for.",
        2: ("Twice too much. Are these bytes of 2-byte elements, or was something counted twice?"),
    },
    "FLOPs": {
        1 / 2: "Half of it: a multiply-add counts as two FLOPs.",
        2: "Twice too much. A multiply-add counts as two FLOPs; was it counted so twice?",
    },
}
_ANY_UNIT: dict[float, str] = {
    2: "Twice too much: was something counted twice?",
    1 / 2: "Half of it: was something counted once that comes twice?",
    -1: "The sign is wrong.",
}
_PREFIXES = {
    1e3: "a thousand",
    1e6: "a million",
    1e9: "a billion",
    2.0**10: "1024",
    2.0**20: "1024²",
    2.0**30: "1024³",
}


def check_number(
    given: object,
    expected: float,
    *,
    tolerance: float = 1e-6,
    unit: str = "",
    mistakes: Mapping[float, str] | None = None,
) -> Verdict:
    """Is the number right, up to a relative `tolerance`?

    `unit` names what is counted ("bytes", "bits", "elements", "FLOPs", or any other word).
    `mistakes` maps wrong answers that are to be expected to a sentence about each; they are looked
    up first. Raises ValueError where the exercise itself is wrong: an expected number that is not
    finite, or a mistake within the tolerance of the right answer.
    """
    mistakes = {} if mistakes is None else mistakes
    _validate(expected, tolerance, unit, mistakes)
    value = _real(given)
    if isinstance(value, str):
        return Verdict(False, value)
    in_units = f" {unit}" if unit else ""
    if _near(value, expected, tolerance):
        return Verdict(True, f"{_shown(expected)}{in_units}.")
    listed = (text for wrong, text in mistakes.items() if _near(value, wrong, tolerance))
    text = next(listed, None) or _ratio(value, expected, tolerance, unit)
    return Verdict(False, f"{_shown(value)}{in_units}: {text[0].lower()}{text[1:]}")


def _validate(expected: float, tolerance: float, unit: str, mistakes: Mapping[float, str]) -> None:
    if not isinstance(unit, str):
        raise TypeError(f"unit should be a text, got {unit!r}")
    if not isinstance(mistakes, Mapping) or not all(isinstance(x, str) for x in mistakes.values()):
        raise TypeError(f"mistakes should map numbers to sentences, got {mistakes!r}")
    named = {"expected": expected, "tolerance": tolerance}
    for name, number in [*named.items(), *(("mistakes", wrong) for wrong in mistakes)]:
        if isinstance(number, bool) or not isinstance(number, numbers.Real):
            raise TypeError(f"{name} should be a number, got {number!r}")
    if not math.isfinite(expected):
        raise ValueError(f"expected must be a finite number, got {expected}")
    if not 0 <= tolerance < 1:
        raise ValueError(f"tolerance is relative, between 0 and 1, got {tolerance}")
    for wrong in mistakes:
        if _near(wrong, expected, tolerance):
            raise ValueError(f"mistakes lists {wrong}, which is the right answer {expected}")


def _near(value: float, expected: float, tolerance: float) -> bool:
    return math.isclose(
        value, expected, rel_tol=tolerance, abs_tol=tolerance if not expected else 0
    )


def _real(given: object) -> float | str:
    """The answer as a number, or a sentence about what it is instead."""
    if given is None or given is Ellipsis:
        return "There is no number yet: put your answer in its place."
    if isinstance(given, Tensor) and given.numel() == 1 and not given.is_complex():
        given = given.item()
    elif getattr(given, "shape", None) == () and hasattr(given, "item"):
        given = given.item()  # a numpy scalar
    if isinstance(given, bool):
        return f"A number is asked for; {given} is a truth value."
    if isinstance(given, str):
        return f"A number is asked for, not text: write {given.strip() or 'it'} without quotes."
    if isinstance(given, Tensor):
        return f"One number is asked for; this is a tensor of shape {tuple(given.shape)}."
    if callable(given):
        return "A number is asked for; this is a function. Call it first."
    if not isinstance(given, numbers.Real):
        return f"A number is asked for; this is {kind_of(given)}."
    if not math.isfinite(given):
        return f"A finite number is asked for; this is {given}."
    return int(given) if isinstance(given, numbers.Integral) else float(given)


def _ratio(value: float, expected: float, tolerance: float, unit: str) -> str:
    """What the ratio between the answer and the truth says."""
    near = max(tolerance, 1e-6)
    if not expected:
        return "It should be exactly zero."
    if not value:
        return "It is not zero: is a factor missing or rounded away, as by `//`?"
    ratio = value / expected
    for known, text in {**_ANY_UNIT, **_UNITS.get(unit, {})}.items():
        if math.isclose(ratio, known, rel_tol=near):
            return text
    for size, name in _PREFIXES.items():
        if math.isclose(ratio * size, 1, rel_tol=near):
            return f"Too small by a factor of {name}: write it out in {unit or 'full'}, no prefix."
        if math.isclose(ratio, size, rel_tol=near):
            return f"Too large by a factor of {name}: was a prefix (kilo, mega) counted twice?"
    if ratio < 0:
        return "The sign is wrong, and the size as well."
    power = math.log2(ratio)
    if math.isclose(power, round(power), abs_tol=near) and abs(power) < 40:
        way = "large" if ratio > 1 else "small"
        return f"Too {way} by a factor of {2 ** abs(round(power))}: some factor of two is off."
    return _magnitude(ratio)


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
    """With thousands apart; whole numbers in full."""
    if isinstance(value, int) or float(value).is_integer():
        return f"{int(value):,}"
    return f"{value:,.6g}"
