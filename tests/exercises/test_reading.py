"""The checks of lesson 04 name each mistake, and accept every way of writing the right answer."""

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor

from attnlab.exercises import (
    check_arriving_shares,
    check_entropy,
    check_mean_ablation,
)
from tests.exercises.frame import answers_to

# ---- numbers

# ---- entropy


def by_kept(row: Tensor) -> Tensor:
    kept = row[row > 0]
    return -(kept * kept.log()).sum()


def by_loop(row: Tensor) -> float:
    return -sum(p * math.log(p) for p in row.tolist() if p)


def by_numpy(row: Tensor) -> np.floating:
    kept = row.numpy()[row.numpy() > 0]
    return -(kept * np.log(kept)).sum()


ENTROPY_WRONG = {
    "bits": ("natural logarithm", lambda row: by_kept(row) / math.log(2)),
    "sign": ("change the sign", lambda row: -by_kept(row)),
    "divided": ("its largest value", lambda row: by_kept(row) / math.log(len(row))),
    "nan": ("became NaN", lambda row: -(row * row.log()).sum()),
    "bare": ("not multiplied", lambda row: -row[row > 0].log().sum()),
    "mean": ("entropy is a sum", lambda row: by_kept(row) / 4),
    "None": ("`return`", lambda row: None),
}


@pytest.mark.parametrize(
    "solution", [by_kept, by_loop, by_numpy, lambda row: torch.special.entr(row).sum()]
)
def test_entropies_written_differently_are_right(solution: Callable[..., Tensor]) -> None:
    verdict = check_entropy(solution)
    assert verdict.right, verdict.message


@pytest.mark.parametrize(("words", "solution"), ENTROPY_WRONG.values(), ids=ENTROPY_WRONG)
def test_entropy_mistakes_by_name(words: str, solution: object, refuses: Callable) -> None:
    refuses(check_entropy(solution), words)


# ---- ablation by the mean


def by_sum_of_heads(out: Tensor, w: Tensor, a: int) -> Tensor:
    """Each head with its own rows of the matrix; no joining."""
    parts = [own.mean(0).expand_as(own) if place == a else own for place, own in enumerate(out)]
    return sum(part @ rows for part, rows in zip(parts, w.split(out.shape[2]), strict=True))


def ablated(out, w, a, put=lambda own: own.mean(0).expand_as(own), join=None):
    parts = list(out)
    parts[a] = put(parts[a])
    return (join or (lambda parts: torch.cat(parts, dim=1)))(parts) @ w


ABLATION_WRONG = {
    "zero": ("became zero", lambda o, w, a: ablated(o, w, a, put=torch.zeros_like)),
    "nothing": ("nothing was replaced", lambda o, w, a: ablated(o, w, a, put=lambda own: own)),
    "width": (
        "over the width",
        lambda o, w, a: ablated(o, w, a, put=lambda own: own.mean(1, True).expand_as(own)),
    ),
    "one number": (
        "It is one number",
        lambda o, w, a: ablated(o, w, a, put=lambda own: own.mean().expand_as(own)),
    ),
    "heads": (
        "over the heads",
        lambda o, w, a: ablated(o, w, a, put=lambda own: o.mean(0)),
    ),
    "all": (
        "All heads",
        lambda o, w, a: torch.cat([x.mean(0)[None] for x in o], 1).expand(5, 6) @ w,
    ),
    "from 1": ("counted from 0", lambda o, w, a: ablated(o, w, a - 1)),
    "joined": (
        "without a transpose",
        lambda o, w, a: ablated(o, w, a, join=lambda parts: torch.stack(parts).reshape(5, 6)),
    ),
    "other": ("the numbers are not", lambda o, w, a: 3 * ablated(o, w, a)),
    "None": ("`return`", lambda *given: None),
}


TestMeanAblation = answers_to(
    [(check_mean_ablation, solution) for solution in [by_sum_of_heads, ablated]],
    [(check_mean_ablation, ABLATION_WRONG)],
)


# ---- shares of what arrives


def pair_by_pair(x, wq, wk, wv, wo):
    heads, n = len(wq), len(x)
    found = torch.zeros(heads, n, n, dtype=x.dtype)
    for h in range(heads):
        lengths = [(row @ wv[h] @ wo[h]).square().sum().sqrt() for row in x]
        for i in range(n):
            scores = torch.stack([x[i] @ wq[h] @ (x[j] @ wk[h]) / 3**0.5 for j in range(i + 1)])
            found[h, i, : i + 1] = scores.softmax(0) * torch.stack(lengths[: i + 1])
    return found / found.sum(-1, keepdim=True)


def shares(
    x, wq, wk, wv, wo, *, scale=3**-0.5, past=True, norm=2, out=True, weigh=True, over=-1, part=True
):
    scores = torch.einsum("nc,hcd,mb,hbd->hnm", x, wq, x, wk) * scale
    scores = scores.masked_fill(torch.ones(5, 5).triu(1).bool() & past, -torch.inf)
    value = x @ wv @ wo if out else x @ wv
    lengths = value.abs().pow(abs(norm)).sum(-1) ** (1 / norm if norm > 0 else 1)
    found = scores.softmax(-1) * (lengths[:, None] if weigh else 1)
    return found / found.sum(over, keepdim=True) if part else found


def wrong(**options: object) -> Callable[..., Tensor]:
    return lambda *given: shares(*given, **options)


SHARES_WRONG = {
    "weights": ("Those are the attention weights", wrong(weigh=False)),
    "values": ("output matrix is missing", wrong(out=False)),
    "future": ("causal mask is missing", wrong(past=False)),
    "scale": ("not scaled", wrong(scale=1)),
    "squared": ("length is squared", wrong(norm=-2)),
    "absolute": ("sum of the absolute values", wrong(norm=1)),
    "columns": ("shares of a column", wrong(over=-2)),
    "whole": ("It is not divided", wrong(part=False)),
    "other": ("the numbers are not", lambda *given: 3 * shares(*given)),
    "None": ("`return`", lambda *given: None),
}


TestArrivingShares = answers_to(
    [(check_arriving_shares, solution) for solution in [pair_by_pair, shares]],
    [(check_arriving_shares, SHARES_WRONG)],
)
