"""flash-linear-attention as a second oracle: its plain references against our definitions.

It is no dependency: ``pip install flash-linear-attention`` (which wants triton and einops) beside
attnlab runs these tests, on a CPU too. Its references compute in float32, with tokens before heads.
"""

import importlib
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from attnlab.mechanisms.dense import forgetting, stick_breaking
from attnlab.mechanisms.kernelized import linear
from attnlab.mechanisms.positions import path
from attnlab.mechanisms.recurrence import (
    deltanet,
    gated_deltanet,
    gated_linear,
    kimi_delta,
    mamba2,
    retention,
)
from attnlab.testing.mechanisms import Sizes, gradients, inputs

SIZES = Sizes(b=2, h=3, g=3, n=37, m=37, d=5, e=11)
BOUND = 2e-5
"""Of the largest number of a tensor."""


def reference(module: str, name: str) -> Callable[..., Any]:
    """A reference of fla; the test is skipped where it cannot be imported."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it says that there is no GPU
        for package in ("einops", "triton", "fla"):
            pytest.importorskip(package)
        found = importlib.import_module(f"fla.ops.{module}.naive")
    return getattr(found, name)


def turned(*tensors: Tensor) -> tuple[Tensor, ...]:
    """Tokens before heads."""
    return tuple(x.transpose(1, 2) for x in tensors)


def fla_deltanet(q: Tensor, k: Tensor, v: Tensor, step: Tensor) -> Tensor:
    q, k, b = deltanet.ruled(q, k, step, deltanet.DeltaNetOptions())
    scaled = q * q.shape[-1] ** 0.5  # it divides by √d itself
    return reference("delta_rule", "delta_rule_recurrence")(scaled, k, v, b)[0]


def fla_gated_deltanet(
    q: Tensor, k: Tensor, v: Tensor, step: Tensor, decay: Tensor, log_A: Tensor
) -> Tensor:
    options = gated_deltanet.GatedDeltaNetOptions()
    q, k, b, log_a = gated_deltanet.ruled(q, k, step, decay, log_A, options)
    of_tokens = turned(q, k, v, b[..., 0], log_a[..., 0])
    call = reference("gated_delta_rule", "naive_recurrent_gated_delta_rule")
    return turned(call(*of_tokens, scale=1.0)[0])[0]


def fla_kimi_delta(
    q: Tensor, k: Tensor, v: Tensor, step: Tensor, decay: Tensor, log_A: Tensor
) -> Tensor:
    options = kimi_delta.KimiDeltaOptions()
    q, k, b, log_a = kimi_delta.ruled(q, k, step, decay, log_A, options)
    of_tokens = turned(q, k, v, log_a, b[..., 0])
    return turned(reference("kda", "naive_recurrent_kda")(*of_tokens, scale=1.0)[0])[0]


def fla_gated_linear(q: Tensor, k: Tensor, v: Tensor, decay: Tensor) -> Tensor:
    q, k, log_a = gated_linear.ruled(q, k, decay, gated_linear.GatedLinearOptions())
    of_tokens = turned(q * q.shape[-1] ** 0.5, k, v, log_a.expand_as(k))
    return turned(reference("gla", "naive_recurrent_gla")(*of_tokens)[0])[0]


def fla_mamba2(
    q: Tensor, k: Tensor, v: Tensor, step: Tensor, log_A: Tensor, skip: Tensor
) -> Tensor:
    delta, log_a = mamba2.ruled(step, log_A)
    of_tokens = turned(q, k, delta * v, log_a[..., 0])
    call = reference("simple_gla", "naive_recurrent_simple_gla")
    return turned(call(*of_tokens, scale=1.0)[0])[0] + skip[:, None, None] * v


def fla_retention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return reference("retention", "naive_retention")(q * q.shape[-1] ** 0.5, k, v)


def fla_linear(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    of_tokens = turned(*linear._featured(q, k, None, linear.LinearOptions())[:2], v)
    call = reference("linear_attn", "naive_recurrent_linear_attn")
    return turned(call(*of_tokens, scale=1.0, normalize=True)[0])[0]


def fla_forgetting(q: Tensor, k: Tensor, v: Tensor, gate: Tensor) -> Tensor:
    logs = torch.nn.functional.logsigmoid(gate)
    return turned(reference("forgetting_attn", "naive_forgetting_attn")(*turned(q, k, v, logs)))[0]


def fla_path(q: Tensor, k: Tensor, v: Tensor, w: Tensor, beta: Tensor) -> Tensor:
    given = turned(q, k, v, w, beta)
    found = reference("path_attn", "naive_path_attn")(
        *given, torch.zeros_like(given[-1]), q.shape[-1] ** -0.5, chunk_size=37
    )
    return turned(found[0] if isinstance(found, tuple) else found)[0]


def fla_stick_breaking(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    call = reference("stickbreaking_attn", "naive_stickbreaking_attn")
    return turned(call(*turned(q, k, v))[0])[0]


@pytest.mark.parametrize(
    ("ours", "theirs", "more"),
    [
        (deltanet.naive, fla_deltanet, {}),
        (gated_deltanet.naive, fla_gated_deltanet, {}),
        (kimi_delta.naive, fla_kimi_delta, {}),
        (gated_linear.naive, fla_gated_linear, {}),
        (mamba2.naive, fla_mamba2, {}),
        (retention.naive, fla_retention, {}),
        (linear.naive, fla_linear, {"causal": True}),
        (forgetting.naive, fla_forgetting, {}),
        (path.naive, fla_path, {}),
        (stick_breaking.naive, fla_stick_breaking, {}),
    ],
    ids=lambda each: getattr(each, "__name__", ""),
)
def test_equals_the_reference_of_fla(
    ours: Callable[..., Tensor], theirs: Callable[..., Tensor], more: dict[str, Any]
) -> None:
    """Values, and the gradient of every tensor that the form takes."""
    made = [x.requires_grad_() for x in inputs(ours, SIZES, torch.float32)]
    if ours is path.naive:  # directions have length 1, strengths lie between 0 and 2
        made[3], made[4] = (
            x.detach().requires_grad_()
            for x in (torch.nn.functional.normalize(made[3], dim=-1), 2 * torch.sigmoid(made[4]))
        )
    wanted, found = theirs(*made), ours(*made, **more)
    close(found, wanted)
    for mine, right in zip(gradients(found, made), gradients(wanted, made), strict=True):
        close(mine, right)


def close(mine: Tensor, right: Tensor) -> None:
    assert mine.shape == right.shape
    far = (mine - right).abs().max().item() / max(1.0, right.abs().max().item())
    assert far <= BOUND
