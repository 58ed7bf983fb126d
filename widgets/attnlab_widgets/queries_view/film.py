"""The stored film: what four queries read of a few scenes, while a Q-Former learns.

``python -m tools.query_film`` trains it again and writes ``queries_view.json``.
"""

import json
from base64 import b64decode, b64encode
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from attnlab.lens.sources.patches import Grid
from attnlab_widgets.queries_view.study import STEPS

FILE = Path(__file__).with_name("queries_view.json")


@dataclass(frozen=True, eq=False)
class Film:
    """Weights by update and layer, and the images they were read from.

    seen: {update: {layer: (scenes, h, q, m)}}
    images: (scenes, height, width), from 0 to 1.
    """

    seen: dict[int, dict[str, Tensor]]
    images: np.ndarray
    grid: Grid

    def written(self) -> dict[str, Any]:
        """As JSON, a byte for each weight and pixel."""
        first = next(iter(self.seen.values()))
        weights = torch.stack([torch.stack([*each.values()]) for each in self.seen.values()])
        return {
            "steps": list(self.seen),
            "layers": list(first),
            "grid": list(self.grid),
            "images": list(self.images.shape),
            "shape": list(weights.shape),
            "pixels": _text(self.images * 255),
            "weights": _text(weights.double().clamp(0, 1).sqrt().numpy() * STEPS),
        }


@cache
def stored() -> Film:
    """The film that ships with the widget."""
    told = json.loads(FILE.read_text("utf-8"))
    weights = torch.from_numpy((_bytes(told["weights"], told["shape"]) / STEPS) ** 2)
    return Film(
        {
            step: dict(zip(told["layers"], weights[at], strict=True))
            for at, step in enumerate(told["steps"])
        },
        _bytes(told["pixels"], told["images"]) / 255,
        (told["grid"][0], told["grid"][1]),
    )


def _text(values: Any) -> str:
    return b64encode(np.rint(values).astype(np.uint8).tobytes()).decode()


def _bytes(text: str, shape: list[int]) -> np.ndarray:
    return np.frombuffer(b64decode(text), np.uint8).reshape(shape)
