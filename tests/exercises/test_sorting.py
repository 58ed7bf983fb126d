"""Lesson 15's checks: what sorting costs, causal clusters, a causal layer that sorts."""

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from attnlab.exercises import check_causal_sorting, check_recent_members
from attnlab.mechanisms.learned import sinkhorn as sorting
from tests.exercises.frame import answers_to


def by_rank(x: Tensor, centroids: Tensor, w: int) -> Tensor:
    own = F.one_hot((x @ centroids.T).argmax(-1), len(centroids))
    rank = own.cumsum(0)[own.bool()]
    return (own @ own.T).tril().bool() & (rank[:, None] - rank < w)


def by_lists(x: Tensor, centroids: Tensor, w: int) -> Tensor:
    own = [int((centroids @ one).argmax()) for one in x]
    allowed = np.zeros((len(x), len(x)), dtype=bool)
    for i, mine in enumerate(own):
        allowed[i, [j for j in range(i + 1) if own[j] == mine][-w:]] = True
    return torch.from_numpy(allowed)


def block_by_block(q: Tensor, k: Tensor, v: Tensor, scores: Tensor, block: int) -> Tensor:
    keys, values, out = k.split(block), v.split(block), []
    for i, queries in enumerate(q.split(block)):
        past = torch.ones(block, block, dtype=torch.bool).tril()
        own_keys, own_values = keys[i], values[i]
        if i:
            brought = scores[i, :i].softmax(-1)
            mixed = [(brought[:, None, None] * torch.stack(x[:i])).sum(0) for x in (keys, values)]
            own_keys, own_values = torch.cat([mixed[0], keys[i]]), torch.cat([mixed[1], values[i]])
            past = torch.cat([torch.ones_like(past), past], 1)
        products = queries @ own_keys.T / q.shape[1] ** 0.5
        out.append(products.masked_fill(~past, -torch.inf).softmax(-1) @ own_values)
    return torch.cat(out)


def by_library(q: Tensor, k: Tensor, v: Tensor, scores: Tensor, block: int, columns: bool = False):
    earlier = torch.ones_like(scores).tril(-1).bool()
    sort = sorting.sinkhorn(scores, 8, allowed=earlier, columns=columns)[None, None]
    options = sorting.SinkhornOptions(block=block, max_len=64)
    parts = (x[None, None] for x in (q, k, v))
    return sorting.naive(*parts, sort, causal=True, options=options)[0, 0]


TestAnswers = answers_to(
    [
        (check_recent_members, by_rank),
        (check_recent_members, by_lists),
        (check_causal_sorting, block_by_block),
        (check_causal_sorting, by_library),
    ],
    [],
)


def test_eight_iterations_with_columns_are_a_leak(refuses: Callable[..., None]) -> None:
    refuses(check_causal_sorting(lambda *given: by_library(*given, columns=True)), "future leaks")
