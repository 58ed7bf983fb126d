"""Unlimited input: a needle in a book, and a text read twice, far beyond the length of training.

Nothing is timed: each row is one training of a tiny model from scratch, on rows of 128 tokens of
the Python documentation (BPE, 512 pieces).

**needle**: somewhere in the text stands a key, one of 16 tokens of their own; later, question marks
ask for it. One layer. In per cent, of the questions in the last segment of texts whose key stands
near the beginning; the longest text is the whole book.

**copy**: 64 tokens are followed by the same once more; scored is the second reading. Two layers, so
that a head could attend to the token after an earlier occurrence. In per cent.

    memory   segments of 32 with a cache of 32; the last layer has a memory, of 8 neighbours
    local    the same without the memory

Trained with a memory of 128; tested with one that holds the whole text. The gate of each head after
training is a row as well. Lesson 17 draws what

    python -m attnlab.experiments unlimited_input --threads 1 --json \
        attnlab/experiments/assets/17_unlimited_input.json

has written.
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from attnlab.experiments.grid import Arm, Grid, Scores, Trained, percent
from attnlab.mechanisms.learned.memorizing_transformer import MemoryState, unit
from attnlab.models.tiny import DecoderState, TinyTransformer
from attnlab.tasks import UNSCORED
from attnlab.tasks.book import ASK, PIECES, ROW, Book, book

__all__ = ["ASK", "PIECES", "Book", "book"]

SEGMENT = 32
TEXTS, AT_ONCE = 32, 2**18  # how many texts are scored, and how many tokens are held at once
LENGTHS: Mapping[str, tuple[int, ...]] = {
    "needle": (128, 1024, 8192, 65536, 200_000),
    "copy": (128, 512, 2048),
}
LAYERS: Mapping[str, int] = {"needle": 1, "copy": 2}
TASKS, ARMS = ("needle", "copy"), ("memory", "local")


def _model(arm: str, layers: int, *, memory: int = ROW, **sizes: Any) -> TinyTransformer:
    local = {"segment": SEGMENT, "cache": SEGMENT, "memory": 0, "neighbours": 1}
    last = {**local, "memory": memory, "neighbours": 8} if arm == "memory" else local
    return TinyTransformer(
        **sizes, layers=layers, attention="memorizing_transformer",
        attention_options=[local] * (layers - 1) + [last],
    )  # fmt: skip


def build(task: str, arm: str, seed: int, *, memory: int = ROW) -> TinyTransformer:
    """The untrained model; with more ``memory`` the same parameters read longer texts."""
    model: TinyTransformer = GRID.build(f"{task}, {arm}", seed, memory=memory)
    return model


def with_memory(model: TinyTransformer, task: str, arm: str, memory: int) -> TinyTransformer:
    """The same parameters, and a memory of another size."""
    larger = build(task, arm, 0, memory=memory)
    larger.load_state_dict(model.state_dict())
    return larger.eval()


@torch.no_grad()
def memorized(model: TinyTransformer, tokens: Tensor) -> DecoderState:
    """The state of a model of one layer after ``tokens`` (b, n): what ``advance`` would return.

    Keys and values of a first layer depend on their own token alone, so that a text can be stored
    without a single query.
    """
    (block,) = model.decoder.blocks  # type: ignore[union-attr]
    vocabulary = torch.arange(ASK + 1)[None]
    x = block.attention_residual.norm(model.embedding(vocabulary))  # type: ignore[operator]
    layer: Any = block.attention
    _, k, v = (part[0][:, tokens].transpose(0, 1) for part in layer.heads.project(x))
    state = MemoryState.of(unit(k, layer.options), v, layer.options)
    return DecoderState(tokens.shape[1], [state])


@torch.no_grad()
def score(model: TinyTransformer, task: str, arm: str, length: int, texts: int = TEXTS) -> float:
    """Per cent of right answers: of the last segment (needle), of the second reading (copy)."""
    reader = with_memory(model, task, arm, length)
    batch = Book(task, length, first=SEGMENT - 8).batch("validation", texts, seed=7)
    hits = []
    at_once = max(1, AT_ONCE // length)
    for inputs, targets in zip(
        batch.inputs.split(at_once), batch.targets.split(at_once), strict=True
    ):
        start, state = 0, None
        if task == "needle":
            start = length - SEGMENT
            state = memorized(reader, inputs[:, :start])
        for at in range(start, inputs.shape[1], SEGMENT):
            asked = targets[:, at : at + SEGMENT]
            logits, state = reader.advance(inputs[:, at : at + SEGMENT], state)
            hits.append((logits.argmax(-1) == asked)[asked != UNSCORED])
    return percent(torch.cat(hits))


def gates(model: TinyTransformer) -> list[float]:
    """g of each head of the layer with the memory."""
    last: Any = model.decoder.blocks[-1]  # type: ignore[union-attr]
    return [round(g, 4) for g in torch.sigmoid(last.attention.gate.detach()).tolist()]


def _scores(trained: Trained) -> Scores:
    """Scores of a model; of one with a memory its gates as well, under names without the arm."""
    task, arm = trained.name.split(", ")
    before = "memory, " if arm == "memory" else ""
    found: dict[str, Any] = {}
    for length in LENGTHS[task][: 2 if trained.quick else None]:
        share = score(trained.model, task, arm, length, 2 if trained.quick else TEXTS)
        found[f"{before}{length} tokens"] = share
    for head, g in enumerate(gates(trained.model) if before else ()):
        found[f"gate of head {head}"] = (g, "")
    return found


def _arm(task: str, arm: str) -> Arm:
    steps, rate = {"needle": (200, 1e-2), "copy": (150, 5e-3)}[task]
    return Arm(
        Book(task),
        {"arm": arm, "layers": LAYERS[task]},
        {"learning_rate": rate},
        steps,
        figure="{task.name}, {what}, seed {seed}" if arm == "memory" else None,
    )


GRID = Grid(
    arms={f"{task}, {arm}": _arm(task, arm) for task in TASKS for arm in ARMS},
    score=_scores,
    make=_model,
    model={
        **{"dim": 64, "heads": 2, "hidden": 128, "max_len": 10**6},
        **{"positions": "t5_bias", "tie": False},
    },
    training={"batch_size": 32, "segment": SEGMENT},
)
SEEDS = GRID.seeds
rows, batches = GRID.rows, GRID.batches


def train(task: str, arm: str, seed: int, **options: Any) -> TinyTransformer:
    """The model after training on rows of 128 tokens, in segments."""
    model: TinyTransformer = GRID.train(f"{task}, {arm}", seed, **options)[0]
    return model
