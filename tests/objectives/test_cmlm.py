"""A number of words of the target is masked, from one to all."""

from collections import Counter

import pytest
import torch

import attnlab
from attnlab.core.probe import record
from attnlab.objectives.batches import UNSCORED
from attnlab.tasks import Batch, task
from attnlab.train import evaluate, fit, model_options

VOCAB, N = 11, 5


def pairs(rows: int = 3, lengths: list[int] | None = None) -> Batch:
    torch.manual_seed(1)
    targets, source = torch.randint(VOCAB, (rows, N + 1)), torch.randint(VOCAB, (rows, 7))
    real = torch.arange(N) < torch.tensor(lengths or [N] * rows)[:, None]
    return Batch(targets[:, :-1], targets[:, 1:].masked_fill(~real, UNSCORED), real, source)


def asked(batch: Batch, seed: int = 0):
    return attnlab.build("cmlm", vocab=VOCAB).prepare(batch, torch.Generator().manual_seed(seed))


def test_masks_are_asked_and_other_words_are_shown() -> None:
    batch = pairs(lengths=[5, 3, 0])
    for seed in range(5):
        with record() as notes:
            found = asked(batch, seed)
        masks = notes.last("hidden")
        assert torch.equal(found.targets != UNSCORED, masks)
        assert (found.inputs[masks] == VOCAB).all()
        shown = (batch.targets != UNSCORED) & ~masks
        assert torch.equal(found.inputs[shown], batch.targets[shown])
        assert 1 <= masks[0].sum() <= 5
        assert 1 <= masks[1].sum() <= 3
        assert not masks[2].any()
        assert found.structure.allowed.all()


def test_each_number_of_masks_is_as_likely_as_another() -> None:
    counts = Counter((asked(pairs(3000)).targets != UNSCORED).sum(1).tolist())
    assert sorted(counts) == [1, 2, 3, 4, 5]
    assert all(510 < count < 690 for count in counts.values())  # four standard errors of 600
    places = (asked(pairs(3000), 1).targets != UNSCORED).double().mean(0)
    assert ((places - 0.6).abs() < 0.04).all()


def test_a_mask_sees_the_words_that_are_shown_on_both_sides() -> None:
    torch.manual_seed(2)
    given = {"dim": 12, "heads": 2, "layers": 1, "max_len": 7, "kind": "encoder_decoder"}
    made = attnlab.TinyTransformer(VOCAB + 1, **given).double()
    found = asked(pairs())
    before = made(found.inputs, found.padding, source=found.source, structure=found.structure)
    row, place = next(p for p in (found.targets == UNSCORED).nonzero().tolist())
    other = found.inputs.clone()
    other[row, place] = (other[row, place] + 1) % VOCAB
    after = made(other, found.padding, source=found.source, structure=found.structure)
    assert not torch.isclose(after[row], before[row]).all(-1).any()


def test_fit_learns_by_it_and_the_naive_form_agrees_with_a_real_model() -> None:
    dialects = task("two_dialects", words=4, shortest=2)
    torch.manual_seed(0)
    objective = attnlab.build("cmlm", vocab=dialects.vocab)
    made = attnlab.TinyTransformer(**model_options(dialects, "cmlm"), dim=16, heads=2, layers=1)
    before = evaluate(made, dialects, objective="cmlm", batches=1).loss
    more = {"batch_size": 16, "learning_rate": 1e-2, "progress": False}
    fit(made, dialects, 30, objective="cmlm", **more)
    assert evaluate(made, dialects, objective="cmlm", batches=1).loss < 0.9 * before
    batch = dialects.batch("train", 5, seed=0)
    one, other = (
        form(made, batch, torch.Generator().manual_seed(3), objective=objective)
        for form in attnlab.card("cmlm").forms.values()
    )
    torch.testing.assert_close(one[0], other[0])
    assert one[1] == other[1]


@pytest.mark.parametrize("lengths", [[1, 1, 1], [0, 0, 0]])
def test_short_and_empty_targets(lengths: list[int]) -> None:
    found = asked(pairs(lengths=lengths))
    assert (found.targets != UNSCORED).sum(1).tolist() == lengths
