"""Batches: a task must give the rows that it was asked for, or the loss would be wrong."""

from dataclasses import dataclass, replace
from types import SimpleNamespace

import pytest
import torch
from torch import Tensor, nn

from attnlab.train import evaluate, fit

QUIET = {"progress": False}


@dataclass(frozen=True)
class Batch:
    """As a user may write it: nothing is checked."""

    inputs: Tensor
    targets: Tensor
    padding: Tensor | None = None
    source: Tensor | None = None
    source_padding: Tensor | None = None

    def __len__(self):
        return len(self.inputs)

    def __getitem__(self, part):
        return self.each(lambda tensor: tensor[part])

    def to(self, device):
        return self.each(lambda tensor: tensor.to(device))

    def each(self, change):
        changed = {n: None if t is None else change(t) for n, t in vars(self).items()}
        return Batch(**changed)


class Given:
    """A task that hands out what a function makes of a right batch; the first row is right."""

    name, kind, vocab = "given", "language_model", 13

    def __init__(self, change, from_size=2) -> None:
        self.change, self.from_size = change, from_size

    def batch(self, split, size, seed):
        generator = torch.Generator().manual_seed(seed)
        inputs = torch.randint(13, (size, 7), generator=generator)
        batch = Batch(inputs, (inputs + 1) % 13)
        return self.change(batch) if size >= self.from_size else batch


def rows(count):
    """The batch's own rows, cut to `count` or continued with its first ones."""
    return lambda batch: batch.each(lambda t: torch.cat([t, t])[:count])


@pytest.mark.parametrize("accumulate", [1, 2, 3])
@pytest.mark.parametrize("count", [1, 5, 7, 12])
def test_more_or_fewer_rows_than_asked_are_refused(toy, weights, count, accumulate):
    """Until they were, 12 rows for 6 gave half the loss and half of every gradient."""
    model = toy()
    before = weights(model)
    words = rf"asked for 6 rows and gave inputs of shape \({count}, 7\), {count} rows"
    with pytest.raises(ValueError, match=words):
        fit(model, Given(rows(count)), 2, batch_size=6, accumulate=accumulate, **QUIET)
    assert all(torch.equal(value, before[name]) for name, value in weights(model).items())
    with pytest.raises(ValueError, match=words):
        evaluate(model, Given(rows(count)), batch_size=6)


def test_the_loss_and_the_gradient_are_those_of_all_rows(toy):
    """By hand, for a batch in three parts."""
    model, hand, task = toy(), toy(), Given(lambda batch: batch)
    seen = []

    def look(batch):
        seen.append(batch)
        return batch

    row = fit(model, Given(look), 1, batch_size=6, accumulate=3, **QUIET).rows[0]
    (batch,) = seen
    loss = nn.functional.cross_entropy(hand(batch.inputs).flatten(0, 1), batch.targets.flatten())
    loss.backward()
    norm = torch.stack([p.grad.norm() for p in hand.parameters()]).norm()
    assert row["loss"] == pytest.approx(loss.item(), rel=1e-5)
    assert row["gradient_norm"] == pytest.approx(norm.item(), rel=1e-5)
    assert task.batch("train", 1, 0)


@dataclass(frozen=True)
class BadCut(Batch):
    """Cuts inputs and targets of different rows, or always the same ones."""

    how: str = "first"

    def __getitem__(self, part):
        size = part.stop - part.start
        start = {"first": 0, "longer": part.start}[self.how]
        stop = {"first": size, "longer": part.stop + 1}[self.how]
        return Batch(self.inputs[start:stop], self.targets[start:stop])


def cut(how):
    def change(batch):
        targets = batch.targets.clone()
        targets[0, :3] = -100
        return BadCut(batch.inputs, targets, how=how)

    return change


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ("first", "a batch with 39 scored targets, but its parts have 36 in all"),
        ("longer", "asked for 3 rows and gave a batch of 4"),
    ],
)
def test_parts_that_are_not_the_batch_are_refused(toy, how, words):
    with pytest.raises(ValueError, match=words):
        fit(toy(), Given(cut(how)), 2, batch_size=6, accumulate=2, **QUIET)


@dataclass(frozen=True)
class Weighted(Batch):
    weights: Tensor | None = None


def with_(**tensors):
    return lambda batch: replace(batch, **tensors)


LONG = torch.zeros(6, 7, dtype=torch.int64)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda batch: None, "returned None"),
        (lambda batch: (batch.inputs, batch.targets), "returned a tuple"),
        (lambda batch: vars(batch), "returned a dict"),
        (lambda batch: SimpleNamespace(**vars(batch)), "returned a SimpleNamespace"),
        (with_(inputs=None), "with the tensors inputs and targets"),
        (with_(inputs=[[3]]), "with the tensors inputs and targets"),
        (with_(targets=LONG[:5]), r"gave targets of shape \(5, 7\), 5 rows"),
        (with_(padding=LONG.bool()[:3]), r"gave padding of shape \(3, 7\), 3 rows"),
        (with_(source=LONG[:3]), r"gave source of shape \(3, 7\), 3 rows"),
        (with_(padding=LONG), r"gave padding of torch.int64; it should be bool"),
        (with_(padding=[True]), "whose padding is a tensor or None"),
        (with_(targets=LONG - 1), "gave the target -1; targets are whole numbers from 0"),
        (with_(targets=LONG - 101), "gave the target -101"),
        (with_(targets=LONG.float()), "gave targets of torch.float32"),
        (with_(targets=LONG.int()), "gave targets of torch.int32"),
        (with_(targets=LONG.bool()), "gave targets of torch.bool"),
        (with_(targets=LONG + 13), "A target is 13, but the model distinguishes only 13"),
        (with_(targets=LONG + 10**9), "A target is 1000000000"),
        (
            lambda batch: Weighted(batch.inputs, batch.targets, weights=torch.ones(6, 7)),
            "with 'weights', which training would not read",
        ),
    ],
)
@pytest.mark.parametrize("from_size", [1, 2])
def test_bad_batches(toy, change, words, from_size):
    """In the row that is tried first, and in the middle of the run."""
    if from_size == 1:
        words = f"{words}|asked for 1 row|gave inputs of shape"
    with pytest.raises((ValueError, TypeError), match=words):
        fit(toy(), Given(change, from_size), 2, batch_size=6, **QUIET)
    with pytest.raises((ValueError, TypeError), match=words):
        evaluate(toy(), Given(change, from_size), batches=1, batch_size=6)


@pytest.mark.parametrize(
    ("task", "words"),
    [
        (None, "task should be a task"),
        ("copying", "task should be a task"),
        (Given, "that is a class: call it"),
        (SimpleNamespace(batch=print), "with a name, a kind and"),
        (SimpleNamespace(batch=3, name="a", kind="b"), "with a name, a kind and"),
    ],
)
def test_what_is_no_task(toy, task, words):
    with pytest.raises(TypeError, match=words):
        fit(toy(), task, 2, **QUIET)
    with pytest.raises(TypeError, match=words):
        evaluate(toy(), task)


def test_the_tasks_of_attnlab_give_what_is_asked():
    from attnlab.tasks import tasks
    from attnlab.train.task import draw

    for name, kind in tasks().items():
        for split in ("train", "validation"):
            for size in (1, 7):
                assert len(draw(kind(), split, size, seed=3).batch) == size, name
