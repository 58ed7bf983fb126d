"""Attend to blocks: which tokens does a trained selection read, and what does that cost?

Not a figure of speed. Every model is one layer of width 32 with two heads and a feed-forward layer
of 64, without positions; all are trained on the same texts (`attnlab.tasks.lookup`): 128 tokens,
of which 14 give one of four values to a key, and the last 16 ask for keys. Who guesses is right in
25 %. The arms differ in what a query reads, about 32 of the tokens before it but for the first:

    dense                    all of them
    window                   the last 32
    random blocks            its own block of 8 tokens and three others, drawn anew each time
    MoBA                     its own block and the three whose mean keys are most like the query
    MoBA, dense before       the first half of the updates with all blocks
    NSA                      means of 8 tokens every 8; of blocks of 8 the first, the last two, and
                             the one that these means favour; and itself, as a window of 1
    indexer                  the 32 that an indexer chooses (DeepSeek), which learns to choose what
                             attention weighs most
    indexer, dense before    the first half of the updates with all tokens, as DeepSeek's warm-up
    untrained indexer        the same, but the indexer stays as it was drawn
    LSH                      what two rounds of hashing find, the last 16 of a bucket (lesson 14)
    routing                  the last 32 of its cluster (lesson 15)

Scores are per cent of right answers on unseen texts, and of the questions at the end: how many keys
each head reads (of NSA: means and tokens), how many products it takes to choose them, as multiples
of one product of a query and a key, and for how many questions a head reads the token that gives
the answer. A token that is read as a part of a mean does not count. Then trained models choose in
other ways, without any training for them:

    random           MoBA: other blocks at random; indexer: other tokens at random
    largest key      MoBA: the blocks of the largest product of the query and a key, not a mean
    attention        indexer: the tokens that attention over all of them would weigh most
    all              all blocks, or tokens
    without …        NSA: a branch is left out

Each arm is tried with learning rates of 0.003 and 0.01, with one seed and half of the updates; the
rate with the lower loss on sequences that are not scored has three seeds and all updates. Lesson 18
draws what

    python -m attnlab.experiments attend_to_blocks --threads 1 --json \\
        attnlab/experiments/assets/18_attend_to_blocks.json

has written; rows that the file holds are not trained again.
"""

import copy
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from attnlab import catalog
from attnlab.core.chosen_blocks import largest, numbers, seen
from attnlab.core.chunks import cut
from attnlab.core.probe import note, record
from attnlab.core.softmax import masked_softmax
from attnlab.experiments.grid import (
    Arm,
    Grid,
    Grids,
    Scores,
    Trained,
    by_fit,
    parameters,
    percent,
    seeded,
)
from attnlab.mechanisms.learned.deepseek_sparse import DeepSeekSparseAttention
from attnlab.mechanisms.learned.deepseek_sparse import naive as chosen_tokens
from attnlab.mechanisms.learned.moba import MoBAOptions, MoBAttention
from attnlab.mechanisms.learned.nsa import NSAttention
from attnlab.mechanisms.learned.reformer import Reformer
from attnlab.mechanisms.learned.routing_transformer import RoutingAttention
from attnlab.models.tiny import TinyTransformer
from attnlab.tasks.lookup import Lookup
from attnlab.train import evaluate
from attnlab.train.history import State

TASK = Lookup(length=128, keys=32, values=4, every=8, questions=16)
DIM, HEADS = 32, 2
STEPS = 600
UNSEEN: Mapping[str, Any] = {"batches": 2, "batch_size": 128}
BLOCK, CHOSEN = 8, 4
READ = BLOCK * CHOSEN
BRANCHES = ("means", "blocks", "window")  # of NSA, in the order of their gates

# ---- layers that choose in other ways


class OtherBlocks(MoBAttention):
    """MoBA with its own parameters, and blocks chosen ``by`` "mean", as it does; by "largest", the
    largest product of the query and a key of the block; or "random"."""

    by = "random"

    def forward(self, x: Tensor, padding: Tensor | None = None) -> Tensor:
        q, k, v = self.heads.project(x)
        block = self.options.fitted(x.shape[1])
        at = numbers(k, None)
        own = at[:, None, :, None] // block
        worth = self._worth(q, k, block)
        past = torch.arange(worth.shape[-1]) < own
        others = largest(worth.masked_fill(~past, -torch.inf), self.options.chosen - 1)
        chosen = torch.cat((own.expand(*q.shape[:3], 1), others), dim=-1)
        allowed = seen(note("blocks", chosen), at, None, block)
        scores = q @ k.mT * q.shape[-1] ** -0.5
        return self.heads.merge(note("weights", masked_softmax(scores, allowed)) @ v)

    def _worth(self, q: Tensor, k: Tensor, block: int) -> Tensor:
        keys = cut(k, block).detach()
        if self.by == "mean":
            return q.detach() @ keys.mean(dim=-2).mT
        if self.by == "largest":
            products = torch.einsum("bhnd,bhcjd->bhncj", q.detach(), keys)
            return products.amax(dim=-1)
        return torch.rand(*q.shape[:3], keys.shape[2])


