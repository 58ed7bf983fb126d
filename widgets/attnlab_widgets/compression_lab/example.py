"""A small classifier that has not been trained, with a smaller one beside it."""

from collections.abc import Sequence

import torch

from attnlab.models.tiny import TinyTransformer
from attnlab_widgets.compression_lab import CompressionLab


def example() -> CompressionLab:
    model, student = _model(), _model(dim=8)
    inputs, labels = _rows(29)
    made = CompressionLab(
        model, inputs, labels, students={"8 wide": student}, kept=0.4, bits=4, per="channel"
    )
    return made


def hostile(words: Sequence[str]) -> CompressionLab:
    inputs, labels = _rows(len(words))
    inputs[0] = torch.arange(12) % len(words)
    return CompressionLab(_model(vocab=len(words)), inputs, labels, names=[*words], kept=0.5)


def _model(vocab: int = 29, dim: int = 16) -> TinyTransformer:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return TinyTransformer(
            vocab, dim=dim, layers=2, heads=2, max_len=32, kind="classifier", classes=5
        )


def _rows(vocab: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randint(vocab, (24, 12), generator=generator)
    return inputs, torch.randint(5, (24,), generator=generator)
