"""Pipeline order: do the answers come in as in a classical pipeline, in three trainings?

Nothing is timed. Three masked language models, one for each seed, are trained on the same sentences
of a small English (``attnlab.tasks.sentences``): four layers of width 64 that read both sides,
rotary positions, a quarter of the words hidden, 2,000 updates of 32 sentences. Each is then frozen
and asked about new sentences, whose trees say the answers (``attnlab.tasks.asked_spans``). In the
order of the pipeline:

    kind       determiner, adjective, adverb, preposition, noun, verb, or "that"
    number     is "the" singular or plural, as its noun is?
    phrase     are these words a phrase of the tree?
    clause     does this word stand in a clause inside the sentence?
    subject    is this noun the head of the subject of this verb?

Probes, controls and rows are those of ``attnlab.experiments.known_where``. A seed draws the first
weights of its model and of the untrained control, the order of its training, the sentences that are
asked about, and the probes. What a training has learned is told by how many hidden words of unseen
sentences it names; the untrained model has the same row. Lesson 68 draws what

    python -m attnlab.experiments pipeline_order --threads 1 --json \\
        attnlab/experiments/assets/68_pipeline_order.json

has written; rows that the file holds are not trained again.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from attnlab import catalog
from attnlab.experiments import known_where
from attnlab.experiments.grid import Arm, Grid, Scores, Trained, seeded
from attnlab.lens.known_where import Known
from attnlab.lens.probes import layer_states
from attnlab.models.tiny import TinyTransformer
from attnlab.tasks import Batch, asked_spans
from attnlab.tasks.asked_spans import AskedTexts
from attnlab.tasks.sentences import Sentences, corpus
from attnlab.train import evaluate, model_options

WORDS, STEPS, HIDDEN = 15, 2000, 0.25
TEXTS = {"train": 600, "validation": 1000}
ARM = "masked words"


@dataclass(frozen=True)
class WholeSentences:
    """The sentences of a corpus with their last word, which has no next one."""

    name: ClassVar[str] = "sentences"
    kind: ClassVar[str] = "token_classifier"

    def batch(self, split: Any, size: int, seed: int) -> Batch:
        """Rows (b, n), the shorter ones filled up with padding; each target is the word itself."""
        known = corpus(WORDS, split)
        chosen = np.random.default_rng([6, seed]).integers(len(known), size=size)
        rows = torch.zeros(size, max(len(known[one]) for one in chosen), dtype=torch.int64)
        real = torch.zeros_like(rows, dtype=torch.bool)
        for row, one in enumerate(chosen):
            rows[row, : len(known[one])] = torch.tensor(known[one])
            real[row, : len(known[one])] = True
        return Batch(rows, rows.masked_fill(~real, -100), real)


TASK = WholeSentences()
OBJECTIVE: Any = catalog.build("masked_lm", vocab=Sentences(WORDS).vocab, rate=HIDDEN)


def make(**options: Any) -> TinyTransformer:
    """An encoder that knows the words and the mask."""
    sizes = model_options(Sentences(WORDS), OBJECTIVE) | {"max_len": WORDS}
    return TinyTransformer(**{**sizes, **options})


def asked_texts(split: str, seed: int, *, quick: bool = False) -> AskedTexts:
    """Sentences of a split with their questions."""
    examples = 28 if quick else known_where.EXAMPLES[split]
    return asked_spans.sentences(split, 150 if quick else TEXTS[split], examples, seed, words=WORDS)


def states_of(model: TinyTransformer, texts: AskedTexts) -> Float[Tensor, "layers b n dim"]:
    """The states of sentences without a mask."""
    return layer_states(
        model, lambda tokens: model.encode(tokens, texts.padding), tokens=texts.tokens
    )


def _named(model: TinyTransformer, *, quick: bool) -> float:
    """Hidden words of unseen sentences that are named, in per cent."""
    found = evaluate(model, TASK, batches=1 if quick else 8, batch_size=64, objective=OBJECTIVE)
    return round(100 * found.accuracy, 2)


def _scores(trained: Trained) -> Scores:
    learned, new = (
        asked_texts(split, trained.seed, quick=trained.quick) for split in ("train", "validation")
    )
    with seeded(100 + trained.seed):
        untrained = TinyTransformer(**trained.model.config).eval()
    own, other = (
        [states_of(model, texts) for texts in (learned, new)]
        for model in (trained.model, untrained)
    )
    steps = 2 if trained.quick else known_where.PROBED
    return {
        "hidden words named": _named(trained.model, quick=trained.quick),
        "hidden words named, random weights": _named(untrained, quick=trained.quick),
        **known_where.probed(own, other, learned, new, seed=trained.seed, steps=steps),
    }


def found(rows: Mapping[str, float]) -> dict[str, list[Known]]:
    """What the rows say of each question, in the order of the pipeline: one ``Known`` for each
    training."""
    return known_where.found(rows, asked_spans.SENTENCES, ARM)


GRID = Grid(
    arms={ARM: Arm(TASK)},
    score=_scores,
    steps=STEPS,
    model={"dim": 64, "layers": known_where.LAYERS, "heads": 4, "positions": "rope"},
    training={"batch_size": 32, "learning_rate": 3e-3, "objective": OBJECTIVE},
    make=make,
    figure="{what}, {arm}, seed {seed}",
)
rows, batches = GRID.rows, GRID.batches
