"""Linear recurrences: chunks beside the loop and Hugging Face's, growth in n, and decoding.

Each page whose layer keeps a matrix (``attnlab.core.matrix_memory``); the recurrence alone, of what
its layer gives it: fp32, batch 1, four heads of width 32.
"""

from collections.abc import Callable, Iterator
from functools import partial
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor

from attnlab.catalog import build, shelf
from attnlab.core.card import Card
from attnlab.core.matrix_memory import MatrixMemory
from attnlab.measure.comparison import ratio
from attnlab.measure.costs import state_bytes
from attnlab.measure.count import exponent
from attnlab.measure.measured import call_of
from attnlab.measure.report import Row
from attnlab.measure.subject import subject
from attnlab.measure.timing import compare

DIM, HEADS = 128, 4
LENGTHS, SHORT = (4096, 16384), (4, 16)
PASSES = ("forward", "forward and backward")
LOOP, PEER, GROWTH = "token by token / chunked", "Hugging Face / chunked", "exponent of chunked"
STATE, TOKEN = "bytes of the state", "one token"
WORK = "the same outputs of all tokens in both"
SIZES: dict[str, dict[str, Any]] = {
    name: {"expand": 1, "state": 32} for name in ("mamba2", "log_linear")
}
"""Options with which heads have the width of the others."""
MANY_STATES = ("log_linear", "log_linear_deltanet")
"""Pages whose loop keeps so many numbers for the backward pass, several states for each token, that
it is run at the shorter length alone."""


def rows(*, quick: bool, threads: int) -> Iterator[Row]:
    """The rows of every page."""
    for figure in figures(quick=quick):
        yield row(figure, quick=quick, threads=threads)


def figures(*, quick: bool) -> list[str]:
    """The names of all rows."""
    few, many = SHORT if quick else LENGTHS
    found = []
    for card in pages():
        beside = (LOOP, PEER) if card.name in PEERS else (LOOP,)
        found += [
            f"{card.name}: {kind}, {which}, n = {n:,}"
            for kind in beside
            for which in PASSES
            for n in (few, many)
            if not (card.name in MANY_STATES and (kind, which, n) == (LOOP, PASSES[1], many))
        ]
        found += [f"{card.name}: {GROWTH}, {which}, n = {few:,} … {many:,}" for which in PASSES]
        found += [
            f"{card.name}: {kind}, after {many:,} tokens / after {few:,}" for kind in (STATE, TOKEN)
        ]
    return found


def pages() -> list[Card]:
    """The cards of all layers that keep a matrix."""
    return [
        card
        for card in shelf()
        if isinstance(card.build, type) and issubclass(card.build, MatrixMemory)
    ]


def row(figure: str, *, quick: bool, threads: int) -> Row:
    """The row of one figure."""
    name, _, rest = figure.partition(": ")
    kind, *which = rest.split(", ")
    lengths, repeats = SHORT if quick else LENGTHS, 2 if quick else 3
    timed = partial(compare, repeats=repeats, warmup=1, threads=threads)
    if kind == STATE:
        few, many = (state_bytes(subject(name), n) or 0 for n in lengths)
        return Row(figure, many / few, "×", at_most=1, note=f"{many:,} bytes")
    if kind == TOKEN:
        calls = {f"{n}": call_of(subject(name), n, "decode") for n in lengths}
        short, long = compare(calls, repeats=3 if quick else 15, warmup=1, threads=threads)
        return ratio(figure, long, short, work="one token in both", at_most=1.1)
    run = _infer if which[0] == PASSES[0] else _train
    forms = next(card.forms for card in pages() if card.name == name)
    if kind == GROWTH:
        both = timed({f"{n}": partial(run, forms["chunked"], given(name, n)) for n in lengths})
        return Row(figure, exponent(lengths, [one.median for one in both]).slope, at_most=1.1)
    if kind == PEER and not find_spec("transformers"):
        return Row(figure, None, note="transformers is not installed: pip install 'attnlab[peers]'")
    inputs = given(name, lengths[f"n = {lengths[1]:,}" in rest])
    other = forms["naive"] if kind == LOOP else PEERS[name]
    calls = {
        "chunked": partial(run, forms["chunked"], inputs),
        "other": partial(run, other, inputs),
    }
    own, slow = timed(calls)
    return ratio(figure, slow, own, work=WORK, at_least=10 if kind == LOOP else 3)


def given(name: str, n: int) -> list[Tensor]:
    """What the layer of that name gives to its recurrence, of n random tokens."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        layer = build(name, dim=DIM, heads=HEADS, causal=True, **SIZES.get(name, {}))
        x = torch.randn(1, n, DIM)
    assert isinstance(layer, MatrixMemory)
    return [each.detach().requires_grad_() for each in layer.taken(x)]


@torch.no_grad()
def _infer(form: Callable[..., Tensor], inputs: list[Tensor]) -> object:
    return form(*inputs)


def _train(form: Callable[..., Tensor], inputs: list[Tensor]) -> object:
    return torch.autograd.grad(form(*inputs).sum(), inputs)


def _qwen3_next(
    q: Tensor, k: Tensor, v: Tensor, step: Tensor, decay: Tensor, log_A: Tensor
) -> Tensor:
    """What Qwen3-Next's layer does where its kernels are missing; tokens before heads."""
    from transformers.models.qwen3_next import modeling_qwen3_next as modeling

    log_a = -log_A.exp()[:, None] * torch.nn.functional.softplus(decay)
    turned = (x.transpose(1, 2) for x in (q, k, v, log_a, torch.sigmoid(step)))
    rule = modeling.torch_chunk_gated_delta_rule
    out: Tensor = rule(*turned, use_qk_l2norm_in_kernel=True)[0]
    return out.transpose(1, 2)


def _mamba2(q: Tensor, k: Tensor, v: Tensor, step: Tensor, log_A: Tensor, skip: Tensor) -> Tensor:
    """What Hugging Face's mixer does where its kernels are missing, of one group in its chunks."""
    from transformers.models.mamba2 import modeling_mamba2 as modeling
    from transformers.models.mamba2.configuration_mamba2 import Mamba2Config

    given = (x.transpose(1, 2) for x in (v, step, k[:, :1], q[:, :1]))
    x, dt, B, C = given
    size, A = Mamba2Config().chunk_size, -log_A.exp()
    out: Tensor = modeling.mamba2_chunk_scan(x, dt, A, B, C, size, D=skip, dt_softplus=True)
    return out.transpose(1, 2)


def _xlstm(q: Tensor, k: Tensor, v: Tensor, write: Tensor, keep: Tensor) -> Tensor:
    """What xLSTM's layer does where its kernels are missing, in chunks as long as ours."""
    from transformers.models.xlstm import modeling_xlstm as modeling

    kernel = modeling.mlstm_chunkwise_native_autograd
    out = modeling.wrap_chunkwise_pad_zeros(
        kernel, query=q, key=k, value=v, igate=write, fgate=keep, eps=0.0, chunk_size=64
    )
    assert isinstance(out, Tensor)  # it can be told to return its state as well
    return out


PEERS: dict[str, Callable[..., Tensor]] = {
    "gated_deltanet": _qwen3_next,
    "mamba2": _mamba2,
    "mlstm": _xlstm,
}
