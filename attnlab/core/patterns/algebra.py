"""The class of all patterns, and how ``&``, ``|`` and ``~`` compose them."""

import copy
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterator
from dataclasses import Field, dataclass, field, replace
from typing import Any, ClassVar, ParamSpec, Self, get_args, get_type_hints

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from attnlab.core.integers import check_integer
from attnlab.core.patterns.arguments import REQUIRED, Argument, size
from attnlab.core.patterns.formulas import FUNCTIONS, Cases, filled, first_match, function, of_self
from attnlab.core.patterns.intervals import Coverage, Intervals, check_range
from attnlab.core.patterns.receptive_field import ReceptiveField, receptive_field

P = ParamSpec("P")

LARGEST_MASK = 2**31
"""The most pairs of a dense mask. It then takes 2 GiB, and 16 GiB while it is computed."""

LONGEST = 2**27
"""The most rows or columns of a mask, and the most positions whose pairs are counted."""

Cover = bool | None
"""True: all pairs of a block are allowed. False: none. None: mixed, or not known without looking
at the pairs."""


@dataclass(frozen=True)
class Order:
    """An order of the queries that puts queries with similar keys side by side.

    ``runs`` are the positions, one run after the other. No block of queries spans two runs; queries
    in no run attend to no key. Orders of equal names are equal.
    """

    name: Hashable
    runs: tuple[Tensor, ...] = field(compare=False)


