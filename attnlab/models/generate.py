"""Generating text from a prompt, one token at a time.

Each new token is drawn from softmax(logits / temperature) at the last position, perhaps among the
top_k most likely only (Fan, Lewis, Dauphin, Hierarchical Neural Story Generation, ACL 2018,
arXiv:1805.04833); temperature 0 takes the most likely. Re-running the whole prefix costs a forward
pass over n positions per token; a mechanism with an incremental path (``.step``) keeps a state
instead and pays for one position. Both give the same tokens.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from attnlab.core.integers import check_integer
from attnlab.core.modes import mode
from attnlab.models.inputs import (
    Reading,
    check_input,
    check_tensor,
    check_vectors,
    in_vocabulary,
)
from attnlab.models.options import check_real, check_switch
from attnlab.models.tiny import DecoderState, TinyTransformer, check_model
from attnlab.objectives.prefix_lm import sees

MOST_STEPS = 100_000

NextLogits = Callable[[Tensor], Tensor]


@torch.no_grad()
def generate(
    model: TinyTransformer,
    tokens: Int[Tensor, "b n"] | None,
    steps: int,
    *,
    temperature: float = 1.0,
    top_k: int | None = None,
    generator: torch.Generator | None = None,
    source: Int[Tensor, "b m"] | None = None,
    source_padding: Bool[Tensor, "b m"] | None = None,
    structure: Any = None,
    incremental: bool | None = None,
    prefix: int | None = None,
    inputs_embeds: Float[Tensor, "b n dim"] | None = None,
) -> Int[Tensor, "b n_plus_steps"]:
    """The prompt followed by ``steps`` new tokens, as int64.

    Beyond ``max_len`` the model reads only the last ``max_len`` tokens, all of them again at every
    step, because their positions change: slower, and the beginning has no influence. Draws come
    from ``generator``, or from PyTorch's own on the tokens' device. ``incremental``: None uses
    ``.step`` where every layer has it, True requires it, False always re-runs. Dropout is off, and
    the model is not changed. ``structure`` is what the model is told beside the source. ``prefix``:
    so many tokens at the beginning are read from both sides, as by a language model that learned by
    ``prefix_lm``; all tokens are read again at every step then.

    ``inputs_embeds`` is a prompt of vectors, where ``tokens`` is None, in the place of those that
    ``model.embedding(tokens)`` gives, such as vectors of an image among those of words. Then the
    new tokens alone are returned, (b, steps).
    """
    if inputs_embeds is None:
        tokens = _checked_prompt(model, tokens, incremental)
    else:
        tokens = _checked_vectors(model, tokens, inputs_embeds, incremental)
    prompt = _Prompt(model, inputs_embeds)
    steps = _check_steps(steps)
    prefix = _check_prefix(model, prompt.length(tokens), steps, prefix, incremental)
    _check_draws(model.vocab or 0, tokens.device, temperature, top_k, generator)
    model.check_source(source, source_padding)
    with mode(model, training=False):
        read: dict[str, Any] = {}
        if source is not None:
            memory = model.encode(source, source_padding, structure=structure)
            read = {"memory": memory, "memory_padding": source_padding, "structure": structure}
        next_logits = (
            _choose_path(prompt, read, incremental)
            if prefix is None
            else partial(_after_prefix, prompt, prefix)
        )
        for _ in range(steps):
            drawn = sample(next_logits(tokens), temperature, top_k, generator)
            tokens = torch.cat([tokens, drawn], dim=1)
        return tokens


def sample(
    logits: Float[Tensor, "b vocab"],
    temperature: float = 1.0,
    top_k: int | None = None,
    generator: torch.Generator | None = None,
) -> Int[Tensor, "b 1"]:
    """One token per row from softmax(logits / temperature); at temperature 0 the most likely."""
    _check_logits(logits)
    top_k = _check_draws(logits.shape[1], logits.device, temperature, top_k, generator)
    wide = logits.float()
    best = wide.amax(-1, keepdim=True)
    if not best.isfinite().all():
        raise ValueError(
            "the logits hold NaN or +∞, or a row of nothing but −∞, so no token can be drawn: are "
            "all weights of the model finite?"
        )
    if temperature == 0:
        return logits.argmax(-1, keepdim=True)
    scores = (wide - best) / max(float(temperature), torch.finfo(torch.float32).tiny)
    if top_k is None:
        return torch.multinomial(scores.softmax(-1), 1, generator=generator)
    best, index = scores.topk(top_k, dim=-1)  # exactly k candidates, also where scores tie
    return index.gather(-1, torch.multinomial(best.softmax(-1), 1, generator=generator))


class _Prompt(NamedTuple):
    """A model and the vectors (b, n, dim) that stand in front of its tokens, if there are some."""

    model: TinyTransformer
    vectors: Tensor | None = None

    def length(self, tokens: Tensor) -> int:
        """How many positions the vectors and these tokens fill."""
        return tokens.shape[1] + (0 if self.vectors is None else self.vectors.shape[1])

    def read(self, method: Callable[..., Any], tokens: Tensor, start: int, **given: Any) -> Any:
        """What a method of the model makes of all positions from ``start`` on."""
        if self.vectors is None:
            return method(tokens[:, start:], **given)
        n = self.vectors.shape[1]
        if start >= n:
            return method(tokens[:, start - n :], **given)
        words = self.model.embedding(tokens)
        both = torch.cat([self.vectors.to(words.dtype), words], 1)
        return method(inputs_embeds=both[:, start:], **given)


def _choose_path(prompt: _Prompt, read: Mapping[str, Any], incremental: bool | None) -> NextLogits:
    able = prompt.model.steps_incrementally
    if incremental and not able:
        raise ValueError(
            "incremental=True needs a step(x, state) method on every attention module of the "
            "decoder; leave it out to re-run the prefix where there is none"
        )
    path = _by_steps if (able if incremental is None else incremental) else _by_rerunning
    return path(prompt, read)


def _by_rerunning(prompt: _Prompt, read: Mapping[str, Any]) -> NextLogits:
    model = prompt.model

    def next_logits(tokens: Tensor) -> Tensor:
        start = max(0, prompt.length(tokens) - model.max_len)
        return model.logits(prompt.read(model.decode, tokens, start, **read)[:, -1])

    return next_logits


def _by_steps(prompt: _Prompt, read: Mapping[str, Any]) -> NextLogits:
    rerun = _by_rerunning(prompt, read)
    state: DecoderState | None = None

    def next_logits(tokens: Tensor) -> Tensor:
        nonlocal state
        if prompt.length(tokens) > prompt.model.max_len:
            return rerun(tokens)
        start = 0 if state is None else state[0]  # the prompt at first, then one token
        logits, state = prompt.read(prompt.model.step, tokens, start, state=state, **read)
        return logits

    return next_logits


def _after_prefix(prompt: _Prompt, prefix: int, tokens: Tensor) -> Tensor:
    prefixes = torch.full(tokens.shape[:1], prefix, device=tokens.device)
    seen = sees(prefixes, prompt.length(tokens))
    x = prompt.read(prompt.model.decode, tokens, 0, structure=seen)
    return prompt.model.logits(x[:, -1])


def _check_writes(model: TinyTransformer, incremental: bool | None) -> None:
    """A ValueError for a model that writes no tokens, or a switch that is none."""
    check_model(model)
    if model.decoder is None or model.vocab is None:
        raise ValueError(f"a model of kind={model.kind!r} does not generate tokens")
    if incremental is not None:
        check_switch("incremental", incremental)


def _checked_vectors(
    model: TinyTransformer, tokens: Tensor | None, vectors: Tensor, incremental: bool | None
) -> Tensor:
    """No tokens (b, 0) yet, where the prompt is vectors that the model can read."""
    _check_writes(model, incremental)
    if tokens is not None:
        raise ValueError(
            "give either tokens or inputs_embeds, the vectors that take the place of theirs; both "
            "are given"
        )
    check_vectors("inputs_embeds", vectors, model)
    if vectors.shape[1] == 0:
        raise ValueError("the prompt is empty (n = 0); give at least one vector to start from")
    Reading.either(model, None, vectors[:, -model.max_len :])  # refuses those of another device
    return torch.zeros(len(vectors), 0, dtype=torch.int64, device=vectors.device)


def _checked_prompt(
    model: TinyTransformer, tokens: Tensor | None, incremental: bool | None
) -> Tensor:
    """The tokens as int64: in a smaller dtype the ids of new ones might not fit."""
    _check_writes(model, incremental)
    if isinstance(tokens, Tensor):
        check_tensor("the prompt", tokens)
    if not isinstance(tokens, Tensor) or tokens.ndim != 2:
        found = f"shape {tuple(tokens.shape)}" if isinstance(tokens, Tensor) else type(tokens)
        raise ValueError(
            f"the prompt should be a tensor of tokens (b, n), got {found}; "
            "for one sequence of a tensor: tokens[None]"
        )
    if tokens.shape[1] == 0:
        raise ValueError("the prompt is empty (n = 0); give at least one token to start from")
    check_input(tokens[:, -model.max_len :], None, 0, model)
    return in_vocabulary(tokens, model.vocab)


def _check_steps(steps: int) -> int:
    steps = check_integer("steps", steps, at_least=0)
    if steps > MOST_STEPS:
        raise ValueError(
            f"steps should be at most {MOST_STEPS:,}, got {steps}; for more tokens, call generate "
            "again with what it returned"
        )
    return steps


def _check_prefix(
    model: TinyTransformer, length: int, steps: int, prefix: int | None, incremental: bool | None
) -> int | None:
    """Refuse a prefix that is longer than the prompt, and what cannot be read with one."""
    if prefix is None:
        return None
    prefix = check_integer("prefix", prefix, at_least=1)
    if prefix > length:
        raise ValueError(
            f"prefix={prefix} is more than the prompt's {length} tokens; what is written "
            "after them sees the past alone"
        )
    if model.kind != "language_model" or incremental:
        raise ValueError(
            "prefix is for a language_model without incremental=True: tokens that are read from "
            "both sides are read again at every step"
        )
    if length + steps - 1 > model.max_len:
        raise ValueError(
            f"with a prefix the model reads all tokens, here up to {length + steps - 1}, "
            f"more than its max_len={model.max_len}; take fewer steps"
        )
    return prefix


def _check_logits(logits: Tensor) -> None:
    check_tensor("logits", logits)
    if logits.is_meta:
        raise ValueError("logits on the meta device hold no numbers, so no token can be drawn")
    if logits.ndim != 2 or logits.shape[1] == 0 or not logits.is_floating_point():
        raise ValueError(
            "logits should be floating-point numbers of shape (b, vocab), one row per sequence, "
            f"got {logits.dtype} of shape {tuple(logits.shape)}"
        )


def _check_draws(
    vocab: int,
    device: torch.device,
    temperature: float,
    top_k: int | None,
    generator: torch.Generator | None,
) -> int | None:
    """Refuse what cannot be drawn with; ``top_k`` as an ``int``."""
    if not 0 <= check_real("temperature", temperature) < float("inf"):
        raise ValueError(f"temperature should be 0 (greedy) or more, got {temperature!r}")
    if generator is not None and not isinstance(generator, torch.Generator):
        raise TypeError(
            f"generator should be a torch.Generator or None, got a {type(generator).__name__}"
        )
    if generator is not None and generator.device.type != device.type:
        raise ValueError(
            f"generator is on {generator.device} but the tokens are on {device}; "
            f"make it with torch.Generator({str(device)!r})"
        )
    if top_k is None:
        return None
    top_k = check_integer("top_k", top_k, at_least=1)
    if top_k > vocab:
        raise ValueError(
            f"top_k should be at most {vocab}, the size of the vocabulary, got {top_k}"
        )
    return top_k
