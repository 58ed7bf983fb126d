"""LSH attention beside reformer-pytorch and Hugging Face's, and reversible layers.

Equal work: in each of 4 rounds a query is compared with the 2 · 64 keys of its chunk and of the one
before, 512 scores for each query in all three. Ours also compares buckets, and counts a pair that
several rounds find once; the two others by default do neither.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor

from attnlab.measure import peers
from attnlab.measure.comparison import ratio
from attnlab.measure.count import count
from attnlab.measure.peers import Made
from attnlab.measure.report import Row
from attnlab.measure.timing import compare
from attnlab.mechanisms.learned.reformer import Reformer, ReformerOptions, chunked
from attnlab.models.tiny import TinyTransformer

DIM, HEADS, CHUNK, ROUNDS = 256, 4, 64, 4
WORK = (
    f"keys of a query: {ROUNDS * 2 * CHUNK} computed in both; seen: the earlier ones of these by "
    "the package, by ours those of its bucket only"
)


def rows(*, quick: bool, threads: int) -> Iterator[Row]:
    """fp32, batch 1, dim 256, 4 heads, causal, 4 rounds, chunks of 64 and n / 64 buckets."""
    n = 128 if quick else 16384
    for name, make in PEERS.items():
        yield from _beside(name, make, n, 1 if quick else 5, threads)
    yield from _depth(256 if quick else 4096)


def _sequence(n: int, device: str = "cpu") -> Tensor:
    generator = torch.Generator().manual_seed(0) if device == "cpu" else None
    return torch.randn(1, n, DIM, generator=generator, device=device, requires_grad=True)


def _ours(n: int) -> Reformer:
    options = ReformerOptions(buckets=n // CHUNK, chunk=CHUNK, rounds=ROUNDS)
    return Reformer(DIM, HEADS, causal=True, options=options)


def _train(layer: Callable[[Tensor], Tensor], parameters: Sequence[Any], x: Tensor) -> object:
    return torch.autograd.grad(layer(x).sum(), [x, *parameters])


# ---- the peers


def _reformer_pytorch(n: int) -> Made:
    return peers.reformer(n, DIM, HEADS, chunk=CHUNK, rounds=ROUNDS)


def _hugging_face(n: int) -> Made:
    """The projections and the attention; that layer has no projection of its output."""
    from transformers import ReformerConfig
    from transformers.models.reformer.modeling_reformer import LSHSelfAttention

    layer = LSHSelfAttention(
        ReformerConfig(
            hidden_size=DIM,
            num_attention_heads=HEADS,
            attention_head_size=DIM // HEADS,
            lsh_attn_chunk_length=CHUNK,
            lsh_num_chunks_before=1,
            lsh_num_chunks_after=0,
            lsh_attention_probs_dropout_prob=0.0,
            num_buckets=n // CHUNK,
            num_hashes=ROUNDS,
            is_decoder=True,
        )
    )
    return layer, lambda x: layer(x).hidden_states


PEERS: Mapping[str, Callable[[int], Made]] = {
    "reformer_pytorch": _reformer_pytorch,
    "transformers": _hugging_face,
}


def _beside(
    name: str, make: Callable[[int], Any], n: int, repeats: int, threads: int
) -> Iterator[Row]:
    if not find_spec(name):
        note = f"{name} is not installed: pip install 'attnlab[peers]'"
        yield Row(f"{name}'s time / Reformer's, n = {n:,}", None, note=note)
        return
    x, own = _sequence(n), _ours(n)
    layer, peer = make(n)
    calls: dict[str, Callable[[], object]] = {
        "package": partial(_train, peer, list(layer.parameters()), x),
        "our layer": partial(_train, own, list(own.parameters()), x),
        "our form": _form(own, n),
    }
    theirs, *ours = compare(calls, repeats=repeats, warmup=1, threads=threads)
    for timing in ours:
        figure = f"{name}'s layer / {timing.name}, both passes, n = {n:,}"
        target = 1.5 if n >= 16384 and timing.name == "our layer" else None
        yield ratio(figure, theirs, timing, work=WORK, at_least=target)
    if name == "reformer_pytorch":
        yield _forms(layer.lsh_attn, own, n, repeats, threads)
    held, most = (count(each, x, backward=True).peak_bytes for each in (own, peer))
    note = f"{held / 2**20:,.1f} MiB beside {most / 2**20:,.1f} MiB"
    yield Row(f"{name}'s peak memory / Reformer's, n = {n:,}", most / held, "×", note=note)


def _heads(n: int) -> tuple[Tensor, Tensor]:
    """Shared queries and keys, and values."""
    q, v = torch.randn(2, 1, HEADS, n, DIM // HEADS).requires_grad_().unbind()
    return q, v


def _form(layer: Reformer, n: int) -> Callable[[], object]:
    given = _heads(n)
    attend = partial(chunked, rotations=layer.rotations, causal=True, options=layer.options)
    return lambda: torch.autograd.grad(attend(*given).sum(), given)


def _forms(peer: Callable[..., Any], own: Reformer, n: int, repeats: int, threads: int) -> Row:
    """Only this package has its attention as a module of its own, for heads as sequences."""
    given = [x.flatten(0, 1) for x in _heads(n)]
    calls = {
        "package": lambda: torch.autograd.grad(peer(*given)[0].sum(), given),
        "our form": _form(own, n),
    }
    timed = compare(calls, repeats=repeats, warmup=1, threads=threads)
    return ratio(f"reformer_pytorch's form / our form, n = {n:,}", *timed, work=WORK)


# ---- depth


def _depth(n: int) -> Iterator[Row]:
    """Peak bytes of both passes without the gradients of parameters, 12 layers beside 3."""
    for reversible in (False, True):
        peaks = []
        for layers in (3, 12):
            model = TinyTransformer(
                vocab=32, dim=DIM, heads=HEADS, layers=layers, max_len=n, hidden=DIM,
                attention="reformer", attention_options={"buckets": 2 * n // CHUNK},
                reversible=reversible,
            )  # fmt: skip
            gradients = sum(p.numel() * p.element_size() for p in model.parameters())
            tokens = torch.zeros(1, n, dtype=torch.long, device="meta")
            peak = count(model.to("meta"), tokens, backward=True).peak_bytes
            peaks.append(peak - gradients)
        kind = "reversible" if reversible else "ordinary"
        note = " and ".join(f"{peak / 2**20:,.0f} MiB" for peak in peaks)
        figure = f"peak memory of 12 {kind} layers / of 3, n = {n:,}"
        yield Row(figure, peaks[1] / peaks[0], "×", at_most=1.1 if reversible else None, note=note)
