"""The checks of lesson 04 name each mistake, and accept every way of writing the right answer."""

import math

import numpy as np
import torch
from torch import Tensor

from attnlab.exercises import check_arriving_shares, check_entropy, check_mean_ablation
from tests.exercises.frame import answers_to

# ---- entropy


def by_kept(row: Tensor) -> Tensor:
    kept = row[row > 0]
    return -(kept * kept.log()).sum()


def by_loop(row: Tensor) -> float:
    return -sum(p * math.log(p) for p in row.tolist() if p)


def by_numpy(row: Tensor) -> np.floating:
    kept = row.numpy()[row.numpy() > 0]
    return -(kept * np.log(kept)).sum()


TestEntropy = answers_to(
    [
        (check_entropy, solution)
        for solution in [by_kept, by_loop, by_numpy, lambda row: torch.special.entr(row).sum()]
    ]
)


# ---- ablation by the mean


def by_sum_of_heads(out: Tensor, w: Tensor, a: int) -> Tensor:
    """Each head with its own rows of the matrix; no joining."""
    parts = [own.mean(0).expand_as(own) if place == a else own for place, own in enumerate(out)]
    return sum(part @ rows for part, rows in zip(parts, w.split(out.shape[2]), strict=True))


def ablated(out: Tensor, w: Tensor, a: int) -> Tensor:
    parts = list(out)
    parts[a] = parts[a].mean(0).expand_as(parts[a])
    return torch.cat(parts, dim=1) @ w


TestMeanAblation = answers_to(
    [(check_mean_ablation, solution) for solution in [by_sum_of_heads, ablated]],
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


def shares(x, wq, wk, wv, wo):
    scores = torch.einsum("nc,hcd,mb,hbd->hnm", x, wq, x, wk) * 3**-0.5
    scores = scores.masked_fill(torch.ones(5, 5).triu(1).bool(), -torch.inf)
    found = scores.softmax(-1) * (x @ wv @ wo).norm(dim=-1)[:, None]
    return found / found.sum(-1, keepdim=True)


TestArrivingShares = answers_to(
    [(check_arriving_shares, solution) for solution in [pair_by_pair, shares]],
)
