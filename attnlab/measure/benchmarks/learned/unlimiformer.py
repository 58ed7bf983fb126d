"""Unlimiformer: one index for all heads and layers, and a decoding step as the input grows."""

from collections.abc import Callable, Iterator
from functools import partial
from importlib.util import find_spec

import torch
from torch import Tensor

from attnlab.core.search import Codes, Index
from attnlab.measure.comparison import ratio
from attnlab.measure.report import Row
from attnlab.measure.timing import compare
from attnlab.models.tiny import TinyTransformer
from attnlab.models.unlimited import retrieving

DIM, HEADS, LAYERS, NEIGHBOURS = 256, 4, 6, 256


def rows(*, quick: bool, threads: int) -> Iterator[Row]:
    """fp32, batch 1, dim 256, 4 heads, 6 layers; one token of a decoder."""
    n = 1024 if quick else 16384
    yield from _stored(n)
    yield from _steps(n, 2 if quick else 11, threads)


def _stored(n: int) -> Iterator[Row]:
    """Numbers held for the search, counted: the ratios are L and 2 L."""
    of_states = n * DIM
    for what, count in (("keys", 1), ("keys and values", 2)):
        held = count * n * DIM * LAYERS
        note = f"{held:,} numbers beside {of_states:,}"
        figure = f"{what} of every head and layer / states, {n:,} states"
        yield Row(figure, held / of_states, "×", note=note)


def _steps(n: int, repeats: int, threads: int) -> Iterator[Row]:
    """The cross-attention of all layers for one token; full attention makes the keys and values of
    all states again, as a decoder without a cache of them does."""
    sizes = {"dim": DIM, "heads": HEADS, "layers": LAYERS, "max_len": 64}
    model = TinyTransformer(50, kind="encoder_decoder", **sizes).eval()
    states, token = torch.randn(1, n, DIM), torch.zeros(1, 1, dtype=torch.int64)
    calls: dict[str, Callable[[], object]] = {
        "full": partial(_decode, model, token, states),
        "exact search": partial(_retrieve, model, token, states, ()),
    }
    if find_spec("faiss"):
        index = Index(states[0], Codes())
        calls["approximate index"] = partial(_retrieve, model, token, states, (index,))
    else:
        yield Row("by an index", None, note="faiss is not installed: pip install 'attnlab[search]'")
    full, *others = compare(calls, repeats=repeats, threads=threads)
    work = f"keys of a query: {n:,} seen by full, {NEIGHBOURS} by a search"
    for timing in others:
        yield ratio(f"one token, {n:,} states: {timing.name} / full", timing, full, work=work)


@torch.no_grad()
def _decode(model: TinyTransformer, token: Tensor, states: Tensor) -> object:
    return model.decode(token, memory=states)


def _retrieve(
    model: TinyTransformer, token: Tensor, states: Tensor, indexes: tuple[Index, ...]
) -> object:
    with retrieving(model, neighbours=NEIGHBOURS, indexes=indexes):
        return _decode(model, token, states)
