"""The loss: cross-entropy over scored targets, as sums that add up exactly.

A mean over a part of a batch weighs every part alike, however few of its targets are scored.
Sums do not have that flaw: accumulated or sharded, the pieces add up to the sum of the whole
batch, and one division by the number of scored targets of the whole batch gives its loss.
"""

import contextlib
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from attnlab.train.checks import shown
from attnlab.train.task import UNSCORED, Batch

PRECISIONS = ("fp32", "bf16")


def logits_of(model: nn.Module, batch: Batch, largest: int = -1) -> Tensor:
    """The model's logits; encoder-decoder batches also have a source.

    largest: the largest target of the batch, which the model must be able to answer.
    """
    options: dict[str, Any] = {}
    if batch.source is not None:
        options = {"source": batch.source, "source_padding": batch.source_padding}
    structure = getattr(batch, "structure", None)  # of trees; most tasks have none
    if structure is not None:
        options["structure"] = structure
    logits = model(batch.inputs, padding=batch.padding, **options)
    _check_logits(logits, batch)
    if largest >= logits.shape[-1]:
        raise ValueError(
            f"A target is {largest}, but the model distinguishes only {logits.shape[-1]} classes "
            f"or tokens (0 to {logits.shape[-1] - 1}). Build the model for this task."
        )
    checked: Tensor = logits
    return checked


def _check_logits(logits: Any, batch: Batch) -> None:
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


def summed_loss(logits: Tensor, targets: Tensor) -> Tensor:
    """Cross-entropy summed over the scored targets, in float32 or better."""
    exact = logits if logits.dtype == torch.float64 else logits.float()
    return F.cross_entropy(
        exact.flatten(0, -2), targets.flatten(), ignore_index=UNSCORED, reduction="sum"
    )


def autocast(precision: str, device: torch.device) -> contextlib.AbstractContextManager[Any]:
    if precision == "fp32":
        return contextlib.nullcontext()
    return torch.autocast(device.type, dtype=torch.bfloat16)


def check_precision(precision: object, device: torch.device) -> None:
    if not isinstance(precision, str) or precision not in PRECISIONS:
        raise ValueError(
            "precision must be 'fp32' or 'bf16' (autocast to bfloat16); "
            f"{shown(precision)} was given."
        )
    if precision == "bf16" and device.type == "cuda" and not torch.cuda.is_bf16_supported():
        raise ValueError("This GPU does not compute in bfloat16; use precision='fp32'.")