class OtherTokens(DeepSeekSparseAttention):
    """The indexer's layer with its own parameters, and tokens chosen ``by`` "attention", the
    weights that all of them would get, or "random"."""

    by = "random"

    def forward(self, x: Tensor, padding: Tensor | None = None) -> Tensor:
        q, k, v = self.heads.project(x)
        if self.by == "random":
            index = torch.rand(len(x), x.shape[1], x.shape[1])
        else:
            past = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).tril()
            index = masked_softmax(q @ k.mT * q.shape[-1] ** -0.5, past).mean(dim=1)
        return self.heads.merge(chosen_tokens(q, k, v, index, options=self.options))


class WithoutBranch(NSAttention):
    """NSA whose gate of one branch is 0."""

    branch = 0

    def _gates(self, x: Tensor) -> Tensor:
        gates = super()._gates(x)
        return gates.masked_fill(torch.arange(3) == self.branch, -torch.inf)


def layer_of(model: TinyTransformer) -> Any:
    """Its only layer of attention."""
    return model.decoder.blocks[0].attention  # type: ignore[union-attr]


def choosing(model: TinyTransformer, kind: type[Any], **how: Any) -> TinyTransformer:
    """A copy of the model whose layer is of this ``kind``, with the same weights and options; of
    these ``options`` replaces some, and other names are what the kind has of its own."""
    other = copy.deepcopy(model)
    block: Any = other.decoder.blocks[0]  # type: ignore[union-attr]
    options = replace(block.attention.options, **how.pop("options", {}))
    layer = kind(DIM, HEADS, form="naive", options=options)
    layer.load_state_dict(block.attention.state_dict())
    for name, value in how.items():
        setattr(layer, name, value)
    block.attention = layer.eval()
    return other


# ---- what is read


class Read(NamedTuple):
    """What the questions at the end read, in each head.

    keys: how many keys.
    compared: products that it takes to choose them, as multiples of one of a query and a key.
    found: per cent of the questions for which a head reads the token that gives the answer.
    """

    keys: float
    compared: float
    found: float


@torch.no_grad()
def read(model: TinyTransformer, task: Lookup = TASK, texts: int = 64, seed: int = 2) -> Read:
    """What the questions of unseen texts read."""
    layer, asks = layer_of(model), task.length - task.questions
    rows, gives, _ = _asked(model, task, texts, seed)
    means = _means(layer, task, asks) if isinstance(layer, NSAttention) else 0.0
    return Read(
        round(rows.sum(-1).double().mean().item() + means, 2),
        round(_compared(layer, task, asks), 2),
        percent((rows & gives[:, None]).any(-1).any(1)),
    )


@torch.no_grad()
def answered(
    model: TinyTransformer, task: Lookup = TASK, texts: int = 256, seed: int = 2
) -> tuple[Tensor, Tensor, Tensor]:
    """What is said to the questions of unseen texts, and whether the answer was read.

    Three tensors (texts · questions,): whether a head reads the token that gives the answer, the
    value that the model says, and the one that is right.
    """
    rows, gives, logits = _asked(model, task, texts, seed)
    targets = task.batch("validation", texts, seed=seed).targets[:, -task.questions :]
    found = (rows & gives[:, None]).any(-1).any(1)
    return found.flatten(), logits.argmax(-1).flatten(), targets.flatten()


def _asked(model: TinyTransformer, task: Lookup, texts: int, seed: int) -> tuple[Tensor, ...]:
    """What the questions read, and what the model says to them.

    The keys that each head reads (b, h, questions, n), those that give the answer (b, questions,
    n), and the logits (b, questions, vocab).
    """
    batch = task.batch("validation", texts, seed=seed)
    with record() as notes, seeded(seed):
        logits = model(batch.inputs)
    layer, asks = layer_of(model), task.length - task.questions
    nsa = isinstance(layer, NSAttention)
    rows = _tokens(layer, notes, task.length) if nsa else _weighed(notes)
    rows = rows[:, :, asks:].expand(-1, HEADS, -1, -1)
    return rows, answers(batch.inputs, task)[:, asks:], logits[:, asks:]


