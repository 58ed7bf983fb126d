"""ROUGE-1, which counts the words that two texts have in common, and the sentences of a text that
share most words with the rest of it.

Lin. ROUGE: A Package for Automatic Evaluation of Summaries. 2004.
"""

from collections import Counter

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn


def rouge_1(taken: Counter[int], rest: Counter[int], unique: bool) -> float:
    """F1 of the words that two texts have in common."""
    if unique:
        taken, rest = Counter(taken.keys()), Counter(rest.keys())
    return 2 * (taken & rest).total() / max(1, taken.total() + rest.total())


def word_counts(
    tokens: Int[Tensor, "b n"], real: Bool[Tensor, "b n"], sentence: Int[Tensor, "b n"]
) -> Float[Tensor, "b s u"]:
    """How often each word stands in each sentence; words are numbered anew in each row."""
    order = tokens.argsort(-1)
    ordered = tokens.gather(1, order)
    new = (ordered[:, 1:] != ordered[:, :-1]).long().cumsum(-1)
    word = torch.zeros_like(tokens).scatter_(1, order, nn.functional.pad(new, (1, 0)))
    s, u = int(sentence.amax()) + 1, int(word.amax()) + 1
    counts = torch.zeros(len(tokens), s * u, dtype=torch.float64)
    return counts.scatter_add_(1, sentence * u + word, real.double()).view(-1, s, u)


def f1(counts: Float[Tensor, "b s u"], whole: Float[Tensor, "b 1 u"], unique: bool) -> Tensor:
    """ROUGE-1 of each of these counts of words with what the whole text has beside them, (b, s)."""
    rest = whole - counts
    if unique:
        counts, rest = (counts > 0).double(), (rest > 0).double()
    together = (counts.sum(-1) + rest.sum(-1)).clamp(min=1)
    return 2 * counts.minimum(rest).sum(-1) / together


def principal(
    counts: Float[Tensor, "b s u"], count: Int[Tensor, "b"], *, sequential: bool, unique: bool
) -> Bool[Tensor, "b s"]:
    """The sentences with most in common with the rest; of equal ones the first."""
    whole, there = counts.sum(1, keepdim=True), counts.sum(-1) > 0
    if not sequential:
        order = f1(counts, whole, unique).masked_fill(~there, -1)
        order = order.argsort(dim=-1, descending=True, stable=True)
        first = torch.arange(order.shape[1]) < count[:, None]
        return torch.zeros_like(there).scatter_(1, order, first)
    gone, taken = torch.zeros_like(there), torch.zeros_like(whole)
    for step in range(int(count.amax())):
        scores = f1(taken + counts, whole, unique).masked_fill(~there | gone, -1)
        best = scores.argsort(dim=-1, descending=True, stable=True)[:, :1]
        more = (step < count)[:, None]
        gone = gone.scatter(1, best, gone.gather(1, best) | more)
        added = counts.gather(1, best[..., None].expand(-1, -1, counts.shape[-1]))
        taken = taken + added * more[..., None]
    return gone
