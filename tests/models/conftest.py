"""Small models on distinct primes: batch 3, length 11, vocabulary 29, width 12, heads 2."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from attnlab.models.tiny import TinyTransformer

VOCAB, CLASSES, FEATURES = 29, 7, 5
ENDS: dict[str, dict[str, Any]] = {
    "language_model": {"vocab": VOCAB},
    "classifier": {"vocab": VOCAB, "classes": CLASSES},
    "token_classifier": {"vocab": VOCAB, "classes": CLASSES},
    "encoder_decoder": {"vocab": VOCAB},
}


class RunningMean(nn.Module):
    """The mean of x so far: a mixing module without parameters, heads or step."""

    def __init__(self, dim: int, heads: int, causal: bool) -> None:
        super().__init__()
        if not causal:
            raise ValueError("the running mean sees the past only, so it is always causal")

    def forward(self, x: torch.Tensor, padding: torch.Tensor | None = None) -> torch.Tensor:
        return x.cumsum(1) / torch.arange(1, x.shape[1] + 1)[:, None]


@pytest.fixture
def make() -> Callable[..., TinyTransformer]:
    """A seeded model of 2 layers; weights are enlarged so that every part matters."""

    def build(kind: str = "language_model", **options: Any) -> TinyTransformer:
        torch.manual_seed(5)
        sizes = {"dim": 12, "layers": 2, "heads": 2, "max_len": 23}
        ends = {} if "features" in options else ENDS[kind]
        model = TinyTransformer(**(ends | sizes | {"kind": kind} | options))
        for parameter in model.parameters():
            parameter.data.mul_(3).add_(0.1 * torch.randn_like(parameter))
        return model.eval()

    return build


@pytest.fixture
def tokens() -> torch.Tensor:
    return torch.randint(VOCAB, (3, 11), generator=torch.Generator().manual_seed(1))


@pytest.fixture
def source() -> torch.Tensor:
    return torch.randint(VOCAB, (3, 17), generator=torch.Generator().manual_seed(2))


@pytest.fixture
def running_mean() -> type[nn.Module]:
    return RunningMean
