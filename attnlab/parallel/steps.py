r"""Exchanges of a training step, written out: a sharded update, a product while shards travel,
experts on other devices.

Each is a function of a ``Group``, for ``launch.in_processes``; what it sends is in ``Group.sent``,
and the formula is in ``plan``.

**Weight-update sharding.** After an all-reduce of the gradients every process makes the same update
of all weights, and holds the optimizer's numbers for all of them. An all-reduce is a reduce-scatter
and an all-gather; with the update between the two each process updates 1/P of the weights, holds
1/P of those numbers, and sends as much as before.

**Collective matmul.** If the rows of x lie on P processes, x W needs an all-gather of x and then
one product. Instead, each shard is multiplied while the next one travels: the same numbers are
sent, in P - 1 steps that a device can hide behind P products.

**Experts.** Each process holds one expert and tokens of its own; an all-to-all brings each token to
the process of its expert, another brings the result back. Here every process sends equally many
tokens to each expert, as under a capacity that is full.

Sources: Xu et al. 2020, arXiv 2004.13336; Rajbhandari et al. 2020, arXiv 1910.02054; Wang et al.,
*Overlap Communication with Dependent Computation via Decomposition*, ASPLOS 2023; Lepikhin et al.
2020, arXiv 2006.16668.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from attnlab.core.arguments import check_flag
from attnlab.core.integers import check_integer
from attnlab.parallel.group import Group
from attnlab.parallel.launch import in_processes

# ---- the update of the weights


class Updates:
    """Adam on the sum of all processes' gradients: the same weights everywhere.

    sharded: each process updates its part alone, and the parts are gathered.
    held: numbers of the optimizer that this process holds.
    """

    def __init__(self, group: Group, model: nn.Module, *, sharded: bool, rate: float) -> None:
        check_flag("sharded", sharded)
        self.group, self.sharded, self.parameters = group, sharded, list(model.parameters())
        flat = self._filled(parameters_to_vector(self.parameters).detach())
        own = flat.chunk(group.size)[group.rank] if sharded else flat
        self.own = nn.Parameter(own.clone())
        self.optimizer = torch.optim.Adam([self.own], lr=rate)

    def step(self) -> None:
        """One update by the gradients that stand in the parameters."""
        given = [torch.zeros_like(p) if p.grad is None else p.grad for p in self.parameters]
        flat = self._filled(parameters_to_vector(given))
        if self.sharded:
            parts = list(flat.chunk(self.group.size))
            self.own.grad = self.group.reduce_scatter(parts, "gradients, reduce-scatter")
        else:
            self.own.grad = self.group.all_reduce(flat, "gradients, all-reduce")
        self.optimizer.step()
        weights = self.own.detach()
        if self.sharded:
            weights = torch.cat(self.group.all_gather(weights, "weights, all-gather"))
        numbers = sum(p.numel() for p in self.parameters)
        vector_to_parameters(weights[:numbers], self.parameters)

    @property
    def held(self) -> int:
        states = self.optimizer.state[self.own].values()
        return sum(x.numel() for x in states if x.numel() > 1)

    def _filled(self, flat: Tensor) -> Tensor:
        """With zeros at the end, so that all processes have parts of one size."""
        return torch.cat((flat, flat.new_zeros(-flat.numel() % self.group.size)))


class Trained(NamedTuple):
    """losses: of the whole batch, before each update. weights: those that this process updates, at
    the end. held: numbers of the optimizer in this process. bytes: sent by it in one update."""

    losses: list[float]
    weights: Tensor
    held: int
    bytes: int


def train(processes: int, seeds: Sequence[int], *, sharded: bool) -> list[list[Trained]]:
    """Train from each seed in several processes of this machine; by process, then by seed.

    Raises what ``in_processes`` raises.
    """
    return in_processes(_train_seeds, processes, list(seeds), sharded)


def _train_seeds(group: Group, seeds: Sequence[int], sharded: bool) -> list[Trained]:
    return [train_shares(group, seed, sharded) for seed in seeds]


def train_shares(
    group: Group, seed: int, sharded: bool, updates: int = 40, batch: int = 64, rate: float = 0.01
) -> Trained:
    """Train a small classifier of scikit-learn's digits, each process on its share of the batch.

    All processes draw the same batch and the same first weights from ``seed``.
    """
    from sklearn.datasets import load_digits

    for name, value in {"updates": updates, "batch": batch}.items():
        check_integer(f"`{name}`", value, at_least=1)
    if batch % group.size:
        raise ValueError(f"a batch of {batch} cannot be divided among {group.size} processes")
    images, labels = load_digits(return_X_y=True)
    generator = torch.Generator().manual_seed(seed)
    model = _classifier(generator)
    change = Updates(group, model, sharded=sharded, rate=rate)
    losses = []
    for _ in range(updates):
        drawn = torch.randint(len(labels), (batch,), generator=generator)
        own = drawn.chunk(group.size)[group.rank].numpy()
        x = torch.tensor(images[own] / 16, dtype=torch.float32)
        with group.working("forward and backward"):
            summed = cross_entropy(model(x), torch.tensor(labels[own]), reduction="sum") / batch
            model.zero_grad()
            summed.backward()
        before = len(group.sent)
        change.step()
        sent = sum(each.bytes for each in group.sent[before:])
        losses.append(group.all_reduce(summed.detach(), "the loss").item())
    return Trained(losses, change.own.detach(), change.held, sent)


def _classifier(generator: torch.Generator) -> nn.Module:
    model = nn.Sequential(nn.Linear(64, 48), nn.GELU(), nn.Linear(48, 10))
    with torch.no_grad():
        for each in model.parameters():
            width = each.shape[-1] if each.dim() > 1 else 64
            each.uniform_(-(width**-0.5), width**-0.5, generator=generator)
    return model


# ---- products


def gathered_product(group: Group, x: Tensor, weight: Tensor) -> Tensor:
    """The whole x times this process's columns, after an all-gather.

    x: (rows, dim), the shard of this process, of equal shapes in all. weight: (dim, columns).
    Returns (P · rows, columns).
    """
    shards = group.all_gather(x, "rows of x")
    with group.working("the product"):
        return torch.cat(shards) @ weight


def travelling_product(group: Group, x: Tensor, weight: Tensor) -> Tensor:
    """The same product, a shard at a time while the next one travels (collective matmul)."""
    parts: dict[int, Tensor] = {}
    for step in range(group.size):
        last = step == group.size - 1
        shift: Any = None if last else group.shift([x], f"rows of x, step {step}")
        with group.working(f"step {step}"):
            parts[(group.rank - step) % group.size] = x @ weight
        if shift is not None:
            (x,) = shift.wait()
    return torch.cat([parts[rank] for rank in range(group.size)])


# ---- experts


def by_experts(group: Group, x: Tensor, expert: Tensor) -> Tensor:
    """Each token through the expert of its process, and back.

    x: (P, tokens, dim): the tokens of this process, by the expert that they are sent to.
    expert: (dim, dim), the matrix of this process. Returns (P, tokens, dim), in the order of x.
    """
    if x.dim() != 3 or x.shape[0] != group.size:
        raise ValueError(
            f"`x` should be ({group.size}, tokens, dim), the tokens for each expert, got "
            f"{tuple(x.shape)}"
        )
    came = group.all_to_all(list(x), "tokens, to their experts")
    with group.working("the expert"):
        outs = [part @ expert for part in came]
    return torch.stack(group.all_to_all(outs, "results, back"))


# ---- what is sent for them


class Counted(NamedTuple):
    """The result of an exchange, and what one process sent and multiplied for it."""

    result: Tensor
    numbers: int
    exchanges: int
    products: int


def counted_steps(group: Group, shards: Tensor, weights: Tensor) -> dict[str, Counted]:
    """Both products and the exchange of experts, for shards and matrices that all processes know.

    shards: (P, rows, dim), rows a multiple of P; those of process r are ``shards[r]``. weights:
    (P, dim, columns); the experts have the first dim columns, filled up with zeros.
    """
    x, weight = shards[group.rank], weights[group.rank]
    if x.shape[0] % group.size:
        raise ValueError(
            f"{x.shape[0]} rows of a process cannot be sent to {group.size} experts evenly"
        )
    expert = weight.new_zeros(x.shape[1], x.shape[1])
    columns = min(weight.shape)
    expert[:, :columns] = weight[:, :columns]
    calls = {
        "gathered": lambda: gathered_product(group, x, weight),
        "travelling": lambda: travelling_product(group, x, weight),
        "experts": lambda: by_experts(group, x.view(group.size, -1, x.shape[1]), expert),
    }
    found = {}
    for name, call in calls.items():
        sent, events = len(group.sent), len(group.events)
        result = call()
        mine = group.sent[sent:]
        products = sum(each.kind == "work" for each in group.events[events:])
        found[name] = Counted(result, sum(each.numbers for each in mine), len(mine), products)
    return found
