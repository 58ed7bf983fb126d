"""Look back: each token says how far back the answer stands, and a layer must go there.

Nothing is timed: each row is one training of a model with a single layer, the same steps, width and
learning rate for all. A token is a letter and a distance, ``c5``, and asks for the letter that
stands so many tokens before it. So the distance to attend to is part of the content of the query. A
layer can do it whose scores know distances *by* query; a bias by distance, the same for all
queries, cannot. Scores are per cent of right answers on unseen texts, of the length of training and
eight times as long, the mean over the distances of a group. One answer in eight is right by
chance. Lesson 42 draws what

    python -m attnlab.experiments look_back --threads 1 --json \\
        attnlab/experiments/assets/42_look_back.json

has written.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from attnlab.measure.report import Row
from attnlab.measure.timing import thread_count
from attnlab.models.tiny import TinyTransformer
from attnlab.tasks import SPLITS, UNSCORED, Batch
from attnlab.train import fit

LETTERS, FARTHEST, LENGTH, LONGER = 8, 16, 32, 256
STEPS, SEEDS, TEXTS = 400, (0, 1, 2), 256
GROUPS: Mapping[str, tuple[int, int]] = {
    "1 to 7 back": (1, 7),
    "8 to 15 back": (8, 15),
    "16 back": (16, 16),
}
MODEL: Mapping[str, Any] = {"dim": 64, "hidden": 64, "heads": 2, "layers": 1}
TRAINING: Mapping[str, Any] = {"batch_size": 64, "learning_rate": 3e-3}
ARMS: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "Transformer-XL": ("relative", {}),
    "Shaw, k = 16": ("shaw", {"clip": 16}),
    "Shaw, k = 8": ("shaw", {"clip": 8}),
    "T5's biases": ("t5_bias", {}),
    "learned positions": ("learned", {}),
}


@dataclass(frozen=True)
class LookBack:
    """The task: tokens are letter + 8 · (distance - 1), the answer is the letter so far back.

    Where the distance leads to before the beginning, nothing is asked.
    """

    length: int = LENGTH
    name: str = field(default="look_back", init=False)
    kind: str = field(default="language_model", init=False)

    def batch(self, split: Any, size: int, seed: int) -> Batch:
        """Texts of random letters and distances, those of the two splits from other seeds."""
        generator = torch.Generator().manual_seed(2 * seed + SPLITS.index(split))
        shape = (size, self.length)
        letters = torch.randint(LETTERS, shape, generator=generator)
        distances = torch.randint(1, FARTHEST + 1, shape, generator=generator)
        places = torch.arange(self.length) - distances
        answers = letters.gather(1, places.clamp(min=0)).masked_fill(places < 0, UNSCORED)
        return Batch(letters + LETTERS * (distances - 1), answers)

    def model_options(self) -> dict[str, Any]:
        """What a TinyTransformer needs to be built for it."""
        return {"vocab": LETTERS * FARTHEST, "max_len": LONGER, "kind": self.kind}

    def tokens(self, ids: Tensor) -> list[str]:
        """``c5``: the letter c, and the answer stands 5 tokens back."""
        return [f"{'abcdefgh'[i % LETTERS]}{distance_of(i)}" for i in ids.tolist()]


def distance_of(token: Any) -> Any:
    """How far back the answer to this token stands."""
    return token // LETTERS + 1


def rows(*, quick: bool, threads: int) -> Iterator[Row]:
    """One row per training, length and group of distances."""
    with thread_count(threads):
        for arm in ARMS:
            for seed in (0,) if quick else SEEDS:
                model, _ = train(arm, seed, steps=2 if quick else STEPS)
                for length in (LENGTH, LONGER):
                    shares = score(model, length)
                    for group, (first, last) in GROUPS.items():
                        mean = sum(shares[first - 1 : last]) / (last - first + 1)
                        yield Row(f"{arm}; {length}; {group}; seed {seed}", round(mean, 2), "%")


def build(arm: str, seed: int) -> TinyTransformer:
    """The untrained model."""
    positions, options = ARMS[arm]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return TinyTransformer(
            **{**LookBack().model_options(), **MODEL},
            positions=positions,
            position_options=dict(options),
        )


def train(arm: str, seed: int, *, steps: int = STEPS) -> tuple[TinyTransformer, Any]:
    """The model and the history of its training."""
    model: Any = build(arm, seed)
    task: Any = LookBack()
    history = fit(model, task, steps, seed=seed, progress=False, device="cpu", **TRAINING)
    return model.eval(), history


@torch.no_grad()
def score(model: TinyTransformer, length: int = LENGTH, texts: int = TEXTS) -> list[float]:
    """Per cent of right answers for each distance asked for, 1 … 16."""
    batch = LookBack(length).batch("validation", texts * LENGTH // length, seed=0)
    right, asked = model(batch.inputs).argmax(-1) == batch.targets, batch.targets != UNSCORED
    distance = distance_of(batch.inputs)
    return [
        round(100 * right[asked & (distance == each)].double().mean().item(), 2)
        for each in range(1, FARTHEST + 1)
    ]