class Pattern(ABC):
    """Which query may attend to which key. ``description`` is a sentence, ``code`` the expression.

    A primitive defines ``allows``, for single pairs, and ``covers``, for blocks of pairs; the rest
    follows.
    """

    description: str
    code: str

    @abstractmethod
    def allows(self, i: Int[Tensor, "..."], j: Int[Tensor, "..."]) -> Bool[Tensor, "..."]:
        """Whether the query at position i may attend to the key at position j.

        The answer can be broadcast with i and j; where it depends on one alone, it may have the
        shape of that one. A pattern that differs between heads or between sequences puts a head
        axis, or a batch and a head axis, in front.
        """

    def covers(self, rows: Intervals, columns: Intervals) -> Coverage:
        """For each block of pairs, whether all, some or none are allowed; blocks are broadcast."""
        unknown = torch.ones_like(rows.first + columns.first, dtype=torch.bool)
        return Coverage(~unknown, unknown)

    def sized(self, m: int) -> "Pattern":
        """The pattern for sequences of m positions; the same object unless it depends on m."""
        return self

    def order(self, m: int) -> Order | None:
        """An order of the queries in which the mask has dense blocks; None for the natural one."""
        return None

    def alternatives(self) -> Iterator["Pattern"]:
        """Patterns whose union is this one; each may have an order of its own."""
        yield self

    def of_head(self, head: int) -> "Pattern":
        """The pattern of one head; the same pattern unless heads differ."""
        return self

    def heads(self) -> int | None:
        """How many heads it is for; None where all heads have the same pattern."""
        return None

    def refuse_misfit(self, m: int, b: int | None = None, heads: int | None = None) -> None:
        """A ValueError if it is made for another number of keys, sequences or heads."""
        return None

    def remarks(self, m: int) -> Iterator[str]:
        """Sentences about allowed arguments that have a surprising effect at m positions."""
        yield from ()

    @property
    def key(self) -> str:
        """A text from which ``reading.read`` gives an equal pattern in this process."""
        return self.code

    # ---- methods that follow from these

    def to(self, device: torch.device) -> "Pattern":
        """The same pattern with what it looks up on that device; to ask pairs of it there."""
        held = {k: v.to(device) for k, v in vars(self).items() if isinstance(v, Tensor | Pattern)}
        moved = copy.copy(self)
        vars(moved).update(held)
        return moved

    def cover(self, rows: range, columns: range) -> Cover:
        """Full (True), empty (False) or mixed (None) on positions ``rows`` × ``columns``."""
        coverage = self.covers(Intervals.of(rows), Intervals.of(columns))
        if coverage.every:
            return True
        return None if coverage.some else False

    def dense(
        self, n: int, m: int | None = None, device: torch.device | str | None = None
    ) -> Bool[Tensor, "... n m"]:
        """The mask of n queries, which are the last of m positions (by default m = n)."""
        n, m = _lengths(n, m)
        _refuse_too_large(n, m)  # before what is drawn for so many positions
        self.refuse_misfit(m)
        device = check_device(device)
        i, j = (torch.arange(first, m, device=device) for first in (m - n, 0))
        return self.sized(m)._mask(i, j)

    def block(
        self, rows: range, columns: range, device: torch.device | str | None = None
    ) -> Bool[Tensor, "... n m"]:
        """The mask of the pairs ``rows`` × ``columns``, both given as positions."""
        check_range("rows", rows)
        check_range("columns", columns)
        device = check_device(device)
        _refuse_too_large(len(rows), len(columns))
        i = torch.arange(rows.start, rows.stop, rows.step, device=device)
        j = torch.arange(columns.start, columns.stop, columns.step, device=device)
        return self._mask(i, j)

    def _mask(self, i: Tensor, j: Tensor) -> Bool[Tensor, "... n m"]:
        """The mask of the pairs of positions; their number may be any while a program is exported,
        so that it is never asked for as an ``int``."""
        allowed = self.allows(i[:, None], j[None, :])
        return allowed.expand(*allowed.shape[:-2], i.shape[0], j.shape[0])

    def causal(self) -> "Pattern":
        """The allowed pairs with j ≤ i: no key after the query's own position."""
        return self & Causal()

    def blocks(self, size: int) -> "Pattern":
        """The pattern between blocks: i attends to j if the pattern allows i's block and j's
        block."""
        return Blocks(self, size)

    def shifted(self, start: int) -> "Pattern":
        """The pattern moved to begin at position ``start``; no pair before it is allowed."""
        shifted = Shifted(self, start)
        return shifted if shifted.start else self

    def row(self, i: int, n: int) -> Int[Tensor, "keys"]:
        """The keys, of n, that the query at position i may attend to."""
        n = check_integer("n", n, at_least=1)
        if not 0 <= check_integer("i", i) < n:
            raise ValueError(f"position {i} is outside of a sequence of {n}: 0 … {n - 1}")
        self.refuse_misfit(n)
        return self.sized(n).block(range(i, i + 1), range(n)).squeeze(-2).nonzero().squeeze(-1)

    def count(self, n: int, m: int | None = None) -> int:
        """The number of allowed pairs of n queries and m keys, counted block by block."""
        n, m = _lengths(n, m)
        if max(n, m) > LONGEST:
            raise ValueError(f"pairs are counted of at most {LONGEST:,} positions, got {n=}, {m=}")
        self.refuse_misfit(m)
        return _count(self.sized(m), n, m)

    def density(self, n: int, m: int | None = None) -> float:
        """The share of the pairs that is allowed."""
        n, m = _lengths(n, m)
        return self.count(n, m) / (n * m)

    def receptive_field(self, n: int, layers: int, *, residual: bool = True) -> ReceptiveField:
        """Which inputs can influence each output after one layer, two, … ``layers``."""
        return receptive_field(self, n, layers, residual=residual)

    def __and__(self, other: "Pattern") -> "Pattern":
        return both(self, other)

    def __or__(self, other: "Pattern") -> "Pattern":
        return either(self, other)

    def __rand__(self, other: object) -> "Pattern":
        return both(other, self)  # type: ignore[arg-type]

    def __ror__(self, other: object) -> "Pattern":
        return either(other, self)  # type: ignore[arg-type]

    def __invert__(self) -> "Pattern":
        return Not(self)

    def __bool__(self) -> bool:
        raise TypeError(
            "a pattern is neither true nor false: join patterns with & | ~, not with "
            "`and`, `or`, `not`"
        )

    def __repr__(self) -> str:
        return self.code


def check_device(device: torch.device | str | None) -> torch.device | None:
    """The device of that name. Raises TypeError or ValueError where PyTorch has no such device."""
    if not isinstance(device, torch.device | str | None):
        raise TypeError(f"device should be a device or its name, got {device!r}")
    try:
        return torch.device(device) if isinstance(device, str) else device
    except RuntimeError:
        raise ValueError(f"device should be a name that PyTorch knows, got {device!r}") from None


def _lengths(n: int, m: int | None) -> tuple[int, int]:
    """The numbers of queries and of keys; by default there are as many keys as queries."""
    n = check_integer("n", n)
    m = n if m is None else check_integer("m", m)
    if n < 1 or m < 1:
        raise ValueError(f"a pattern needs at least one query and one key, got n={n}, m={m}")
    return n, m


