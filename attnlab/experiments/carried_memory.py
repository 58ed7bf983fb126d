"""Carried memory: texts read in segments of 16 tokens, with more and less of the past.

Nothing is timed: each row is one training of a tiny model from scratch, segment after segment of
whole documents. Losses are in nats per token of validation text.

**refrain**: a passage of 24 symbols of 16 comes again and again, so that the next symbol is the one
23 places before the present one. One layer. The loss at every place of a segment, from the third
segment of a document on.

    no memory     Transformer-XL, each segment alone
    memory 16     the inputs of the segment before it
    memory 32     of two segments
    mean          Compressive Transformer: 16 inputs, and before them 8 means of 4 inputs each
    convolution   the same with a learned compression, which gets the gradient of the task

**topics**: bytes of the Python documentation, two layers; "no memory" and a memory of 48. The model
with a memory is scored with other memories as well, its parameters unchanged.

Lesson 30 draws what

    python -m attnlab.experiments carried_memory --threads 1 --json \
        notebooks/assets/30_carried_memory.json

has written.
"""

from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from attnlab.measure.report import Row
from attnlab.measure.timing import thread_count
from attnlab.models.tiny import TinyTransformer
from attnlab.tasks.refrain import Refrain
from attnlab.tasks.topics import Topics
from attnlab.train import History, fit
from attnlab.train.documents import Documents
from attnlab.train.segments import next_logits
from attnlab.train.task import UNSCORED

SEEDS = (0, 1, 2)
SEGMENT, ROWS, BATCHES = 16, 32, 36
SHORT = {"memory": 16, "compressed": 8, "rate": 4}
ARMS: Mapping[str, Mapping[str, Mapping[str, Any]]] = {
    "refrain": {
        "no memory": {"memory": 0},
        "memory 16": {"memory": 16},
        "memory 32": {"memory": 32},
        "mean": SHORT,
        "convolution": {**SHORT, "compression": "convolution", "task_gradient": True},
    },
    "topics": {"no memory": {"memory": 0}, "memory 48": {"memory": 48}},
}
LAYERS, STEPS = {"refrain": 1, "topics": 2}, {"refrain": 300, "topics": 500}
RATES = {"refrain": 1e-2, "topics": 5e-3}
OTHER_MEMORIES = (0, 8, 16, 32, 48, 96, 192)
MODEL: Mapping[str, Any] = {
    "dim": 64, "heads": 2, "hidden": 128, "positions": "none", "max_len": 2048
}  # fmt: skip


@lru_cache
def text(name: str) -> Refrain | Topics:
    """The task of documents."""
    return Refrain() if name == "refrain" else Topics(length=2047)


def build(name: str, arm: str, seed: int = 0, **options: Any) -> TinyTransformer:
    """The untrained model; ``options`` replace those of its layers."""
    given = {"segment": SEGMENT, **ARMS[name][arm], **options}
    attention = "compressive_transformer" if "rate" in given else "transformer_xl"
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return TinyTransformer(
            text(name).vocab, **MODEL, layers=LAYERS[name], attention=attention,
            attention_options=given,
        )  # fmt: skip


def train(
    name: str, arm: str, seed: int = 0, *, steps: int | None = None
) -> tuple[TinyTransformer, History]:
    """The model after training on segments of documents, its state carried from step to step."""
    model, steps = build(name, arm, seed), STEPS[name] if steps is None else steps
    given: dict[str, Any] = {"batch_size": ROWS, "segment": SEGMENT, "learning_rate": RATES[name]}
    return model, fit(model, text(name), steps, seed=seed, progress=False, device="cpu", **given)


def with_memory(model: TinyTransformer, memory: int) -> TinyTransformer:
    """The Transformer-XL of the topics with the same parameters and another length of memory."""
    other = build("topics", "memory 48", memory=memory)
    other.load_state_dict(model.state_dict())
    return other


@torch.no_grad()
def losses_by_place(model: TinyTransformer, name: str, *, batches: int = BATCHES) -> Tensor:
    """The mean loss (16,) at each place of a segment of validation text, in nats per token; the
    first two segments of each document are left out."""
    documents = Documents(text(name), "validation", ROWS, SEGMENT, seed=0)
    model.eval()
    sums, counts, state = torch.zeros(SEGMENT).double(), torch.zeros(SEGMENT), None
    second = torch.zeros(ROWS, dtype=torch.bool)
    for index in range(batches):
        batch: Any = documents.draw(index).batch
        logits, state = next_logits(model, batch, state)
        losses = F.cross_entropy(logits.mT, batch.targets, reduction="none")
        kept = (batch.targets != UNSCORED) & ~(batch.begins | second)[:, None]
        second = batch.begins
        sums += (losses * kept).sum(0)
        counts += kept.sum(0)
    return sums / counts


def rows(*, quick: bool, threads: int) -> Iterator[Row]:
    """A row for each text, arm, place and seed; and for each other memory."""
    batches, steps = (3, 2) if quick else (BATCHES, None)
    with thread_count(threads):
        for name, arms in ARMS.items():
            for arm in arms:
                for seed in (0,) if quick else SEEDS:
                    model, _ = train(name, arm, seed, steps=steps)
                    for place, loss in enumerate(losses_by_place(model, name, batches=batches)):
                        figure = f"{name}, {arm}, place {place}, seed {seed}"
                        yield Row(figure, round(loss.item(), 4), "nats")
                    for memory in OTHER_MEMORIES if arm == "memory 48" else ():
                        other = losses_by_place(with_memory(model, memory), name, batches=batches)
                        figure = f"trained with 48, memory {memory}, seed {seed}"
                        yield Row(figure, round(other.mean().item(), 4), "nats")
