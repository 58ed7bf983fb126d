r"""The computation of an answer as a graph: how deep it is, how wide, and where it went wrong.

Each node is a value, and the edges lead to it from the values that it is computed from. The inputs
of a task have no parents. A model that writes down its steps (a scratchpad) states a value for
every node, and where the graph is known each stated value can be judged:

    correct      the right value, from parents that are stated rightly
    restored     the right value, although a parent is stated wrongly
    local        not what its stated parents give: the step itself is wrong
    propagated   what its stated parents give, but they are wrong

So a wrong answer of a chain of right steps is told from one of a single wrong step. If each step
went wrong independently with probability e, an answer of depth d would be right with probability
$(1 - e)^d$ at most, which is what one deep graph costs beside a shallow one.

The **depth** is the number of edges on the longest path from an input. Nodes that are as far from
the inputs form a layer; the **width** is the size that most layers have, and the **average
parallelism** the number of computed nodes over the depth.

``product`` and ``spaced_sum`` are two tasks with their graphs. All steps are nodes, also a carry
that is 0, so the graph of a task depends on the length of its inputs only.

Dziri et al. Faith and Fate: Limits of Transformers on Compositionality. NeurIPS 2023,
arXiv:2305.18654, sections 2 and 3.
"""

from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from attnlab.core.integers import check_integer

KINDS = ("correct", "restored", "local", "propagated")


class Step(NamedTuple):
    """How a value is computed."""

    parents: tuple[str, ...]
    rule: Callable[..., int]
    """From the values of the parents."""
    value: int
    depth: int


@dataclass(eq=False)
class Computation:
    """A graph that grows: ``given`` names an input, ``step`` a value computed from earlier ones."""

    steps: dict[str, Step] = field(default_factory=dict)
    """Name → step, in an order in which they can be computed."""

    def given(self, name: str, value: int) -> str:
        """Add an input; its name."""
        return self._add(name, (), lambda: value, value, 0)

    def step(self, name: str, rule: Callable[..., int], *parents: str) -> str:
        """Add a value computed by ``rule`` from those of ``parents``; its name."""
        missing = [parent for parent in parents if parent not in self.steps]
        if missing or not parents:
            raise ValueError(
                f"the parents of {name!r} should be named before it, at least one, got {parents}"
            )
        known = [self.steps[parent] for parent in parents]
        value = rule(*(parent.value for parent in known))
        return self._add(name, parents, rule, value, 1 + max(parent.depth for parent in known))

    def _add(
        self, name: str, parents: tuple[str, ...], rule: Callable[..., int], value: int, depth: int
    ) -> str:
        if name in self.steps:
            raise ValueError(f"there is a value named {name!r} already")
        self.steps[name] = Step(parents, rule, value, depth)
        return name

    @property
    def values(self) -> dict[str, int]:
        """The right value of each node."""
        return {name: step.value for name, step in self.steps.items()}

    @property
    def computed(self) -> list[str]:
        """The nodes that are no inputs."""
        return [name for name, step in self.steps.items() if step.parents]

    @property
    def depth(self) -> int:
        return max((step.depth for step in self.steps.values()), default=0)

    @property
    def width(self) -> int:
        """The size that most layers of computed nodes have; of equally many the larger one."""
        layers = Counter(self.steps[name].depth for name in self.computed)
        sizes = Counter(layers.values())
        return max(sizes, key=lambda size: (sizes[size], size), default=0)

    @property
    def parallelism(self) -> float:
        """The computed nodes over the depth: the steps that could be done at a time."""
        return len(self.computed) / self.depth if self.depth else 0.0

    def judged(self, stated: Mapping[str, int]) -> dict[str, str]:
        """The kind (of ``KINDS``) of each computed node, as its value is stated.

        ``stated`` has a value for each computed node; one that was not stated is None. Inputs may
        be stated too, as a model has copied them; those left out count as copied rightly. Raises
        a ValueError where a computed node is missing or a name is unknown.
        """
        unknown = [name for name in stated if name not in self.steps]
        missing = [name for name in self.computed if name not in stated]
        if unknown or missing:
            which = f"{missing[0]!r} is missing" if missing else f"{unknown[0]!r} is unknown"
            raise ValueError(f"stated should have a value for each computed node, but {which}")
        said = {**self.values, **stated}
        right = {name: said[name] == step.value for name, step in self.steps.items()}
        return {name: self._kind(name, said, right) for name in self.computed}

    def _kind(self, name: str, said: Mapping[str, int], right: Mapping[str, bool]) -> str:
        step = self.steps[name]
        sound = all(right[parent] for parent in step.parents)
        if right[name]:
            return "correct" if sound else "restored"
        from_stated = [said[parent] for parent in step.parents]
        follows = None not in from_stated and said[name] == step.rule(*from_stated)
        return "propagated" if follows else "local"