def _refuse_too_large(n: int, m: int) -> None:
    if n * m > LARGEST_MASK or max(n, m) > LONGEST:
        raise ValueError(
            f"a mask of {n:,} × {m:,} is too large to be written down; "
            "`count`, `cover` and the sparse forms need no mask"
        )


def both(left: Pattern, right: Pattern) -> Pattern:
    """``left & right``, without ``full()``. Three and more are grouped from the left."""
    _check_patterns(left, right)
    if isinstance(right, Full):
        return left
    if isinstance(right, And):
        return both(both(left, right.left), right.right)
    return right if isinstance(left, Full) else And(left, right)


def either(left: Pattern, right: Pattern) -> Pattern:
    """``left | right``, which is ``full()`` if one of them is. Grouped from the left."""
    _check_patterns(left, right)
    if isinstance(left, Full) or isinstance(right, Full):
        return FULL
    if isinstance(right, Or):
        return either(either(left, right.left), right.right)
    return Or(left, right)


def _check_patterns(*patterns: object) -> None:
    for pattern in patterns:
        if not isinstance(pattern, Pattern):
            raise TypeError(
                f"a pattern is joined with patterns, got {type(pattern).__name__}; `listed` makes "
                "a pattern of a table of keys"
            )


def _count(pattern: Pattern, n: int, m: int, size: int = 128) -> int:
    """Full blocks add their area; mixed blocks are counted pair by pair, ``size`` rows at once."""
    columns, total = Intervals.blocks(0, m, size), 0
    for start in range(m - n, m, size):
        rows = range(start, min(start + size, m))
        coverage = pattern.covers(Intervals.of(rows), columns)
        widths = columns.last - columns.first + 1
        total += len(rows) * int(widths[coverage.every].sum())
        mixed = coverage.some & ~coverage.every
        seen = torch.arange(m)[mixed.repeat_interleave(widths)]
        if len(seen):
            i = torch.arange(rows.start, rows.stop)[:, None]
            allowed = pattern.allows(i, seen[None, :])
            if allowed.dim() > 2:
                raise ValueError(f"{pattern} differs between heads or sequences: count them apart")
            total += int(allowed.expand(len(rows), len(seen)).sum())
    return total


# ---- compositions


@dataclass(frozen=True, repr=False)
class Composition(Pattern):
    """A pattern composed of two others."""

    left: Pattern
    right: Pattern

    def __post_init__(self) -> None:
        left, right = self.left.heads(), self.right.heads()
        if left is not None and right is not None and left != right:
            raise ValueError(
                f"a pattern for {left} heads and one for {right} cannot be joined: give both as "
                "many heads"
            )

    @property
    def code(self) -> str:  # type: ignore[override]
        sign = "&" if isinstance(self, And) else "|"
        return f"{_bracketed(self.left, type(self))} {sign} {_bracketed(self.right)}"

    @property
    def key(self) -> str:
        return f"({self.left.key}) {'&' if isinstance(self, And) else '|'} ({self.right.key})"

    def sized(self, m: int) -> Self:
        left, right = self.left.sized(m), self.right.sized(m)
        if left is self.left and right is self.right:
            return self
        return type(self)(left, right)

    def of_head(self, head: int) -> Self:
        return type(self)(self.left.of_head(head), self.right.of_head(head))

    def heads(self) -> int | None:
        return self.left.heads() or self.right.heads()

    def refuse_misfit(self, m: int, b: int | None = None, heads: int | None = None) -> None:
        self.left.refuse_misfit(m, b, heads)
        self.right.refuse_misfit(m, b, heads)

    def remarks(self, m: int) -> Iterator[str]:
        yield from self.left.remarks(m)
        yield from self.right.remarks(m)


@dataclass(frozen=True, repr=False)
class And(Composition):
    """The pairs that both patterns allow."""

    @property
    def description(self) -> str:  # type: ignore[override]
        return f"({self.left.description}) and ({self.right.description})"

    def allows(self, i: Tensor, j: Tensor) -> Tensor:
        return self.left.allows(i, j) & self.right.allows(i, j)

    def covers(self, rows: Intervals, columns: Intervals) -> Coverage:
        return self.left.covers(rows, columns) & self.right.covers(rows, columns)

    def order(self, m: int) -> Order | None:
        return self.left.order(m) or self.right.order(m)

    def alternatives(self) -> Iterator[Pattern]:
        for left in self.left.alternatives():
            for right in self.right.alternatives():
                yield both(left, right)


