"""The precision of a run: float32, or autocast to bfloat16."""

import contextlib
from typing import Any

import torch

from attnlab.train.checks import shown

PRECISIONS = ("fp32", "bf16")


def autocast(precision: str, device: torch.device) -> contextlib.AbstractContextManager[Any]:
    if precision == "fp32":
        return contextlib.nullcontext()
    return torch.autocast(device.type, dtype=torch.bfloat16)


def check_precision(precision: object, device: torch.device) -> None:
    if not isinstance(precision, str) or precision not in PRECISIONS:
        raise ValueError(
            "precision should be 'fp32' or 'bf16' (autocast to bfloat16); "
            f"{shown(precision)} was given"
        )
    if precision == "bf16" and device.type == "cuda" and not torch.cuda.is_bf16_supported():
        raise ValueError("This GPU does not compute in bfloat16; use precision='fp32'")
