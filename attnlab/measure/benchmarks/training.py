"""Training: tokens per second of a tiny language model beside its peers of the same size."""

from collections.abc import Callable, Iterator
from importlib.util import find_spec

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from attnlab.measure.comparison import all_keys, ratio
from attnlab.measure.report import Row
from attnlab.measure.timing import Timing, compare

VOCABULARY, DIM, LAYERS, HEADS, LENGTH = 256, 128, 4, 4, 256
Logits = Callable[[Tensor], Tensor]


def rows(*, quick: bool, threads: int) -> Iterator[Row]:
    """One optimizer step of each model per round: forward, loss, backward, AdamW; float32."""
    batch, repeats = (2, 2) if quick else (16, 21)
    models, missing = _models()
    steps = {name: _step(model, logits, batch) for name, (model, logits) in models.items()}
    timings = compare(
        steps, baseline="attnlab", repeats=repeats, warmup=1 if quick else 3, threads=threads
    )
    for timing in timings:
        yield _speed(timing, models[timing.name][0], batch * LENGTH)
    ours, *others = timings
    for timing in others:
        figure = f"attnlab's tokens per second / {timing.name}'s"
        work = all_keys(LENGTH, causal=True)
        yield ratio(figure, timing, ours, work=work, at_least=1.0)
    for name, package in missing.items():
        yield Row(name, None, note=f"{package} is not installed: pip install 'attnlab[peers]'")


def _speed(timing: Timing, model: nn.Module, tokens: int) -> Row:
    slow, fast = (tokens / seconds for seconds in reversed(timing.quartiles))
    size = sum(parameter.numel() for parameter in model.parameters())
    note = f"{size:,} parameters, {timing.median * 1e3:.3g} ms per step of {tokens:,} tokens"
    speed = tokens / timing.median
    return Row(f"{timing.name}: training", speed, "tokens/s", quartiles=(slow, fast), note=note)


def _models() -> tuple[dict[str, tuple[nn.Module, Logits]], dict[str, str]]:
    """The models that can be built here, and the peers whose package is not installed."""
    peers = {
        "x-transformers": ("x_transformers", _x_transformers),
        "Hugging Face GPT-2": ("transformers", _gpt2),
    }
    with torch.random.fork_rng():
        torch.manual_seed(0)
        models = {"attnlab": _attnlab()}
        models |= {name: build() for name, (package, build) in peers.items() if find_spec(package)}
    missing = {name: package for name, (package, _) in peers.items() if name not in models}
    return models, missing


def _attnlab() -> tuple[nn.Module, Logits]:
    from attnlab.models.tiny import TinyTransformer

    model = TinyTransformer(VOCABULARY, dim=DIM, layers=LAYERS, heads=HEADS, max_len=LENGTH)
    return model, model


def _x_transformers() -> tuple[nn.Module, Logits]:
    """With its flash option, its faster one, and heads of the same width (its default is 64)."""
    from x_transformers import Decoder, TransformerWrapper

    layers = Decoder(
        dim=DIM, depth=LAYERS, heads=HEADS, attn_dim_head=DIM // HEADS, attn_flash=True
    )
    model = TransformerWrapper(
        num_tokens=VOCABULARY, max_seq_len=LENGTH, attn_layers=layers, tie_embedding=True
    )
    return model, model


def _gpt2() -> tuple[nn.Module, Logits]:
    """With SDPA, its faster attention, without dropout (ours has none) and without a cache."""
    from transformers import AutoModelForCausalLM, GPT2Config

    config = GPT2Config(
        vocab_size=VOCABULARY,
        n_positions=LENGTH,
        n_embd=DIM,
        n_layer=LAYERS,
        n_head=HEADS,
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
        use_cache=False,
        bos_token_id=0,
        eos_token_id=0,
    )
    model = AutoModelForCausalLM.from_config(config, attn_implementation="sdpa")
    return model, lambda tokens: model(tokens).logits


def _step(model: nn.Module, logits: Logits, batch: int) -> Callable[[], object]:
    """A training step on the same random bytes for every model."""
    generator = torch.Generator().manual_seed(0)
    tokens = torch.randint(VOCABULARY, (batch, LENGTH + 1), generator=generator)
    inputs, targets = tokens[:, :-1], tokens[:, 1:]
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    model.train()

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        loss = F.cross_entropy(logits(inputs).flatten(0, 1), targets.flatten())
        loss.backward()
        optimizer.step()

    return step
