"""Bad arguments of what measures: each is refused in a sentence that says what was expected."""

import math

import numpy as np
import pytest
import torch

from attnlab.measure.benchmarks.kernelized import crossover
from attnlab.measure.count import count, exponent
from attnlab.measure.memory import resident
from attnlab.measure.timing import compare, quartiles, thread_count
from tools.notebooks import find


def square(x):
    return x @ x


def one():
    return 1


REFUSED = [
    (lambda: count(square(torch.ones(3, 3))), "count needs a function"),
    (lambda: count(None), "count needs a function"),
    (lambda: count(square, torch.ones(3, 3), backward=1), "`backward` should be True or False"),
    (lambda: count(square, torch.ones(3, 3), backward=np.ones(2)), "`backward` should be True"),
    (lambda: exponent(3, [1, 2]), "sizes should be a list of numbers, got 3"),
    (lambda: exponent("12", [1, 2]), "sizes should be a list of numbers, got '12'"),
    (lambda: exponent([1, 2], ["1", "2"]), "values should hold finite numbers, got '1'"),
    (lambda: exponent([1, 2], [1, math.nan]), "values should hold finite numbers, got nan"),
    (lambda: exponent([1, math.inf], [1, 2]), "sizes should hold finite numbers, got inf"),
    (lambda: exponent([True, 2], [1, 2]), "sizes should hold finite numbers, got True"),
    (lambda: compare([one]), "a dict from names to functions"),
    (lambda: compare({"one": 1}), "a dict from names to functions"),
    (lambda: compare({"one": one}, repeats=1.5), "repeats should be a whole number, got 1.5"),
    (lambda: compare({"one": one}, repeats=0), "repeats should be at least 1, got 0"),
    (lambda: compare({"one": one}, repeats=10**12), "repeats should be at most 100,000"),
    (lambda: compare({"one": one}, warmup=-1), "warmup should be at least 0, got -1"),
    (lambda: compare({"one": one}, threads=0), "threads should be at least 1, got 0"),
    (lambda: compare({"one": one}, baseline=["one"]), "baseline should be one of one"),
    (lambda: thread_count("2").__enter__(), "threads should be a whole number, got '2'"),
    (lambda: quartiles([]), "at least one value"),
    (lambda: crossover([1, 2], [0.5]), "one ratio for each length, got 1 for 2"),
    (lambda: resident(one), "`call` should be Python source as text, got function"),
    (lambda: resident("1", threads=0.5), "threads should be a whole number, got 0.5"),
    (lambda: find("notebooks"), "`paths` should be a list of files and folders"),
    (lambda: find([3]), "`paths` should be a list of files and folders"),
]


@pytest.mark.parametrize(("call", "words"), REFUSED, ids=[words for _, words in REFUSED])
def test_a_bad_argument_is_refused(call, words):
    with pytest.raises((TypeError, ValueError), match=words):
        call()
