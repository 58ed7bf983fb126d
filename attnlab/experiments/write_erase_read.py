"""Write, erase, read: what can a layer do whose state has a fixed size, by its transition alone?

Not a figure of speed. Every model is one layer of width 32 with two heads and a feed-forward layer
of 64, without positions; all are trained with the same sequences and updates. Almost all arms are
one layer, `Memory`, whose projections, short convolution of 4 tokens and norm are the same. A head
keeps a matrix of 16 × 16 numbers, and the arms differ in what multiplies it before a token writes:

    sum                    nothing: linear attention without its denominator
    constant decay         a constant of the head, as in retention
    decay by head          a number of the token, as in Mamba-2
    decay by channel       a vector of the token, as in gated linear attention
    delta                  what the key reads is erased, by a step between 0 and 1 (DeltaNet)
    delta to 2             the same, with steps between 0 and 2
    gated delta, … to 2    both, with a decay by head (Gated DeltaNet)
    channel-gated delta    with a decay by channel (Kimi Delta Attention)
    delta to 2, twice      two keys, values and steps for each token (DeltaProduct)
    attention              softmax over all keys, in the place of a state
    attention of 8 tokens  over those of the last 8: their keys and values are 512 numbers
    hybrid                 one head of *delta to 2*, one of *attention*
    hybrid of 8 tokens     one head of *delta to 2*, one of *attention of 8 tokens*
    no memory              the value alone: what the convolution gives
    four layers to 2       four layers of *delta to 2*
    hybrid of four layers  three of *delta to 2* and one of *attention* on top

and beside it a layer of the catalogue as it stands: ``lstm``, whose transition is not linear, with
64 numbers. So parameters are equal but for the gates (the rows say how many), except in four
layers, which have four times as many. All states have 512 numbers, those of 8 tokens among them;
attention over all keys has no bound, four layers have more and the LSTM has fewer. Tasks, with the
right answers of who only guesses:

    recall         8 pairs, then all 8 keys; 16 values (6 %)
    recall of 16   16 pairs of 32 keys, then all 16 keys; 16 values (6 %)
    overwriting    8 keys, each written twice, then all 8 keys; 16 values. Who guesses one of the
                   two values of a key is right in 53 % (`attnlab.tasks.overwriting`), and in 65 %
                   with the first and the last pair, which a convolution can recognise
    some keys once 8 keys; four of them are written four times, the others at the beginning alone,
                   so that what is old is not always wrong (6 %)
    parity         16 bits (50 %) (`attnlab.tasks.group_words`)
    S3 swaps       16 exchanges of three objects (17 %)
    S5 swaps       12 exchanges of five objects (1 %)
    S3, S5         16 and 12 permutations of any kind
    copying        16 symbols, and then the same again (6 %)
    needle         31 random words, one of them a key of 16, and questions for it (6 %)

All arms are trained on all tasks but *recall of 16* and *some keys once* (``TRAINED``). What is
left out was decided:

- on *some keys once* stand the arms that one section compares, and on *recall of 16* the rules and
  attention with 1,200 updates alone: 400 are too few for eight pairs already
- four layers are trained on parity alone, and attention with positions there and on overwriting
- smaller states are those of the rules that keep nothing else, and of attention: d = 4 with both
  budgets, d = 8 with 1,200 updates, at which recall is also compared at d = 16
- a longer budget is tried where 400 updates leave a question open (``LONGER``), not everywhere

Scores are per cent of right answers on unseen sequences; of parity, permutations and the needle
also those at the last position, and at the last of sequences of twice that length. "d = 4" gives
queries and keys 4 numbers, and the state of a head 4 × 16 (so "d = 8"); attention has then the same
projections and no bounded state (`numbers_kept` counts). "1200 updates" are three times the budget.
*Attention with positions* has learned ones, for attention without them cannot tell which of two
values is newer; those of the second half of longer sequences are not trained. Two controls ask what
else explains a score: "others' answers" are models that were trained, and are scored, with the
answers of another sequence, so that they know all but the content; "steps cut at 1" are trained
models whose steps are cut when they are scored.

Each arm was tried with a learning rate of 0.01 and, unless it was right in 99.5 % then, of 0.003
(one seed); the rate with the lower loss on sequences that are not scored has three seeds. Smaller
states, more pairs, longer budgets and the controls have the rate of their arm on the task (more
pairs that of recall, others' answers 0.01). Lesson 27 draws what

    python -m attnlab.experiments write_erase_read --threads 1 --json \\
        attnlab/experiments/assets/27_write_erase_read.json

has written; rows that the file holds are not trained again. Another cell of tasks and arms is one
more entry of ``CELLS``.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from attnlab import catalog
from attnlab.core import chunks
from attnlab.core.chunks import initial_state
from attnlab.core.convolution import short_convolution
from attnlab.core.matrix_memory import HeadNorm, decay_bias, decay_rates, unit
from attnlab.experiments.grid import Arm, Grid, Grids, Scores, Trained, parameters, percent
from attnlab.models.tiny import TinyTransformer
from attnlab.tasks import SPLITS, UNSCORED, Batch, Example, Task
from attnlab.tasks.copying import Copying
from attnlab.tasks.group_words import GroupWords
from attnlab.tasks.needle import Needle
from attnlab.tasks.overwriting import Overwriting
from attnlab.tasks.recall import Recall
from attnlab.train import evaluate

TAPS = 4


class Rule(NamedTuple):
    """What multiplies the state. ``decay``: "none", "constant", "head" (a number of the token) or
    "channel" (a vector of it). ``erase``: the largest step; 0 for none. ``times``: steps a token.
    ``read``: "state", "softmax" in place of the state, "both" (the first half of the heads has a
    state, the other attends), or "near" (the convolution alone). ``window``: attention sees the
    last so many tokens, the token itself among them; 0 for all. ``limit``: larger steps are cut."""

    decay: str = "none"
    erase: float = 0
    times: int = 1
    read: str = "state"
    window: int = 0
    limit: float = 2


RULES: Mapping[str, Rule] = {
    "sum": Rule(),
    "constant decay": Rule("constant"),
    "decay by head": Rule("head"),
    "decay by channel": Rule("channel"),
    "delta": Rule(erase=1),
    "delta to 2": Rule(erase=2),
    "gated delta": Rule("head", 1),
    "gated delta to 2": Rule("head", 2),
    "channel-gated delta": Rule("channel", 1),
    "delta to 2, twice": Rule(erase=2, times=2),
    "attention": Rule(read="softmax"),
    "attention of 8 tokens": Rule(read="softmax", window=8),
    "hybrid": Rule(erase=2, read="both"),
    "hybrid of 8 tokens": Rule(erase=2, read="both", window=8),
    "no memory": Rule(read="near"),
}


class Memory(nn.Module):
    """One layer for all rules, so that nothing but the transition differs: (b, n, dim) → the same.

    Queries, keys and values are projected and pass a causal convolution of 4 tokens and SiLU;
    queries and keys have length 1; each head's result is divided by its root mean square and
    projected. Attention has neither SiLU nor unit length at its queries and keys.
    """

    def __init__(self, dim: int, heads: int, rule: Rule, head_dim: int | None = None) -> None:
        super().__init__()
        self.rule, self.heads = rule, heads
        self.d = dim // heads if head_dim is None else head_dim
        self.keeping = heads // 2 if rule.read == "both" else heads  # heads that have a state
        self.widths = (heads * self.d, heads * self.d * rule.times, dim * rule.times)
        self.into = nn.Linear(dim, sum(self.widths), bias=False)
        conv = nn.Conv1d(sum(self.widths), sum(self.widths), TAPS, groups=sum(self.widths))
        self.taps = nn.Parameter(conv.weight.detach()[:, 0].flip(1))  # the newest first
        if rule.erase:
            self.steps = nn.Linear(dim, self.keeping * rule.times, bias=False)
        if rule.decay in ("head", "channel"):
            size = heads * (self.d if rule.decay == "channel" else 1)
            self.decays = nn.Linear(dim, size)
            self.decays.bias = decay_bias(size)
            self.log_A = decay_rates(heads)
        self.out = HeadNorm(heads, dim // heads, dim)

    def forward(self, x: Tensor, padding: Tensor | None = None) -> Tensor:
        mixed = short_convolution(self.into(x), self.taps, None)
        times = (1, self.rule.times, self.rule.times)
        q, k, v = map(self._split, mixed.split(self.widths, dim=-1), times)
        read = self._read(x, q, k, F.silu(v)).transpose(1, 2).flatten(2)
        out: Tensor = self.out(read, x)
        return out

    def _read(self, x: Tensor, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        if self.rule.read == "near":
            return v
        if self.rule.read == "softmax":
            return self._attended(q, k, v)
        kept, others = zip(*(y.tensor_split([self.keeping], dim=1) for y in (q, k, v)), strict=True)
        read = self._remembered(x, *kept)
        return torch.cat((read, self._attended(*others)), dim=1) if others[0].shape[1] else read

    def _attended(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        if not self.rule.window:
            return F.scaled_dot_product_attention(q, k, v, is_causal=True)
        seen = torch.ones(q.shape[2], k.shape[2], dtype=torch.bool, device=q.device).tril()
        return F.scaled_dot_product_attention(q, k, v, seen.triu(1 - self.rule.window))

    def _remembered(self, x: Tensor, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        times, chunk = self.rule.times, k.shape[2]
        q, k = unit(F.silu(q)).repeat_interleave(times, dim=2) * self.d**-0.5, unit(F.silu(k))
        gates = {"log_decay": self._log_decay(x), "erase": self._steps(x)}
        out, _ = chunks.advance(q, k, v, initial_state(k, v), chunk, **gates)
        return out[:, :, times - 1 :: times]

    def _split(self, part: Tensor, times: int) -> Tensor:
        """(b, n, times · h · d) → (b, h, n · times, d)."""
        return part.unflatten(-1, (times, self.heads, -1)).flatten(1, 2).transpose(1, 2)

    def _steps(self, x: Tensor) -> Tensor | None:
        if not self.rule.erase:
            return None
        b = (self.rule.erase * torch.sigmoid(self.steps(x))).clamp(max=self.rule.limit)
        return b.unflatten(-1, (self.rule.times, self.keeping)).flatten(1, 2).mT[..., None]

    def _log_decay(self, x: Tensor) -> Tensor | None:
        if self.rule.decay == "none":
            return None
        if self.rule.decay == "constant":  # those of retention
            head = torch.arange(self.heads, dtype=x.dtype)
            log_a = torch.log1p(-(2.0 ** (-5 - head)))
            return log_a[:, None, None].expand(len(x), self.heads, x.shape[1], 1)
        rate = F.softplus(self.decays(x)).unflatten(-1, (self.heads, -1)).transpose(1, 2)
        return -self.log_A.exp()[:, None, None] * rate


# ---- the grid


@dataclass(frozen=True)
class OthersAnswers(Task):
    """The sequences of a task, each with the answers of another one of its batch."""

    of: Task
    name: ClassVar[str] = "others_answers"

    @property
    def kind(self) -> str:
        return self.of.kind

    @property
    def length(self) -> int:
        return self.of.length

    @property
    def vocab(self) -> int | None:
        return self.of.vocab

    @property
    def classes(self) -> int | None:
        return self.of.classes

    def _draw(self, split: str, size: int, generator: np.random.Generator) -> Batch:
        batch = self.of._draw(split, size, generator)
        return replace(batch, targets=batch.targets.roll(1, 0))

    def _describe(self, batch: Batch) -> Example:
        return self.of._describe(batch)


TASKS: Mapping[str, Task] = {
    "recall": Recall(pairs=8, queries=8, keys=16, values=16),
    "recall of 16": Recall(pairs=16, queries=16, keys=32, values=16),
    "overwriting": Overwriting(keys=8, rounds=2, queries=8, values=16),
    "some keys once": Overwriting(keys=8, rounds=4, once=4, queries=8, values=16),
    "parity": GroupWords(length=16, group="Z2"),
    "S5 swaps": GroupWords(length=12, group="S5", swaps=True),
    "S3 swaps": GroupWords(length=16, group="S3", swaps=True),
    "S3": GroupWords(length=16, group="S3"),
    "S5": GroupWords(length=12, group="S5"),
    "copying": Copying(items=16, symbols=16),
    "needle": Needle(length=32, every=4),
}
STEPS: Mapping[str, int] = {"parity": 300}
USUAL = 400
FAST, FASTER, SLOWER = (1e-2,), (1e-2, 3e-3), (3e-3, 1e-2)
UNSEEN: Mapping[str, Any] = {"batches": 2, "batch_size": 128}
DIM, HEADS = 32, 2


def _layer(rule: str, options: Mapping[str, Any]) -> Any:
    def build(dim: int, heads: int, causal: bool) -> nn.Module:
        if rule in RULES:
            return Memory(dim, heads, RULES[rule], **options)
        return catalog.build(rule, dim=dim, causal=True)

    return build


def _model(layers: Sequence[str], options: Mapping[str, Any], **sizes: Any) -> TinyTransformer:
    built = [_layer(rule, options) for rule in layers]
    return TinyTransformer(**sizes, layers=len(built), attention=built)


def numbers_kept(arm: str, tokens: int, head_dim: int = DIM // HEADS) -> int:
    """How many numbers one layer keeps of so many tokens: the matrices of heads with a state, keys
    and values of those that attend. What all but the LSTM keep besides, the three last inputs of
    the convolution, is not counted."""
    if arm == "lstm":
        return 2 * DIM  # hidden and cell
    rule, value = RULES[arm], DIM // HEADS
    keeping = {"near": 0, "softmax": 0, "both": HEADS // 2, "state": HEADS}[rule.read]
    attending = 0 if rule.read == "near" else HEADS - keeping
    seen = min(tokens, rule.window or tokens)
    return keeping * head_dim * value + attending * seen * (head_dim + value)


@torch.no_grad()
def last_right(model: nn.Module, task: Task) -> float:
    """Per cent of right answers at the last position of unseen sequences."""
    batch = task.batch("validation", 256, seed=0)
    return percent(model(batch.inputs)[:, -1].argmax(-1) == batch.targets[:, -1])


def _tuning(trained: Trained) -> Scores:
    """The loss on unseen sequences that are not scored; the rate with the lower one is taken."""
    loss = evaluate(trained.model, trained.arm.task, **UNSEEN, seed=1).loss
    return {"loss on other sequences": (round(loss, 4), "nats")}


def _scores(trained: Trained) -> Scores:
    """Right answers in per cent, and the loss of the last 20 steps."""
    model, task = trained.model, trained.arm.task
    note = f"{parameters(model):,} parameters"
    right = round(100 * evaluate(model, task, **UNSEEN).accuracy, 2)
    last = trained.history.column("loss")[-20:]
    found: dict[str, Any] = {
        "right": (right, "%", note), "loss": (round(sum(last) / len(last), 4), "nats")
    }  # fmt: skip
    if isinstance(task, GroupWords | Needle):
        found["last"] = last_right(model, task)
        found["last of twice as many"] = last_right(model, replace(task, length=2 * task.length))
    return found


def _cut(trained: Trained) -> Scores:
    """The last right answers of a model whose steps are cut at 1 after its training."""
    for layer in trained.model.modules():
        if isinstance(layer, Memory):
            layer.rule = layer.rule._replace(limit=1)
    return {"last": last_right(trained.model, trained.arm.task)}


EVERY = (*RULES, "lstm")
TRAINED: Mapping[str, tuple[str, ...]] = {
    "recall": EVERY,
    "overwriting": (*EVERY, "attention with positions"),
    "some keys once": ("sum", "constant decay", "decay by head", "delta"),
    "parity": (*EVERY, "attention with positions", "hybrid of four layers"),
    "S3 swaps": EVERY,
    "S3": EVERY,
    "S5 swaps": EVERY,
    "S5": EVERY,
    "copying": EVERY,
    "needle": EVERY,
}  # fmt: skip
"""The arms that are trained on each task."""
AT_ONCE: Mapping[str, tuple[str, ...]] = {
    "recall": ("sum", "constant decay", "attention", "hybrid"),
    "overwriting": (
        "constant decay", "decay by head", "decay by channel", "delta to 2", "gated delta",
        "gated delta to 2", "channel-gated delta", "hybrid", "hybrid of 8 tokens",
        "attention with positions",
    ),
    "some keys once": ("delta",),
    "parity": ("gated delta to 2", "delta to 2, twice", "lstm", "hybrid of four layers"),
    "S3 swaps": ("delta to 2", "delta to 2, twice", "hybrid", "hybrid of 8 tokens", "lstm"),
    "S3": ("lstm",),
    "copying": ("attention",),
    "needle": (
        "sum", "constant decay", "decay by head", "decay by channel", "delta", "delta to 2",
        "gated delta", "gated delta to 2", "channel-gated delta", "delta to 2, twice", "attention",
        "hybrid", "hybrid of 8 tokens", "lstm",
    ),
}  # fmt: skip
"""Of these, those that were right at the first rate, so that no other was tried."""
SLOWLY: Mapping[str, tuple[str, ...]] = {
    "recall": (
        "delta", "delta to 2", "gated delta to 2", "delta to 2, twice", "attention of 8 tokens",
        "hybrid of 8 tokens", "lstm",
    ),
    "overwriting": ("delta to 2, twice", "no memory", "lstm"),
    "parity": ("attention", "attention of 8 tokens", "hybrid"),
    "S3 swaps": ("sum", "delta"),
    "S3": ("delta to 2", "hybrid"),
}  # fmt: skip
"""And those whose loss was lower at the smaller rate."""


def _rates(task: str, arm: str) -> tuple[float, ...]:
    if arm in AT_ONCE.get(task, ()):
        return FAST
    return SLOWER if arm in SLOWLY.get(task, ()) else FASTER


CELLS: Mapping[str, Mapping[str, tuple[float, ...]]] = {
    task: {arm: _rates(task, arm) for arm in arms} for task, arms in TRAINED.items()
}
"""The trainings of tasks and arms: the rates that were tried, the better one first."""
LONG = 1200
NARROW = (
    "sum", "constant decay", "decay by head", "decay by channel", "delta", "delta to 2",
    "gated delta", "gated delta to 2", "channel-gated delta", "delta to 2, twice",
)  # fmt: skip
"""All rules whose layer keeps a state and nothing else."""
CAPACITY = (*NARROW, "attention")
"""Those whose recall is compared by the size of the state, after ``LONG`` updates."""
WIDTHS = (4, 8)
"""Of queries and keys, beside the usual 16."""
LONGER: Mapping[str, tuple[str, ...]] = {
    "recall": CAPACITY,
    "recall of 16": CAPACITY,
    "some keys once": ("decay by head",),
    "S5 swaps": ("delta", "delta to 2"),
    "S3": ("delta to 2", "delta to 2, twice"),
}
UNTOLD = ("recall", "overwriting", "parity")
"""Tasks on which *delta to 2* is also trained with the answers of other sequences."""
PLACED = " with positions"
STACKS: Mapping[str, tuple[str, ...]] = {
    "hybrid of four layers": (*("delta to 2",) * 3, "attention"),
    "four layers to 2": ("delta to 2",) * 4,
}


def _cell(task: str, arm: str, rate: float, steps: int | None = None, **options: int) -> Arm:
    layers = STACKS.get(arm, (arm.removesuffix(PLACED),))
    model: dict[str, Any] = {"layers": layers, "options": options}
    if arm.endswith(PLACED):
        model["positions"] = "learned"
    return Arm(TASKS[task], model, {"learning_rate": rate}, steps=steps or STEPS.get(task, USUAL))


def _rate(task: str, arm: str) -> float:
    """The rate that was better with the usual budget; with more pairs that of recall."""
    return CELLS["recall" if task == "recall of 16" else task][arm][0]


def _most_frequent(task: str, quick: bool = False) -> float:
    """Per cent of right answers of who always gives the answer that training has most often."""
    seen, unseen = (TASKS[task].batch(split, 256, seed=0).targets for split in SPLITS)
    answer = seen[seen != UNSCORED].mode().values
    return percent(unseen[unseen != UNSCORED] == answer)


_COMMON: Mapping[str, Any] = {
    "steps": USUAL,
    "make": _model,
    "model": {
        "dim": DIM, "heads": HEADS, "hidden": 2 * DIM, "tie": False, "positions": "none",
        "max_len": 128,
    },
    "training": {"batch_size": 32},
}  # fmt: skip
MAIN = Grid(
    arms={
        **{f"{task}; {arm}": _cell(task, arm, rates[0])
           for task, arms in CELLS.items() for arm, rates in arms.items()},
        **{f"{task}; {arm}, {LONG} updates": _cell(task, arm, _rate(task, arm), LONG)
           for task, arms in LONGER.items() for arm in arms},
        **{f"recall; {arm}, d = 4": _cell("recall", arm, _rate("recall", arm), head_dim=4)
           for arm in NARROW},
        **{f"recall; {arm}, d = {d}, {LONG} updates":
           _cell("recall", arm, _rate("recall", arm), LONG, head_dim=d)
           for d in WIDTHS for arm in CAPACITY},
        **{f"{task}; delta to 2, others' answers":
           replace(_cell(task, "delta to 2", FAST[0]), task=OthersAnswers(TASKS[task]))
           for task in UNTOLD},
    },
    score=_scores,
    baselines={
        f"{task}; the most frequent answer": partial(_most_frequent, task) for task in TASKS
    },
    figure="{arm}; {what}; seed {seed}",
    **_COMMON,
)  # fmt: skip
TUNING = Grid(
    arms={
        f"{task}; {arm}; {rate:g}": _cell(task, arm, rate)
        for task, arms in CELLS.items() for arm, rates in arms.items() for rate in rates
    },
    score=_tuning,
    seeds=(0,),
    figure="{arm}; {what}, tried once",
    **_COMMON,
)  # fmt: skip
CUT = Grid(
    arms={arm: MAIN.arms[arm] for arm in ("parity; delta to 2", "S3 swaps; delta to 2")},
    score=_cut,
    figure="{arm}, steps cut at 1; {what}; seed {seed}",
    **_COMMON,
)
CONTROLS = (
    *((f"{task}; delta to 2, others' answers", "right") for task in UNTOLD),
    *((f"{arm}, steps cut at 1", "last") for arm in CUT.arms),
)
"""Cells of the controls, and which of their scores tells."""
GRID = Grids((MAIN, TUNING, CUT))
SEEDS = MAIN.seeds
rows, batches = GRID.rows, GRID.batches
build, train = MAIN.build, MAIN.train
