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

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from attnlab.experiments.grid import Arm, Grid, Scores, Trained
from attnlab.models.tiny import TinyTransformer
from attnlab.objectives.batches import UNSCORED
from attnlab.tasks.refrain import Refrain
from attnlab.train.documents import Documents
from attnlab.train.segments import next_logits

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


def _model(
    layer: Mapping[str, Any], told: bool, memory: int | None = None, **_: Any
) -> TinyTransformer:
    layer = layer if memory is None else {**layer, "memory": memory}
    model = TinyTransformer(
        TASK.vocab, max_len=208, dim=64, heads=2, layers=1, hidden=128, positions="none",
        attention="compressive_transformer" if "rate" in layer else "transformer_xl",
        attention_options={"segment": SEGMENT, **layer},
    )  # fmt: skip
    return _told(model) if told else model


def _told(model: TinyTransformer) -> TinyTransformer:
    """The model, whose queries say at which place of its segment a token stands."""
    (block,) = model.decoder.blocks  # type: ignore[union-attr]
    query: Any = block.attention.heads.query  # type: ignore[union-attr]
    model.place = nn.Parameter(torch.randn(SEGMENT, query.out_features))
    query.register_forward_hook(lambda _, given, found: found + model.place[: found.shape[1]])
    return model


def with_memory(model: TinyTransformer, memory: int) -> TinyTransformer:
    """A Transformer-XL with the same parameters and another length of memory."""
    other: TinyTransformer = build("memory 16", 0, memory=memory)
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


def _scores(trained: Trained) -> Scores:
    scored = {"": trained.model}
    if trained.name == "memory 16":
        scored["scored with 32, "] = with_memory(trained.model, 32)
    return {
        f"{name}place {place}": round(loss.item(), 3)
        for name, model in scored.items()
        for place, loss in enumerate(
            losses_by_place(model, batches=3 if trained.quick else BATCHES)
        )
    }


def _arm(name: str, steps: int = STEPS) -> Arm:
    return Arm(TASK, {"layer": ARMS[name], "told": name.endswith("told")}, steps=steps)


_PATIENT = [name for name in ARMS if "rate" in ARMS[name]]
GRID = Grid(
    arms={
        **{name: _arm(name) for name in ARMS},
        **{f"{name}, {LONGER} updates": _arm(name, LONGER) for name in _PATIENT},
    },
    score=_scores,
    make=_model,
    training={"batch_size": ROWS, "segment": SEGMENT, "learning_rate": 1e-2},
    unit="nats",
)
SEEDS = GRID.seeds
build, train, rows, batches = GRID.build, GRID.train, GRID.rows, GRID.batches
