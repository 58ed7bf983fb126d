"""Memorizing Transformer: the search of a million keys, and decoding with a growing memory."""

from collections.abc import Iterator, Mapping
from functools import partial
from importlib.util import find_spec

import torch
from torch import Tensor
from torch.nn import functional as F

from attnlab.core.cache import KeyValueCache
from attnlab.core.search import Found, Index, recall
from attnlab.measure.memory import resident
from attnlab.measure.report import Row
from attnlab.measure.timing import compare
from attnlab.mechanisms.learned.memorizing_transformer import (
    MemorizingAttention,
    Memory,
    MemoryState,
)

WIDTH, QUERIES, NEIGHBOURS, CANDIDATES = 64, 32, 32, 24
DIM, HEADS = 256, 4


def rows(*, quick: bool, threads: int) -> Iterator[Row]:
    """Unit vectors drawn at random: without clusters, the hardest keys for an approximate index."""
    keys = 20_000 if quick else 1_000_000
    if find_spec("faiss"):
        yield from _search(keys, 2 if quick else 11, threads)
        yield from _memory(keys)
    else:
        note = "faiss is not installed: pip install 'attnlab[search]'"
        yield Row(f"search of {keys:,} keys", None, note=note)
    yield from _decoding((256, 1024) if quick else (4096, 16384, 65536), quick, threads)


def _units(count: int, seed: int) -> Tensor:
    drawn = torch.randn(count, WIDTH, generator=torch.Generator().manual_seed(seed))
    return F.normalize(drawn, dim=-1)


def _search(count: int, repeats: int, threads: int) -> Iterator[Row]:
    import faiss

    keys, queries = _units(count, 0), _units(QUERIES, 1)
    indexes = {
        "faiss, exact": Index(keys),
        "faiss, approximate": Index(keys, "approximate", candidates=CANDIDATES),
    }
    calls = {name: partial(index.search, queries, NEIGHBOURS) for name, index in indexes.items()}
    calls["PyTorch, exact"] = partial(_by_pytorch, queries, keys)
    before = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(threads)
    try:
        timings = compare(calls, baseline="faiss, exact", repeats=repeats, threads=threads)
    finally:
        faiss.omp_set_num_threads(before)
    exact = _by_pytorch(queries, keys).positions
    targets: Mapping[str, float] = {"faiss, exact": 150, "faiss, approximate": 10}
    what = f"search of {count:,} keys of width {WIDTH} for {QUERIES} queries"
    for timing in timings:
        low, high = (1e3 * t for t in timing.quartiles)
        share = recall(calls[timing.name]().positions, exact)
        yield Row(
            f"{what}: {timing.name}", 1e3 * timing.median, "ms",
            at_most=targets.get(timing.name) if count >= 1_000_000 else None,
            quartiles=(low, high), note=f"recall {share:.3f}",
        )  # fmt: skip
        if timing.name == "faiss, approximate":
            yield Row(
                f"recall of its {NEIGHBOURS} neighbours, {count:,} keys", share, at_least=0.95
            )


def _by_pytorch(queries: Tensor, keys: Tensor) -> Found:
    return Found(*(queries @ keys.T).topk(NEIGHBOURS))


def _memory(count: int) -> Iterator[Row]:
    """Of an index, built in a process of its own, beside what it is said to hold."""
    setup = (
        "import torch\nfrom attnlab.core.search import Index\n"
        f"Index(torch.randn(2000, {WIDTH}), 'approximate').search(torch.randn(1, {WIDTH}), 1)\n"
        f"keys = torch.randn({count}, {WIDTH})"
    )
    claims = {"exact": 4 * count * WIDTH, "approximate": 4 * count * WIDTH + count * WIDTH // 4}
    for kind, claim in claims.items():
        held = resident(f"index = Index(keys, {kind!r})", setup=setup)
        note = f"{held / 2**20:.0f} MiB beside {claim / 2**20:.0f} MiB"
        yield Row(f"peak memory / claim, {kind} index of {count:,} keys", held / claim, note=note)


def _decoding(memories: tuple[int, ...], quick: bool, threads: int) -> Iterator[Row]:
    """One token after a text that fills the memory."""
    calls = {}
    for memory in memories:
        options = Memory(segment=128, cache=128, memory=memory)
        layer = MemorizingAttention(DIM, HEADS, options=options).eval()
        past = F.normalize(torch.randn(1, HEADS, memory, DIM // HEADS), dim=-1)
        state = MemoryState(KeyValueCache(past, past), memory, torch.zeros(1, dtype=torch.int64))
        calls[f"{memory:,}"] = partial(_step, layer, torch.randn(1, 1, DIM), state)
    timings = compare(calls, repeats=2 if quick else 21, threads=threads)
    for timing in timings:
        yield Row(
            f"one token with a memory of {timing.name} / of {timings[0].name}", timing.ratio, "×",
            quartiles=timing.ratio_quartiles, note=f"{1e3 * timing.median:.3g} ms",
        )  # fmt: skip


@torch.no_grad()
def _step(layer: MemorizingAttention, x: Tensor, state: MemoryState) -> object:
    return layer.step(x, state)