def answers(inputs: Tensor, task: Lookup) -> Tensor:
    """(b, n, n): whether a token gives a value to the key for which another one asks."""
    first = task.values * (task.keys + 1)
    pairs = (inputs >= task.values) & (inputs < first)
    given = torch.where(pairs, inputs // task.values - 1, -1)
    asked = torch.where((inputs >= first) & (inputs < first + task.keys), inputs - first, -2)
    return asked[:, :, None] == given[:, None]


def _weighed(notes: Any) -> Tensor:
    weights = notes.last("weights")
    return (weights() if callable(weights) else weights) > 0


def _tokens(layer: NSAttention, notes: Any, length: int) -> Tensor:
    """(b, h, n, n): tokens of the selected blocks or of the window."""
    at = torch.arange(length)[None]
    chosen = seen(notes.last("blocks"), at, None, layer.options.fitted(length))
    back = at[0, :, None] - at[0]
    return chosen | ((back >= 0) & (back < layer.options.window))


def _means(layer: NSAttention, task: Lookup, asks: int) -> float:
    """How many means are complete at a question."""
    begins = layer.options.begins(task.length, torch.device("cpu"))
    at = torch.arange(asks, task.length)[:, None]
    return (begins + layer.options.stretch - 1 <= at).sum(1).double().mean().item()


def _compared(layer: Any, task: Lookup, asks: int) -> float:
    at = torch.arange(asks, task.length).double()
    heads, width = layer.heads.heads, layer.heads.value_dim
    if isinstance(layer, OtherBlocks) and layer.by == "random":
        return 0.0
    if isinstance(layer, MoBAttention):
        return (at // layer.options.block).mean().item()  # the means of complete blocks
    if isinstance(layer, DeepSeekSparseAttention):
        own = layer.options.index_heads * layer.index_key.out_features
        return (at + 1).mean().item() * own / (heads * width)
    if isinstance(layer, Reformer):
        return layer.options.rounds * layer.options.buckets / 2
    if isinstance(layer, RoutingAttention):
        return float(layer.options.clusters)
    return 0.0


# ---- training


def _trained(
    model: TinyTransformer,
    task: Any,
    steps: int,
    *,
    seed: int,
    dense: bool = False,
    frozen: bool = False,
    **given: Any,
) -> Any:
    """Rotations of a hash are drawn with the seed. ``dense``: the first half with all tokens;
    ``frozen``: the indexer stays as it was drawn."""
    layer = layer_of(model)
    if isinstance(layer, Reformer):
        layer.redraw(torch.Generator().manual_seed(seed))
    if frozen:
        for name, each in layer.named_parameters():
            each.requires_grad_(not name.startswith("index_"))
    if not dense:
        return by_fit(model, task, steps, seed=seed, **given)
    sparse, half = layer.options, steps // 2
    layer.options = replace(sparse, **_all(layer))

    def narrow(state: State) -> None:
        if state.step == half:
            layer.options = sparse

    return by_fit(model, task, steps, seed=seed, callbacks=[narrow], **given)


def _all(layer: Any) -> dict[str, Any]:
    """The options with which all tokens are read."""
    if isinstance(layer, DeepSeekSparseAttention):
        return {"chosen": TASK.length, "aligned": "all"}
    return {"chosen": -(-TASK.length // BLOCK)}


def _make(attention: str, options: Mapping[str, Any], **sizes: Any) -> TinyTransformer:
    def build(dim: int, heads: int, causal: bool) -> nn.Module:
        if attention == "random blocks":
            return OtherBlocks(dim, heads, options=MoBAOptions(**options))
        return catalog.build(attention, dim=dim, heads=heads, causal=True, form="naive", **options)

    return TinyTransformer(**sizes, attention=build)


def _tuning(trained: Trained) -> Scores:
    """The loss on unseen sequences that are not scored; the rate with the lower one is taken."""
    loss = evaluate(trained.model, TASK, **UNSEEN, seed=1).loss
    return {"loss on other sequences": (round(loss, 4), "nats")}


def right(model: TinyTransformer, seed: int = 0) -> float:
    """Per cent of right answers on unseen texts; what is drawn is drawn with the seed."""
    with seeded(seed):
        return round(100 * evaluate(model, TASK, **UNSEEN).accuracy, 2)


def other_choices(model: TinyTransformer) -> dict[str, TinyTransformer]:
    """The trained model, choosing in the other ways that it has."""
    layer = layer_of(model)
    if isinstance(layer, NSAttention):
        return {
            f"without {name}": choosing(model, WithoutBranch, branch=branch)
            for branch, name in enumerate(BRANCHES)
        }
    if isinstance(layer, OtherBlocks) or not isinstance(
        layer, MoBAttention | DeepSeekSparseAttention
    ):
        return {}
    blocks = isinstance(layer, MoBAttention)
    kind, ideal, best = (
        (OtherBlocks, "largest key", "largest")
        if blocks
        else (OtherTokens, "attention", "attention")
    )
    return {
        "random": choosing(model, kind),
        ideal: choosing(model, kind, by=best),
        "all": choosing(model, type(layer), options=_all(layer)),
    }


def _scores(trained: Trained) -> Scores:
    model = trained.model
    does = read(model, seed=10 + trained.seed)
    last = trained.history.column("loss")[-20:]
    found: dict[str, Any] = {
        "right": (right(model), "%", f"{parameters(model):,} parameters"),
        "loss": (round(sum(last) / len(last), 4), "nats"),
        "keys read": (does.keys, "keys"),
        "compared": (does.compared, "keys"),
        "found": does.found,
    }
    for how, other in other_choices(model).items():
        found[f"{how}; right"] = right(other)
        found[f"{how}; found"] = read(other, seed=10 + trained.seed).found
    return found


BLOCKS: Mapping[str, Any] = {"block": BLOCK, "chosen": CHOSEN}
INDEXER: Mapping[str, Any] = {"chosen": READ, "index_heads": 2, "index_dim": 8}
DENSE: Mapping[str, Any] = {"dense": True}
LAYERS: Mapping[str, tuple[str, Mapping[str, Any], Mapping[str, Any]]] = {
    "dense": ("full", {}, {}),
    "window": ("longformer", {"window": 2 * (READ - 1)}, {}),
    "random blocks": ("random blocks", BLOCKS, {}),
    "MoBA": ("moba", BLOCKS, {}),
    "MoBA, dense before": ("moba", BLOCKS, DENSE),
    "NSA": (
        "nsa",
        {"stretch": BLOCK, "stride": BLOCK, "block": BLOCK, "chosen": CHOSEN, "window": 1},
        {},
    ),
    "indexer": ("deepseek_sparse", INDEXER, {}),
    "indexer, dense before": ("deepseek_sparse", INDEXER, DENSE),
    "untrained indexer": ("deepseek_sparse", INDEXER, {**DENSE, "frozen": True}),
    "LSH": ("reformer", {"buckets": 8, "chunk": READ // 2, "rounds": 2}, {}),
    "routing": ("routing", {"clusters": 4, "window": READ}, {}),
}
"""Of each arm: the page of its layer, its options, and what its training has of its own."""
RATES = (3e-3, 1e-2)
FAST = ("indexer", "untrained indexer")
"""Arms whose loss was lower at the larger rate."""


def _arm(name: str, rate: float, **others: Any) -> Arm:
    attention, options, training = LAYERS[name]
    model = {"attention": attention, "options": options}
    return Arm(TASK, model, {**training, "learning_rate": rate}, **others)


_COMMON: Mapping[str, Any] = {
    "make": _make,
    "loop": _trained,
    "model": {
        "dim": DIM, "heads": HEADS, "hidden": 2 * DIM, "layers": 1, "tie": False,
        "positions": "none",
    },
    "training": {"batch_size": 16},
}  # fmt: skip
TUNING = Grid(
    arms={f"{name}; {rate:g}": _arm(name, rate) for name in LAYERS for rate in RATES},
    score=_tuning,
    steps=STEPS // 2,
    seeds=(0,),
    figure="{arm}; {what}, tried once",
    **_COMMON,
)
MAIN = Grid(
    arms={name: _arm(name, RATES[name in FAST]) for name in LAYERS},
    score=_scores,
    steps=STEPS,
    figure="{arm}; {what}; seed {seed}",
    **_COMMON,
)
GRID = Grids((TUNING, MAIN))
SEEDS = MAIN.seeds
rows, batches = GRID.rows, GRID.batches
build, train = MAIN.build, MAIN.train
