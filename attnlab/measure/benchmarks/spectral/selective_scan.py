"""The selective scan: spans beside its own loop and Hugging Face's."""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from importlib.util import find_spec

import torch
from torch import Tensor

from attnlab.measure.comparison import ratio
from attnlab.measure.report import Row
from attnlab.measure.timing import Timing, compare
from attnlab.mechanisms.recurrence import selective_scan

SMALL, LARGE, STATE, REPEATS = 32, 512, 16, 5
WORK = "the same scan of every token in both: no keys"


def rows(*, quick: bool, threads: int) -> Iterator[Row]:
    """fp32, batch 1, 16 numbers of state per channel; the scan alone, without projections.
    Of many channels a loop is as busy as a scan: both sizes are shown."""
    n, repeats = (256, 2) if quick else (4096, REPEATS)
    for channels, wanted in ((SMALL, 10), (LARGE, None)):
        yield from _beside_loops("forward", _infer, n, channels, repeats, threads, wanted)
    both = "forward and backward"
    yield from _beside_loops(both, _train, n, SMALL, 2 if quick else 3, threads, 10)


def _beside_loops(
    name: str, run: Callable[..., object], n: int, channels: int, repeats: int, threads: int,
    wanted: float | None,
) -> Iterator[Row]:  # fmt: skip
    forms: dict[str, Callable[..., Tensor]] = {
        "chunked": selective_scan.chunked,
        "loop": selective_scan.naive,
    }
    if find_spec("transformers"):
        forms["peer"] = _peer
    calls = {each: partial(run, forms[each], _sequence(n, channels)) for each in forms}
    found = _compared(calls, repeats, threads)
    size = f"n = {n:,}, {channels} channels, {name}"
    own = found["chunked"]
    loop = f"Selective scan: token by token / chunked, {size}"
    yield ratio(loop, found["loop"], own, work=WORK, at_least=wanted)
    figure = f"Selective scan: Hugging Face / chunked, {size}"
    if "peer" in found:
        yield ratio(figure, found["peer"], own, work=WORK, at_least=3)
    else:
        yield Row(figure, None, note="transformers is not installed: pip install 'attnlab[peers]'")


def _peer(x: Tensor, log_A: Tensor, steps: Tensor, B: Tensor, C: Tensor, skip: Tensor) -> Tensor:
    """What its block does where its kernels are missing; channels before tokens."""
    from transformers.models.mamba.modeling_mamba import mamba_selective_scan

    turned = (each.mT for each in (x, steps))
    out: Tensor = mamba_selective_scan(*turned, -log_A.exp(), B.mT, C.mT, skip, delta_softplus=True)
    return out.mT


def _compared(
    calls: Mapping[str, Callable[[], object]], repeats: int, threads: int
) -> dict[str, Timing]:
    found = compare(calls, baseline="chunked", repeats=repeats, warmup=1, threads=threads)
    return {one.name: one for one in found}


def _sequence(n: int, channels: int) -> list[Tensor]:
    """x, log A, steps, B, C and D; steps and A as a block begins with them."""
    generator = torch.Generator().manual_seed(0)
    x, steps = torch.randn(2, 1, n, channels, generator=generator)
    B, C = torch.randn(2, 1, n, STATE, generator=generator)
    log_A = torch.arange(1.0, STATE + 1).log().repeat(channels, 1)
    given = (x, log_A, steps - 4, B, C, torch.ones(channels))
    return [each.requires_grad_() for each in given]


@torch.no_grad()
def _infer(form: Callable[..., Tensor], given: list[Tensor]) -> object:
    return form(*given)


def _train(form: Callable[..., Tensor], given: list[Tensor]) -> object:
    return torch.autograd.grad(form(*given).sum(), given)
