"""Hops and tables: what a link brings that no page has, and which cell answers a question.

Nothing is timed: each row comes from one training of a tiny model from scratch, and is the share of
right answers, in per cent, among questions about facts or links that training has not seen.

**Linked pages** (`attnlab.tasks.linked_pages`): a reader of single pages with 0, 1 or 2 layers of
extra hop attention above it, for answers that are 1 or 2 links away. Of six or eight pages two have
the word that is asked for, so whoever cannot follow the links finds one in two.

**Tables** (`attnlab.tasks.tables`) of five rows. A model of rows and one of columns give logits,
and the right row, column or cell has the largest one. The models:

    common words       not trained: the number of words that question and text have in common
    interaction        question and text are read together, equal words are marked
    without marks      the same, but equal words are not marked
    representation     question and text are read apart, by an encoder each

Last, the interaction model of rows where the question compares rows ("the largest").

Lesson 55 draws what

    python -m attnlab.experiments hops_and_tables --threads 1 \\
        --json attnlab/experiments/assets/55_hops_and_tables.json

has written.
"""

from collections.abc import Callable, Iterator
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from attnlab.architecture.feed.mlp import MLP
from attnlab.architecture.join.pre_norm import PreNorm
from attnlab.experiments.grid import SEEDS, seeded
from attnlab.experiments.loop import descend, rise_and_fall
from attnlab.measure.report import Row
from attnlab.measure.timing import thread_count
from attnlab.mechanisms.structure.extra_hop import ExtraHop
from attnlab.mechanisms.structure.rci import cell_scores
from attnlab.models.layers import Block, Stack
from attnlab.models.pair_readers import PairReader, TwoEncoders, in_both
from attnlab.models.tiny import TinyTransformer
from attnlab.structures.table import TableQuestion
from attnlab.tasks import Batch
from attnlab.tasks.linked_pages import LinkedPages
from attnlab.tasks.tables import SPECIAL, Tables

DIM, HEADS = 32, 4
STEPS, RATE, QUESTIONS = 100, 5e-3, 100
PAGE_ROWS, TEXTS = 16, 64  # of a batch
PAGES = {1: LinkedPages(), 2: LinkedPages(hops=2, pages=8)}
READERS = ("interaction", "without marks", "representation")
PARTS = ("rows", "columns")


def rows(*, quick: bool, threads: int) -> Iterator[Row]:
    """One row per training and kind of answer."""
    steps, count = (2, 5) if quick else (STEPS, QUESTIONS)
    with thread_count(threads):
        for seed in (0,) if quick else SEEDS:
            for hops in PAGES:
                for layers in range(hops + 1):
                    linked = train_linked(hops, layers, seed, steps=steps)
                    found = right_pages(linked, hops, count)
                    yield Row(f"{hops} hops; {layers} layers; seed {seed}", found, "%")
            for arm in READERS:
                of_rows, of_columns = (
                    logits_of(of, train_reader(arm, of, seed, steps=steps)) for of in PARTS
                )
                for what, found in right_cells(of_rows, of_columns, count).items():
                    yield Row(f"tables; {arm}; {what}; seed {seed}", found, "%")
            compared = train_reader("interaction", "rows", seed, ask="largest", steps=steps)
            found = right_rows(compared, "largest", count)
            yield Row(f"largest; interaction; rows; seed {seed}", found, "%")
        of_rows, of_columns = (logits_of(of, common_words) for of in PARTS)
        for what, found in right_cells(of_rows, of_columns, count).items():
            yield Row(f"tables; common words; {what}", found, "%")


def _trained(
    model: nn.Module, loss_of: Callable[[int], Tensor], seed: int, *, steps: int
) -> nn.Module:
    """``loss_of`` draws a batch by its number."""
    optimizer = torch.optim.Adam(model.parameters(), lr=RATE)
    schedule = rise_and_fall(optimizer, steps)
    descend(optimizer, lambda s: loss_of(10_000 * seed + s), steps, schedule=schedule, clip=1.0)
    return model.eval()


# ---- linked pages


class LinkedReader(nn.Module):
    """The logit of each page (b, p): a reader of single pages, then layers of extra hop attention
    among their first tokens."""

    def __init__(self, task: LinkedPages, layers: int) -> None:
        super().__init__()
        self.task = task
        self.reader = PairReader(task.vocab, dim=DIM, heads=HEADS, max_len=task.page_length)
        join = partial(PreNorm, DIM)
        blocks = [Block(ExtraHop(DIM, HEADS), MLP(DIM, 2 * DIM), join) for _ in range(layers)]
        self.hops = Stack(blocks, DIM)

    def forward(self, batch: Batch) -> Tensor:
        tokens, pairs, links = self.task.of_pages(batch)
        hubs = self.reader.encode(tokens, pairs)[:, 0].view(len(batch), self.task.pages, -1)
        no, yes = self.reader.output(self.hops(hubs, structure=links)).unbind(-1)
        return yes - no


