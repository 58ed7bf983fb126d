"""Carried memory: documents read in segments of 16 tokens, with more and less of the past.

Nothing is timed: each row is one training of a tiny model of one layer from scratch, segment after
segment of whole documents, its state carried from step to step. In a document a passage of 24
symbols, of 16, comes again and again: the next symbol is the one 23 places before the present one.
A row is the loss at one place of a segment, in nats per token of validation documents, from the
third segment of a document on. Chance is ln 16 = 2.77.

    no memory     Transformer-XL, each segment alone
    memory 16     the inputs of the segment before it
    memory 32     of two segments
    mean          Compressive Transformer: 16 inputs, and before them 8 means of 4 inputs each
    convolution   the same with a learned compression, which gets the gradient of the task
    … , told      the same, and a learned vector for each of the 16 places of a segment is added to
                  the queries: a query is told its place, keys and values hold nothing of it

All are trained for 300 updates with the same settings, and those with compressed vectors once more
for 1,000. The models with a memory of 16 are scored once more with a memory of 32, their parameters
unchanged. Lesson 30 draws what

    python -m attnlab.experiments carried_memory --threads 1 --json \
        attnlab/experiments/assets/30_carried_memory.json

has written.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from attnlab.measure.report import Row
from attnlab.measure.timing import thread_count
from attnlab.models.tiny import TinyTransformer
from attnlab.objectives.batches import UNSCORED
from attnlab.tasks.refrain import Refrain
from attnlab.train import History, fit
from attnlab.train.documents import Documents
from attnlab.train.segments import next_logits

SEEDS = (0, 1, 2)
SEGMENT, ROWS, STEPS, LONGER, BATCHES = 16, 32, 300, 1000, 36
SHORT = {"memory": 16, "compressed": 8, "rate": 4}
ARMS: Mapping[str, Mapping[str, Any]] = {
    "no memory": {"memory": 0},
    "memory 16": {"memory": 16},
    "memory 32": {"memory": 32},
    "mean": SHORT,
    "convolution": {**SHORT, "compression": "convolution", "task_gradient": True},
}
ARMS = {**ARMS, **{f"{arm}, told": ARMS[arm] for arm in ("mean", "convolution")}}
TASK = Refrain()


def build(arm: str, seed: int = 0, **options: Any) -> TinyTransformer:
    """The untrained model; ``options`` replace those of its layer."""
    given = {"segment": SEGMENT, **ARMS[arm], **options}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = TinyTransformer(
            TASK.vocab, max_len=208, dim=64, heads=2, layers=1, hidden=128, positions="none",
            attention="compressive_transformer" if "rate" in given else "transformer_xl",
            attention_options=given,
        )  # fmt: skip
        return _told(model) if arm.endswith("told") else model


def _told(model: TinyTransformer) -> TinyTransformer:
    """The model, whose queries say at which place of its segment a token stands."""
    (block,) = model.decoder.blocks  # type: ignore[union-attr]
    query: Any = block.attention.heads.query  # type: ignore[union-attr]
    model.place = nn.Parameter(torch.randn(SEGMENT, query.out_features))
    query.register_forward_hook(lambda _, given, found: found + model.place[: found.shape[1]])
    return model


def train(arm: str, seed: int = 0, *, steps: int = STEPS) -> tuple[TinyTransformer, History]:
    """The model after training on segments of documents, its state carried from step to step."""
    model = build(arm, seed)
    given: dict[str, Any] = {"batch_size": ROWS, "segment": SEGMENT, "learning_rate": 1e-2}
    return model, fit(model, TASK, steps, seed=seed, progress=False, device="cpu", **given)


def with_memory(model: TinyTransformer, memory: int) -> TinyTransformer:
    """A Transformer-XL with the same parameters and another length of memory."""
    other = build("memory 16", memory=memory)
    other.load_state_dict(model.state_dict())
    return other


@torch.no_grad()
def losses_by_place(model: TinyTransformer, *, batches: int = BATCHES) -> Tensor:
    """The mean loss (16,) at each place of a segment of validation documents, in nats per token;
    the first two segments of each document, with the first passage, are left out."""
    documents = Documents(TASK, "validation", ROWS, SEGMENT, seed=0)
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
    """A row for each arm, number of updates, place and seed."""
    batches = 3 if quick else BATCHES
    trained = [(arm, STEPS) for arm in ARMS]
    trained += [(arm, LONGER) for arm in ARMS if "rate" in ARMS[arm]]
    with thread_count(threads):
        for seed in (0,) if quick else SEEDS:
            for arm, steps in trained:
                model, _ = train(arm, seed, steps=2 if quick else steps)
                scored = {arm if steps == STEPS else f"{arm}, {steps} updates": model}
                if arm == "memory 16":
                    scored["memory 16, scored with 32"] = with_memory(model, 32)
                for name, each in scored.items():
                    for place, loss in enumerate(losses_by_place(each, batches=batches)):
                        figure = f"{name}, place {place}, seed {seed}"
                        yield Row(figure, round(loss.item(), 3), "nats")
