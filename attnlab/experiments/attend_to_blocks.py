"""Attend to blocks: how often is a needle found, against the number of tokens that are read?

Not a figure of speed. A text of 256 tokens gives values to 8 of 16 keys, among random words; its
last 8 tokens ask for keys (`attnlab.tasks.lookup`: a key with its value is one token, and so is a
question for it). There are 8 values, so guessing is right in 12.5 %. Every model is one layer of
width 32 with two heads and a feed-forward layer of 64, without positions: the token that asks has
to read the pair itself. Only questions are scored, so only they attend. The arms are what a
question reads, one layer each, ``budget`` tokens for each head (16, 32 or 64):

    dense            all tokens
    window           the last ones
    random blocks    its own block of 8 and earlier ones, drawn anew for each question and head
    MoBA             its own block of 8, and those of the most similar mean key
    NSA              the first block of 4, the last two, and those of the largest compressed
                     weight; beside them a window of 4 and the means of all stretches of 4
    DSA              the tokens of the largest number of an indexer (2 heads of width 8), trained by
                     its own loss over the tokens that it chose
    DSA, all         the same, but the loss of the indexer is over all tokens
    DSA, warm-up     half of the updates dense with the loss over all tokens, then as DSA
    DSA, untrained   an indexer that is never trained
    LSH              at most 16 keys of its bucket in each of 1, 2 or 4 rounds (Reformer)
    routing          at most the keys of two chunks of its cluster, of 32, 16 or 8 clusters

The last two have one projection for queries and keys. Scores on unseen texts: ``right``, right
answers in per cent; ``found``, questions whose pair is among the tokens that a head has read;
``read``, how many these are for a question and head. ``right, …`` is the same model with a choice
that it was not trained with: of MoBA *by chance* (as many random blocks), of DSA *by another
indexer* (one with new random queries), of dense attention MoBA's blocks and the tokens of the
largest scores.

Each arm was tried with learning rates of 0.01 and 0.003 (one seed, the middle budget); the one with
the lower loss on texts that are not scored has three seeds. Lesson 18 draws what

    python -m attnlab.experiments attend_to_blocks --threads 1 --json \\
        attnlab/experiments/assets/18_attend_to_blocks.json

has written; rows that the file holds are not trained again.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim.lr_scheduler import CosineAnnealingLR

from attnlab import catalog
from attnlab.core.cache import KeyValueCache
from attnlab.core.chosen_blocks import numbers, seen
from attnlab.core.heads import Heads
from attnlab.core.probe import record
from attnlab.experiments.grid import Arm, Grid, Grids, Scores, Trained, percent, seeded
from attnlab.experiments.loop import descend
from attnlab.mechanisms.learned import deepseek_sparse
from attnlab.mechanisms.learned.deepseek_sparse import DeepSeekSparseAttention, index_scores
from attnlab.mechanisms.learned.deepseek_sparse.indexer import index_loss
from attnlab.mechanisms.learned.moba import MoBAttention
from attnlab.mechanisms.learned.nsa import NSAttention
from attnlab.tasks.lookup import Lookup

TASK = Lookup(length=256, questions=8, keys=8, values=4, words=32, every=32)
BUDGETS = (16, 32, 64)
TRIED = 32  # the budget at which learning rates are tried
BLOCK, SMALL_BLOCK = 8, 4
STEPS, BATCH, UNSEEN, COUNTED = 400, 16, 512, 64
SLOWER, FASTER = (1e-2, 3e-2), (3e-2, 1e-2)
SIZES: Mapping[str, Any] = {"dim": 32, "heads": 2, "hidden": 64}


# ---- what a question reads


class Masked(nn.Module):
    """Softmax attention of the last ``asking`` tokens. ``reads``: "all", "window" (the last
    ``budget`` tokens), "blocks" (the own block, and random earlier ones) or "scores" (the tokens of
    the largest scores)."""

    def __init__(self, dim: int, heads: int, reads: str, budget: int = 0) -> None:
        super().__init__()
        self.heads, self.reads, self.budget = Heads(dim, heads), reads, budget

    def forward(self, x: Tensor, asking: int) -> Tensor:
        q, k, v = self.heads.project(x)
        q = q[:, :, -asking:]
        mask = self.mask(q, k)
        return self.heads.merge(F.scaled_dot_product_attention(q, k, v, mask))

    def mask(self, q: Tensor, k: Tensor) -> Tensor:
        """(b, h, asking, n): which tokens are read."""
        n, m = q.shape[2], k.shape[2]
        past = torch.ones(n, m, dtype=torch.bool).tril(m - n)
        if self.reads == "window":
            past = past.triu(m - n - self.budget + 1)
        if self.reads == "scores":
            scores = (q @ k.mT).masked_fill(~past, -torch.inf)
            return torch.zeros_like(scores, dtype=torch.bool).scatter(
                -1, scores.topk(self.budget).indices, True
            )
        if self.reads == "blocks":
            own = torch.arange(m - n, m)[:, None] // BLOCK
            worth = torch.rand(*q.shape[:3], m // BLOCK)
            worth = worth.masked_fill(torch.arange(m // BLOCK) > own, -1)
            worth = worth.scatter(-1, own.expand(*q.shape[:3], 1), 2)
            return seen(worth.topk(self.budget // BLOCK).indices, numbers(k, None), None, BLOCK)
        return past.expand(*q.shape[:3], m)


LAYERS: Mapping[str, Any] = {
    "dense": lambda budget: ("", {"reads": "all"}),
    "window": lambda budget: ("", {"reads": "window", "budget": budget}),
    "random blocks": lambda budget: ("", {"reads": "blocks", "budget": budget}),
    "top scores": lambda budget: ("", {"reads": "scores", "budget": budget}),
    "MoBA": lambda budget: ("moba", {"block": BLOCK, "chosen": budget // BLOCK, "form": "naive"}),
    "NSA": lambda budget: (
        "nsa",
        {"stretch": SMALL_BLOCK, "stride": SMALL_BLOCK, "block": SMALL_BLOCK,
         "chosen": budget // SMALL_BLOCK, "window": SMALL_BLOCK, "form": "naive"},
    ),
    "DSA": lambda budget: ("dsa", {"chosen": budget, "index_heads": 2, "index_dim": 8}),
    "LSH": lambda budget: (
        "reformer",
        {"buckets": TASK.length // BLOCK, "chunk": 2 * BLOCK, "rounds": budget // 16},
    ),
    "routing": lambda budget: (
        "routing_transformer",
        {"clusters": 2 * TASK.length // budget, "decay": 0.99},
    ),
}  # fmt: skip
"""The layer of an arm, and its options for a budget; ``Masked`` where it has no name."""


class Reader(nn.Module):
    """One layer of attention and one feed-forward layer, for the questions at the end of a text.

    ``aligned``: what the loss of an indexer is taken over, "chosen" or "all"; None for no loss.
    ``warm``: the share of the updates in which it is trained beside dense attention.
    """

    def __init__(
        self, vocab: int, dim: int, heads: int, hidden: int, reads: str, budget: int = 0,
        aligned: Literal["chosen", "all"] | None = "chosen", warm: float = 0,
    ) -> None:  # fmt: skip
        super().__init__()
        self.aligned, self.warm = aligned, warm
        self.embedding = nn.Embedding(vocab, dim)
        nn.init.normal_(self.embedding.weight, std=0.05)
        self.norms = nn.ModuleList(nn.LayerNorm(dim) for _ in range(3))
        layer, options = LAYERS[reads](budget)
        if not layer:
            self.attention: Any = Masked(dim, heads, **options)
        else:
            self.attention = catalog.build(layer, dim=dim, heads=heads, causal=True, **options)
        if isinstance(self.attention, DeepSeekSparseAttention) and aligned is not None:
            self.attention.options = replace(self.attention.options, aligned=aligned)
        self.feed = nn.Sequential(nn.Linear(dim, hidden), nn.GELU(), nn.Linear(hidden, dim))
        self.output = nn.Linear(dim, vocab)

    def forward(self, tokens: Tensor, asking: int = TASK.questions) -> Tensor:
        """Scores of what follows each of the last ``asking`` tokens, (b, asking, vocab)."""
        return self.with_loss(tokens, asking)[0]

    def with_loss(self, tokens: Tensor, asking: int = TASK.questions) -> tuple[Tensor, Tensor]:
        """Its scores, and the loss of its indexer (0 without one)."""
        x: Tensor = self.embedding(tokens)
        mixed, loss = self.mixed(self.norms[0](x), asking)
        x = x[:, -asking:] + mixed
        x = x + self.feed(self.norms[1](x))
        scores: Tensor = self.output(self.norms[2](x))
        return scores, loss

    def mixed(self, x: Tensor, asking: int) -> tuple[Tensor, Tensor]:
        """What attention gives to the last tokens, and the loss of its indexer."""
        layer, loss = self.attention, x.new_zeros(())
        if isinstance(layer, Masked):
            return layer(x, asking), loss
        if isinstance(layer, DeepSeekSparseAttention):
            return self._indexed(x, asking)
        if not isinstance(layer, MoBAttention | NSAttention):  # its queries are its keys
            return layer(x)[:, -asking:], loss
        _, keys, values = layer.heads.project(x[:, :-asking])
        return layer.step(x[:, -asking:], KeyValueCache(keys, values))[0], loss

    def _indexed(self, x: Tensor, asking: int) -> tuple[Tensor, Tensor]:
        layer = self.attention
        q, k, v = layer.heads.project(x)
        q = q[:, :, -asking:]
        index_q, index_k, index_w = layer.indexed(x)
        index = index_scores(index_q[:, :, -asking:], index_k, index_w[:, -asking:])
        out = layer.heads.merge(deepseek_sparse.naive(q, k, v, index, options=layer.options))
        if self.aligned is None or not torch.is_grad_enabled():
            return out, x.new_zeros(())
        return out, index_loss(q, k, index, options=layer.options)


# ---- training and scores


def _train(model: Reader, task: Lookup, steps: int, *, seed: int, learning_rate: float) -> None:
    """Adam; the learning rate falls to zero along half of a cosine."""
    optimizer = torch.optim.Adam(model.parameters(), lr=learning_rate)
    layer, dense_until = model.attention, round(model.warm * steps)
    sparse: Any = getattr(layer, "options", None)
    if dense_until:
        layer.options = replace(sparse, chosen=task.length, aligned="all")

    def loss(step: int) -> Tensor:
        batch = task.batch("train", BATCH, seed=seed * 10_000 + step)
        scores, of_indexer = model.with_loss(batch.inputs)
        answers = batch.targets[:, -task.questions :]
        return F.cross_entropy(scores.flatten(0, 1), answers.flatten()) + of_indexer

    def after(step: int) -> None:
        if step == dense_until:
            layer.options = sparse

    with seeded(seed):
        schedule = CosineAnnealingLR(optimizer, steps)
        descend(optimizer, loss, steps, schedule=schedule, clip=1.0, after=after)
    if dense_until:
        layer.options = sparse  # a quick run ends before


@torch.no_grad()
def right(model: Reader, count: int = UNSEEN) -> float:
    """Right answers to the questions of unseen texts, in per cent."""
    batch = TASK.batch("validation", count, seed=0)
    with seeded(0):
        return percent(model(batch.inputs).argmax(-1) == batch.targets[:, -TASK.questions :])


@torch.no_grad()
def tokens_read(model: Reader, tokens: Tensor) -> Tensor:
    """(b, h, asking, n): the tokens whose keys and values each question reads, one by one."""
    layer, asking = model.attention, TASK.questions
    with seeded(0), record() as notes:
        if isinstance(layer, Masked):
            q, k, _ = layer.heads.project(model.norms[0](model.embedding(tokens)))
            return layer.mask(q[:, :, -asking:], k)
        if hasattr(layer, "form"):
            layer.form = "naive"
        model(tokens)
    if not isinstance(layer, NSAttention):
        found = notes.last("weights") > 0
        return found[:, :, -asking:]
    options, n = layer.options, tokens.shape[1]
    blocks = notes.last("blocks")
    at = torch.arange(n)[None].expand(len(tokens), n)
    near = at[:, None, None] > torch.arange(n - asking, n)[:, None] - options.window
    near = near & (at[:, None, None] <= torch.arange(n - asking, n)[:, None])
    return seen(blocks, at, None, options.block) | near


@torch.no_grad()
def found_and_read(model: Reader, count: int = COUNTED) -> tuple[float, float]:
    """Per cent of questions whose pair a head reads, and how many tokens a head reads for each."""
    inputs = TASK.batch("validation", count, seed=0).inputs
    read = tokens_read(model, inputs)
    return percent((read.any(1) & pairs_asked_for(inputs)).any(-1)), read.sum(
        -1
    ).double().mean().item()


def pairs_asked_for(inputs: Tensor) -> Tensor:
    """(b, asking, n): where the pair of each question stands."""
    of_pair = (inputs - TASK.values) // TASK.values
    asked = inputs[:, -TASK.questions :] - TASK.values * (TASK.keys + 1)
    is_pair = (inputs >= TASK.values) & (inputs < TASK.values * (TASK.keys + 1))
    return (of_pair[:, None] == asked[..., None]) & is_pair[:, None]


def otherwise(model: Reader, reads: str, budget: int) -> Reader:
    """The same weights, with another choice of tokens."""
    with seeded(0):
        other = Reader(TASK.vocab, **SIZES, reads=reads, budget=budget)
    other.load_state_dict(model.state_dict())
    return other.eval()


def _scores(trained: Trained) -> Scores:
    model, (reads, budget) = (
        trained.model,
        (trained.arm.model["model"][x] for x in ("reads", "budget")),
    )
    count = 16 if trained.quick else UNSEEN
    share, many = found_and_read(model, 4 if trained.quick else COUNTED)
    found: dict[str, Any] = {
        "right": right(model, count), "found": share, "read": (round(many, 2), "tokens")
    }  # fmt: skip
    if reads == "MoBA":
        found["right, by chance"] = right(otherwise(model, "random blocks", budget), count)
    if reads == "DSA":
        other = otherwise(model, "DSA", budget)
        with seeded(1):
            other.attention.index_query.reset_parameters()
        found["right, by another indexer"] = right(other, count)
    if reads == "dense":
        for each in BUDGETS:
            found[f"right, MoBA of {each}"] = right(otherwise(model, "MoBA", each), count)
            found[f"right, top {each} scores"] = right(otherwise(model, "top scores", each), count)
    return found


def _tuning(trained: Trained) -> Scores:
    """The loss on texts that are not scored; the rate with the lower one is taken."""
    batch = TASK.batch("validation", UNSEEN, seed=1)
    with torch.no_grad(), seeded(0):
        scores = trained.model(batch.inputs).flatten(0, 1)
    loss = F.cross_entropy(scores, batch.targets[:, -TASK.questions :].flatten())
    return {"loss on other texts": (round(loss.item(), 4), "nats")}


DSA: Mapping[str, Mapping[str, Any]] = {
    "DSA": {},
    "DSA, all": {"aligned": "all"},
    "DSA, warm-up": {"warm": 0.5},
    "DSA, untrained": {"aligned": None},
}
RATES: Mapping[str, tuple[float, ...]] = dict.fromkeys(  # the better one first
    ("dense", "window", "random blocks", "MoBA", "NSA", *DSA, "LSH", "routing"), SLOWER
)


def _arm(name: str, budget: int, rate: float) -> Arm:
    model = {"reads": name.split(",")[0], "budget": budget, **DSA.get(name, {})}
    return Arm(TASK, {"model": model}, {"learning_rate": rate})


def _budgets(name: str) -> tuple[int, ...]:
    if name == "dense":
        return (TASK.length,)
    return (TRIED,) if DSA.get(name) else BUDGETS


def _make(vocab: int, model: Mapping[str, Any], **_: Any) -> Reader:
    return Reader(vocab, **SIZES, **model)


_COMMON: Mapping[str, Any] = {"steps": STEPS, "make": _make, "loop": _train}
MAIN = Grid(
    arms={
        f"{name}; {budget} tokens": _arm(name, budget, rates[0])
        for name, rates in RATES.items()
        for budget in _budgets(name)
    },
    score=_scores,
    figure="{arm}; {what}; seed {seed}",
    **_COMMON,
)
TUNING = Grid(
    arms={
        f"{name}; {rate:g}": _arm(name, TASK.length if name == "dense" else TRIED, rate)
        for name, rates in RATES.items()
        for rate in rates
    },
    score=_tuning,
    seeds=(0,),
    figure="{arm}; {what}, tried once",
    **_COMMON,
)
GRID = Grids((MAIN, TUNING))
SEEDS = MAIN.seeds
rows, batches = GRID.rows, GRID.batches
build, train = MAIN.build, MAIN.train