def train_linked(hops: int, layers: int, seed: int, *, steps: int = STEPS) -> LinkedReader:
    """A reader with so many hop layers, trained on answers so many links away."""
    task = PAGES[hops]
    with seeded(seed):
        model = LinkedReader(task, layers)

    def loss(number: int) -> Tensor:
        batch = task.batch("train", PAGE_ROWS, number)
        return F.cross_entropy(model(batch), batch.targets)

    trained = _trained(model, loss, seed, steps=steps)
    assert isinstance(trained, LinkedReader)
    return trained


@torch.no_grad()
def right_pages(model: LinkedReader, hops: int, count: int = QUESTIONS) -> float:
    """The per cent of new questions for which the right page has the largest logit."""
    batch = PAGES[hops].batch("validation", count, 0)
    return 100 * (model(batch).argmax(1) == batch.targets).double().mean().item()


# ---- tables

Reader = Callable[[Batch], Tensor]
"""The logits (no, yes) of each text of a batch."""


def train_reader(
    arm: str, of: str, seed: int, *, ask: str = "lookup", steps: int = STEPS
) -> Reader:
    """A model of rows or of columns, trained on pairs of a question and a text."""
    task = Tables(of=of, ask=ask)
    with seeded(seed):
        model = _reader(arm, task)

    def logits(batch: Batch) -> Tensor:
        out: Tensor = model(batch.inputs, structure=batch.structure)
        return out

    def loss(number: int) -> Tensor:
        batch = task.batch("train", TEXTS, number)
        return F.cross_entropy(logits(batch), batch.targets)

    _trained(model, loss, seed, steps=steps)
    return logits


def _reader(arm: str, task: Tables) -> nn.Module:
    if arm != "representation":
        marks = arm == "interaction"
        return PairReader(task.vocab, dim=DIM, heads=HEADS, max_len=task.length, marks=marks)
    sizes = {"dim": DIM, "heads": HEADS, "layers": 1, "max_len": task.length, "classes": DIM}
    question, text = (TinyTransformer(task.vocab, kind="classifier", **sizes) for _ in range(2))
    return TwoEncoders(question, text)


def common_words(batch: Batch) -> Tensor:
    """Not trained: no is 0, and yes the number of words that are in question and text."""
    tokens, in_text = batch.inputs, batch.structure.in_text
    both = in_both(tokens, batch.structure) & in_text & (tokens != SPECIAL.index("[sep]"))
    same = (tokens[:, :, None] == tokens[:, None]) & in_text[:, None]
    yes = (both & ~same.tril(-1).any(2)).sum(1).double()  # each word where it comes first
    return torch.stack([torch.zeros_like(yes), yes], 1)


def logits_of(of: str, reader: Reader) -> Callable[[TableQuestion], Tensor]:
    """The logits (r, 2) of all rows, or columns, of the table of a question."""
    task = Tables(of=of)

    @torch.no_grad()
    def logits(question: TableQuestion) -> Tensor:
        return reader(task.pairs(question))

    return logits


def right_cells(
    of_rows: Callable[[TableQuestion], Tensor],
    of_columns: Callable[[TableQuestion], Tensor],
    count: int = QUESTIONS,
) -> dict[str, float]:
    """The per cent of new questions whose row, column and cell have the largest score."""
    right = torch.zeros(3, dtype=torch.double)
    for question in Tables().questions("validation", count, 0):
        cells = cell_scores(of_rows(question), of_columns(question))
        row, column = divmod(int(cells.argmax()), cells.shape[1])
        found = [row == question.row, column == question.column]
        right += torch.tensor([*found, all(found)])
    return dict(zip(("row", "column", "cell"), (100 * right / count).tolist(), strict=True))


def right_rows(reader: Reader, ask: str, count: int = QUESTIONS) -> float:
    """The per cent of new questions for which the right row has the largest score."""
    task, right = Tables(ask=ask), 0
    for question in task.questions("validation", count, 0):
        with torch.no_grad():
            no, yes = reader(task.pairs(question)).unbind(1)
        right += int((yes - no).argmax()) == question.row
    return 100 * right / count
