"""What a check sees of the way to a result: the largest tensor on it, and loops."""

from collections.abc import Sequence
from typing import Any

from torch import Tensor, strided
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from attnlab.exercises.attempt import Arguments, run
from attnlab.exercises.verdict import Function, Mistake


class _Work(TorchDispatchMode):
    """The elements of the largest storage that an operation gave, and the number of operations."""

    def __init__(self) -> None:
        super().__init__()
        self.largest = self.operations = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        self.operations += 1
        for each in tree_leaves(result):
            if isinstance(each, Tensor) and each.layout == strided:
                held = each.untyped_storage().nbytes() // each.element_size()
                self.largest = max(self.largest, held)
        return result


def _work(function: Function, given: Arguments) -> _Work:
    with _Work() as work:
        run(function, given)
    return work


def check_no_square(function: Function, given: Arguments, nodes: int) -> None:
    """A `Mistake` where the numbers are right, and a tensor as large as all pairs was made."""
    largest = _work(function, given).largest
    if largest >= nodes**2:
        raise Mistake(
            f"The numbers are right, but with {nodes} nodes a tensor of {largest:,} elements is "
            f"made: all pairs of nodes are {nodes**2:,}. Make no tensor (n, n): go along the edges."
        )


def check_no_loop(function: Function, small: Arguments, large: Arguments, over: str) -> None:
    """A `Mistake` where the numbers are right, and ``large`` takes more operations than ``small``:
    each is one call to PyTorch, so that only a loop ``over`` something has more of them."""
    first, more = (_work(function, given).operations for given in (small, large))
    if more > first:
        raise Mistake(
            f"The numbers are right, but larger inputs take {more} operations and not {first}: "
            f"there is a loop over {over}. One operation can do it for all of them."
        )
