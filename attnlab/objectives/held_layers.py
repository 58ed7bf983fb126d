"""What the layers of an encoder hold, and how far those of two encoders are apart."""

from contextlib import ExitStack
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from attnlab.core.probe import record
from attnlab.objectives.batches import UNSCORED, Batch


class Held(NamedTuple):
    """The embedding and what each layer leaves, (b, n, dim); and the scores of its heads,
    (b, h, n, n)."""

    vectors: list[Tensor]
    scores: list[Tensor]


def layer_map(teacher: int, student: int) -> list[int]:
    """g(0), …, g(M), for a teacher of N layers and a student of M; 0 is the embedding.

    Raises ValueError where M does not divide N.
    """
    if student < 1 or teacher % student:
        raise ValueError(
            f"each layer of the student learns from every k-th of the teacher, and {student} "
            f"layers do not divide {teacher}; take a student whose number of layers does"
        )
    return [i * teacher // student for i in range(student + 1)]


def held(model: Any, batch: Batch, alone: int = 1) -> Held:
    """What the layers of an encoder hold when it reads a batch; what is below the layer ``alone``,
    counted from 1, gets no gradient; with ``alone=1`` all layers and the embedding get theirs.

    Raises ValueError for a model without an encoder, and for layers that note no queries and keys.
    """
    blocks = blocks_of(model)
    found: list[Tensor] = []

    def first(_: nn.Module, given: tuple[Tensor, ...]) -> None:
        found.append(given[0])

    def keep(_: nn.Module, given: object, out: Tensor) -> None:
        found.append(out)

    def cut(_: nn.Module, given: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        return given[0].detach(), *given[1:]

    with ExitStack() as stack, record() as notes:
        if 1 < alone <= len(blocks):
            stack.callback(blocks[alone - 1].register_forward_pre_hook(cut).remove)
        stack.callback(blocks[0].register_forward_pre_hook(first).remove)
        for block in blocks:
            stack.callback(block.register_forward_hook(keep).remove)
        model.encode(batch.inputs, padding=batch.padding)
    if "queries" not in notes or len(notes["queries"]) != len(found) - 1:
        raise ValueError(
            "layer_distillation compares the scores of each layer, and not all layers note queries "
            "and keys; take models with softmax attention"
        )
    both = zip(notes["queries"], notes["keys"], strict=True)
    return Held(found, [scores_of(*each) for each in both])


def blocks_of(model: Any) -> Any:
    """The layers of an encoder; a ValueError for a model that is none."""
    blocks = getattr(getattr(model, "encoder", None), "blocks", None)
    if blocks is None or not callable(getattr(model, "encode", None)):
        raise ValueError(
            "layer_distillation compares the layers of encoders, and this "
            f"{type(model).__name__} has no encoder with blocks; take a TinyTransformer of "
            "kind='token_classifier' or 'classifier'"
        )
    return blocks


def scores_of(q: Tensor, k: Tensor) -> Tensor:
    """The scores of queries (b, h, n, d) and keys (b, kv, n, d), q kᵀ / √d: (b, h, n, n)."""
    k = k.repeat_interleave(q.shape[1] // k.shape[1], 1)
    return q @ k.mT / q.shape[-1] ** 0.5


def vector_loss(student: Tensor, teacher: Tensor, real: Tensor) -> Tensor:
    """The mean squared difference of each vector (b, n, dim), summed over the real tokens: ().

    real: (b, n) of bool, False at padding.
    """
    return (student - teacher).square().mean(-1)[real].sum()


def map_loss(student: Tensor, teacher: Tensor, real: Tensor, attention: str = "scores") -> Tensor:
    """How far the maps of two models are apart, from their scores (b, h, n, n): ().

    Of each real query the mean squared difference of its scores over the real keys, or
    KL(teacher ‖ student) of its weights; in the mean over heads, summed over the queries.
    real: (b, n) of bool, False at padding.
    """
    keys = real[:, None, None, :]
    if attention == "weights":
        own, theirs = (s.masked_fill(~keys, -torch.inf).log_softmax(-1) for s in (student, teacher))
        each = (theirs.exp() * (theirs - own).masked_fill(~keys, 0)).sum(-1)
    else:
        gaps = (student - teacher).square().masked_fill(~keys, 0).sum(-1)
        each = gaps / real.sum(-1).clamp(min=1)[:, None, None]
    return each.mean(1)[real].sum()


def check_widths(student: int, teacher: int) -> None:
    """A ValueError where vectors that are compared as they are have other widths."""
    if student != teacher:
        raise ValueError(
            f"projected=False compares vectors as they are, and those of the teacher are {teacher} "
            f"wide, of the student {student}; take a student as wide, or projected=True"
        )


def check_heads(student: Tensor, teacher: Tensor) -> None:
    """A ValueError where scores (b, h, n, n) are those of other numbers of heads."""
    if student.shape[1] != teacher.shape[1]:
        raise ValueError(
            f"layer_distillation compares head by head, and the teacher has {teacher.shape[1]} in "
            f"a layer, the student {student.shape[1]}; take a student with as many"
        )


def uniform_loss(batch: Any, classes: int) -> float:
    """The loss of a student whose vectors, scores and W are 0, for each real token."""
    real = batch.targets != UNSCORED
    total = torch.zeros((), dtype=torch.float64)
    for name, each in batch.kept.items():
        loss = vector_loss if name.startswith("vectors") else map_loss
        total = total + loss(torch.zeros_like(each), each, real)
    return float(total / real.sum())
