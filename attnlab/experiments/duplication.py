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

from collections.abc import Mapping
from typing import Any

import torch

from attnlab.experiments.grid import Arm, Grid, Scores, Trained, by_fit, percent
from attnlab.mechanisms.learned.reformer import Reformer, ReformerOptions
from attnlab.models.tiny import TinyTransformer
from attnlab.tasks.duplication import Duplication

WORDS = 128
ALL = "all keys"
TRAINED = (ALL, "4 rounds", "2 rounds", "1 round")
SCORED = (ALL, "8 rounds", "4 rounds", "2 rounds", "1 round")
MODEL: Mapping[str, Any] = {"dim": 64, "hidden": 64, "heads": 4, "layers": 1}
TRAINING: Mapping[str, Any] = {"batch_size": 32, "learning_rate": 5e-3}
CHUNK, BUCKETS = 4, 32  # 2 n / chunk buckets, as in the paper
UNSEEN = 100  # the seed of the rotations that models are scored with


def rehash(model: TinyTransformer, keys: str, seed: int) -> None:
    """Give the layer so many rounds of new rotations; or one bucket, that of all keys."""
    layer: Any = model.decoder.blocks[0].attention  # type: ignore[union-attr]
    assert isinstance(layer, Reformer)
    whole = keys == ALL
    rounds = 1 if whole else int(keys.split()[0])
    layer.options = ReformerOptions(
        buckets=2 if whole else BUCKETS, chunk=model.max_len if whole else CHUNK, rounds=rounds
    )
    layer.redraw(torch.Generator().manual_seed(seed))
    if whole:
        layer.rotations.zero_()


def _rehashed(model: TinyTransformer, task: Any, steps: int, *, keys: str, **given: Any) -> Any:
    rehash(model, keys, given["seed"])
    return by_fit(model, task, steps, **given)


@torch.no_grad()
def score(model: TinyTransformer, words: int = WORDS) -> float:
    """Per cent of right symbols in the second words."""
    batch = Duplication().batch("validation", words, seed=0)
    found, asked = model(batch.inputs).argmax(-1), batch.targets >= 0
    return percent((found == batch.targets)[asked])


def _scores(trained: Trained) -> Scores:
    found = {}
    for scored in SCORED:
        rehash(trained.model, scored, seed=UNSEEN + trained.seed)
        found[scored] = score(trained.model)
    return found


GRID = Grid(
    arms={keys: Arm(Duplication(), training={"keys": keys}) for keys in TRAINED},
    score=_scores,
    steps=400,
    model={**MODEL, "attention": "reformer", "attention_options": {"form": "naive"}},
    training=TRAINING,
    loop=_rehashed,
    figure="trained with {arm}; scored with {what}; seed {seed}",
)
"""Trained with "all keys", or with "4 rounds" of hashing."""
SEEDS = GRID.seeds
train, rows, batches = GRID.train, GRID.rows, GRID.batches