def product(a: Sequence[int], b: Sequence[int]) -> Computation:
    """Multiply two numbers, given as their decimal digits from the most significant, as one does by
    hand: ``"digit 0"`` is the last digit of the result.

    For each digit of b, from the last, all digits of a are multiplied by it with carries, the
    digits become a number, and the numbers are added up, each shifted by its place.
    """
    digits = [_digits(name, given) for name, given in (("a", a), ("b", b))]
    made = Computation()
    first, second = (
        [made.given(f"{name} {place}", digit) for place, digit in enumerate(reversed(of))]
        for name, of in zip("ab", digits, strict=True)
    )
    total = ""
    for j, right in enumerate(second):
        row, carry = list[str](), ""
        for i, left in enumerate(first):
            whole = made.step(f"product {i} {j}", lambda x, y: x * y, left, right)
            if carry:
                whole = made.step(f"sum {i} {j}", lambda x, y: x + y, whole, carry)
            row.append(made.step(f"last {i} {j}", lambda x: x % 10, whole))
            carry = made.step(f"carry {i} {j}", lambda x: x // 10, whole)
        line = made.step(f"line {j}", _number, *row, carry)
        if not total:
            total = line
            continue
        total = made.step(f"total {j}", lambda x, y, j=j: x + y * 10**j, total, line)
    for place in range(len(first) + len(second)):
        made.step(f"digit {place}", lambda x, place=place: x // 10**place % 10, total)
    return made


def spaced_sum(values: Sequence[int]) -> Computation:
    """Choose numbers of a list, no two of them neighbours, so that their sum is largest: ``"best
    i"`` is the largest sum of the numbers from i on, ``"chosen i"`` is 1 for a chosen number and 2
    for another one, as in the paper. Of several choices it is the lexicographically least.
    """
    given = [check_integer("values", value) for value in values]
    if not given:
        raise ValueError("values should hold one number at least")
    made = Computation()
    numbers = [made.given(f"value {i}", value) for i, value in enumerate(given)]
    n = len(numbers)
    best = dict[int, str]()
    for i in reversed(range(n)):
        later = [best[k] for k in (i + 1, i + 2) if k in best]
        best[i] = made.step(f"best {i}", _best, numbers[i], *later)
    chosen = ""
    for i in range(n):
        parents = [numbers[i], best[i], *([best[i + 2]] if i + 2 in best else [])]
        if chosen:
            chosen = made.step(f"chosen {i}", _chosen_after, chosen, *parents)
        else:
            chosen = made.step(f"chosen {i}", _chosen, *parents)
    return made


def relative_information_gain(x: Sequence[Hashable], y: Sequence[Hashable]) -> float:
    r"""How much of y is known once x is: $(H(Y) - H(Y | X)) / H(Y)$, from 0 to 1.

    x and y are as many samples of two variables, of which ``x[i]`` and ``y[i]`` belong together.
    Where the last digit of a product is 1 for its factors' last digits, a model can be right about
    it without multiplying. From few samples of an x with many values it comes out too large.
    """
    if len(x) != len(y) or not len(x):
        raise ValueError(
            f"x and y should be samples that belong together, got {len(x)} and {len(y)}"
        )
    whole = _entropy(y)
    if whole == 0:
        raise ValueError("y is always the same, so nothing is to be known about it")
    conditional = _entropy(list(zip(x, y, strict=True))) - _entropy(x)
    return float((whole - conditional) / whole)


def _entropy(samples: Sequence[Hashable]) -> float:
    shares = np.array(sorted(Counter(samples).values())) / len(samples)
    return float(-(shares * np.log(shares)).sum())


def _digits(name: str, given: Sequence[int]) -> list[int]:
    found = [check_integer(f"the digits of {name}", digit, at_least=0) for digit in given]
    if not found or max(found) > 9:
        raise ValueError(f"{name} should be decimal digits, at least one, got {list(given)}")
    return found


def _number(*digits: int) -> int:
    return sum(digit * 10**place for place, digit in enumerate(digits))


def _best(value: int, following: int = 0, after: int = 0) -> int:
    return max(following, value + after)


def _chosen(value: int, best: int, after: int = 0) -> int:
    return 1 if best == value + after else 2


def _chosen_after(before: int, value: int, best: int, after: int = 0) -> int:
    return 2 if before == 1 else _chosen(value, best, after)
