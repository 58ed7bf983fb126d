"""Duplication: how many rounds of hashing find the one key that a query needs.

Nothing is timed: each training is one layer of LSH attention on the task 0 w 0 w
(`attnlab.tasks.duplication`), with "all" keys of the shared queries and keys or with rounds of
hashing; then it is scored with all keys and with other numbers of rounds, hashed by rotations that
it was not trained with. Scores are per cent of right symbols in unseen words; one in fifteen is
right by chance. Lesson 14 draws what

    python -m attnlab.experiments duplication --threads 1 --json \\
        attnlab/experiments/assets/14_hashing.json

has written, as the paper's Table 2 at toy size (Kitaev, Kaiser, Levskaya 2020; there words of 511
symbols and 150,000 steps).
"""

from collections.abc import Iterator, Mapping
from typing import Any

import torch

from attnlab.measure.report import Row
from attnlab.measure.timing import thread_count
from attnlab.mechanisms.learned.reformer import Hashing, Reformer
from attnlab.models.tiny import TinyTransformer
from attnlab.tasks.duplication import Duplication
from attnlab.train import fit

STEPS, SEEDS, WORDS = 400, (0, 1, 2), 128
ALL = "all keys"
TRAINED = (ALL, "4 rounds", "2 rounds", "1 round")
SCORED = (ALL, "8 rounds", "4 rounds", "2 rounds", "1 round")
MODEL: Mapping[str, Any] = {"dim": 64, "hidden": 64, "heads": 4, "layers": 1}
TRAINING: Mapping[str, Any] = {"batch_size": 32, "learning_rate": 5e-3}
CHUNK, BUCKETS = 4, 32  # 2 n / chunk buckets, as in the paper
UNSEEN = 100  # the seed of the rotations that models are scored with


def rows(*, quick: bool, threads: int) -> Iterator[Row]:
    """One row per training and way to score it."""
    with thread_count(threads):
        for trained in TRAINED:
            for seed in (0,) if quick else SEEDS:
                model, _ = train(trained, seed, steps=2 if quick else STEPS)
                for scored in SCORED:
                    rehash(model, scored, seed=UNSEEN + seed)
                    figure = f"trained with {trained}; scored with {scored}; seed {seed}"
                    yield Row(figure, score(model), "%")


def train(keys: str, seed: int, *, steps: int = STEPS) -> tuple[TinyTransformer, Any]:
    """The model and the history of its training, with "all keys" or "4 rounds"."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        options = {**Duplication().model_options(), **MODEL}
        model = TinyTransformer(
            **options, attention="reformer", attention_options={"form": "naive"}
        )
    rehash(model, keys, seed=seed)
    history = fit(model, Duplication(), steps, seed=seed, progress=False, device="cpu", **TRAINING)
    return model.eval(), history


def rehash(model: TinyTransformer, keys: str, seed: int) -> None:
    """Give the layer so many rounds of new rotations; or one bucket, that of all keys."""
    layer: Any = model.decoder.blocks[0].attention  # type: ignore[union-attr]
    assert isinstance(layer, Reformer)
    whole = keys == ALL
    rounds = 1 if whole else int(keys.split()[0])
    layer.options = Hashing(
        buckets=2 if whole else BUCKETS, chunk=model.max_len if whole else CHUNK, rounds=rounds
    )
    layer.redraw(torch.Generator().manual_seed(seed))
    if whole:
        layer.rotations.zero_()


@torch.no_grad()
def score(model: TinyTransformer, words: int = WORDS) -> float:
    """Per cent of right symbols in the second words."""
    batch = Duplication().batch("validation", words, seed=0)
    found, asked = model(batch.inputs).argmax(-1), batch.targets >= 0
    return round(100 * (found == batch.targets)[asked].double().mean().item(), 2)