@dataclass(frozen=True, repr=False)
class Or(Composition):
    """The pairs that at least one of the patterns allows."""

    @property
    def description(self) -> str:  # type: ignore[override]
        return f"({self.left.description}) or ({self.right.description})"

    def allows(self, i: Tensor, j: Tensor) -> Tensor:
        return self.left.allows(i, j) | self.right.allows(i, j)

    def covers(self, rows: Intervals, columns: Intervals) -> Coverage:
        return self.left.covers(rows, columns) | self.right.covers(rows, columns)

    def alternatives(self) -> Iterator[Pattern]:
        yield from self.left.alternatives()
        yield from self.right.alternatives()


@dataclass(frozen=True, repr=False)
class Derived(Pattern):
    """A pattern defined by another one, ``of``, at the same positions or at related ones."""

    of: Pattern

    def __post_init__(self) -> None:
        if not isinstance(self.of, Pattern):
            raise TypeError(f"{type(self).__name__} should be made of a pattern, got {self.of!r}")

    def _inner(self, m: int) -> int:
        """The number of positions of ``of`` in a sequence of m."""
        return m

    def sized(self, m: int) -> Pattern:
        sized = self.of.sized(self._inner(m))
        return self if sized is self.of else replace(self, of=sized)

    def of_head(self, head: int) -> Pattern:
        return replace(self, of=self.of.of_head(head))

    def heads(self) -> int | None:
        return self.of.heads()

    def refuse_misfit(self, m: int, b: int | None = None, heads: int | None = None) -> None:
        if self._inner(m) > 0:
            self.of.refuse_misfit(self._inner(m), b, heads)

    def remarks(self, m: int) -> Iterator[str]:
        if self._inner(m) > 0:
            yield from self.of.remarks(self._inner(m))


@dataclass(frozen=True, repr=False)
class Not(Derived):
    """The pairs that the pattern does not allow."""

    @property
    def description(self) -> str:  # type: ignore[override]
        return f"not ({self.of.description})"

    @property
    def code(self) -> str:  # type: ignore[override]
        return f"~{_bracketed(self.of, Not)}"

    @property
    def key(self) -> str:
        return f"~({self.of.key})"

    def allows(self, i: Tensor, j: Tensor) -> Tensor:
        return ~self.of.allows(i, j)

    def covers(self, rows: Intervals, columns: Intervals) -> Coverage:
        return ~self.of.covers(rows, columns)


def _bracketed(pattern: Pattern, inside: type[Pattern] | None = None) -> str:
    """The pattern's code, in brackets if it needs them as a part of a pattern ``inside``."""
    operators = (Composition, Not) if inside in (Blocks, Shifted) else (Composition,)
    plain = not isinstance(pattern, operators) or type(pattern) is inside
    return pattern.code if plain else f"({pattern.code})"


# ---- primitives


def checked(argument: Argument, owner: str, name: str, given: Any) -> Any:
    """The validated argument of a primitive; a TypeError or ValueError where it is not valid."""
    if argument.kind == "pattern" and not isinstance(given, Pattern):
        raise TypeError(f"{name} should be a pattern, got {given!r}")
    return argument.checked(owner, name, given)


def _arguments(primitive: type[Pattern]) -> dict[str, Argument]:
    found = {}
    for name, annotated in get_type_hints(primitive, include_extras=True).items():
        described = [one for one in get_args(annotated) if isinstance(one, Argument)]
        if described:
            default = vars(primitive).get(name, REQUIRED)
            required = isinstance(default, Field)
            found[name] = replace(described[0], default=REQUIRED if required else default)
    return found


Conditions = tuple[tuple[Callable[..., bool], str], ...]
"""Cases whose conditions are functions of a primitive and a length n."""


