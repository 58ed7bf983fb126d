"""Attention of today's models: latents absorbed or expanded, beside DeepSeek's layer; sinks, gates,
differences, blocks that are chosen.

The latents are those of DeepSeek-V3 (k = 512, r = 64, heads of 128) with 16 heads of its 128.
"""

import importlib
from collections.abc import Callable, Iterator
from functools import partial
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor, nn

from attnlab import catalog
from attnlab.core.patterns import causal
from attnlab.measure.comparison import Keys, all_keys, ratio
from attnlab.measure.report import Row
from attnlab.measure.timing import compare
from attnlab.mechanisms.dense import differential, full, gated_attention, sink
from attnlab.mechanisms.dense.multi_head_latent import FORMS
from attnlab.mechanisms.learned import moba, nsa
from attnlab.mechanisms.learned.nsa.stretches import NSAOptions

DIM, HEADS, WIDTH = 2048, 16, 128
LATENT: dict[str, Any] = {
    "latent_dim": 512, "rotated_dim": 64, "query_latent_dim": 768,
    "content_dim": WIDTH, "value_dim": WIDTH,
}  # fmt: skip
PASSES = ("forward", "forward and backward")


def rows(*, quick: bool, threads: int) -> Iterator[Row]:
    repeats = 1 if quick else 15
    for m in (256,) if quick else (4096, 16_384):
        yield _decoded(m, repeats, threads)
    for n in (64,) if quick else (256, 1024):
        yield from _beside_deepseek(n, repeats, threads)
    for n in (64,) if quick else (1024, 4096):
        yield from _beside_full(n, repeats, threads)
    for n in (128,) if quick else (8192, 16_384):
        yield from _chosen_blocks(n, repeats, threads)


def _decoded(m: int, repeats: int, threads: int) -> Row:
    """One token after m: the form that makes keys and values of all of them, and the other."""
    sequences = [(1, HEADS, 1, WIDTH), (1, HEADS, 1, 64), (1, m, 512), (1, m, 64)]
    given = [torch.randn(shape) for shape in (*sequences, *2 * [(HEADS, WIDTH, 512)])]
    calls = {
        name: partial(_without_gradient, partial(FORMS[form], *given))
        for name, form in (("absorbed", "absorbed"), ("expanded", "fused"))
    }
    short, long = compare(calls, repeats=repeats, warmup=1, threads=threads)
    least = 5.0 if m >= 16_384 else None
    figure = f"expanded / absorbed, one token after {m:,}"
    return ratio(figure, long, short, work="the same output from the same latents", at_least=least)


def _beside_deepseek(n: int, repeats: int, threads: int) -> Iterator[Row]:
    """Our layer and Transformers', which has the keys and values made as ours has, causal."""
    if not find_spec("transformers"):
        yield Row("Hugging Face / ours", None, "×", note="not installed: pip install transformers")
        return
    theirs, angles = deepseek(n)
    ours = catalog.build("multi_head_latent", dim=DIM, heads=HEADS, causal=True, **LATENT)
    x = torch.randn(1, n, DIM, requires_grad=True)

    def peer() -> Tensor:
        out: Tensor = theirs(x, position_embeddings=angles, attention_mask=None)[0]
        return out

    for which in PASSES:
        calls = {
            name: partial(_run, call, which, (x, *module.parameters()))
            for name, call, module in (("ours", partial(ours, x), ours), ("theirs", peer, theirs))
        }
        mine, its = compare(calls, repeats=repeats, warmup=1, threads=threads)
        figure = f"Hugging Face / ours, {which}, n = {n:,}"
        least = 1.0 if n >= 1024 else None
        yield ratio(figure, its, mine, work=all_keys(n, True), at_least=least)


