"""RWKV-4: chunks beside its own loop and Hugging Face's."""

from collections.abc import Callable, Iterator
from functools import partial
from importlib.util import find_spec

import torch
from torch import Tensor

from attnlab.measure.comparison import ratio
from attnlab.measure.report import Row
from attnlab.measure.timing import compare
from attnlab.mechanisms.recurrence import rwkv

DIM, REPEATS = 256, 7
PEER = "Hugging Face"
WORK = "a token sees all up to its own in both, in a sum of each channel; no keys are compared"


def rows(*, quick: bool, threads: int) -> Iterator[Row]:
    """fp32, batch 1, dim 256; the sum alone, without projections."""
    repeats = 2 if quick else REPEATS
    yield from _beside_loops("forward", _infer, 256 if quick else 4096, repeats, threads)
    # The backward pass of Hugging Face's loop copies its whole output at every token.
    both = "forward and backward"
    yield from _beside_loops(both, _train, 256 if quick else 1024, 2 if quick else 3, threads)


def _beside_loops(
    name: str, run: Callable[..., object], n: int, repeats: int, threads: int
) -> Iterator[Row]:
    forms: dict[str, Callable[..., Tensor]] = {
        "chunked": rwkv.chunked, "token by token": rwkv.recurrent
    }  # fmt: skip
    if find_spec("transformers"):
        forms[PEER] = _peer
    calls = {name: partial(run, form, _sequence(n)) for name, form in forms.items()}
    found = {t.name: t for t in compare(calls, repeats=repeats, warmup=1, threads=threads)}
    chunked = found["chunked"]
    loop = f"RWKV: token by token / chunked, n = {n:,}, {name}"
    yield ratio(loop, found["token by token"], chunked, work=WORK, at_least=5)
    figure = f"RWKV: Hugging Face / chunked, n = {n:,}, {name}"
    if PEER in found:
        yield ratio(figure, found[PEER], chunked, work=WORK, at_least=1)
    else:
        yield Row(figure, None, note="transformers is not installed: pip install 'attnlab[peers]'")


def _peer(k: Tensor, v: Tensor, decay: Tensor, bonus: Tensor) -> Tensor:
    from transformers.models.rwkv.modeling_rwkv import rwkv_linear_attention_cpu

    out: Tensor = rwkv_linear_attention_cpu(decay, bonus, k, v)[0]
    return out


def _sequence(n: int, width: int = DIM) -> list[Tensor]:
    """Keys, values, decay and bonus."""
    generator = torch.Generator().manual_seed(0)
    k, v = torch.randn(2, 1, n, width, generator=generator)
    layer = rwkv.RWKV(width)
    given = (k, v, layer.decay, layer.bonus)
    return [x.detach().requires_grad_() for x in given]


@torch.no_grad()
def _infer(form: Callable[..., Tensor], given: list[Tensor]) -> object:
    return form(*given)


def _train(form: Callable[..., Tensor], given: list[Tensor]) -> object:
    return torch.autograd.grad(form(*given).sum(), given)
