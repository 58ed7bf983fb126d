"""The semi-causal language model: spans that are read from both sides, and answers outside them."""

from collections import Counter

import pytest
import torch

import attnlab
from attnlab.core.probe import record
from attnlab.objectives.batches import UNSCORED
from attnlab.objectives.semi_causal import SemiCausalOptions
from attnlab.tasks import Batch, task
from attnlab.train import evaluate, fit, model_options

VOCAB, B, N = 13, 3, 7


def text(rows: int = B, width: int = N, lengths: list[int] | None = None) -> Batch:
    torch.manual_seed(1)
    tokens = torch.randint(VOCAB, (rows, width + 1))
    if lengths is None:
        return Batch(tokens[:, :-1], tokens[:, 1:])
    padding = torch.arange(width) < torch.tensor(lengths)[:, None]
    return Batch(tokens[:, :-1], tokens[:, 1:].masked_fill(~padding, UNSCORED), padding)


def model(**options: object):
    torch.manual_seed(2)
    given = {"dim": 12, "heads": 2, "layers": 3, "max_len": N, **options}
    return attnlab.TinyTransformer(VOCAB, **given).double()


def asked(batch: Batch, seed: int = 0, **options: object):
    with record() as notes:
        found = attnlab.build("semi_causal", **options).prepare(
            batch, torch.Generator().manual_seed(seed)
        )
    return found, notes


def with_spans(batch: Batch, pieces: list[int], monkeypatch) -> Batch:
    """The batch where every row has these pieces, of which those of odd numbers are spans."""
    with monkeypatch.context() as patched:
        rows = torch.tensor([pieces]).expand(len(batch), -1)
        patched.setattr(SemiCausalOptions, "drawn", lambda *_: rows)
        return asked(batch)[0]


def test_a_hand_made_example(monkeypatch) -> None:
    found = with_spans(text(1, 5), [0, 1, 1, 2, 3], monkeypatch)
    assert found.structure.allowed.int()[0].tolist() == [
        [1, 0, 0, 0, 0],
        [1, 1, 1, 0, 0],
        [1, 1, 1, 0, 0],
        [1, 1, 1, 1, 0],
        [1, 1, 1, 1, 1],
    ]
    # The answers are tokens 1 to 5, of which 1 and 2 stand in a span, and 4 in another.
    assert (found.targets != UNSCORED).tolist() == [[False, False, True, False, True]]


@pytest.mark.parametrize("seed", range(3))
def test_without_spans_it_is_the_next_token(seed: int) -> None:
    batch, made = text(lengths=[7, 4, 1]), model()
    found = attnlab.build("semi_causal", spans=0)(made, batch, torch.Generator().manual_seed(seed))
    expected = attnlab.build("next_token")(made, batch)
    torch.testing.assert_close(found[0], expected[0])
    assert found[1] == expected[1] == 12


@pytest.mark.parametrize("p", [1, 3, 7])
def test_one_span_at_the_beginning_is_a_prefix(p: int, monkeypatch) -> None:
    found = with_spans(text(), [1] * p + [2] * (N - p), monkeypatch)
    prefix = attnlab.build("prefix_lm", share=p / N).prepare(text())
    assert torch.equal(found.structure.allowed, prefix.structure.allowed)
    assert torch.equal(found.targets, prefix.targets)


def test_one_span_over_all_is_an_encoder(monkeypatch) -> None:
    found = with_spans(text(), [1] * N, monkeypatch)
    assert found.structure.allowed.all()
    assert (found.targets != UNSCORED).sum() == B  # what comes after the text


@pytest.mark.parametrize("seed", range(4))
def test_no_answer_is_seen_even_through_other_tokens(seed: int) -> None:
    made = model()
    found, notes = asked(text(), seed)
    before = made(found.inputs, structure=found.structure)
    for t in range(N - 1):
        other = found.inputs.clone()
        other[:, t + 1 :] = (other[:, t + 1 :] + 1) % VOCAB
        scored = found.targets[:, t] != UNSCORED
        after = made(other, structure=found.structure)
        torch.testing.assert_close(after[scored, t], before[scored, t])
        assert torch.equal(scored, ~notes.last("open")[:, t + 1])


def test_both_forms_ask_a_real_model_the_same() -> None:
    card, made, batch = attnlab.card("semi_causal"), model(), text(lengths=[7, 5, 2])
    for seed in range(4):
        one, other = (
            form(made, batch, torch.Generator().manual_seed(seed)) for form in card.forms.values()
        )
        torch.testing.assert_close(one[0], other[0])
        assert one[1] == other[1]


def test_spans_are_apart_and_as_many_as_drawn() -> None:
    _, notes = asked(text(2000, 30), spans=3)
    inside = notes.last("open")
    begins = inside & ~inside.roll(1, 1)
    begins[:, 0] = inside[:, 0]
    drawn = Counter(begins.sum(-1).tolist())
    assert sorted(drawn) == [0, 1, 2, 3]
    assert all(400 < count < 600 for count in drawn.values())  # five standard errors of 500
    assert inside[:, 0].any()
    assert inside[:, -1].any()


def test_spans_lie_in_the_text() -> None:
    lengths = [7, 4, 2, 1, 0] * 40
    found, notes = asked(text(200, N, lengths), spans=9)
    inside, padding = notes.last("open"), found.padding
    assert not (inside & ~padding).any()
    assert inside[padding].any()
    ends = torch.tensor(lengths)[:, None] - 1 == torch.arange(N)
    assert (found.targets[ends] != UNSCORED).all()  # of which the target is no token of the text
    assert (found.targets[~padding] == UNSCORED).all()


def test_a_batch_without_texts_scores_nothing() -> None:
    loss, count = attnlab.build("semi_causal")(model(), text(lengths=[0, 0, 0]))
    assert (loss.item(), count) == (0, 0)


def test_fit_learns_by_it() -> None:
    given = task("copying", symbols=5, items=5)
    torch.manual_seed(0)
    made = attnlab.TinyTransformer(**model_options(given, "semi_causal"), dim=16, heads=2, layers=1)
    before = evaluate(made, given, objective="semi_causal").loss
    fit(made, given, 40, batch_size=16, learning_rate=1e-2, objective="semi_causal", progress=False)
    assert evaluate(made, given, objective="semi_causal").loss < 0.9 * before


def test_what_has_no_next_token_is_refused_in_a_sentence() -> None:
    with pytest.raises(ValueError, match=r"semi_causal asks for the next token .* targets \(3,\)"):
        asked(Batch(text().inputs, text().inputs[:, 0]))
    with pytest.raises(ValueError, match="padding should stand at the end"):
        asked(Batch(text().inputs, text().targets, text(lengths=[5, 5, 5]).padding.flip(1)))
    with pytest.raises(ValueError, match="spans should be at least 0, got -1"):
        attnlab.build("semi_causal", spans=-1)
