"""Random choices of an objective: which positions are hidden. Every draw is vectorised, and comes
from the generator that is given."""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from attnlab.objectives.batches import UNSCORED, Batch

Tokens = Int[Tensor, "b n"]
Places = Bool[Tensor, "b n"]


def real_tokens(batch: Batch) -> Places:
    """True at the tokens that are no padding."""
    if batch.padding is not None:
        return batch.padding
    return torch.ones(batch.inputs.shape[:2], dtype=torch.bool, device=batch.inputs.device)


def lengths(batch: Batch) -> Int[Tensor, "b"]:
    """How many real tokens each row has; a ValueError unless they stand at its beginning."""
    real = real_tokens(batch)
    if (real[:, 1:] & ~real[:, :-1]).any():
        raise ValueError(
            "this objective cuts texts into pieces, so their padding should stand at the end of a "
            "row, and a row has a real token after padding"
        )
    return real.sum(-1)


def check_text(name: str, batch: Batch) -> None:
    """A ValueError for a batch without the next token of each, as texts have it."""
    if batch.inputs.shape[:2] != batch.targets.shape or batch.source is not None:
        raise ValueError(
            f"{name} asks for the next token of a text; the inputs of this task are of shape "
            f"{tuple(batch.inputs.shape)} and its targets {tuple(batch.targets.shape)}"
            + (", with a source" if batch.source is not None else "")
            + "; take a task of texts"
        )


def check_tokens(name: str, batch: Batch, vocab: int) -> None:
    """A ValueError for a batch whose inputs are no tokens of this vocabulary."""
    tokens = batch.inputs
    if tokens.dim() != 2 or tokens.is_floating_point():
        raise ValueError(
            f"{name} hides tokens, and the inputs of this task are of shape {tuple(tokens.shape)} "
            f"and {tokens.dtype}; take a task of tokens"
        )
    if tokens.numel() and not 0 <= int(tokens.min()) <= int(tokens.max()) < vocab:
        wrong = int(tokens.max() if tokens.max() >= vocab else tokens.min())
        raise ValueError(f"{name} was built for vocab={vocab}, and a token of the task is {wrong}")


def check_targets(name: str, batch: Batch, vocab: int) -> None:
    """A ValueError for a batch whose scored targets are no tokens of this vocabulary."""
    scored = batch.targets[batch.targets != UNSCORED]
    if scored.numel() and not 0 <= int(scored.min()) <= int(scored.max()) < vocab:
        wrong = int(scored.max() if scored.max() >= vocab else scored.min())
        raise ValueError(f"{name} was built for vocab={vocab}, and a target of the task is {wrong}")


def share_of(real: Places, rate: float) -> Int[Tensor, "b"]:
    """round(rate · n) of the n real tokens of each row, at least 1 where there is one and the rate
    is not 0."""
    n = real.sum(-1)
    return (n * rate).round().long().clamp(min=int(rate > 0)).minimum(n)


def lowest(scores: Float[Tensor, "b n"], among: Places, count: Int[Tensor, "b"]) -> Places:
    """True at the ``count`` lowest scores of each row among those places."""
    order = scores.masked_fill(~among, torch.inf).argsort(-1)
    rank = torch.empty_like(order).scatter_(
        1, order, torch.arange(scores.shape[1]).expand_as(order)
    )
    return (rank < count[:, None]) & among


def lowest_words(
    scores: Float[Tensor, "b n"], begins: Places, among: Places, count: Int[Tensor, "b"]
) -> Places:
    """True at whole words, at most ``count`` tokens of them but at least one word.

    begins: where a word begins, a word being all real tokens up to the next beginning. Each word
        has the score of its first token; words are taken in this order while they fit.
    """
    word = begins.long().cumsum(-1)  # the tokens before the first beginning are word 0
    words = scores.shape[1] + 1
    of_word = scores.new_full((len(scores), words), torch.inf)
    of_word = of_word.scatter_reduce(1, word, scores.masked_fill(~among, torch.inf), "amin")
    length = torch.zeros_like(of_word, dtype=torch.int64).scatter_add(1, word, among.long())
    order = of_word.argsort(-1)
    filled = length.gather(1, order).cumsum(-1)
    fits = (filled <= count[:, None]) | ((torch.arange(words) == 0) & (count[:, None] > 0))
    taken = torch.zeros_like(fits).scatter(1, order, fits)
    return taken.gather(1, word) & among


def uniform(shape: torch.Size, generator: torch.Generator | None) -> Tensor:
    """Numbers between 0 and 1 in float64, for which ties do not occur."""
    return torch.rand(shape, generator=generator, dtype=torch.float64)


def digest(tokens: Tokens) -> Int[Tensor, "b"]:
    """A number for each row that follows from its tokens alone."""
    powers = [pow(0x9E3779B97F4A7C15, place + 1, 2**61 - 1) for place in range(tokens.shape[1])]
    return ((tokens + 1) * torch.tensor(powers)).sum(-1)  # wraps modulo 2^64


def rows_from(seeds: Int[Tensor, "b"], width: int) -> Float[Tensor, "b 3 n"]:
    """Three rows of uniform numbers for each seed, the same whenever it is asked for."""
    found = []
    for seed in seeds.tolist():
        own = torch.Generator().manual_seed(seed % 2**63)
        found.append(torch.rand(3, width, generator=own, dtype=torch.float64))
    return torch.stack(found) if found else torch.empty(0, 3, width, dtype=torch.float64)


def sampled(logits: Float[Tensor, "m v"], noise: Float[Tensor, "m"]) -> Int[Tensor, "m"]:
    """One token from each row: the first at which the sum of probabilities passes the random
    number between 0 and 1. No gradient."""
    sums = logits.detach().double().softmax(-1).cumsum(-1)
    wanted = noise.double().contiguous()[:, None]
    drawn = torch.searchsorted(sums / sums[:, -1:], wanted, right=True)
    return drawn[:, 0].clamp(max=logits.shape[-1] - 1)
