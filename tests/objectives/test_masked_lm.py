"""What is hidden by the masked language model: how many tokens, which, and what they become."""

from dataclasses import replace

import pytest
import torch

import attnlab
from attnlab.core.probe import record
from attnlab.objectives.batches import UNSCORED
from attnlab.tasks import Batch, task
from attnlab.train import evaluate, fit, model_options

VOCAB = 29


def tokens(rows: int = 3, width: int = 20) -> Batch:
    torch.manual_seed(1)
    inputs = torch.randint(VOCAB, (rows, width))
    return Batch(inputs, inputs)


def hidden(batch: Batch, seed: int = 0, **options):
    objective = attnlab.build("masked_lm", vocab=VOCAB, **options)
    with record() as notes:
        asked = objective.prepare(batch, torch.Generator().manual_seed(seed))
    return asked, notes


def test_the_share_of_each_row_is_scored_and_its_targets_are_the_text() -> None:
    batch = tokens(width=40)
    padding = torch.arange(40) < torch.tensor([[40], [17], [2]])
    asked, notes = hidden(replace(batch, padding=padding))
    scored = asked.targets != UNSCORED
    assert scored.sum(-1).tolist() == [6, 3, 1]  # 15 % of 40, 17 and 2; 2.55 is rounded, 0.3 is 1
    assert not (scored & ~padding).any()
    assert torch.equal(asked.targets[scored], batch.inputs[scored])
    assert torch.equal(asked.inputs[~scored], batch.inputs[~scored])
    assert torch.equal(scored, notes.last("scored"))
    assert torch.equal(asked.inputs == VOCAB, notes.last("hidden"))


def test_four_fifths_become_the_mask_and_a_tenth_another_token() -> None:
    batch = tokens(200, 100)
    asked, notes = hidden(batch)
    scored = notes.last("scored").sum()
    assert scored == 200 * 15
    masks, other = ((notes.last(name).sum() / scored).item() for name in ("hidden", "replaced"))
    assert masks == pytest.approx(0.8, abs=0.04)  # five standard errors of 3,000 draws
    assert other == pytest.approx(0.1, abs=0.03)
    drawn = asked.inputs[notes.last("replaced")]
    assert set(drawn.tolist()) == set(range(VOCAB))  # never the mask


@pytest.mark.parametrize(
    ("options", "masks", "others"),
    [({"masks": 1, "random": 0}, 1, 0), ({"masks": 0, "random": 1}, 0, 1)],
)
def test_all_of_them_can_become_one_thing(options, masks, others) -> None:
    _, notes = hidden(tokens(), **options)
    scored = notes.last("scored")
    assert torch.equal(notes.last("hidden"), scored & bool(masks))
    assert torch.equal(notes.last("replaced"), scored & bool(others))


@pytest.mark.parametrize("rate", [0, 1])
def test_nothing_or_everything_is_hidden(rate) -> None:
    _, notes = hidden(tokens(), rate=rate)
    assert notes.last("scored").all() == bool(rate)
    assert notes.last("scored").any() == bool(rate)


def test_a_text_has_as_many_sets_as_copies() -> None:
    batch = tokens(1)
    fixed = {tuple(hidden(batch, seed, copies=2)[0].inputs[0].tolist()) for seed in range(40)}
    fresh = {tuple(hidden(batch, seed)[0].inputs[0].tolist()) for seed in range(40)}
    assert len(fixed) == 2
    assert len(fresh) > 30


def test_copies_belong_to_the_text_not_to_its_row() -> None:
    batch = tokens(2)
    turned = Batch(batch.inputs.flip(0), batch.targets.flip(0))
    one, other = (hidden(each, copies=1)[0].inputs for each in (batch, turned))
    assert torch.equal(one, other.flip(0))


def test_whole_words_are_hidden_or_none_of_their_tokens() -> None:
    torch.manual_seed(2)
    pieces = torch.randint(10, VOCAB, (50, 60))
    begins = torch.rand(50, 60) < 0.4
    inputs = torch.where(begins, pieces % 10, pieces)  # tokens 0 to 9 begin a word
    _, notes = hidden(Batch(inputs, inputs), word_starts=tuple(range(10)), rate=0.3)
    scored, word = notes.last("scored"), (inputs < 10).long().cumsum(-1)
    for row, words in zip(scored, word, strict=True):
        for each in words.unique():
            assert row[words == each].unique().numel() == 1
    assert (scored.sum(-1) >= 1).all()
    assert scored.sum(-1).float().mean() > 0.2 * 60


def test_a_longest_word_is_hidden_where_nothing_shorter_fits() -> None:
    inputs = torch.tensor([[1, 20, 20, 20, 20, 20, 20, 20]])
    _, notes = hidden(Batch(inputs, inputs), word_starts=(1,))
    assert notes.last("scored").all()


def test_fit_learns_by_it_what_evaluate_measures() -> None:
    text = task("copying", symbols=5, items=5)
    torch.manual_seed(0)
    options = model_options(text, "masked_lm")
    assert (options["kind"], options["vocab"]) == ("token_classifier", text.vocab + 1)
    model = attnlab.TinyTransformer(**options, dim=16, heads=2, layers=1)
    before = evaluate(model, text, objective="masked_lm").loss
    fit(model, text, 40, batch_size=16, learning_rate=1e-2, objective="masked_lm", progress=False)
    assert evaluate(model, text, objective="masked_lm").loss < 0.9 * before


def test_what_cannot_be_masked_is_refused_in_a_sentence() -> None:
    text = task("copying", symbols=5, items=5)
    causal = attnlab.TinyTransformer(**text.model_options(), dim=8, heads=2, layers=1)
    with pytest.raises(ValueError, match="MaskedLM trains models of kind 'token_classifier'"):
        fit(causal, text, 1, objective="masked_lm", progress=False)
    with pytest.raises(
        ValueError, match="objective='masked_lm' hides tokens, and task 'set_maximum'"
    ):
        model_options(task("set_maximum"), "masked_lm")
    with pytest.raises(ValueError, match="built for vocab=29, and a token of the task is 30"):
        hidden(Batch(torch.tensor([[1, 30]]), torch.tensor([[1, 30]])))
    with pytest.raises(ValueError, match="rate should be a share from 0 to 1, got 2"):
        attnlab.build("masked_lm", vocab=VOCAB, rate=2)
    with pytest.raises(ValueError, match="at most 1 together"):
        attnlab.build("masked_lm", vocab=VOCAB, random=0.3)
