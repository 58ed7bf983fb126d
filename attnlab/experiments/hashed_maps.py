"""Hashed maps: the weight that a hash finds, with shared and with separate queries and keys.

Nothing is timed. Two tasks, and for each of them models whose queries and keys are shared (LSH
attention with all keys) or separate (full attention), trained with the same width, layers, steps
and learning rate, which was tuned for neither. The tasks are duplication (words of 15 symbols, one
layer; every arm ends at 100 % of right symbols) and Python's documentation (two layers, where 600
steps are a budget, not a floor). Then the maps of unseen sequences are hashed into eight buckets,
with new random directions: which share of the attention weight stands on pairs that share a bucket
in some round, and which share of the allowed pairs these are? A random choice of pairs would find
as much weight as it has pairs. Lesson 14 draws what

    python -m attnlab.experiments hashed_maps --threads 1 --json \\
        attnlab/experiments/assets/14_hashing.json

has written. All numbers are per cent, but for the loss and the cosines.
"""

from collections.abc import Mapping
from functools import cache
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from attnlab.experiments import duplication
from attnlab.experiments.grid import Arm, Grid, Scores, Trained, by_fit
from attnlab.lens.watch import watch
from attnlab.mechanisms.learned.reformer import hash_buckets
from attnlab.models.tiny import TinyTransformer
from attnlab.tasks import Task
from attnlab.tasks.documentation import Documentation
from attnlab.tasks.duplication import Duplication

HASHES, ROUNDS, DIRECTIONS, TEXTS = 3, (1, 2, 4, 8), 4, 4
KINDS: Mapping[str, Mapping[str, Any]] = {
    "shared": {"attention": "reformer", "attention_options": {"form": "naive"}},
    "separate": {"attention": "full"},
}


class Map(NamedTuple):
    """One head's queries, keys (n, d) and weights (n, n)."""

    queries: Tensor
    keys: Tensor
    weights: Tensor


@cache
def documentation() -> Documentation:
    """The text."""
    return Documentation("bpe", length=64, bpe_size=512)


def _trained(model: TinyTransformer, task: Any, steps: int, **given: Any) -> Any:
    """Shared queries and keys have one bucket, that of all keys."""
    if model.config["attention"] == "reformer":
        duplication.rehash(model, duplication.ALL, given["seed"])
    return by_fit(model, task, steps, **given)


def _scores(trained: Trained) -> Scores:
    first = 16 if trained.name.startswith("duplication") else 0
    itself = trained.arm.model["attention"] == "full"
    return measured(trained.model, trained.arm.problem, first=first, itself=itself)


@torch.no_grad()
def measured(
    model: TinyTransformer, task: Task, *, first: int, itself: bool
) -> dict[str, tuple[float, str]]:
    """Loss and right answers, cosines, then weight and pairs, with units. ``first`` is the first
    row that is counted; with ``itself`` a query may attend to its own token."""
    batch = task.batch("validation", 64, seed=0)
    logits, asked = model(batch.inputs), batch.targets >= 0
    loss = F.cross_entropy(logits[asked], batch.targets[asked])
    right = (logits.argmax(-1) == batch.targets)[asked].double().mean()
    with watch(model) as seen:
        model(task.batch("validation", TEXTS, seed=1).inputs)
    maps = [
        Map(one.queries[b, h], one.keys[b, h], one.weights[b, h])
        for one in seen
        for b in range(TEXTS)
        for h in range(one.queries.shape[1])
    ]
    allowed = pairs(len(maps[0].queries), first, itself=itself)
    found: dict[str, tuple[float, str]] = {
        "loss": (round(loss.item(), 4), "nats"),
        "right": (round(100 * right.item(), 2), "%"),
    }
    found |= {name: (round(value, 3), "") for name, value in cosines(maps, allowed).items()}
    for count in ROUNDS:
        shares = torch.stack(
            [hashed(one, allowed, count, s) for one in maps for s in range(HASHES)]
        )
        weight, computed, nothing = (100 * shares.mean(0)).tolist()
        name = f"{count} rounds"
        found |= {f"{name}: weight": (round(weight, 2), "%")}
        found |= {f"{name}: pairs": (round(computed, 2), "%")}
        found |= {f"{name}: queries without a key": (round(nothing, 2), "%")}
    return found


def pairs(n: int, first: int, *, itself: bool) -> Tensor:
    """(n, n): the earlier keys of the queries from ``first`` on; with ``itself``, their own too."""
    allowed = torch.ones(n, n, dtype=torch.bool).tril(0 if itself else -1)
    allowed[:first] = False
    return allowed


def hashed(one: Map, allowed: Tensor, rounds: int, seed: int) -> Tensor:
    """The share of the weight that a hash finds, of the pairs, and of queries without a key."""
    d, generator = one.queries.shape[-1], torch.Generator().manual_seed(seed)
    directions = torch.randn(1, rounds, d, DIRECTIONS, generator=generator)
    own, keys = (hash_buckets(x[None, None], directions)[0, 0] for x in (one.queries, one.keys))
    found = (own[:, :, None] == keys[:, None, :]).any(0) & allowed
    asked = allowed.any(-1)
    weight = (one.weights * found).sum() / (one.weights * allowed).sum()
    return torch.stack(
        [weight, found.sum() / allowed.sum(), 1 - found.any(-1)[asked].double().mean()]
    )


def cosines(maps: list[Map], allowed: Tensor) -> dict[str, float]:
    """The mean cosine of query and key over all pairs and with each query's heaviest key, and
    the mean weight of that key."""
    asked, totals = allowed.any(-1), torch.zeros(3)
    for one in maps:
        cosine = F.normalize(one.queries, dim=-1) @ F.normalize(one.keys, dim=-1).mT
        weight, best = (one.weights * allowed)[asked].max(-1)
        heaviest = cosine[asked].gather(1, best[:, None])
        totals += torch.stack([cosine[allowed].mean(), heaviest.mean(), weight.mean()])
    names = ("cosine of all pairs", "cosine of the heaviest key", "weight of the heaviest key")
    return dict(zip(names, (totals / len(maps)).tolist(), strict=True))


def _arms(name: str, task: Any, steps: int, model: Any, training: Any) -> dict[str, Arm]:
    return {
        f"{name}, {kind}": Arm(task, {**model, **options}, training, steps)
        for kind, options in KINDS.items()
    }


_WORDS = (Duplication(items=15), 250, duplication.MODEL, duplication.TRAINING)
_TEXT = (
    documentation, 600, {"dim": 128, "layers": 2, "heads": 4},
    {"batch_size": 16, "learning_rate": 2e-3},
)  # fmt: skip
GRID = Grid(
    arms={**_arms("duplication", *_WORDS), **_arms("documentation", *_TEXT)},
    score=_scores,
    loop=_trained,
    figure="{arm}; {what}; seed {seed}",
)
"""Duplication is counted in its second word, the documentation everywhere."""
SEEDS = GRID.seeds
train, rows, batches = GRID.train, GRID.rows, GRID.batches
