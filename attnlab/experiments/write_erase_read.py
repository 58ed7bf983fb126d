"""Write, erase, read: what can a layer do whose state has a fixed size, by its transition alone?"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from attnlab import catalog
from attnlab.core import chunks
from attnlab.core.chunks import initial_state
from attnlab.core.convolution import short_convolution
from attnlab.core.matrix_memory import HeadNorm, decay_bias, decay_rates, unit
from attnlab.experiments.grid import Arm, Grid, Scores, Trained, parameters, percent
from attnlab.models.tiny import TinyTransformer
from attnlab.tasks import Task
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
    ``read``: "state", "softmax" in place of the state, or "near" (the convolution alone)."""

    decay: str = "none"
    erase: float = 0
    times: int = 1
    read: str = "state"


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
        self.widths = (heads * self.d, heads * self.d * rule.times, dim * rule.times)
        self.into = nn.Linear(dim, sum(self.widths), bias=False)
        conv = nn.Conv1d(sum(self.widths), sum(self.widths), TAPS, groups=sum(self.widths))
        self.taps = nn.Parameter(conv.weight.detach()[:, 0].flip(1))  # the newest first
        if rule.erase:
            self.steps = nn.Linear(dim, heads * rule.times, bias=False)
        if rule.decay in ("head", "channel"):
            size = heads * (self.d if rule.decay == "channel" else 1)
            self.decays = nn.Linear(dim, size)
            self.decays.bias = decay_bias(size)
            self.log_A = decay_rates(heads)
        self.out = HeadNorm(heads, dim // heads, dim)

    def forward(self, x: Tensor, padding: Tensor | None = None) -> Tensor:
        mixed = short_convolution(self.into(x), self.taps, None)
        q, k, v = (self._split(part) for part in mixed.split(self.widths, dim=-1))
        read = self._read(x, q, k, F.silu(v)).transpose(1, 2).flatten(2)
        out: Tensor = self.out(read, x)
        return out

    def _read(self, x: Tensor, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        if self.rule.read == "near":
            return v
        if self.rule.read == "softmax":
            return F.scaled_dot_product_attention(q, k, v, is_causal=True)
        times, chunk = self.rule.times, k.shape[2]
        q, k = unit(F.silu(q)).repeat_interleave(times, dim=2) * self.d**-0.5, unit(F.silu(k))
        gates = {"log_decay": self._log_decay(x), "erase": self._steps(x)}
        out, _ = chunks.advance(q, k, v, initial_state(k, v), chunk, **gates)
        return out[:, :, times - 1 :: times]

    def _split(self, part: Tensor) -> Tensor:
        """(b, n, times · h · d) → (b, h, n · times, d)."""
        each = self.rule.times if part.shape[-1] != self.heads * self.d else 1
        b, n, _ = part.shape
        return part.reshape(b, n, each, self.heads, -1).permute(0, 3, 1, 2, 4).flatten(2, 3)

    def _steps(self, x: Tensor) -> Tensor | None:
        if not self.rule.erase:
            return None
        b = self.rule.erase * torch.sigmoid(self.steps(x))
        return b.unflatten(-1, (self.rule.times, self.heads)).flatten(1, 2)[..., :].mT[..., None]

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

TASKS: Mapping[str, Task] = {
    "recall": Recall(pairs=8, queries=8, keys=16, values=16),
    "overwriting": Overwriting(keys=8, rounds=2, queries=8, values=16),
    "parity": GroupWords(length=16, group="Z2"),
    "S3 swaps": GroupWords(length=16, group="S3", swaps=True),
    "S3": GroupWords(length=16, group="S3"),
    "S5 swaps": GroupWords(length=12, group="S5", swaps=True),
    "copying": Copying(items=12, symbols=16),
    "needle": Needle(length=32, keys=16, words=32, every=8),
}
STEPS: Mapping[str, int] = {"parity": 300, "needle": 300, "S3": 1200}
USUAL, RATES = 400, (1e-2, 3e-3)
NO_HEADS = ("lstm", "rwkv", "selective_scan")
UNSEEN: Mapping[str, Any] = {"batches": 2, "batch_size": 128}
DIM, HEADS = 32, 2


def layer(name: str, **options: Any) -> Any:
    """What builds the layer of an arm: a rule, or a page of the catalogue as it stands."""

    def build(dim: int, heads: int, causal: bool) -> nn.Module:
        if name in RULES:
            return Memory(dim, heads, RULES[name], **options)
        many = {} if name in NO_HEADS else {"heads": heads}
        return catalog.build(name, dim=dim, causal=True, **many, **options)

    return build


def _model(layers: tuple[str, ...], options: Mapping[str, Any], **sizes: Any) -> TinyTransformer:
    built = [layer(name, **options) for name in layers]
    return TinyTransformer(**sizes, layers=len(layers), attention=built)


@torch.no_grad()
def last_right(model: nn.Module, task: Task) -> float:
    """Per cent of right answers at the last position of unseen sequences."""
    batch = task.batch("validation", 256, seed=0)
    return percent(model(batch.inputs)[:, -1].argmax(-1) == batch.targets[:, -1])


def tuning_loss(model: TinyTransformer, task: Task) -> float:
    """The loss on unseen sequences that are not scored; the rate with the lower one is taken."""
    return round(evaluate(model, task, **UNSEEN, seed=1).loss, 4)


def scores(trained: Trained) -> Scores:
    """Right answers in per cent, and the loss of the last 20 steps."""
    model, task = trained.model, trained.arm.task
    note = f"{parameters(model):,} parameters"
    right = round(100 * evaluate(model, task, **UNSEEN).accuracy, 2)
    last = trained.history.column("loss")[-20:]
    found: dict[str, Any] = {
        "right": (right, "%", note), "loss": (round(sum(last) / len(last), 4), "nats")
    }  # fmt: skip
    if isinstance(task, GroupWords):
        found["last"] = last_right(model, task)
        found["last of twice as many"] = last_right(model, replace(task, length=2 * task.length))
    return found


def cell(task: str, arm: str, rate: float) -> Arm:
    """One cell of the grid."""
    options: dict[str, Any] = {"state": 8} if arm in ("selective_scan", "mamba2") else {}
    steps = STEPS.get(task, USUAL)
    return Arm(
        TASKS[task],
        {"layers": (arm,), "options": options},
        steps=steps,
        training={"learning_rate": rate},
    )


SIZES: Mapping[str, Any] = {
    "dim": DIM, "heads": HEADS, "hidden": 2 * DIM, "tie": False, "positions": "none",
    "max_len": 128,
}  # fmt: skip
