"""Position schemes: attention layers with rotations and biases beside plain ones, and beside peers.

A layer is projections, fused attention and output projection, without norms; x-transformers' with
its flash option, Hugging Face's with ``scaled_dot_product_attention`` where it has it (BLOOM's
ALiBi has not).
"""

from collections.abc import Callable, Iterator
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor, nn

from attnlab import catalog
from attnlab.measure.comparison import all_keys, ratio
from attnlab.measure.count import count
from attnlab.measure.report import Row
from attnlab.measure.timing import Timing, compare

HEADS, WIDTH = 8, 64
DIM = HEADS * WIDTH
PLAIN = "plain"
SCHEMES: dict[str, dict[str, Any]] = {
    "rope": {},
    "xpos": {"scaling": "xpos", "factor": 512.0},
    "alibi": {},
    "t5_bias": {},
}
"""Name → options of the scheme; xPos is one of RoPE's, for causal layers."""

Layer = tuple[nn.Module, Callable[[Tensor], Any]]
"""Whose parameters are trained, and what is called."""


def rows(*, quick: bool, threads: int) -> Iterator[Row]:
    """Figures at lengths under 4,096 are only shown: there other things than attention weigh."""
    n, repeats = (256, 1) if quick else (4096, 7)
    for package in ("x_transformers", "transformers"):
        if not find_spec(package):
            yield Row(package, None, note="not installed: pip install 'attnlab[peers]'")
    for causal in (False, True):
        with torch.random.fork_rng():
            torch.manual_seed(0)
            layers = _ours(causal) | _peers(n, causal)
        x = torch.randn(1, n, DIM, requires_grad=True)
        for backward in (False, True):
            calls = {name: _call(layer, x, backward) for name, layer in layers.items()}
            timed = compare(calls, baseline=PLAIN, repeats=repeats, warmup=1, threads=threads)
            passes = "forward and backward" if backward else "forward"
            where = f"{'causal, ' if causal else ''}{passes}, n = {n}"
            yield from _compared({timing.name: timing for timing in timed}, where, n, causal)
    yield _shifted(64 if quick else 1024)
    for length in (32,) if quick else (64, 512):
        yield from _complex(length, repeats, threads, not quick)


def _shifted(n: int) -> Row:
    """What the relative shift holds beyond the scores: one number for each query."""
    layer = catalog.build("relative", dim=DIM, heads=HEADS, causal=True)
    largest = count(layer, torch.randn(1, n, DIM)).largest_tensor.elements
    extra = (largest / HEADS - n * n) / n
    note = f"largest tensor: {largest:,} numbers, scores: {HEADS * n * n:,}"
    return Row(
        f"relative, shifted: numbers of a head beyond n², n = {n}", extra, "n", 1.0, note=note
    )


def _complex(n: int, repeats: int, threads: int, long: bool) -> Iterator[Row]:
    """A layer of DIM complex numbers beside real ones of DIM, forward and backward.

    A complex product is four real ones; that with the weights, which are real, is two.
    """
    real, own = "real, naive", "complex"
    with torch.random.fork_rng():
        torch.manual_seed(0)
        layers = {
            real: catalog.build("full", dim=DIM, heads=HEADS, form="naive"),
            "real, fused": catalog.build("full", dim=DIM, heads=HEADS),
            own: catalog.build("complex_attention", dim=2 * DIM, heads=HEADS),
        }
        widths = {name: 2 * DIM if name == own else DIM for name in layers}
        calls = {
            name: _call((layer, layer), torch.randn(8, n, widths[name], requires_grad=True), True)
            for name, layer in layers.items()
        }
    for baseline in (real, "real, fused"):
        chosen = {name: calls[name] for name in (baseline, own)}
        base, timing = compare(chosen, repeats=repeats, warmup=1, threads=threads)
        figure = f"complex / {baseline}, forward and backward, n = {n}"
        yield ratio(figure, timing, base, work=all_keys(n), at_most=4.5 if long else None)


def _compared(timed: dict[str, Timing], where: str, n: int, causal: bool) -> Iterator[Row]:
    """All compute every pair of whole layers; a causal one without a bias leaves out later blocks
    where the package calls PyTorch's fused attention so."""
    plain, long = timed.pop(PLAIN), n >= 4096
    work = f"keys of a query: {all_keys(n, causal).seen:,.0f} seen in both; at most {n:,} computed"
    for name, timing in timed.items():
        peer, _, scheme = name.rpartition(": ")
        if peer:
            figure, base = f"{name} / ours, {where}", timed[scheme]
            yield ratio(figure, timing, base, work=work, at_least=1.0 if long else None)
        else:
            figure = f"{name} / plain, {where}"
            yield ratio(figure, timing, plain, work=work, at_most=1.15 if long else None)