@dataclass(frozen=True, repr=False)
class Primitive(Pattern):
    """A pattern with a name and arguments, described completely by its class attributes.

    Its fields are its arguments, each annotated with an ``Argument``; its code, the names that
    ``read`` accepts and the menu of PatternStudio are derived from them. ``says`` is its
    description, a template or cases. The rest is optional. ``rule`` is the formula for "i may
    attend to j"; without one, define ``allows`` (PatternStudio offers only primitives with a
    rule). ``invalid`` lists arguments that are refused, ``misfit`` lengths n that are refused, and
    ``remark`` lengths at which the pattern has a surprising effect.
    """

    name: ClassVar[str] = ""
    says: ClassVar[str | Cases] = ""
    rule: ClassVar[str | None] = None
    invalid: ClassVar[Cases] = ()
    misfit: ClassVar[Cases] = ()
    remark: ClassVar[Cases] = ()
    _invalid: ClassVar[Conditions] = ()
    _misfit: ClassVar[Conditions] = ()

    arguments: ClassVar[dict[str, Argument]] = {}
    """Its arguments by name, in order."""

    def __init_subclass__(cls) -> None:
        cls.name = re.sub(r"(?<=[a-z])(?=[A-Z0-9])", "_", cls.__name__).lower()
        cls.arguments = _arguments(cls)
        # Conditions are compiled here, once: torch.compile cannot trace the parsing of a text.
        cls._invalid, cls._misfit = cls._conditions(cls.invalid), cls._conditions(cls.misfit)
        if cls.rule is not None and "allows" not in vars(cls):
            rule = of_self(cls.rule, cls.arguments)
            cls.allows = function("self, i, j", rule, {"abs": abs})  # type: ignore[method-assign]

    @classmethod
    def _conditions(cls, cases: Cases) -> Conditions:
        conditions = (of_self(condition, cls.arguments) for condition, _ in cases)
        made = (function("self, n", condition, FUNCTIONS) for condition in conditions)
        return tuple(zip(made, (template for _, template in cases), strict=True))

    def __post_init__(self) -> None:
        for name, argument in self.arguments.items():
            given = checked(argument, self.name, name, getattr(self, name))
            object.__setattr__(self, name, given)
        self._refuse(self._invalid)

    def _refuse(self, conditions: Conditions, n: int = 0) -> None:
        for holds, template in conditions:
            if holds(self, n):
                raise ValueError(filled(template, vars(self) | {"n": n}))

    def allows(self, i: Tensor, j: Tensor) -> Tensor:
        raise TypeError(f"{type(self).__name__} needs a rule, or a method `allows`")

    @property
    def description(self) -> str:  # type: ignore[override]
        return first_match(self.describing(), vars(self)) or ""

    @classmethod
    def describing(cls) -> Cases:
        """The description ``says`` as cases."""
        return (("True", cls.says),) if isinstance(cls.says, str) else cls.says

    @property
    def code(self) -> str:  # type: ignore[override]
        return self._written()

    @property
    def key(self) -> str:
        return self._written(key=True)

    def _written(self, *, key: bool = False) -> str:
        """The call that makes this pattern, as code."""
        parts = []
        for name, argument in self.arguments.items():
            given = getattr(self, name)
            if not (argument.optional and given == argument.default):
                text = argument.written(given, key=key)
                parts.append(f"{name}={text}" if argument.named else text)
        return f"{self.name}({', '.join(parts)})"

    def refuse_misfit(self, m: int, b: int | None = None, heads: int | None = None) -> None:
        self._refuse(self._misfit, m)

    def remarks(self, m: int) -> Iterator[str]:
        if remark := first_match(self.remark, vars(self) | {"n": m}):
            yield remark


def makes_pattern(primitive: Callable[P, Pattern]) -> Callable[P, Pattern]:
    """The primitive as a function whose declared result, for type checkers, is a ``Pattern``."""
    return primitive


@dataclass(frozen=True, repr=False)
class Full(Primitive):
    """Every position attends to every position."""

    says = "every position attends to every position"
    rule = "True"

    def allows(self, i: Tensor, j: Tensor) -> Tensor:
        return torch.ones((), dtype=torch.bool, device=i.device)

    def covers(self, rows: Intervals, columns: Intervals) -> Coverage:
        return Coverage.known(torch.ones_like(rows.first + columns.first, dtype=torch.bool))


FULL = Full()


def full() -> Pattern:
    """Every position attends to every position."""
    return FULL


