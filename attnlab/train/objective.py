"""What is minimised: cross-entropy over scored targets, as sums that add up exactly.

A mean over a part of a batch weighs every part alike, however few of its targets are scored.
Sums do not have that flaw: accumulated or sharded, the pieces add up to the sum of the whole
batch, and one division by the number of scored targets of the WHOLE batch gives the loss of the
whole batch.
"""

import contextlib
from typing import Any, NamedTuple, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from attnlab.core.modes import mode
from attnlab.train.diagnose import TrainingError, first_fault
from attnlab.train.generators import derived_seed, preserved_generators

UNSCORED = -100
PRECISIONS = ("fp32", "bf16")


class Batch(Protocol):
    """What a task hands out. `padding` and `source_padding` are True at real tokens."""

    inputs: Tensor
    targets: Tensor
    padding: Tensor | None
    source: Tensor | None
    source_padding: Tensor | None

    def __len__(self) -> int: ...
    def __getitem__(self, rows: slice) -> "Batch": ...
    def to(self, device: Any) -> "Batch": ...


class Task(Protocol):
    """What `fit` asks of a task; `batch` is a function of its arguments alone."""

    @property
    def name(self) -> str: ...
    @property
    def kind(self) -> str: ...
    def batch(self, split: Any, size: int, seed: int) -> Any: ...


class Evaluation(NamedTuple):
    """Mean loss and share of right answers over `targets` scored targets."""

    loss: float
    accuracy: float
    targets: int


def logits_of(model: nn.Module, batch: Batch) -> Tensor:
    """Calls the model as its kind is called; sequence-to-sequence batches carry a source."""
    if batch.source is None:
        return checked_logits(model(batch.inputs, padding=batch.padding), batch)
    options = {"source": batch.source, "source_padding": batch.source_padding}
    return checked_logits(model(batch.inputs, padding=batch.padding, **options), batch)


def checked_logits(logits: Any, batch: Batch) -> Tensor:
    if not isinstance(logits, Tensor):
        raise TypeError(
            f"The model must return logits, a tensor; it returned a {type(logits).__name__}. "
            "Wrap it in a module whose forward returns the logits alone."
        )
    if logits.shape[:-1] != batch.targets.shape:
        raise ValueError(
            f"For targets of shape {tuple(batch.targets.shape)} the model must return logits of "
            f"shape {tuple(batch.targets.shape)} + (classes,); it returned {tuple(logits.shape)}. "
            "Is the model of the task's kind?"
        )
    return logits


def summed_loss(logits: Tensor, targets: Tensor) -> Tensor:
    """Cross-entropy summed over the scored targets, in float32 or better."""
    exact = logits if logits.dtype == torch.float64 else logits.float()
    return F.cross_entropy(
        exact.flatten(0, -2), targets.flatten(), ignore_index=UNSCORED, reduction="sum"
    )


def scored(targets: Tensor) -> int:
    return int((targets != UNSCORED).sum())


def tokens_in(batch: Batch) -> int:
    """Real tokens the model reads: padding does not count, a source does."""
    total = _real(batch.inputs, batch.padding)
    return total if batch.source is None else total + _real(batch.source, batch.source_padding)


def _real(tokens: Tensor, padding: Tensor | None) -> int:
    return tokens.shape[:2].numel() if padding is None else int(padding.sum())


def autocast(precision: str, device: torch.device) -> contextlib.AbstractContextManager[Any]:
    if precision == "fp32":
        return contextlib.nullcontext()
    return torch.autocast(device.type, dtype=torch.bfloat16)


def evaluate(
    model: nn.Module,
    task: Task,
    *,
    batches: int = 8,
    batch_size: int = 32,
    split: str = "validation",
    seed: int = 0,
    precision: str = "fp32",
) -> Evaluation:
    """Loss and accuracy of `model` on `batches` fixed batches of `task`, where the model is.

    The same `seed` asks the same questions every time. Under several processes each call answers
    for itself. The model's modes, the random generators and the gradients are as before. Raises
    `TrainingError` naming the layer if the loss is not finite.
    """
    check_count("batches", batches)
    check_count("batch_size", batch_size)
    check_precision(precision, device_of(model))
    sums = summed_scores(
        model, task, range(batches), batch_size, split=split, seed=seed, precision=precision
    )
    return evaluation(sums)


def evaluation(sums: Tensor) -> Evaluation:
    loss, right, targets = sums.tolist()
    if not targets:
        raise ValueError(
            "Not one target of these batches is scored (all are -100), so there is no loss."
        )
    return Evaluation(loss / targets, right / targets, int(targets))


def summed_scores(
    model: nn.Module,
    task: Task,
    indices: range,
    batch_size: int,
    *,
    split: str = "validation",
    seed: int = 0,
    precision: str = "fp32",
) -> Tensor:
    """(summed loss, right answers, scored targets) over the batches `indices`, in float64."""
    device = device_of(model)
    sums = torch.zeros(3, dtype=torch.float64)
    with mode(model, training=False), preserved_generators(device), torch.no_grad():
        for index in indices:
            torch.manual_seed(derived_seed(seed, "evaluate", index))
            batch = task.batch(split, batch_size, seed=derived_seed(seed, split, index)).to(device)
            with autocast(precision, device):
                logits = logits_of(model, batch)
            part = _scores(logits, batch.targets)
            if not part.isfinite().all():
                raise _evaluation_error(model, batch, precision, index, float(part[0]))
            sums += part
    return sums


def _scores(logits: Tensor, targets: Tensor) -> Tensor:
    right = (logits.argmax(-1) == targets).sum()  # an unscored target is nobody's answer
    sums = [float(summed_loss(logits, targets)), float(right), float(scored(targets))]
    return torch.tensor(sums, dtype=torch.float64)


def _evaluation_error(
    model: nn.Module, batch: Batch, precision: str, index: int, loss: float
) -> TrainingError:
    def again() -> None:
        with autocast(precision, batch.inputs.device):
            logits_of(model, batch)

    fault = first_fault(model, again)
    where = "; every layer was finite" if fault is None else f"; first not finite: {fault.words}"
    layer = None if fault is None else fault.layer
    return TrainingError(f"The loss of evaluation batch {index} is {loss}{where}.", layer=layer)


def device_of(model: nn.Module) -> torch.device:
    for tensor in (*model.parameters(), *model.buffers()):
        return tensor.device
    return torch.device("cpu")


def check_count(name: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError(f"{name} must be a whole number of at least 1; {value!r} was given.")


def check_precision(precision: object, device: torch.device) -> None:
    if precision not in PRECISIONS:
        raise ValueError(
            f"precision must be 'fp32' or 'bf16' (autocast to bfloat16); {precision!r} was given."
        )
    if precision == "bf16" and device.type == "cuda" and not torch.cuda.is_bf16_supported():
        raise ValueError("This GPU does not compute in bfloat16; use precision='fp32'.")