def _call(layer: Layer, x: Tensor, backward: bool) -> Callable[[], object]:
    module, run = layer
    leaves = (x, *module.parameters())

    def call() -> object:
        if backward:
            return torch.autograd.grad(run(x).sum(), leaves)
        with torch.no_grad():
            return run(x)

    return call


def _ours(causal: bool) -> dict[str, Layer]:
    layers = {PLAIN: catalog.build("full", dim=DIM, heads=HEADS, causal=causal)}
    for name, options in SCHEMES.items():
        if name != "xpos" or causal:
            of = "rope" if name == "xpos" else name
            scheme = catalog.build(of, dim=DIM, heads=HEADS, causal=causal, **options)
            layers[name] = catalog.build(
                "full", dim=DIM, heads=HEADS, causal=causal, positions=scheme  # type: ignore[arg-type]
            )  # fmt: skip
    return {name: (layer, layer) for name, layer in layers.items()}


# ---- peers


def _peers(n: int, causal: bool) -> dict[str, Layer]:
    made: dict[str, Layer] = {}
    if find_spec("x_transformers"):
        made |= {f"x-transformers: {k}": v for k, v in _x_transformers(n, causal).items()}
    if find_spec("transformers"):
        made |= {f"Hugging Face: {k}": v for k, v in _hugging_face(n, causal).items()}
    return made


def _x_transformers(n: int, causal: bool) -> dict[str, Layer]:
    from x_transformers import x_transformers as peer

    def layer() -> Any:
        return peer.Attention(DIM, dim_head=WIDTH, heads=HEADS, causal=causal, flash=True)

    rotated, linear, bucketed = layer(), layer(), layer()
    rotary = peer.RotaryEmbedding(WIDTH)
    slopes = peer.AlibiPositionalBias(HEADS, HEADS)
    bucketed.bias = peer.RelativePositionBias(WIDTH**0.5, causal=causal, heads=HEADS)
    return {
        "rope": (rotated, lambda x: rotated(x, rotary_pos_emb=rotary(torch.arange(n)))),
        "alibi": (linear, lambda x: linear(x, rel_pos=slopes)),
        "t5_bias": (bucketed, lambda x: bucketed(x, rel_pos=bucketed.bias)),
    }


def _hugging_face(n: int, causal: bool) -> dict[str, Layer]:
    """Llama's, BLOOM's (it has causal layers only) and T5's."""
    from transformers import LlamaConfig, T5Config
    from transformers.models.llama import modeling_llama
    from transformers.models.t5 import modeling_t5

    sdpa: dict[str, Any] = {"attn_implementation": "sdpa"}
    config = LlamaConfig(hidden_size=DIM, num_attention_heads=HEADS, **sdpa)
    llama = modeling_llama.LlamaAttention(config, 0)
    rotary = modeling_llama.LlamaRotaryEmbedding(config)
    llama.is_causal = causal
    places = torch.arange(n)[None]
    future = torch.zeros(1, 1, n, n)
    if causal:
        future.masked_fill_(torch.ones(n, n).triu(1).bool(), torch.finfo(torch.float32).min)
    sizes: dict[str, Any] = {"d_model": DIM, "d_kv": WIDTH, "num_heads": HEADS, "dropout_rate": 0.0}
    t5 = modeling_t5.T5Attention(
        T5Config(**sizes, **sdpa, is_decoder=causal),
        has_relative_attention_bias=True, layer_idx=0, is_causal=causal,
    )  # fmt: skip
    layers: dict[str, Layer] = {
        "rope": (llama, lambda x: llama(x, rotary(x, places), None)[0]),
        "t5_bias": (t5, lambda x: t5(x, mask=future)[0]),
    }
    return layers | ({"alibi": _bloom(n, future)} if causal else {})


def _bloom(n: int, future: Tensor) -> Layer:
    from transformers import BloomConfig
    from transformers.models.bloom import modeling_bloom

    config = BloomConfig(hidden_size=DIM, n_head=HEADS, hidden_dropout=0.0, attention_dropout=0.0)
    bloom, no_residual = modeling_bloom.BloomAttention(config, 0), torch.zeros(())
    alibi = modeling_bloom.build_alibi_tensor(torch.ones(1, n), HEADS, torch.float32)
    return bloom, lambda x: bloom(x, no_residual, alibi, future)[0]
