"""Loss and accuracy on fixed batches, without training on them."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor, nn

from attnlab.core.modes import mode
from attnlab.train.checks import MOST_ROWS, MOST_STEPS, as_integer, check_model, shown
from attnlab.train.diagnose import first_fault
from attnlab.train.documents import Segment, documents_of
from attnlab.train.errors import TrainingError
from attnlab.train.generators import derived_seed, preserved_generators
from attnlab.train.learner import fit_objective
from attnlab.train.objective import check_kind, chosen
from attnlab.train.precision import autocast, check_precision
from attnlab.train.segments import check_longest, check_segments, next_logits, segment_logits
from attnlab.train.task import Task, check_classes, check_task, draw
from attnlab.train.tensors import bare


class Evaluation(NamedTuple):
    """Mean loss and share of right answers over `targets` scored targets."""

    loss: float
    accuracy: float
    targets: int


def evaluate(
    model: nn.Module,
    task: Task,
    *,
    batches: int = 8,
    batch_size: int = 32,
    split: str = "validation",
    seed: int = 0,
    precision: str = "fp32",
    segment: int | None = None,
    objective: str | nn.Module = "next_token",
) -> Evaluation:
    """Loss and accuracy of `model` on `batches` fixed batches of `task`, where the model is.

    The same `seed` gives the same batches every time. `segment` reads texts in pieces as `fit`
    does: of a task of documents a batch is the next piece of each. `objective` is that of `fit`.
    Of several processes each evaluates all batches itself. The model's modes, the random generators
    and the gradients are as before. Raises `TrainingError` naming the layer if the loss is not
    finite.
    """
    check_model(model)
    check_task(task)
    asked = chosen(objective, task)
    check_kind(model, asked)
    fit_objective(asked, model, device_of(model), "evaluation")
    check_precision(precision, device_of(model))
    if not isinstance(split, str):
        raise ValueError(f"split should be 'train' or 'validation'; {shown(split)} was given")
    indices = range(as_integer("batches", batches, least=1, most=MOST_STEPS))
    size = as_integer("batch_size", batch_size, least=1, most=MOST_ROWS)
    seed = as_integer("seed", seed)
    if segment is not None:
        segment = as_integer("segment", segment, least=1, most=MOST_STEPS)
        check_segments(bare(model), task, asked)
    sums = summed_scores(
        model, task, indices, size,
        objective=asked, split=split, seed=seed, precision=precision, segment=segment,
    )  # fmt: skip
    return evaluation(sums)


def evaluation(sums: Tensor) -> Evaluation:
    loss, right, targets = sums.tolist()
    if not targets:
        raise ValueError(
            "Not one target of these batches is scored (all are -100), so there is no loss"
        )
    return Evaluation(loss / targets, right / targets, int(targets))


def summed_scores(
    model: nn.Module,
    task: Task,
    indices: range,
    batch_size: int,
    *,
    objective: Any,
    split: str = "validation",
    seed: int = 0,
    precision: str = "fp32",
    segment: int | None = None,
) -> Tensor:
    """(summed loss, right answers, scored targets) over the batches `indices`, in float64."""
    device, state = device_of(model), None
    documents = documents_of(task, split, batch_size, segment, seed)
    if documents is not None:
        check_longest(bare(model), documents)
    sums = torch.zeros(3, dtype=torch.float64)
    with (
        mode(model, training=False),
        mode(objective, training=False),
        preserved_generators(device),
        torch.no_grad(),
    ):
        for index in indices:
            torch.manual_seed(derived_seed(seed, "evaluate", index))
            if documents is None:
                drawn = draw(task, split, batch_size, derived_seed(seed, split, index), objective)
            else:
                drawn = documents.draw(index)
            batch = drawn.batch.to(device)
            with autocast(precision, device):
                if segment is None:
                    answers = objective.answers(model, batch)
                    check_classes(answers, drawn.largest)
                elif documents is None:
                    answers = torch.cat([*segment_logits(bare(model), batch, segment)], dim=1)
                else:
                    answers, state = next_logits(bare(model), cast(Segment, batch), state)
            part = torch.tensor(
                [
                    float(objective.loss(answers, batch)),
                    float(objective.right(answers, batch)),
                    float(drawn.scored),
                ],
                dtype=torch.float64,
            )
            if not part.isfinite().all():
                again = partial(objective.answers, model, batch)
                raise _evaluation_error(model, again, precision, device, index, float(part[0]))
            sums += part
    return sums


def _evaluation_error(
    model: nn.Module,
    again: Callable[[], object],
    precision: str,
    device: torch.device,
    index: int,
    loss: float,
) -> TrainingError:
    def run() -> None:
        with autocast(precision, device):
            again()

    fault = first_fault(model, run)
    where = (
        "; every layer was finite" if fault is None else f"; first not finite: {fault.description}"
    )
    layer = None if fault is None else fault.layer
    return TrainingError(f"The loss of evaluation batch {index} is {loss}{where}.", layer=layer)


def device_of(model: nn.Module) -> torch.device:
    for tensor in (*model.parameters(), *model.buffers()):
        return tensor.device
    return torch.device("cpu")
