"""Two pieces of a text, in their order, exchanged, or of two texts."""

import pytest
import torch

import attnlab
from attnlab.objectives.batches import UNSCORED
from attnlab.tasks import Batch, task
from attnlab.train import fit, model_options

SEPARATOR = 50


def asked(inputs, padding=None, seed: int = 0, **options):
    objective = attnlab.build("sentence_order", vocab=SEPARATOR, **options)
    return objective.prepare(Batch(inputs, inputs, padding), torch.Generator().manual_seed(seed))


def counting(rows: int, width: int):
    """Row i holds the numbers from i · width on, so that a token tells where it comes from."""
    return torch.arange(rows * width).reshape(rows, width)


def test_an_exchange_moves_the_pieces_and_never_the_separator() -> None:
    given = asked(counting(5, 9))
    assert (given.inputs[:, 4] == SEPARATOR).all()
    assert set(given.targets.tolist()) == {0, 1}
    for row, answer in enumerate(given.targets.tolist()):
        first, second = counting(5, 9)[row, :4], counting(5, 9)[row, 4:8]
        if answer:
            first, second = second, first
        assert given.inputs[row].tolist() == [*first, SEPARATOR, *second]
    assert given.padding.all()


@pytest.mark.parametrize(("kind", "classes"), [("next", 2), ("both", 3)])
def test_another_text_stands_at_the_same_places(kind, classes) -> None:
    given = asked(counting(6, 8), kind=kind, seed=1)
    assert set(given.targets.tolist()) == set(range(classes))
    for row, answer in enumerate(given.targets.tolist()):
        if answer == classes - 1:
            assert given.inputs[row, :4].tolist() == counting(6, 8)[row, :4].tolist()
            assert given.inputs[row, 5:].tolist() == counting(6, 8)[row - 1, 4:].tolist()


def test_no_length_tells_the_answer() -> None:
    """The pieces are as long as both texts allow, whatever the answer is."""
    padding = torch.arange(8) < torch.tensor([[8], [6], [2], [0], [8]])
    seen = set()
    for seed in range(20):
        given = asked(counting(5, 8), padding, seed=seed, kind="next")
        seen.add(tuple(given.padding.sum(-1).tolist()))
        assert (given.targets == UNSCORED).tolist() == [False, False, False, True, True]
    assert seen == {(9, 7, 3, 1, 1)}


def test_each_answer_is_as_likely_as_another() -> None:
    answers = asked(counting(3000, 2) % SEPARATOR, kind="both").targets
    assert all(abs(int((answers == c).sum()) - 1000) < 130 for c in range(3))  # five deviations


def test_padding_before_a_text_is_refused() -> None:
    padding = torch.tensor([[False, True, True, True]])
    with pytest.raises(ValueError, match="should stand at the end of a row"):
        asked(counting(1, 4), padding)


def test_fit_trains_a_classifier_by_it() -> None:
    problem = task("sorting")
    torch.manual_seed(0)
    options = model_options(problem, "sop")
    assert (options["kind"], options["classes"]) == ("classifier", 2)
    assert options["vocab"] == problem.vocab + 1
    model = attnlab.TinyTransformer(**options, dim=16, heads=2, layers=1)
    rows = fit(model, problem, 5, batch_size=8, objective="sop", progress=False).rows
    assert len(rows) == 5
