"""A primitive is defined in one place; names, code, help and the page's data follow from it."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated

import numpy as np
import pytest
import torch
from torch import Tensor

from attnlab.core import patterns
from attnlab.core.patterns import Argument, Pattern, Primitive, by_distance, primitives, read
from attnlab.core.patterns.formulas import value
from attnlab.core.patterns.primitives import for_page
from attnlab.core.patterns.shorthands import Shorthand
from attnlab.core.sparse.blocked import blocked
from attnlab.mechanisms.dense import multi_query
from attnlab.mechanisms.dense.flash import tiled
from attnlab.mechanisms.dense.full import fused, naive

EXAMPLES = [
    *("full()", "causal()", "local(0)", "local(3)", "strided(4)", "summaries(5, 2)", "prefix(4)"),
    *("summaries(6, 2, 3)", 'places([0, -2], of="row")', 'places([], of="row")'),
    *('places([3, -1], of="column")', 'edges(2, 1, of="row")', 'edges(0, 3, of="column")'),
    *('edges(0, 0, of="column")', "local_2d((3, 4), 1)", "axial((3, 4), 0)", "axial((3, 4), -1)"),
    *("axial((2, 3, 2), 1)",),
]


@dataclass(frozen=True, repr=False)
class Ring(Primitive):
    """Positions stand in a circle of ``size``; each sees its neighbours within ``radius``."""

    size: Annotated[int, Argument("whole", at_least=1, start=5)]
    radius: Annotated[int, Argument("whole", at_least=0, optional=True)] = 1
    says = "each position attends to {radius} on either side in a circle of {size}"
    rule = "((i - j) % size <= radius) | ((j - i) % size <= radius)"
    invalid = (("radius > size", "a radius of {radius} is more than the circle of {size}"),)
    misfit = (("n % size > 0", "{n} positions are no whole circles of {size}"),)
    remark = (("n == size", "all {n} positions are in one circle"),)


@pytest.fixture
def ring(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(by_distance, "Ring", Ring, raising=False)


@pytest.mark.usefixtures("ring")
def test_a_new_primitive_is_known_everywhere() -> None:
    pattern = Ring(6)
    assert primitives()["ring"] is Ring
    assert read("ring(6)") == read("ring(size=6, radius=1)") == pattern
    assert (pattern.code, pattern.key, repr(Ring(6, 2))) == ("ring(6)", "ring(6)", "ring(6, 2)")
    assert pattern.description == "each position attends to 1 on either side in a circle of 6"
    assert pattern.dense(6)[0].int().tolist() == [1, 1, 0, 0, 0, 1]
    assert list((~pattern.blocks(2)).remarks(12)) == ["all 6 positions are in one circle"]
    data = next(one for one in for_page() if one["name"] == "ring")
    assert data["rule"] == Ring.rule
    assert data["arguments"][0] == {"name": "size", "kind": "whole", "at_least": 1, "start": 5}
    with pytest.raises(ValueError, match="did you mean 'ring'"):
        read("rink(6)")
    with pytest.raises(ValueError, match="size should be at least 1, got 0"):
        Ring(0)
    with pytest.raises(ValueError, match="a radius of 7 is more than the circle of 6"):
        read("ring(6, 7)")
    with pytest.raises(ValueError, match="7 positions are no whole circles of 6"):
        pattern.dense(7)


def test_a_name_that_is_defined_anew_is_read_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(by_distance, "Ring", Ring, raising=False)
    assert read("ring(6)").dense(6).sum() == 18

    @dataclass(frozen=True, repr=False)
    class Other(Ring):
        rule = "(i - j) % size == 0"

    Other.name = "ring"
    monkeypatch.setattr(by_distance, "Ring", Other)
    assert read("ring(6)").dense(6).sum() == 6


def test_every_primitive_is_a_function_of_the_package() -> None:
    for name, made in primitives().items():
        assert name in patterns.__all__, f"attnlab.core.patterns should export {name}"
        assert getattr(patterns, name) in (made, patterns.full)
        assert made.__doc__


def test_the_examples_are_of_every_primitive_that_a_rule_describes() -> None:
    ruled = {name for name, made in primitives().items() if isinstance(made, type) and made.rule}
    assert {re.match(r"\w+", code)[0] for code in EXAMPLES} == ruled - {"random"}  # type: ignore[index]


@pytest.mark.parametrize("code", EXAMPLES)
def test_the_rule_allows_what_the_pattern_allows(code: str) -> None:
    pattern, n = read(code), 12
    assert isinstance(pattern, Primitive)
    names = vars(pattern) | {"n": n}
    ruled = [[value(pattern.rule, names | {"i": i, "j": j}) for j in range(n)] for i in range(n)]  # type: ignore[arg-type]
    assert torch.equal(pattern.dense(n), torch.tensor(ruled, dtype=torch.bool))
    assert pattern.code == code


def test_every_shorthand_is_made_of_others() -> None:
    found = {name for name, made in primitives().items() if isinstance(made, Shorthand)}
    assert found == {"block_diagonal", "blocks", "dilated", "fixed", "global_", "hub"}
    assert patterns.dilated(2, 3) == patterns.local(6) & patterns.strided(3)
    assert patterns.fixed(4) == patterns.local(0).blocks(4) | patterns.summaries(4)
    assert patterns.hub(3) == patterns.global_([3])
    assert patterns.blocks(4, patterns.local(1)) == patterns.local(1).blocks(4)


def test_integers_of_numpy_are_kept_as_integers() -> None:
    pattern = patterns.local(np.int64(3)) | patterns.global_(np.array([0, -1]))
    assert pattern == read("local(3) | global_([0, -1])")
    assert type(pattern.left.left.radius) is int  # type: ignore[attr-defined]
    assert patterns.axial((np.int32(2), 3), np.int8(1)) == patterns.axial((2, 3), 1)
    assert patterns.global_(torch.tensor([4, 2])) == patterns.global_([4, 2])


def numbers() -> list[object]:
    return [1.7, 1.0, float("nan"), True, None, "2", [2], 10**20, torch.tensor(2.0), np.float64(2)]


@pytest.mark.parametrize("wrong", numbers(), ids=repr)
@pytest.mark.parametrize("name", sorted(primitives()))
def test_what_is_no_size_is_refused_in_a_sentence(name: str, wrong: object) -> None:
    """Each argument of each primitive in turn, the others as a menu begins with them."""
    made = primitives()[name]
    starts = {key: _start(argument) for key, argument in made.arguments.items()}
    assert isinstance(made(**starts), Pattern)
    for key, argument in made.arguments.items():
        if wrong == [2] and argument.kind in ("positions", "grid"):
            continue
        with pytest.raises((TypeError, ValueError), match=r"should be|are of a|has no axis"):
            made(**(starts | {key: wrong}))


def _start(argument: Argument) -> object:
    if argument.kind == "grid":
        return (3, 4)
    if argument.kind == "pattern":
        return patterns.full()
    if argument.start is not None:
        return argument.start
    return argument.default if isinstance(argument.default, int) else argument.at_least


def two() -> Pattern:
    return patterns.per_head(patterns.local(1), patterns.causal())


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: patterns.global_([1.7]), "a position should be a whole number, got 1.7"),
        (lambda: patterns.global_("12"), "positions should be a list such as .*, got '12'"),
        (lambda: patterns.global_([True]), "a position should be a whole number, got True"),
        (lambda: patterns.global_(range(10**12)), "at most .* got 1,000,000,000,000"),
        (lambda: patterns.blocks(2, 5), "of should be a pattern, got 5"),
        (lambda: patterns.random(3, among=patterns.local), "among should be a pattern to draw"),
        (lambda: patterns.causal().density(0), "at least one query and one key, got n=0"),
        (lambda: patterns.causal().count(-3), "at least one query and one key, got n=-3"),
        (lambda: patterns.causal().count(2.5), "n should be a whole number, got 2.5"),
        (lambda: patterns.causal().dense(True), "n should be a whole number, got True"),
        (lambda: patterns.causal().dense(10**6), "1,000,000 × 1,000,000 is too large"),
        (lambda: patterns.causal().row(0, "a"), "n should be a whole number, got 'a'"),
        (lambda: patterns.causal().cover([0, 1], range(3)), r"should be a range.*got \[0, 1\]"),
        (lambda: patterns.causal().cover(range(0), range(3)), "not be empty"),
        (lambda: patterns.causal().block(range(3, 0, -1), range(3)), "should count upwards"),
        (lambda: two() & patterns.per_head(patterns.full()), "for 2 heads and one for 1"),
        (lambda: two().of_head(2), "there is no head 2: the pattern is for 2"),
        (lambda: patterns.local(2) & 3, "a pattern is joined with patterns, got int"),
        (lambda: patterns.local(2) | torch.ones(2, 2).bool(), "joined with patterns, got Tensor"),
        (lambda: 3 | patterns.local(2), "joined with patterns, got int"),
        (lambda: patterns.local(2) and patterns.causal(), "neither true nor false"),
        (lambda: patterns.receptive_field([3], 4, 2), "computed from patterns, got 3"),
        (lambda: patterns.receptive_field(patterns.local(1), 4, 2, residual="no"), "True or Fa"),
        (lambda: patterns.places([2**40], "row").cover(range(2), range(2)), "is too large"),
        (lambda: read(5), "the code of a pattern, a text, got 5"),
        (lambda: read("|".join(["hub()"] * 3000)), "more than 320 parts stand inside one another"),
        (lambda: read("~" * 5000 + "full()"), "more than 320 parts stand inside one another"),
        (lambda: read("(" * 900 + "full()" + ")" * 900), "too many nested parentheses"),
        (lambda: read("full()" + ".blocks(2)" * 400), "more than 320 parts"),
        (lambda: read("local(**{})"), "cannot contain"),
        (lambda: read("local(" + "9" * 5000 + ")"), "cannot read the pattern"),
        (lambda: read("\0"), "cannot read the pattern"),
        (lambda: read("local()"), "local: missing a required argument"),
    ],
)
def test_bad_input_is_answered_with_a_sentence(call: object, words: str) -> None:
    with pytest.raises((TypeError, ValueError), match=words):
        call()  # type: ignore[operator]


@pytest.mark.parametrize("form", [naive, fused, tiled, multi_query.naive, blocked])
def test_a_pattern_for_other_heads_is_refused_by_every_form(form: Callable[..., Tensor]) -> None:
    q, k, v = (torch.randn(2, 3, 7, 5) for _ in range(3))
    for pattern in (two(), ~two() | patterns.causal(), two().blocks(2)):
        with pytest.raises(ValueError, match="the pattern is for 2 heads, but there are 3"):
            form(q, k, v, **{"pattern" if form is blocked else "mask": pattern})


def test_a_long_expression_is_still_read() -> None:
    pattern = read(" | ".join(f"places([{i}], of='row')" for i in range(300)))
    assert pattern.dense(301).sum() == 300 * 301
    assert read(pattern.code) == pattern


def test_numbers_far_beyond_the_sequence_are_legal() -> None:
    far = 10**15
    for pattern in (patterns.strided(far), patterns.summaries(far), patterns.random(far)):
        assert isinstance(pattern.count(5), int)
    assert patterns.hub().blocks(far).count(5) == 25
    assert patterns.local(1).shifted(far).count(5) == 0


def test_a_primitive_without_rule_stays_off_the_page(monkeypatch: pytest.MonkeyPatch) -> None:
    @dataclass(frozen=True, repr=False)
    class Mirror(Primitive):
        """i sees −i."""

        says = "each position attends to its mirror image"

        def allows(self, i: Tensor, j: Tensor) -> Tensor:
            return i == -j

    monkeypatch.setattr(by_distance, "Mirror", Mirror, raising=False)
    assert read("mirror()").dense(3).sum() == 1
    assert "mirror" not in {one["name"] for one in for_page()}
