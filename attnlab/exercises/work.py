"""What a check sees of the way to a result: the largest tensor on it, and loops."""

from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor, strided
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from attnlab.exercises.attempt import Arguments, run
from attnlab.exercises.verdict import Function, Mistake

SLACK = 16  # more operations than these for a larger input are a loop


class Work(TorchDispatchMode):
    """Counts the operations inside and the elements that they make, and keeps the largest shape.

    A tensor that is a view counts as the memory that it holds: an expanded one is small.
    """

    def __init__(self) -> None:
        super().__init__()
        self.operations = self.elements = self.largest = 0
        self.names: set[str] = set()
        self.shape: tuple[int, ...] = ()

    def __torch_dispatch__(
        self,
        function: Any,
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        made = function(*args, **(kwargs or {}))
        self.operations += 1
        self.names.add(str(function))
        for each in tree_leaves(made):
            if isinstance(each, Tensor) and each.layout == strided:
                held = min(each.numel(), each.untyped_storage().nbytes() // each.element_size())
                self.elements += held
                if held > self.largest:
                    self.largest, self.shape = held, tuple(each.shape)
        return made


def work_of(function: Function, given: Arguments) -> Work:
    """What one call of a solution does."""
    with Work() as work:
        run(function, given)
    return work


def require_no_square(function: Function, given: Arguments, n: int, advice: str) -> None:
    """A `Mistake` where the numbers are right, and a tensor of n · n / 4 or more is made."""
    work = work_of(function, given)
    if 4 * work.largest >= n * n:
        shape = " × ".join(map(str, work.shape))
        raise Mistake(
            f"The numbers are right, but for n = {n} a tensor of {shape} is made, which grows with "
            f"n². {advice}"
        )


def require_no_loop(function: Function, small: Arguments, large: Arguments, over: str) -> None:
    """A `Mistake` where the numbers are right, and ``large`` takes more operations than ``small``:
    each is one call to PyTorch, so that only a loop ``over`` something has more of them."""
    first, more = (work_of(function, given).operations for given in (small, large))
    if more > first + SLACK:
        raise Mistake(
            f"The numbers are right, but a larger input takes {more} operations and not {first}: "
            f"there is a loop over {over}. One operation can do it for all of them."
        )
