"""Memorizing Transformer: the search of a million keys, and decoding with a growing memory.

An approximate search of all codes takes no less than their comparison: 32 codes of a key for each
query, 10⁹ for a million keys and 32 queries. Lists leave most of them out, where keys lie in
clusters.

Directions drawn at random have no clusters. What was tried with a million of them, in milliseconds
of processor time of one thread (half of it, at best, with two), indexes built in two to four
seconds:

| codes | candidates | recall | ms |
| --- | --- | --- | --- |
| 32, of 2 numbers each | 640 | 0.955 | 27 |
| 32, of 2 numbers each | 384 | 0.904 | 26 |
| 16, of 4 numbers each | 3,200 | 0.858 | over 28 |
| 32, in 160 of 256 lists | 640 | 0.938 | 22 |
| 32, in 600 of 1,024 lists | 640 | 0.930 | 25 |
| 32 of residuals, in 600 of 1,024 lists | 640 | 0.909 | 26 |

Two lists in five hold 95 % of the neighbours at best. A graph (HNSW, 24 edges) takes 22 ms for 92 %
among as few as 50,000 keys.
"""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from importlib.util import find_spec

import torch
from torch import Tensor
from torch.nn import functional as F

from attnlab.core.probe import record
from attnlab.core.search import Codes, Index, recall
from attnlab.measure.comparison import Keys, ratio, taken
from attnlab.measure.memory import resident
from attnlab.measure.report import Row
from attnlab.measure.timing import compare, taken_by
from attnlab.mechanisms.learned.memorizing_transformer import (
    MemorizingAttention,
    MemorizingOptions,
    MemoryState,
)

WIDTH, QUERIES, NEIGHBOURS = 64, 32, 32
DIM, HEADS = 256, 4


def rows(*, quick: bool, threads: int) -> Iterator[Row]:
    """fp32, batch 1."""
    keys = 20_000 if quick else 1_000_000
    if find_spec("faiss"):
        for drawn in (_anywhere, _in_clusters):
            yield from _search(drawn, keys, 2 if quick else 11, threads)
        yield from _memory(keys)
        yield from _layers(1024 if quick else 65_536, 1 if quick else 5, threads)
    else:
        note = "faiss is not installed: pip install 'attnlab[search]'"
        yield Row(f"search of {keys:,} keys", None, note=note)
    yield from _decoding((256, 1024) if quick else (4096, 16384, 65536), quick, threads)


# ---- one search


def _generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def _anywhere(count: int, seed: int) -> Tensor:
    """Directions drawn at random: without clusters, the hardest keys for an approximate search."""
    return F.normalize(torch.randn(count, WIDTH, generator=_generator(seed)), dim=-1)


def _in_clusters(count: int, seed: int) -> Tensor:
    """Around 1,000 centres, as far from these as centres are from each other's mean."""
    centres = torch.randn(1000, WIDTH, generator=_generator(9))
    near = torch.randint(1000, (count,), generator=_generator(seed))
    return F.normalize(
        centres[near] + torch.randn(count, WIDTH, generator=_generator(seed)), dim=-1
    )