@dataclass(frozen=True, repr=False)
class Causal(Primitive):
    """Each position attends to itself and to those before it (j ≤ i)."""

    says = "each position attends to itself and those before it"
    rule = "j <= i"

    def covers(self, rows: Intervals, columns: Intervals) -> Coverage:
        return Coverage(columns.last <= rows.first, columns.first <= rows.last)


causal = makes_pattern(Causal)


# ---- blocks of positions, and shifted patterns


@dataclass(frozen=True, repr=False)
class Blocks(Derived):
    """i may attend to j if ``of`` allows the pair of their blocks (of ``size`` positions)."""

    size: int

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "size", size("the size of a block", self.size, at_least=1))

    @property
    def description(self) -> str:  # type: ignore[override]
        return f"between blocks of {self.size} positions: {self.of.description}"

    @property
    def code(self) -> str:  # type: ignore[override]
        return f"{_bracketed(self.of, Blocks)}.blocks({self.size})"

    @property
    def key(self) -> str:
        return f"({self.of.key}).blocks({self.size})"

    def _inner(self, m: int) -> int:
        return -(-m // self.size)

    def allows(self, i: Tensor, j: Tensor) -> Tensor:
        return self.of.allows(i // self.size, j // self.size)

    def covers(self, rows: Intervals, columns: Intervals) -> Coverage:
        return self.of.covers(rows // self.size, columns // self.size)

    def alternatives(self) -> Iterator[Pattern]:
        for of in self.of.alternatives():
            yield replace(self, of=of)

    def order(self, m: int) -> Order | None:
        blocks = self.of.order(self._inner(m))
        if blocks is None:
            return None
        within = torch.arange(min(self.size, m))
        runs = ((run[:, None] * self.size + within).flatten() for run in blocks.runs)
        return Order(("blocks", self.size, blocks.name), tuple(run[run < m] for run in runs))

    def remarks(self, m: int) -> Iterator[str]:
        if self.size > m:
            yield f"a block of {self.size} is longer than the sequence of {m}: there is only one"
        yield from super().remarks(m)


@dataclass(frozen=True, repr=False)
class Shifted(Derived):
    """i attends to j if ``of`` allows (i − start, j − start); positions before it are left out."""

    start: int

    def __post_init__(self) -> None:
        super().__post_init__()
        name = "the position from which a shifted pattern starts"
        object.__setattr__(self, "start", size(name, self.start, at_least=0))

    @property
    def description(self) -> str:  # type: ignore[override]
        return f"from position {self.start} on, counted from there: {self.of.description}"

    @property
    def code(self) -> str:  # type: ignore[override]
        return f"{_bracketed(self.of, Shifted)}.shifted({self.start})"

    @property
    def key(self) -> str:
        return f"({self.of.key}).shifted({self.start})"

    def _inner(self, m: int) -> int:
        return m - self.start

    def allows(self, i: Tensor, j: Tensor) -> Tensor:
        within = (i >= self.start) & (j >= self.start)
        return within & self.of.allows(self._from_start(i), self._from_start(j))

    def covers(self, rows: Intervals, columns: Intervals) -> Coverage:
        all_inside = torch.minimum(rows.first, columns.first) >= self.start
        some_inside = torch.minimum(rows.last, columns.last) >= self.start
        of = self.of.covers(self._within(rows), self._within(columns))
        return Coverage(all_inside & of.every, some_inside & of.some)

    def _from_start(self, positions: Tensor) -> Tensor:
        return (positions - self.start).clamp(min=0)

    def _within(self, intervals: Intervals) -> Intervals:
        """The part from ``start`` on. An interval that begins earlier is given a step of 1."""
        first, last = self._from_start(intervals.first), self._from_start(intervals.last)
        step = torch.where(intervals.first >= self.start, intervals.step, 1)
        return Intervals(first, last, torch.where(first == last, 0, step))

    def sized(self, m: int) -> Pattern:
        return Not(FULL) if m <= self.start else super().sized(m)

    def alternatives(self) -> Iterator[Pattern]:
        for of in self.of.alternatives():
            yield replace(self, of=of)

    def order(self, m: int) -> Order | None:
        order = self.of.order(m - self.start)
        if order is None:
            return None
        runs = tuple(run + self.start for run in order.runs)
        return Order(("shifted", self.start, order.name), runs)
