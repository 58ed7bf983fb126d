"""Lesson 80's checks: rounds, one threshold, the importance of heads, a ticket."""

import torch
from torch import Tensor

from attnlab.compression.lottery_tickets import LotteryTickets
from attnlab.compression.magnitude_pruning import masks_of
from attnlab.compression.matrices import put_mask
from attnlab.exercises import (
    check_global_mask,
    check_head_importance,
    check_ticket,
)
from tests.exercises.frame import answers_to


def by_the_library(W: Tensor, V: Tensor, kept: float) -> Tensor:
    return masks_of({"W": W, "V": V}, kept, "global")["W"]


def by_a_threshold(W: Tensor, V: Tensor, kept: float) -> Tensor:
    sizes = sorted(abs(w) for w in [*W.flatten().tolist(), *V.flatten().tolist()])
    return W.abs() >= sizes[len(sizes) - round(kept * len(sizes))]


def by_gates(outputs: Tensor, gradients: Tensor) -> Tensor:
    """A loss that is linear in the outputs, and gates by example and head."""
    gates = torch.ones(outputs.shape[:2], dtype=outputs.dtype, requires_grad=True)
    loss = (gates[..., None, None] * outputs * gradients).sum()
    (found,) = torch.autograd.grad(loss, gates)
    return found.abs().mean(0)


def one_by_one(outputs: Tensor, gradients: Tensor) -> Tensor:
    b, h = outputs.shape[:2]
    total = [0.0] * h
    for i in range(b):
        for head in range(h):
            total[head] += abs((outputs[i, head] * gradients[i, head]).sum().item()) / b
    return torch.tensor(total)


def next_round(first: Tensor, trained: Tensor, mask: Tensor, rate: float) -> Tensor:
    """By a layer of one row and the page of tickets."""

    def layer(values: Tensor) -> torch.nn.Linear:
        made = torch.nn.Linear(len(values), 1, bias=False, dtype=values.dtype)
        made.weight.data = values[None].clone()
        return made

    after = layer(trained)
    put_mask(after, mask[None].clone())
    left = round(int(mask.sum()) * (1 - rate))
    found = LotteryTickets(1 - left / len(mask), start=layer(first))(after)
    weight: Tensor = found.weight
    return weight[0].detach()


def in_place(first: Tensor, trained: Tensor, mask: Tensor, rate: float) -> Tensor:
    begun = first * mask
    left = sorted(mask.nonzero()[:, 0].tolist(), key=lambda i: abs(trained[i].item()))
    begun[left[: round(rate * len(left))]] = 0
    return begun


TestAnswers = answers_to(
    [
        (check_global_mask, by_the_library),
        (check_global_mask, by_a_threshold),
        (check_head_importance, by_gates),
        (check_head_importance, one_by_one),
        (check_ticket, next_round),
        (check_ticket, in_place),
    ],
    [],
)