def deepseek(n: int) -> tuple[nn.Module, tuple[Tensor, Tensor]]:
    """Transformers' layer of DeepSeek-V3 in these sizes, with PyTorch's attention, and its cosines
    and sines, all for an angle of 0: ours does not turn either."""
    code: Any = importlib.import_module("transformers.models.deepseek_v3.modeling_deepseek_v3")
    config = code.DeepseekV3Config(
        hidden_size=DIM, num_attention_heads=HEADS, num_key_value_heads=HEADS, kv_lora_rank=512,
        q_lora_rank=768, qk_rope_head_dim=64, qk_nope_head_dim=WIDTH, v_head_dim=WIDTH,
        attn_implementation="sdpa",
    )  # fmt: skip
    return code.DeepseekV3Attention(config, 0), (torch.ones(1, n, 64), torch.zeros(1, n, 64))


def _beside_full(n: int, repeats: int, threads: int) -> Iterator[Row]:
    """What a sink, a gate and a second map of half the width add to fused attention, causal."""
    q, k, v, gate = torch.randn(4, 1, 4, n, 64)
    leaves = tuple(x.requires_grad_() for x in (q, k, v))
    two_q, two_k = (x.unflatten(-1, (2, 32)).transpose(2, 3) for x in (q, k))
    less = torch.full((1, 4, n), 0.2)
    added: dict[str, Callable[[], Tensor]] = {
        "sink": partial(sink.fused, q, k, v, torch.zeros(4), mask=causal()),
        "gated": partial(gated_attention.fused, q, k, v, gate, mask=causal()),
        "differential": partial(differential.fused, two_q, two_k, v, less, mask=causal()),
    }
    plain = partial(full.fused, q, k, v, mask=causal())
    for (name, call), which in ((each, which) for each in added.items() for which in PASSES):
        calls = {
            name: partial(_run, call, which, leaves),
            "full": partial(_run, plain, which, leaves),
        }
        mine, its = compare(calls, repeats=repeats, warmup=1, threads=threads)
        yield ratio(f"{name} / full, {which}, n = {n:,}", mine, its, work=all_keys(n, True))


def _chosen_blocks(n: int, repeats: int, threads: int) -> Iterator[Row]:
    """MoBA with three blocks of 512 for each query, and NSA with the sizes of its paper, where its
    four heads have keys of their own and where they share them, beside fused attention to all keys,
    causal."""
    q, k, v = leaves = tuple(x.requires_grad_() for x in torch.randn(3, 1, 4, n, 64))
    options, native = moba.MoBAOptions(block=min(512, n // 8), chosen=3), NSAOptions()
    size, most = options.block, native.chosen * native.block + native.window + n // native.stride
    gate, one = torch.randn(1, 4, n, 3), slice(0, 1)
    sparse = {
        "MoBA": partial(moba.blocked, *leaves, options=options),
        "NSA": partial(nsa.blocked, q, k, v, gate, options=native),
        "NSA of shared keys": partial(nsa.blocked, q, k[:, one], v[:, one], gate, options=native),
    }
    by_nsa = Keys(min((n + 1) / 2, most - n // native.stride / 2), most)
    keys = {"MoBA": Keys((size + 1) / 2 + 2 * size, 3 * size)}
    keys |= dict.fromkeys(("NSA", "NSA of shared keys"), by_nsa)
    dense = partial(full.fused, *leaves, mask=causal())
    for (name, call), which in ((each, which) for each in sparse.items() for which in PASSES):
        calls = {
            "full": partial(_run, dense, which, leaves),
            name: partial(_run, call, which, leaves),
        }
        every, chosen = compare(calls, repeats=repeats, warmup=1, threads=threads)
        least = {8192: 1.0, 16_384: 3.0}.get(n)
        figure = f"full / {name}, {which}, n = {n:,}"
        work = all_keys(n, True), keys[name]
        yield ratio(figure, every, chosen, work=work, at_least=least)


def _run(call: Callable[[], Tensor], which: str, leaves: tuple[Tensor, ...]) -> object:
    if which == "forward":
        return _without_gradient(call)
    return torch.autograd.grad(call().sum(), leaves, allow_unused=True)


def _without_gradient(call: Callable[[], Tensor]) -> Tensor:
    with torch.no_grad():
        return call()
