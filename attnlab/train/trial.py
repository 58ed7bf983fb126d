"""One row is run through the model before training, so that a mismatch gives a clear error."""

from typing import Any

import torch
from torch import Tensor, nn

from attnlab.core.modes import mode
from attnlab.objectives.batches import Batch
from attnlab.train.documents import Segment, documents_of
from attnlab.train.generators import derived_seed
from attnlab.train.identity import describe_task, fingerprint
from attnlab.train.precision import autocast
from attnlab.train.processes import Processes
from attnlab.train.segments import check_segments, try_documents
from attnlab.train.settings import Settings
from attnlab.train.task import Drawn, Task, advice, draw, requirements
from attnlab.train.tensors import bare


def dry_run(
    model: nn.Module,
    task: Task,
    settings: Settings,
    objective: Any,
    device: torch.device,
    processes: Processes,
) -> dict[str, Any]:
    """What a checkpoint says of the task, after one row of it has gone through the model."""
    if settings.segment is not None:
        check_segments(bare(model), task, objective, processes.count, settings.accumulate)
    row = _row(task, settings.segment, objective)
    _check_answers(model, task, row, objective, settings.precision, device)
    digest, other = (fingerprint(_as_given(task, settings.segment)) for _ in range(2))
    _check_processes(task, digest, processes)
    return describe_task(task, digest if digest == other else None)


def _row(task: Task, segment: int | None, objective: Any) -> Drawn:
    """A row of a batch; of documents that are read in segments, the first segment of one."""
    seed = derived_seed(0, "try")
    documents = documents_of(task, "train", 1, segment, seed)
    return draw(task, "train", 1, seed, objective) if documents is None else documents.draw(0)


def _as_given(task: Task, segment: int | None) -> Batch:
    """The same row before an objective has seen it; its targets are checked when it has."""
    seed = derived_seed(0, "try")
    documents = documents_of(task, "train", 1, segment, seed)
    given: Batch = (
        task.batch("train", 1, seed=seed) if documents is None else documents.draw(0).batch
    )
    return given


def _check_answers(
    model: nn.Module, task: Task, row: Drawn, objective: Any, precision: str, device: torch.device
) -> None:
    try:
        with mode(model, training=False), torch.no_grad(), autocast(precision, device):
            batch: Any = row.batch.to(device)
            whole = not isinstance(batch, Segment)
            answers = (
                objective.answers(model, batch) if whole else try_documents(bare(model), batch)
            )
    except (IndexError, RuntimeError, TypeError, ValueError) as error:
        raise ValueError(
            f"The model cannot take a batch of task '{task.name}' ({requirements(task)}): "
            f"{str(error).rstrip('.')}; {advice(task)}"
        ) from error
    of_task = getattr(task, "classes", None) or getattr(task, "vocab", None) or 0
    declared = getattr(objective, "classes", None) or of_task
    needed = max(declared, row.largest + 1)
    if isinstance(answers, Tensor) and answers.shape[-1] < needed:
        raise ValueError(
            f"Task '{task.name}' has {needed} different targets ({requirements(task)}); the model "
            f"distinguishes only {answers.shape[-1]}; {advice(task)}"
        )


def _check_processes(task: Task, digest: str, processes: Processes) -> None:
    """Each process trains on its share of one batch, so all must draw the same one."""
    own = torch.tensor([list(bytes.fromhex(digest))], dtype=torch.uint8)
    if len({tuple(one) for one in processes.gathered(own).tolist()}) > 1:
        raise ValueError(
            f"The {processes.count} processes drew different rows of task '{task.name}' for one "
            "seed; batch(split, size, seed) should depend on its arguments alone, or the processes "
            "would not train on one batch"
        )
