"""Whether a solution loops over its tokens: it then does more operations for more of them."""

from collections.abc import Mapping, Sequence
from typing import Any

from torch.utils._python_dispatch import TorchDispatchMode

from attnlab.exercises.attempt import Arguments, run
from attnlab.exercises.verdict import Function, Mistake


class Operations(TorchDispatchMode):
    """Counts the operations on tensors that are done inside."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_dispatch__(
        self,
        function: Any,
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        self.count += 1
        return function(*args, **(kwargs or {}))


def require_no_loop(function: Function, short: Arguments, long: Arguments, advice: str) -> None:
    """A `Mistake` where the ``long`` arguments, of many more tokens, take more operations."""
    counts = []
    for given in (short, long):
        with Operations() as counted:
            run(function, given)
        counts.append(counted.count)
    if counts[1] >= counts[0] + 16:
        raise Mistake(
            f"The numbers are right, but there is a loop: {counts[0]:,} operations for a short "
            f"input, {counts[1]:,} for a long one. {advice}"
        )
