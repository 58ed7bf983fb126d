"""Predicted latency: how long networks of a space take, from a few that were timed.

A search asks for the latency of thousands of networks, and timing each on the machine would take
longer than the search. So some are timed, and a small network learns to predict the others from
their sizes: the width of the stream, the number of layers, and the means over the layers of the
hidden widths, the heads, and the encoder layers that a decoder layer reads. The prediction is
worth what it says of networks that were not timed: ``rank_correlation`` compares it with them.

    timed = measure.latency.latencies(space, chosen, …)          # sizes → seconds
    predict = fitted(space, timed)
    best = supernet.evolved(space, score, cost=predict, limit=0.002)

Wang, Wu, Liu, Cai, Zhu, Gan, Han. HAT. ACL 2020, arXiv:2005.14187, section 3.3. Departures: the
paper's regressor has three hidden layers of 400, here there are two of 32 for spaces of hundreds of
networks; encoder and decoder have the same sizes here, so that 5 features stand for the paper's 10.
"""

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from attnlab.models.supernet import Sizes, Space


def features(sizes: Sizes) -> tuple[float, ...]:
    """Width, number of layers, and the means over them of hidden width, heads and layers read."""
    means = (sum(each) / sizes.layers for each in (sizes.hidden, sizes.heads, sizes.source))
    return (float(sizes.dim), float(sizes.layers), *means)


class Latency(nn.Module):
    """Sizes → seconds: a network of two hidden layers on the features of the sizes."""

    def __init__(self, space: Space, hidden: int = 32) -> None:
        super().__init__()
        self.scale = torch.tensor(features(space.largest), dtype=torch.float64)
        self.unit = torch.ones((), dtype=torch.float64)
        width = len(features(space.largest))
        self.layers = nn.Sequential(
            nn.Linear(width, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU(),
            nn.Linear(hidden, 1),
        ).double()  # fmt: skip

    def read(self, sizes: Sequence[Sizes]) -> Tensor:
        """(networks, features), each feature as a part of its largest."""
        found = [features(each) for each in sizes]
        return torch.tensor(found, dtype=torch.float64) / self.scale

    def forward(self, read: Tensor) -> Tensor:
        """Seconds of each of the networks that were ``read``."""
        out: Tensor = self.unit * self.layers(read)[:, 0]
        return out


def fitted(
    space: Space, timed: Mapping[Sizes, float], *, steps: int = 500, seed: int = 0
) -> Callable[[Sizes], float]:
    """What predicts the seconds of networks of the space, from those that were ``timed``.

    A ValueError for fewer than 4 timed networks, for one that is not of the space, and for a time
    that is not above 0.
    """
    if len(timed) < 4:
        raise ValueError(f"give at least 4 timed networks to learn from, got {len(timed)}")
    for sizes, seconds in timed.items():
        if sizes not in space:
            raise ValueError(f"timed networks should be of the space {space}, got {sizes}")
        if not seconds > 0:
            raise ValueError(f"each time should be above 0 seconds, got {seconds} for {sizes}")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = Latency(space)
    taken = torch.tensor(list(timed.values()), dtype=torch.float64)
    model.unit = taken.mean()
    read = model.read([*timed])
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    with torch.enable_grad():
        for _ in range(steps):
            loss = F.mse_loss(model(read) / model.unit, taken / model.unit)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

    @torch.no_grad()
    def predict(sizes: Sizes) -> float:
        if sizes not in space:
            raise ValueError(f"sizes should be of the space {space}, got {sizes}")
        return model(model.read([sizes])).item()

    return predict


def ranks(values: Sequence[float]) -> Tensor:
    """0 for the smallest; equal values have the mean of their ranks."""
    found = torch.tensor(values, dtype=torch.float64)
    below = (found[:, None] > found).sum(1)
    return below + ((found[:, None] == found).sum(1) - 1) / 2


def rank_correlation(one: Sequence[float], other: Sequence[float]) -> float:
    """The correlation of the ranks of two lists (Spearman), from -1 to 1."""
    return torch.corrcoef(torch.stack([ranks(one), ranks(other)]))[0, 1].item()
