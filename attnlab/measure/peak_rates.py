"""What a machine can do at most: its arithmetic, and its traffic with the memory.

Both are measured, not read from a data sheet: the fastest product of two square matrices, and the
fastest copy of an array that no cache holds. They are the roof under which
``attnlab.figures.roofline`` draws other calls.
"""

from dataclasses import dataclass

import torch

from attnlab.core.integers import check_integer
from attnlab.measure.measured import dtype_of
from attnlab.measure.timing import compare, thread_count

_SIDE, _SIDE_THERE = 1024, 8192  # of the matrices on a CPU; a GPU needs larger ones to be busy
_ELEMENTS = 1 << 25  # 128 MiB of float32
_ROUNDS = 7


@dataclass(frozen=True)
class PeakRates:
    """``peak`` in FLOPs and ``bandwidth`` in bytes per second, with so many ``threads``."""

    peak: float
    bandwidth: float
    threads: int

    @property
    def ridge(self) -> float:
        """The FLOPs per byte from which on the arithmetic is the bound."""
        return self.peak / self.bandwidth


def peak_rates(
    *, threads: int | None = None, device: str = "cpu", dtype: str = "float32"
) -> PeakRates:
    """Measure this machine, in about a second. ``threads`` is PyTorch's; None keeps what is set.

    The fastest of several rounds counts: other programs can only make a round slower.
    """
    if threads is not None:
        threads = check_integer("threads", threads, at_least=1)
    side = _SIDE if torch.device(device).type == "cpu" else _SIDE_THERE
    a, b = torch.rand(2, side, side, device=device).to(dtype_of(dtype))
    product = torch.empty_like(a)
    source = torch.rand(_ELEMENTS, device=device)
    target = torch.empty_like(source)
    with thread_count(threads):
        used = torch.get_num_threads()
        timed = compare(
            {
                "product": lambda: torch.mm(a, b, out=product),
                "copy": lambda: target.copy_(source),
            },
            repeats=_ROUNDS,
            threads=None,
        )
    of_product, of_copy = (min(one.seconds) for one in timed)
    moved = 2 * source.numel() * source.element_size()  # read once, written once
    return PeakRates(2 * side**3 / of_product, moved / of_copy, used)
