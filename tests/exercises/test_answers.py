"""Numeric answers: what the ratio to the truth gives away."""

from fractions import Fraction

import numpy as np
import pytest
import torch

from attnlab.exercises import Verdict, check_number

CACHE = 2 * 7 * 11 * 13 * 4  # keys and values, g = 7, m = 11, d = 13, float32


@pytest.mark.parametrize(
    "given",
    [CACHE, float(CACHE), torch.tensor(CACHE), torch.tensor([float(CACHE)]), np.int64(CACHE),
     np.float32(CACHE), Fraction(CACHE), CACHE * (1 + 1e-9)],
)  # fmt: skip
def test_any_real_number_will_do(given: object) -> None:
    verdict = check_number(given, CACHE, unit="bytes")
    assert verdict.right, verdict.message
    assert verdict.message == "8,008 bytes."


WRONG = {
    "elements": (CACHE / 4, "bytes", "number of elements: each float32 takes 4 bytes"),
    "half": (CACHE / 2, "bytes", "keys counted without values"),
    "bits": (CACHE * 8, "bytes", "Those are bits: 8 of them make a byte"),
    "bits of elements": (CACHE * 32, "bytes", "the number of bits"),
    "bytes for bits": (CACHE / 8, "bits", "Those are bytes: each has 8 bits"),
    "bytes for elements": (CACHE * 4, "elements", "Those are bytes: a float32 element"),
    "two-byte elements": (CACHE * 2, "elements", "2-byte elements"),
    "four times": (CACHE * 4, "bytes", "multiplied by 4 once more"),
    "twice bytes": (CACHE * 2, "bytes", "bytes per element taken too large"),
    "multiply-add": (CACHE / 2, "FLOPs", "a multiply-add counts as two FLOPs."),
    "multiply-add twice": (CACHE * 2, "FLOPs", "was the factor 2 used twice"),
    "twice": (CACHE * 2, "", "was something counted twice"),
    "half of it": (CACHE / 2, "", "does something occur twice that was counted once"),
    "sixteen": (CACHE * 16, "", "large by a factor of 16: some factor of two"),
    "a 64th": (CACHE / 64, "", "small by a factor of 64: some factor of two"),
    "kilobytes": (CACHE / 1000, "bytes", "factor of a thousand: write it out in bytes"),
    "kibibytes": (CACHE / 1024, "bytes", "factor of 1024: write it out in bytes"),
    "mebibytes": (CACHE / 1024**2, "bytes", "factor of 1024²"),
    "times thousand": (CACHE * 1000, "", "was a prefix (kilo, mega) counted twice"),
    "ten": (CACHE * 10, "", "by a factor of 10: count the zeros"),
    "hundredth": (CACHE / 100, "", "small by a factor of 100: count the zeros"),
    "far off": (CACHE * 700, "", "the order of magnitude is wrong, by about 10^3"),
    "three": (CACHE * 3, "", "large, by a factor of about 3.0"),
    "a third": (CACHE / 3, "", "small, by a factor of about 3.0"),
    "one more": (CACHE + 1, "", "One too many: what is counted"),
    "two fewer": (CACHE - 2, "", "Two too few: what is left out"),
    "a fraction": (CACHE - 0.5, "", "The answer is a whole number"),
    "close": (CACHE * 1.04, "", "by a few per cent"),
    "sign": (-CACHE, "", "The sign is wrong."),
    "sign and size": (-3 * CACHE, "", "and so is the size"),
    "zero": (0, "", "It is not zero"),
    "none": (None, "", "There is no number yet"),
    "dots": (..., "", "There is no number yet"),
    "text": ("8008", "", "not text: write 8008 without quotes"),
    "truth value": (True, "", "True is a truth value"),
    "infinity": (float("inf"), "", "A finite number"),
    "not a number": (float("nan"), "", "this is nan"),
    "tensor": (torch.zeros(2, 3), "", "tensor of shape (2, 3)"),
    "list": ([CACHE], "", "this is a list"),
    "complex": (1j, "", "this is a complex"),
    "function": (len, "", "Call it first"),
    "beyond floats": (10**400, "", "does not even fit into a float"),
    "out of range": (5e-324, "", "order of magnitude is wrong, by more than a float"),
    "meta": (torch.zeros((), device="meta"), "", "tensor of shape ()"),
}


@pytest.mark.parametrize(("given", "unit", "words"), WRONG.values(), ids=WRONG)
def test_mistakes_by_name(given: object, unit: str, words: str, refuses) -> None:  # type: ignore[no-untyped-def]
    refuses(check_number(given, CACHE, unit=unit), words)


def test_messages_differ() -> None:
    messages = {check_number(given, CACHE, unit=unit).message for given, unit, _ in WRONG.values()}
    assert len(messages) == len(WRONG) - 1  # None and ... are the same empty place


def test_listed_mistakes_come_first() -> None:
    verdict = check_number(CACHE / 2, CACHE, unit="bytes", mistakes={CACHE / 2: "Only the keys."})
    assert verdict == Verdict(False, "4,004 bytes: only the keys.")


def test_the_tolerance_is_relative() -> None:
    assert check_number(1.04e9, 1e9, tolerance=0.05)
    assert not check_number(1.06e9, 1e9, tolerance=0.05)
    assert not check_number(1e-9, 2e-9, tolerance=0.05)
    assert check_number(1e-9, 0)
    assert "exactly zero" in check_number(1, 0).message


@pytest.mark.parametrize("given", [0.066, 0.0663, 0.06633, np.float32(13 / 196)])
def test_a_sensibly_rounded_answer_is_right(given: object) -> None:
    assert check_number(given, 13 / 196).right


@pytest.mark.parametrize(("given", "expected"), [(0.07, 13 / 196), (0.0664, 13 / 196), (49, 48)])
def test_too_few_digits_wrong_ones_and_whole_numbers_are_not(given: float, expected: float) -> None:
    assert not check_number(given, expected).right
    assert not check_number(0.066, 13 / 196, mistakes={0.066: "The listed one."}, tolerance=0).right


def test_a_ratio_beyond_floats() -> None:
    assert "more than a float can hold" in check_number(1e300, 1e-300).message
    assert "more than a float can hold" in check_number(1e-300, 1e300).message


@pytest.mark.parametrize(
    ("expected", "options", "words"),
    [
        (None, {}, "expected should be a finite number, got None"),
        ("3", {}, "expected should be a finite number, got '3'"),
        (3.0, {"tolerance": "a"}, "tolerance should be a finite number, got 'a'"),
        (3.0, {"unit": ["bytes"]}, "unit should be a word"),
        (3.0, {"mistakes": [1.0]}, "mistakes should be a dict from numbers to sentences"),
        (3.0, {"mistakes": {1.0: ""}}, "mistakes should be a dict from numbers to sentences"),
        (3.0, {"mistakes": {"a": "b"}}, "a mistake should be a finite number, got 'a'"),
    ],
)
def test_an_exercise_of_the_wrong_types_is_refused(
    expected: object, options: dict, words: str
) -> None:
    with pytest.raises(TypeError, match=words):
        check_number(3.0, expected, **options)


@pytest.mark.parametrize(
    ("expected", "options", "words"),
    [
        (float("nan"), {}, "finite"),
        (10**400, {}, "expected should be a finite number"),
        (3.0, {"tolerance": 1.0}, "relative"),
        (3.0, {"mistakes": {3.0: "three"}}, "the right answer"),
    ],
)
def test_a_wrong_exercise_is_refused(expected: float, options: dict, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        check_number(3.0, expected, **options)
