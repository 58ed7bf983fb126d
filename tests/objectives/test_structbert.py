"""Trigrams that are shuffled, beside tokens that are hidden."""

import pytest
import torch

import attnlab
from attnlab.core.probe import record
from attnlab.objectives.batches import UNSCORED
from attnlab.objectives.structbert import trigrams
from attnlab.tasks import Batch, task
from attnlab.train import evaluate, fit, model_options

VOCAB = 97


def prepared(inputs, padding=None, seed: int = 0, **options):
    objective = attnlab.build("structbert", vocab=VOCAB, **options)
    with record() as notes:
        asked = objective.prepare(
            Batch(inputs, inputs, padding), torch.Generator().manual_seed(seed)
        )
    return asked, notes


def texts(rows: int, width: int):
    """Every token of a row is another one, so that it is known where each came from."""
    torch.manual_seed(1)
    return torch.rand(rows, VOCAB).argsort(-1)[:, :width]


def test_three_tokens_in_a_row_change_their_places_and_no_other_does() -> None:
    inputs = texts(60, 61)
    asked, notes = prepared(inputs, rate=0.1, shuffled=0.2)
    shuffled, hidden = notes.last("shuffled"), notes.last("hidden") | notes.last("replaced")
    assert shuffled.any()
    kept = notes.last("scored") & ~shuffled
    assert not (shuffled & hidden).any()
    assert torch.equal(asked.targets != UNSCORED, shuffled | kept)
    assert torch.equal(asked.targets[shuffled], inputs[shuffled])
    others = ~shuffled & ~hidden
    assert torch.equal(asked.inputs[others], inputs[others])
    for row in range(60):
        places = shuffled[row].nonzero()[:, 0]
        for three in places.view(-1, 3):  # trigrams of a row do not overlap
            assert torch.equal(three, three[0] + torch.arange(3))
            seen, own = asked.inputs[row, three].tolist(), inputs[row, three].tolist()
            assert seen != own
            assert sorted(seen) == sorted(own)


def test_as_many_trigrams_as_the_share_says_where_they_are_free() -> None:
    asked, notes = prepared(texts(10, 60), rate=0, shuffled=0.25)
    assert (notes.last("shuffled").sum(-1) == 3 * 5).all()
    assert (asked.targets != UNSCORED).sum() == 150
    padding = (torch.arange(60) < 12).expand(10, -1)
    _, notes = prepared(texts(10, 60), padding, rate=0, shuffled=0.5)
    assert (notes.last("shuffled").sum(-1) == 6).all()
    assert not (notes.last("shuffled") & ~padding).any()
    assert not prepared(texts(10, 60), rate=1, shuffled=1)[1].last("shuffled").any()


def test_the_grid_begins_at_the_offset_and_trigrams_are_whole() -> None:
    free = torch.ones(3, 8, dtype=torch.bool)
    free[2, 3] = False
    assert trigrams(free, torch.tensor([0, 1, 2])).tolist() == [
        [0, 0, 0, 3, 3, 3, -1, -1],
        [-1, 1, 1, 1, 4, 4, 4, -1],
        [-1, -1, -1, -1, -1, 5, 5, 5],
    ]


def test_each_order_but_the_own_is_as_likely() -> None:
    inputs = torch.arange(3).expand(2000, -1)
    asked, _ = prepared(inputs, rate=0, shuffled=1)
    whole = (asked.targets != UNSCORED).all(-1)
    assert whole.sum() == pytest.approx(2000 / 3, abs=110)  # where the grid begins at 0
    orders, counts = asked.inputs[whole].unique(dim=0, return_counts=True)
    assert len(orders) == 5
    assert [0, 1, 2] not in orders.tolist()
    assert (counts / whole.sum() - 0.2).abs().max() < 0.08  # five standard errors


def test_fit_learns_by_it() -> None:
    problem = task("copying", symbols=5, items=6)
    torch.manual_seed(0)
    model = attnlab.TinyTransformer(
        **model_options(problem, "structbert"), dim=16, heads=2, layers=1
    )
    before = evaluate(model, problem, objective="structbert").loss
    fit(
        model, problem, 40, batch_size=16, learning_rate=1e-2, objective="structbert",
        progress=False,
    )  # fmt: skip
    assert evaluate(model, problem, objective="structbert").loss < 0.95 * before
