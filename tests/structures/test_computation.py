"""Computation graphs: tasks against brute force, shapes by hand, errors where they were planted."""

import itertools
import math
import random

import pytest

from attnlab.structures.computation import (
    Computation,
    product,
    relative_information_gain,
    spaced_sum,
)


def digits(number, count):
    return [int(letter) for letter in f"{number:0{count}}"]


@pytest.mark.parametrize(("k", "m"), [(1, 1), (2, 2), (3, 2), (1, 4), (4, 3)])
def test_products_are_right(k, m):
    draw = random.Random(0)
    for _ in range(30):
        a, b = draw.randrange(10**k), draw.randrange(10**m)
        values = product(digits(a, k), digits(b, m)).values
        assert [values[f"digit {place}"] for place in range(k + m)] == digits(a * b, k + m)[::-1]


def test_the_graph_depends_on_the_lengths_alone():
    shapes = {tuple(product(digits(a, 2), digits(99 - a, 2)).steps) for a in range(100)}
    assert len(shapes) == 1


def test_spaced_sums_are_the_best_and_the_least_of_those():
    draw = random.Random(1)
    for _ in range(200):
        values = [draw.randint(-5, 5) for _ in range(draw.randint(1, 7))]
        choices = [
            choice
            for choice in itertools.product((1, 2), repeat=len(values))
            if not any(one == other == 1 for one, other in itertools.pairwise(choice))
        ]
        total = {c: sum(v for v, k in zip(values, c, strict=True) if k == 1) for c in choices}
        largest = max(total.values())
        found = spaced_sum(values).values
        assert found["best 0"] == largest
        chosen = tuple(found[f"chosen {i}"] for i in range(len(values)))
        assert chosen == min(c for c in choices if total[c] == largest)


def small():
    """(2 + 3) · 4, and 2 + 3 once more halved."""
    made = Computation()
    two, three, four = (made.given(name, value) for name, value in (("a", 2), ("b", 3), ("c", 4)))
    total = made.step("sum", lambda x, y: x + y, two, three)
    made.step("product", lambda x, y: x * y, total, four)
    made.step("half", lambda x: x // 2, total)
    return made


def test_shape_by_hand():
    made = small()
    assert made.values == {"a": 2, "b": 3, "c": 4, "sum": 5, "product": 20, "half": 2}
    assert (made.depth, made.width, made.parallelism) == (2, 2, 1.5)
    one = product([7], [8])  # product; last, carry; line; two digits
    assert (one.depth, one.width, one.parallelism) == (4, 2, 1.5)
    made.step("next", abs, "half")
    for name in "xyz":
        made.step(name, abs, "next")
    assert made.width == 1, "layers of 1, 2, 1 and 3 values: most have one"
    assert spaced_sum([1, 2, 3, 4]).depth == 8, "from the end to the beginning, and back"


@pytest.mark.parametrize(
    ("stated", "kinds"),
    [
        ({"sum": 5, "product": 20, "half": 2}, ("correct", "correct", "correct")),
        ({"sum": 6, "product": 24, "half": 3}, ("local", "propagated", "propagated")),
        ({"sum": 6, "product": 20, "half": 9}, ("local", "restored", "local")),
        ({"sum": 4, "product": 20, "half": 2}, ("local", "restored", "restored")),
        ({"sum": 5, "product": 21, "half": 2}, ("correct", "local", "correct")),
        ({"sum": None, "product": 1, "half": 2}, ("local", "local", "restored")),
        ({"a": 3, "sum": 6, "product": 24, "half": 2}, ("propagated", "propagated", "restored")),
    ],
)
def test_errors_by_hand(stated, kinds):
    assert tuple(small().judged(stated).values()) == kinds


def test_a_wrong_step_in_a_long_product_is_the_only_local_error():
    made = product(digits(47, 2), digits(86, 2))
    stated = dict(made.values)
    stated["product 0 0"] += 1
    for name in made.computed:  # everything after it is done rightly, from what is stated
        step = made.steps[name]
        if name != "product 0 0":
            stated[name] = step.rule(*(stated[parent] for parent in step.parents))
    found = made.judged(stated)
    assert [name for name, kind in found.items() if kind == "local"] == ["product 0 0"]
    assert found["digit 0"] == "propagated"
    assert found["product 1 1"] == "correct"


def test_what_few_digits_tell_of_a_product():
    pairs = list(itertools.product(range(10, 100), repeat=2))
    products = [digits(a * b, 4) for a, b in pairs]

    def gain(of, place):
        return relative_information_gain([of(a, b) for a, b in pairs], [p[place] for p in products])

    def last(a, b):
        return a % 10, b % 10

    def first(a, b):
        return a // 10, b // 10

    assert math.isclose(gain(last, 3), 1)
    assert 0.5 < gain(first, 0) < 1
    assert gain(last, 1) < 0.1


def test_information_by_hand():
    assert relative_information_gain("aabb", "0011") == pytest.approx(1)
    assert relative_information_gain("abab", "0011") == pytest.approx(0)
    assert relative_information_gain("aaab", "0011") == pytest.approx(
        1 - 0.75 * (math.log(3) - 2 / 3 * math.log(2)) / math.log(2)
    )


def test_bad_calls():
    made = small()
    with pytest.raises(ValueError, match="should be named before it, at least one"):
        made.step("new", lambda x: x, "nobody")
    with pytest.raises(ValueError, match="a value named 'sum' already"):
        made.given("sum", 3)
    with pytest.raises(ValueError, match="'half' is missing"):
        made.judged({"sum": 5, "product": 20})
    with pytest.raises(ValueError, match="'other' is unknown"):
        made.judged({**made.values, "other": 1})
    with pytest.raises(ValueError, match="a should be decimal digits, at least one"):
        product([], [1])
    with pytest.raises(ValueError, match="b should be decimal digits"):
        product([1], [10])
    with pytest.raises(TypeError, match="values"):
        spaced_sum([1.5])
    with pytest.raises(ValueError, match="values should hold one number at least"):
        spaced_sum([])
    with pytest.raises(ValueError, match="samples that belong together, got 2 and 1"):
        relative_information_gain("ab", "0")
    with pytest.raises(ValueError, match="y is always the same"):
        relative_information_gain("ab", "00")
