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

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from attnlab.measure.report import Row
from attnlab.measure.timing import thread_count
from attnlab.mechanisms.learned.memorizing_transformer import MemoryState, unit
from attnlab.models.tiny import DecoderState, TinyTransformer
from attnlab.tasks import UNSCORED, Batch
from attnlab.tasks.documentation import Documentation, topics_by_split
from attnlab.train import fit

SEEDS = (0, 1, 2)
ROW, SEGMENT, KEYS, PIECES = 128, 32, 16, 512
TEXTS, AT_ONCE = 32, 2**18  # how many texts are scored, and how many tokens are held at once
ASK = PIECES + KEYS
LENGTHS: Mapping[str, tuple[int, ...]] = {
    "needle": (128, 1024, 8192, 65536, 200_000),
    "copy": (128, 512, 2048),
}
LAYERS: Mapping[str, int] = {"needle": 1, "copy": 2}
STEPS: Mapping[str, int] = {"needle": 200, "copy": 150}
RATES: Mapping[str, float] = {"needle": 1e-2, "copy": 5e-3}
MODEL: Mapping[str, Any] = {
    "dim": 64, "heads": 2, "hidden": 128, "max_len": 10**6, "positions": "t5_bias", "tie": False
}  # fmt: skip
TASKS, ARMS = ("needle", "copy"), ("memory", "local")


@lru_cache
def book() -> tuple[Any, Any]:
    """The tokens of the documentation: those of the training topics, and all of them."""
    task = Documentation("bpe", bpe_size=PIECES)
    topics = topics_by_split()
    parts = [task.encode("\n\n".join(topics[x].values())).numpy() for x in ("train", "validation")]
    return parts[0], np.concatenate(parts)


@dataclass(frozen=True)
class Book:
    """Rows of ``length`` tokens of the book, with a needle or read twice; what ``fit`` asks for.

    ``first`` bounds where the needle stands; not given, it is in the first half.
    """

    name: str
    length: int = ROW
    first: int | None = None
    kind: ClassVar[str] = "language_model"

    def model_options(self) -> dict[str, Any]:
        return {"vocab": ASK + 1, "kind": self.kind}

    def batch(self, split: str, size: int, seed: int) -> Batch:
        draw = np.random.default_rng([seed, size, split == "train"])
        text = book()[0 if split == "train" else 1]
        width = self.length if self.name == "needle" else self.length // 2 + 1
        starts = draw.integers(len(text) - width, size=size)
        rows = np.stack([text[start : start + width] for start in starts])
        made = self._with_needle(rows, draw) if self.name == "needle" else self._twice(rows)
        return Batch(*map(torch.from_numpy, made))

    def _with_needle(self, rows: np.ndarray, draw: np.random.Generator) -> tuple[Any, Any]:
        size, n = rows.shape
        place: Any = draw.integers(1, self.first or n // 2, size=size)
        keys: Any = PIECES + draw.integers(KEYS, size=size)
        asks = (np.arange(n) > place[:, None]) & (draw.random(rows.shape) < 1 / 8)
        asks[:, -4:] = True
        rows = np.where(asks, ASK, rows)
        rows[np.arange(size), place] = keys
        return rows, np.where(asks, keys[:, None], UNSCORED)

    def _twice(self, rows: np.ndarray) -> tuple[Any, Any]:
        """The last token of the first reading is followed by the first, which nothing foretells."""
        once = rows[:, :-1]
        tokens = np.concatenate([once, once], axis=1)
        targets = np.full_like(tokens, UNSCORED)
        half = once.shape[1]
        targets[:, half:-1] = once[:, 1:]
        return tokens, targets


def build(task: str, arm: str, seed: int, *, memory: int = ROW) -> TinyTransformer:
    """The untrained model; with more ``memory`` the same parameters read longer texts."""
    local = {"segment": SEGMENT, "cache": SEGMENT, "memory": 0, "neighbours": 1}
    last = {**local, "memory": memory, "neighbours": 8} if arm == "memory" else local
    layers = LAYERS[task]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return TinyTransformer(
            **Book(task).model_options(), **MODEL, layers=layers,
            attention="memorizing_transformer",
            attention_options=[local] * (layers - 1) + [last],
        )  # fmt: skip


def train(
    task: str, arm: str, seed: int, *, steps: int | None = None, **more: Any
) -> TinyTransformer:
    """The model after training on rows of 128 tokens, in segments."""
    model = build(task, arm, seed)
    steps = STEPS[task] if steps is None else steps
    given: dict[str, Any] = {"batch_size": 32, "learning_rate": RATES[task], "segment": SEGMENT}
    fit(model, Book(task), steps, seed=seed, progress=False, device="cpu", **given, **more)
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
    return round(100 * torch.cat(hits).double().mean().item(), 2)


def gates(model: TinyTransformer) -> list[float]:
    """g of each head of the layer with the memory."""
    last: Any = model.decoder.blocks[-1]  # type: ignore[union-attr]
    return [round(g, 4) for g in torch.sigmoid(last.attention.gate.detach()).tolist()]


def rows(*, quick: bool, threads: int) -> Iterator[Row]:
    """A row for each task, arm, length and seed; and the gates."""
    with thread_count(threads):
        for task, lengths in LENGTHS.items():
            for arm in ARMS:
                for seed in (0,) if quick else SEEDS:
                    model = train(task, arm, seed, steps=2 if quick else None)
                    for length in lengths[: 2 if quick else None]:
                        share = score(model, task, arm, length, 2 if quick else TEXTS)
                        yield Row(f"{task}, {arm}, {length} tokens, seed {seed}", share, "%")
                    for head, g in enumerate(gates(model) if arm == "memory" else ()):
                        yield Row(f"{task}, gate of head {head}, seed {seed}", g)
