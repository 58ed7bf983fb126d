"""Five queries of two layers over an image of 3 × 7 patches, at four moments."""

from collections.abc import Sequence

import torch

from attnlab_widgets.queries_view import QueriesView

ROWS, COLUMNS, QUERIES = 3, 7, 5


def weights(
    sharp: float, layers: Sequence[str] = ("cross 0", "cross 2"), queries: int = QUERIES
) -> dict[str, torch.Tensor]:
    """(1, 2, q, 21): each query has a place of its own, which it attends to more sharply."""
    made = torch.Generator().manual_seed(0)
    row, column = torch.arange(ROWS * COLUMNS) // COLUMNS, torch.arange(ROWS * COLUMNS) % COLUMNS
    found = {}
    for name in layers:
        at = torch.rand(2, queries, 2, generator=made) * torch.tensor([ROWS - 1, COLUMNS - 1])
        far = (row - at[..., :1]) ** 2 + (column - at[..., 1:]) ** 2
        found[name] = (-sharp * far).softmax(-1)[None]
    return found


def image() -> torch.Tensor:
    """(12, 28): two rings."""
    y, x = torch.meshgrid(torch.arange(12.0), torch.arange(28.0), indexing="ij")
    rings = [((y - 5.5) ** 2 + (x - middle) ** 2).sqrt() for middle in (6.5, 20.5)]
    return sum(((ring - 4).abs() < 1).float() for ring in rings).clamp(0, 1)  # type: ignore[union-attr]


def example(layers: Sequence[str] = ("cross 0", "cross 2")) -> QueriesView:
    seen = {step: weights(step / 100, layers) for step in (0, 10, 50, 200)}
    return QueriesView(seen, image(), grid=(ROWS, COLUMNS))


def hostile(words: Sequence[str]) -> QueriesView:
    return example(words)
