"""Four questions to a model of four layers: one it has from the start, one it never has."""

from collections.abc import Sequence

import torch

from attnlab.lens.edge_probes import Cumulative, EdgeProbed
from attnlab.lens.known_where import Known
from attnlab_widgets.probe_view import ProbeView

_NAMES = ("begins a word", "in brackets", "same word", "a coin")
_RIGHT = ((0.93, 0.95, 0.95, 0.96, 0.96), (0.55, 0.62, 0.78, 0.83, 0.84),
          (0.62, 0.7, 0.74, 0.74, 0.81), (0.71, 0.72, 0.71, 0.7, 0.71))  # fmt: skip
_CONTROL = ((0.75,) * 5, (0.52, 0.55, 0.56, 0.56, 0.57), (0.61, 0.62, 0.64, 0.63, 0.63),
            (0.72, 0.71, 0.72, 0.71, 0.72))  # fmt: skip


def one(right: Sequence[float], control: Sequence[float], seed: int) -> Known:
    made = torch.Generator().manual_seed(seed)
    none = torch.empty(0, dtype=torch.int64)

    def curve(means: Sequence[float]) -> Cumulative:
        scores = torch.tensor(means, dtype=torch.float64)
        scores = scores + 0.02 * torch.randn(len(means), generator=made, dtype=torch.float64)
        shares = (20 * scores).softmax(0)
        return Cumulative(scores, none, EdgeProbed(float(scores[-1]), none, shares))

    return Known(curve(right), curve(control), curve([0.5] * len(control)))


def example(names: Sequence[str] = _NAMES) -> ProbeView:
    given = [(_RIGHT[at % 4], _CONTROL[at % 4]) for at in range(len(names))]
    return ProbeView({
        f"{name}": [one(right, control, seed=10 * at + seed) for seed in range(3)]
        for at, (name, (right, control)) in enumerate(zip(names, given, strict=True))
    })  # fmt: skip


def hostile(words: Sequence[str]) -> ProbeView:
    return example(words[:16])
