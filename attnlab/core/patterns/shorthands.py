"""Shorthands: names for patterns that are composed of primitives."""

import inspect
from dataclasses import dataclass
from typing import Any

from attnlab.core.patterns.algebra import Pattern, checked
from attnlab.core.patterns.arguments import REQUIRED, Argument
from attnlab.core.patterns.by_distance import Local, Strided
from attnlab.core.patterns.by_place import Places, Summaries
from attnlab.core.patterns.formulas import function

_PARTS = {part.name: part for part in (Local, Strided, Places, Summaries)}


@dataclass(frozen=True, eq=False)
class Shorthand:
    """A function of ``arguments`` that returns the pattern given by the formula ``stands_for``.

    ``help`` is its docstring. Formulas may use the primitives of ``_PARTS`` by their names.
    """

    name: str
    arguments: dict[str, Argument]
    stands_for: str
    help: str

    def __post_init__(self) -> None:
        parameters = ", ".join(self.arguments)
        made = function(parameters, self.stands_for, _PARTS)
        for name, known in {"__doc__": self.help, "__name__": self.name, "_made": made}.items():
            object.__setattr__(self, name, known)

    @property
    def __signature__(self) -> inspect.Signature:
        kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
        parameters = [
            inspect.Parameter(name, kind, default=_default(one))
            for name, one in self.arguments.items()
        ]
        return inspect.Signature(parameters, return_annotation=Pattern)

    def __call__(self, *args: Any, **named: Any) -> Pattern:
        values = []
        for name, given in self._bound(args, named).items():
            values.append(checked(self.arguments[name], self.name, name, given))
        pattern: Pattern = self._made(*values)  # type: ignore[attr-defined]
        return pattern

    def _bound(self, args: tuple[Any, ...], named: dict[str, Any]) -> dict[str, Any]:
        """Every argument's value, as Python binds them; torch.compile cannot trace a signature."""
        names = list(self.arguments)
        if len(args) > len(names):
            raise TypeError(f"{self.name} takes {', '.join(names)}, got {len(args)} values")
        given = dict(zip(names, args, strict=False))
        for name in named:
            if name not in self.arguments or name in given:
                raise TypeError(f"{self.name} has no further argument {name!r}: {', '.join(names)}")
        bound = {name: argument.default for name, argument in self.arguments.items()}
        bound.update(given)
        bound.update(named)
        for name in names:
            if bound[name] is REQUIRED:
                raise TypeError(f"{self.name} needs its {name}")
        return bound


def _default(argument: Argument) -> Any:
    return inspect.Parameter.empty if argument.default is REQUIRED else argument.default


dilated = Shorthand(
    "dilated",
    {
        "radius": Argument("whole", at_least=0, start=2),
        "step": Argument("whole", at_least=1, start=3),
    },
    "local(radius * step) & strided(step)",
    "A window with gaps: itself and ``radius`` positions on either side, ``step`` apart.",
)

fixed = Shorthand(
    "fixed",
    {
        "stride": Argument("whole", at_least=1, start=8),
        "columns": Argument("whole", at_least=1, default=1),
    },
    "local(0).blocks(stride) | summaries(stride, columns)",
    """Each position attends to its block of ``stride`` and the last ``columns`` of every block.

    Child et al. 2019, section 4.3 (their l and c), before the causal intersection.
    """,
)

global_ = Shorthand(
    "global_",
    {"positions": Argument("positions", start=[0])},
    "places(positions, 'column') | places(positions, 'row')",
    "``positions`` attend to all, and all attend to them; a negative one counts from the end.",
)

hub = Shorthand(
    "hub",
    {"position": Argument("whole", default=0)},
    "places([position], 'column') | places([position], 'row')",
    "One position that attends to all positions, and to which all attend.",
)

block_diagonal = Shorthand(
    "block_diagonal",
    {"size": Argument("whole", at_least=1, start=8, called="the size of a block")},
    "local(0).blocks(size)",
    "Each position attends to its own block of ``size`` positions.",
)

blocks = Shorthand(
    "blocks",
    {
        "size": Argument("whole", at_least=1, called="the size of a block"),
        "of": Argument("pattern", default=Local(0)),
    },
    "of.blocks(size)",
    "i attends to j if ``of`` allows their blocks of ``size`` positions (default: the same block).",
)