def _codes(keys: Tensor) -> Mapping[str, Codes]:
    lists = min(1024, len(keys) // 40)
    return {
        "all codes": Codes(candidates=20),
        f"codes of {lists // 32} of {lists} lists": Codes(lists=lists, probed=lists // 32),
    }


def _search(
    draw: Callable[[int, int], Tensor], count: int, repeats: int, threads: int
) -> Iterator[Row]:
    import faiss

    keys, queries = draw(count, 0), draw(QUERIES, 1)
    flat = faiss.IndexFlatIP(WIDTH)
    flat.add(keys.numpy())
    index = Index(keys)
    calls: dict[str, Callable[[], Tensor]] = {
        "exact": lambda: index.search(queries, NEIGHBOURS).positions,
        "exact by faiss": lambda: torch.from_numpy(flat.search(queries.numpy(), NEIGHBOURS)[1]),
        "exact by one product and topk": lambda: (queries @ keys.T).topk(NEIGHBOURS).indices,
    }
    built: dict[str, str] = {}
    for name, codes in _codes(keys).items():
        calls[name], built[name] = _built(keys, codes, queries)
    before = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(threads)
    try:
        timings = compare(calls, baseline="exact", repeats=repeats, threads=threads)
    finally:
        faiss.omp_set_num_threads(before)
    exact = calls["exact"]()
    what = f"{count:,} keys {draw.__name__[1:].replace('_', ' ')}, {QUERIES} queries"
    for timing in timings:
        share = f"recall {recall(calls[timing.name](), exact):.3f}{built.get(timing.name, '')}"
        low, high = (1e3 * t for t in timing.quartiles)
        target = 150 if timing.name == "exact" else 10 if "codes" in timing.name else None
        yield Row(
            f"{what}: {timing.name}", 1e3 * timing.median, "ms",
            at_most=target if count >= 1_000_000 else None,
            quartiles=(low, high), note=f"{share}; {taken(timing)}",
        )  # fmt: skip


def _built(keys: Tensor, codes: Codes, queries: Tensor) -> tuple[Callable[[], Tensor], str]:
    """The search by an index, and in words how long the index took."""
    made: list[Index] = []
    seconds = taken_by(lambda: made.append(Index(keys, codes))).seconds
    return partial(_positions, made[0], queries), f", built in {seconds:.1f} s"


def _positions(index: Index, queries: Tensor) -> Tensor:
    return index.search(queries, NEIGHBOURS).positions


def _memory(count: int) -> Iterator[Row]:
    """The measured memory of an index, built in a process of its own, beside the claimed bytes."""
    setup = (
        "import torch\nfrom attnlab.core.search import Codes, Index\n"
        f"Index(torch.randn(2000, {WIDTH}), Codes()).search(torch.randn(1, {WIDTH}), 1)\n"
        f"keys = torch.randn({count}, {WIDTH})"
    )
    claim = 4 * count * WIDTH + count * WIDTH // 4
    held = resident("index = Index(keys, Codes())", setup=setup)
    note = f"{held / 2**20:.0f} MiB beside {claim / 2**20:.0f} MiB"
    yield Row(f"peak memory / claim, codes of {count:,} keys", held / claim, note=note)


# ---- the layer


def _layers(memory: int, repeats: int, threads: int) -> Iterator[Row]:
    """New tokens after a text that fills the memory, which is coded once for the whole segment."""
    calls, found = {}, {}
    x = torch.randn(1, min(512, memory // 4), DIM, generator=_generator(2))
    for search in ("exact", "approximate"):
        options = MemorizingOptions(segment=memory, cache=0, memory=memory, search=search)
        state = _after(memory, options)
        calls[search] = partial(_step, _layer(options), x, state)
        with record() as notes:
            calls[search]()
        found[search] = notes.last("neighbours")
    exact, approximate = compare(calls, repeats=repeats, threads=threads)
    share = recall(found["approximate"], found["exact"])
    figure = f"{x.shape[1]:,} tokens with a memory of {memory:,}: approximate / exact search"
    work = f"of {memory:,} keys a query meets codes and all keys; recall {share:.3f}"
    yield ratio(figure, approximate, exact, work=work)


def _decoding(memories: tuple[int, ...], quick: bool, threads: int) -> Iterator[Row]:
    """One token after a text that fills the memory."""
    calls = {}
    for memory in memories:
        options = MemorizingOptions(segment=128, cache=128, memory=memory)
        x = torch.randn(1, 1, DIM)
        calls[f"{memory:,}"] = partial(_step, _layer(options), x, _after(memory, options))
    timings = compare(calls, repeats=2 if quick else 21, threads=threads)
    for timing, memory in zip(timings, memories, strict=True):
        figure = f"one token with a memory of {timing.name} / of {timings[0].name}"
        keys = Keys(memory, memory), Keys(memories[0], memories[0])
        bound = None if quick else 1.1 * memory / memories[0]
        yield ratio(figure, timing, timings[0], work=keys, at_most=bound)


def _layer(options: MemorizingOptions) -> MemorizingAttention:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return MemorizingAttention(DIM, HEADS, options=options).eval()


def _after(memory: int, options: MemorizingOptions) -> MemoryState:
    past = torch.randn(1, HEADS, memory, DIM // HEADS, generator=_generator(3))
    past = F.normalize(past, dim=-1)
    return MemoryState.of(past, past, options)


@torch.no_grad()
def _step(layer: MemorizingAttention, x: Tensor, state: MemoryState) -> object:
    return layer.step(x, state)
