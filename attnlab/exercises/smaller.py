"""Checks of lesson 80: rounds of pruning, one threshold, the importance of heads, a ticket."""

from collections.abc import Iterator

import torch
from torch import Tensor

from attnlab.exercises.answers import NumberExercise
from attnlab.exercises.attempt import Arguments, random_tensors
from attnlab.exercises.exercise import Exercise, but

check_pruning_rounds = NumberExercise(
    "After how many rounds of 20 % is less than a tenth of the weights left?",
    right=11,
    unit="rounds",
    mistakes={
        5: "Each round cuts 20 % of what is left, not of all weights: 0.8, 0.64, 0.512, …",
        10: "0.8 to the power of 10 is 0.107, a little more than a tenth.",
        10.3: "That is where the curve crosses a tenth; rounds are whole.",
        2: "That is where a tenth is cut. A tenth is to be left.",
        1: "After one round 80 % are left.",
    },
)


# ---- one threshold


def _kept(
    W: Tensor, V: Tensor, kept: float, *,
    alone: bool = False, signed: bool = False, others: bool = False, scaled: bool = False,
) -> Tensor:  # fmt: skip
    def size(x: Tensor) -> Tensor:
        found = x if signed else x.abs()
        return found / found.abs().max() if scaled else found

    every = size(W).flatten() if alone else torch.cat([size(W).flatten(), size(V).flatten()])
    left = round(kept * len(every))
    order = every.argsort(descending=not others)
    mask = torch.zeros(len(every), dtype=torch.bool)
    mask[order[:left]] = True
    return mask[: W.numel()].view_as(W)


def _two_matrices() -> Iterator[Arguments]:
    for f, d, g, seed in ((5, 8, 3, 0), (4, 5, 9, 3)):
        W, V = random_tensors((f, d), (g, d), seed=seed)
        yield {"W": W, "V": V / 3, "kept": 0.5}


check_global_mask = Exercise(
    """Which weights of W are left under one threshold? `mask(W, V, kept) -> (f, d)`, True or False.

    W (f, d) and V (g, d) are two matrices of a network. Of all their weights together the share
    `kept` is left, a whole number of weights: those of the largest absolute values.
    """,
    right=_kept,
    cases=_two_matrices,
    axes="f d",
    mistakes={
        but(alone=True): (
            "Of W alone the share `kept` is left: that is the local mask. The weights of V take "
            "part in one common order."
        ),
        but(signed=True): "Large negative weights are cut as well: the order is that of |w|.",
        but(others=True): "Those are the weights of the smallest absolute values, which go.",
        but(scaled=True): (
            "Each matrix was divided by its largest weight first. The threshold compares the "
            "weights as they are."
        ),
    },
    praise="The matrix of the smaller weights loses more than its share.",
)


# ---- importance of heads


def _importance(
    outputs: Tensor, gradients: Tensor, *,
    outside: bool = False, each: bool = False, signed: bool = False, total: bool = False,
) -> Tensor:  # fmt: skip
    products = outputs * gradients
    if each:
        products = products.abs()
    found = products.sum((2, 3))
    found = found if outside or signed else found.abs()
    found = found.sum(0) if total else found.mean(0)
    return found.abs() if outside else found


def _heads() -> Iterator[Arguments]:
    for b, h, n, d, seed in ((7, 3, 5, 2, 0), (11, 2, 3, 5, 4)):
        outputs, gradients = random_tensors((b, h, n, d), (b, h, n, d), seed=seed)
        yield {"outputs": outputs, "gradients": gradients}


check_head_importance = Exercise(
    """How strongly does the loss depend on each head? `importance(outputs, gradients) -> (h,)`.

    outputs (b, h, n, d) is what the h heads write for b examples, and gradients (b, h, n, d) the
    derivative of each example's loss by it. The derivative by the gate of a head is the inner
    product of the two. The importance is the mean over the examples of its absolute value.
    """,
    right=_importance,
    cases=_heads,
    axes="h",
    mistakes={
        but(outside=True): (
            "The absolute value stands outside the mean, so that examples whose derivatives have "
            "different signs cancel. Take it of each example first."
        ),
        but(signed=True): "The absolute value is missing: a mean of signed derivatives cancels.",
        but(each=True): (
            "The absolute value of every product was taken. One gate scales all numbers of a head, "
            "so their products are added first, for each example."
        ),
        but(total=True): "That is the sum over the examples; the importance is their mean.",
    },
    praise="A head that helps half of the examples and harms the others counts as needed.",
)


# ---- a ticket


def _ticket(
    first: Tensor, trained: Tensor, mask: Tensor, rate: float, *,
    onward: bool = False, by_first: bool = False, of_all: bool = False, forgets: bool = False,
) -> Tensor:  # fmt: skip
    size = (first if by_first else trained).abs()
    if not forgets:
        size = size.masked_fill(~mask, -1)
    among = mask.numel() if of_all or forgets else int(mask.sum())
    left = round(int(mask.sum()) - rate * among) if not forgets else round((1 - rate) * among)
    kept = torch.zeros_like(mask)
    kept[size.argsort(descending=True)[:left]] = True
    return (trained if onward else first) * kept


def _rounds() -> Iterator[Arguments]:
    for n, seed in ((60, 0), (40, 5)):
        first, change, order = random_tensors((n,), (n,), (n,), seed=seed)
        mask = torch.zeros(len(order), dtype=torch.bool)
        mask[order.argsort()[: len(order) // 2]] = True
        yield {"first": first, "trained": first + change, "mask": mask, "rate": 0.2}


check_ticket = Exercise(
    """Which weights does the next round begin with? `ticket(first, trained, mask, rate) -> (n,)`.

    first (n,) are the values before the first training, trained (n,) those at the end of this
    round, and mask (n,) is True at the weights that were left in it. A share `rate` of these, a
    whole number, is cut: those of the smallest absolute values after the training. What is cut,
    now or before, is 0.
    """,
    right=_ticket,
    cases=_rounds,
    axes="n",
    mistakes={
        but(onward=True): (
            "The weights that are left have their trained values: that trains a pruned network on. "
            "A ticket begins with the first values again."
        ),
        but(by_first=True): (
            "The smallest of the first values were cut. Training says what is needed: the order is "
            "that of the trained values."
        ),
        but(of_all=True): "A share of all weights was cut; `rate` is a share of those left.",
        but(forgets=True): (
            "Weights that an earlier round had cut took part and some came back. The masks of "
            "successive rounds lie in each other."
        ),
    },
    praise="Put other random values in the place of `first`, and you have the control.",
)
