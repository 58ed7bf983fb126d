"""Sets: what a few learned vectors pass on of a set's largest number, its clusters and a digit.

Nothing is timed: each row comes from one training of a tiny model from scratch. Two questions.

**Clusters**: 64 points of the plane from four Gaussians; the model writes the parameters of a
mixture of four, and minus its log likelihood is the loss. What is measured is the mean log
likelihood of a point, in nats, on new sets of 64 and of 256 points:

    mean                 each point is embedded alone, and the mean of all is what is known
    1 inducing point     two ISABs, then pooling by attention with four seeds, then an SAB
    16 inducing points   the same with more of them

Beside them the mixture that the points were drawn from, and the mixture that maximum likelihood
finds (expectation maximisation of scikit-learn, the best of five starts), which is fitted to the
very points that it is measured on.

**Digits**: the 64 pixels are read into l latents of a Perceiver IO, and one output query gives the
class. In per cent of all unseen digits: l from 1 to 32, then 8 latents that have equal values
before training, and 8 latents of pixels that carry no position.

A third question is answered in the lesson itself, for it takes seconds: the **largest** of 1 to 10
numbers between 0 and 1. Each number is embedded alone; the embeddings of a set are pooled by their
mean, their maximum, or by attention (one learned seed).

Lesson 32 draws what

    python -m attnlab.experiments sets --threads 1 --json attnlab/experiments/assets/32_sets.json

has written.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from attnlab.experiments.grid import SEEDS, seeded
from attnlab.experiments.loop import descend, rise_and_fall
from attnlab.measure.report import Row
from attnlab.measure.timing import thread_count
from attnlab.mechanisms.latents.perceiver_io import PerceiverIO, PerceiverIOOptions
from attnlab.mechanisms.latents.set_transformer import ISAB, PMA, SAB, SetTransformerOptions
from attnlab.tasks.digits import Digits
from attnlab.tasks.gaussian_mixtures import GaussianMixtures, Mixture
from attnlab.tasks.set_maximum import SetMaximum

DIM, HEADS = 32, 4
Model = TypeVar("Model", bound=nn.Module)


def rows(*, quick: bool, threads: int) -> Iterator[Row]:
    """One row per training and kind of test."""
    with thread_count(threads):
        for seed in (0,) if quick else SEEDS:
            for arm in CLUSTERERS:
                clusterer = train_clusters(arm, seed, steps=2 if quick else CLUSTER_STEPS)
                for n in CLUSTER_TESTS:
                    found = round(likelihood(clusterer, n), 2)
                    yield Row(f"clusters; {arm}; {n} points; seed {seed}", found, "nats")
            for arm in READERS:
                reader = train_reader(arm, seed, steps=2 if quick else DIGIT_STEPS)
                yield Row(f"digits; {arm}; seed {seed}", round(right(reader), 1), "%")
        for n in CLUSTER_TESTS:
            points, true = unseen_sets(n, 5 if quick else 200)
            for name, mixture in (("true", true), ("EM", maximum_likelihood(points))):
                found = round(mixture.log_likelihood(points).mean().item(), 2)
                yield Row(f"clusters; {name}; {n} points", found, "nats")


def _trained(
    build: Callable[[], Model], loss_of: Callable[[Model, int], Tensor], seed: int,
    *, steps: int, rate: float,
) -> Model:  # fmt: skip
    """``loss_of`` draws a batch by its number."""
    with seeded(seed):
        model = build()
    optimizer, first = torch.optim.Adam(model.parameters(), lr=rate), 10_000 * seed
    schedule = rise_and_fall(optimizer, steps)
    descend(optimizer, lambda s: loss_of(model, first + s), steps, schedule=schedule, clip=1.0)
    return model.eval()


# ---- the largest number

LARGEST_STEPS = 400
POOLS = ("mean", "maximum", "attention")
LARGEST_TESTS: Mapping[str, SetMaximum] = {
    "1 to 10 numbers": SetMaximum(),
    "100 numbers": SetMaximum(fewest=100, most=100),
}


class Pooled(nn.Module):
    """Numbers (b, n, 1) → one number (b,); ``pool`` is all that members have in common."""

    def __init__(self, pool: str) -> None:
        super().__init__()
        self.pool = pool
        self.embed = nn.Sequential(nn.Linear(1, DIM), nn.ReLU(), nn.Linear(DIM, DIM))
        self.attend = PMA(DIM, HEADS, norm=False) if pool == "attention" else None
        self.output = nn.Sequential(nn.Linear(DIM, DIM), nn.ReLU(), nn.Linear(DIM, 1))

    def forward(self, x: Tensor, padding: Tensor | None = None) -> Tensor:
        z = self.embed(x)
        real = x.new_ones(x.shape) if padding is None else padding[..., None].to(x.dtype)
        if self.attend is not None:
            pooled = self.attend(z, padding)[:, 0]
        elif self.pool == "mean":
            pooled = (z * real).sum(1) / real.sum(1)
        else:
            pooled = z.masked_fill(real == 0, -torch.inf).amax(1)
        out: Tensor = self.output(pooled)[:, 0]
        return out


def train_largest(pool: str, seed: int, *, steps: int = LARGEST_STEPS) -> Pooled:
    """A model trained on sets of 1 to 10 numbers, by the mean absolute error."""

    def loss(model: Pooled, number: int) -> Tensor:
        batch, largest = SetMaximum().values("train", 128, number)
        return (model(batch.inputs, batch.padding) - largest).abs().mean()

    return _trained(lambda: Pooled(pool), loss, seed, steps=steps, rate=3e-3)


@torch.no_grad()
def error(model: Pooled, task: SetMaximum) -> float:
    """The mean distance to the largest number of 2,000 new sets, in hundredths."""
    batch, largest = task.values("validation", 2000, 0)
    return round(100 * (model(batch.inputs, batch.padding) - largest).abs().mean().item(), 2)


# ---- clusters

CLUSTERS, POINTS, CLUSTER_STEPS = 4, 64, 500
CLUSTERERS = ("mean", "1 inducing point", "16 inducing points")
CLUSTER_TESTS = (POINTS, 4 * POINTS)


class Clusterer(nn.Module):
    """Points (b, n, 2) → a mixture of ``CLUSTERS`` Gaussians for each set."""

    def __init__(self, arm: str) -> None:
        super().__init__()
        self.embed = nn.Linear(2, DIM)
        count = CLUSTERS if arm != "mean" else 1
        if arm == "mean":
            layers = [nn.Sequential(nn.ReLU(), nn.Linear(DIM, DIM)) for _ in range(3)]
            self.encode = nn.Sequential(*layers)
            after = [nn.Sequential(nn.Linear(DIM, DIM), nn.ReLU()) for _ in range(3)]
            self.decode = nn.Sequential(_Mean(), *after)
        else:
            self.encode = nn.Sequential(_block(arm), _block(arm))
            pool = PMA(DIM, HEADS, seeds=CLUSTERS, norm=False)
            self.decode = nn.Sequential(pool, SAB(DIM, HEADS, norm=False))
        self.output = nn.Linear(DIM, CLUSTERS // count * 5)

    def forward(self, points: Tensor) -> Mixture:
        raw = self.output(self.decode(self.encode(self.embed(points))))
        raw = raw.view(len(points), CLUSTERS, 5)
        return Mixture(raw[..., 0].softmax(-1), raw[..., 1:3], F.softplus(raw[..., 3:]) + 1e-3)


class _Mean(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.mean(1, keepdim=True)


def _block(arm: str) -> nn.Module:
    return ISAB(DIM, HEADS, options=SetTransformerOptions(inducing=int(arm.split()[0]), norm=False))


def train_clusters(arm: str, seed: int, *, steps: int = CLUSTER_STEPS) -> Clusterer:
    """A model trained to write the parameters of mixtures, on sets of 64 points."""
    task = GaussianMixtures(clusters=CLUSTERS, fewest=CLUSTERS, points=POINTS)

    def loss(model: Clusterer, number: int) -> Tensor:
        points = task.batch("train", 32, number).inputs
        return -model(points).log_likelihood(points).mean()

    return _trained(lambda: Clusterer(arm), loss, seed, steps=steps, rate=5e-3)


def unseen_sets(n: int = POINTS, count: int = 200) -> tuple[Tensor, Mixture]:
    """New sets of n points, and the mixtures that they were drawn from."""
    task = GaussianMixtures(clusters=CLUSTERS, fewest=CLUSTERS, points=n)
    return task.mixtures("validation", count, 0)


@torch.no_grad()
def likelihood(model: Clusterer, n: int = POINTS) -> float:
    """The mean log likelihood of a point, on new sets."""
    points, _ = unseen_sets(n)
    return float(model(points).log_likelihood(points).mean())


def maximum_likelihood(points: Tensor) -> Mixture:
    """The best of five runs of expectation maximisation on each set."""
    from sklearn.mixture import GaussianMixture

    found = []
    for one in points.double().numpy():
        fitted = GaussianMixture(
            CLUSTERS, covariance_type="diag", n_init=5, random_state=0, reg_covar=1e-3
        ).fit(one)
        parts = (fitted.weights_, fitted.means_, fitted.covariances_**0.5)
        found.append([torch.from_numpy(part).to(points.dtype) for part in parts])
    return Mixture(*(torch.stack(part) for part in zip(*found, strict=True)))


# ---- digits

DIGIT_STEPS, UNSEEN = 400, 355
COUNTS = (1, 2, 8, 32)
READERS: Mapping[str, Mapping[str, Any]] = {
    **{f"l = {count}": {"count": count} for count in COUNTS},
    "l = 8, alike": {"count": 8, "alike": True},
    "l = 8, no positions": {"count": 8, "positions": False},
}


class Reader(nn.Module):
    """Pixels (b, 64, 1) → the logits of ten digits, through ``count`` latents."""

    def __init__(self, count: int, *, alike: bool = False, positions: bool = True) -> None:
        super().__init__()
        self.embed = nn.Linear(1, DIM)
        self.places = nn.Parameter(torch.randn(64, DIM)) if positions else None
        self.perceiver = PerceiverIO(DIM, HEADS, options=PerceiverIOOptions(latents=count))
        nn.init.normal_(self.perceiver.latents)
        if alike:
            with torch.no_grad():
                self.perceiver.latents[:] = self.perceiver.latents[:1]
        self.query = nn.Parameter(torch.randn(1, DIM))
        self.output = nn.Linear(DIM, 10)

    def forward(self, pixels: Tensor) -> Tensor:
        x = self.embed(pixels)
        x = x if self.places is None else x + self.places
        query = self.query.expand(len(x), -1, -1)
        out: Tensor = self.output(self.perceiver(x, queries=query)[:, 0])
        return out


def train_reader(arm: str, seed: int, *, steps: int = DIGIT_STEPS) -> Reader:
    """A model trained to tell digits."""
    task, options = Digits(unit="patches", patch=1), READERS[arm]

    def loss(model: Reader, number: int) -> Tensor:
        batch = task.batch("train", 64, number)
        return F.cross_entropy(model(batch.inputs), batch.targets)

    return _trained(lambda: Reader(**options), loss, seed, steps=steps, rate=4e-3)


@torch.no_grad()
def right(model: Reader) -> float:
    """The per cent of all unseen digits that the model reads."""
    batch = Digits(unit="patches", patch=1).batch("validation", UNSEEN, 0)
    return 100 * (model(batch.inputs).argmax(-1) == batch.targets).double().mean().item()
