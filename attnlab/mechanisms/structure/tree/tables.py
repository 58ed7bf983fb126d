"""What the forms of tree attention share: the shapes of their arguments, and tables of vectors."""

from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor

from attnlab.core.options import Options, Size
from attnlab.core.precision import upcast

Weights = Float[Tensor, "b h n"]  # w, of which those of leaves are used
Vertical = Float[Tensor, "u e"]  # a: for branches of 1, 2, … nodes
Horizontal = Float[Tensor, "c e"]  # c: for the first, second, … leaf below a node


@dataclass(frozen=True, kw_only=True)
class TreeOptions(Options):
    """The sizes of the two tables; longer branches and later leaves share the last row."""

    max_vertical: Size = 100
    max_horizontal: Size = 100


def row(table: Tensor, index: Tensor) -> Tensor:
    """The rows of a table, whose first has the index 1; the last is that of all larger ones."""
    found: Tensor = upcast(table)[(index - 1).clamp(0, len(table) - 1)]
    return found
