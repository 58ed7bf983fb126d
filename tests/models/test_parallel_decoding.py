"""Writing all words at once, in passes, and at places that are collapsed."""

import itertools

import pytest
import torch
from torch import nn

import attnlab
from attnlab.core.probe import record
from attnlab.models.parallel_decoding import (
    again,
    ctc_collapse,
    ctc_decode,
    least_sure,
    mask_predict,
    predicted_lengths,
)
from attnlab.objectives.alignments import collapse
from attnlab.objectives.parallel import open_to_all

VOCAB, B, M = 11, 3, 7


def model(kind: str = "encoder_decoder", **options: object):
    torch.manual_seed(1)
    given = {"dim": 12, "heads": 2, "layers": 1, "max_len": 2 * M, "kind": kind, "tie": False}
    made = attnlab.TinyTransformer(VOCAB, **{**given, **options}).double()
    with torch.no_grad():
        for weight in (made.embedding.weight, made.positions.weight):
            weight.mul_(50)  # so that what it says depends on what it reads
    return made


def source() -> torch.Tensor:
    torch.manual_seed(2)
    return torch.randint(VOCAB - 1, (B, M))


LENGTHS = torch.tensor([6, 2, 5])


def test_one_pass_is_the_likeliest_word_at_each_mask() -> None:
    made = model()
    found = mask_predict(made, source(), LENGTHS)
    assert found.real.sum(1).tolist() == [6, 2, 5]
    assert (found.tokens < VOCAB - 1).all()  # the mask is never written
    memory = made.encode(source()[:1])
    masks = torch.full((1, 6), VOCAB - 1)
    x = made.decode(masks, None, memory, structure=open_to_all(masks))
    logits = made.logits(x)[..., :-1]
    assert torch.equal(found.tokens[0], logits.argmax(-1)[0])
    logp = logits.log_softmax(-1).amax(-1).mean()
    torch.testing.assert_close(found.score[0], logp)


def test_how_many_are_masked_again() -> None:
    """floor(N (T - t) / T), at least one."""
    assert again(torch.tensor([10, 3, 1]), 1, 4).tolist() == [7, 2, 1]
    assert again(torch.tensor([10, 3, 1]), 3, 4).tolist() == [2, 1, 1]
    real = torch.tensor([[True, True, True, False], [True, True, False, False]])
    logp = torch.tensor([[-1.0, -3.0, -2.0, -9.0], [-0.5, -0.1, -9.0, -9.0]])
    found = least_sure(logp, real, torch.tensor([2, 1]))
    assert found.tolist() == [[False, True, True, False], [True, False, False, False]]


def test_words_are_masked_again_and_written_with_the_others_in_view() -> None:
    made = model()
    with record() as notes:
        found = mask_predict(made, source(), LENGTHS, passes=3)
    passes = notes["pass"]
    assert len(passes) == 3
    assert torch.equal(passes[-1].masked_fill(~found.real, 0), found.tokens)
    changed = [(one != other) & found.real for one, other in itertools.pairwise(passes)]
    counts = [again(LENGTHS, t, 3) for t in (1, 2)]
    for part, most in zip(changed, counts, strict=True):
        assert (part.sum(1) <= most).all()
    assert any(part.any() for part in changed)


def test_kept_words_keep_the_probability_with_which_they_were_written() -> None:
    """After the second of two passes half of the score is from the first."""
    made, one = model(), source()[:1]
    first = mask_predict(made, one, torch.tensor([4]))
    with record() as notes:
        both = mask_predict(made, one, torch.tensor([4]), passes=2)
    memory = made.encode(one)

    def sure(tokens):
        logits = made.logits(made.decode(tokens, None, memory, structure=open_to_all(tokens)))
        logits[..., -1] = -torch.inf
        return logits.log_softmax(-1)

    masks = torch.full((1, 4), VOCAB - 1)
    alone = sure(masks).amax(-1)
    hidden = least_sure(alone, torch.ones(1, 4, dtype=torch.bool), torch.tensor([2]))
    shown = first.tokens.masked_fill(hidden, VOCAB - 1)
    expected = torch.where(hidden, sure(shown).amax(-1), alone).mean(1)
    torch.testing.assert_close(both.score, expected)
    assert torch.equal(notes["pass"][0], first.tokens)


def test_padding_of_the_source_and_of_other_targets_change_nothing() -> None:
    made, real = model(), torch.arange(M) < torch.tensor([[7], [4], [6]])
    found = mask_predict(made, source(), LENGTHS, passes=2, source_padding=real)
    for row, (m, n) in enumerate(((7, 6), (4, 2), (6, 5))):
        one = mask_predict(made, source()[row : row + 1, :m], LENGTHS[row : row + 1], passes=2)
        assert torch.equal(one.tokens[0], found.tokens[row, :n])
        torch.testing.assert_close(one.score[0], found.score[row])


def test_of_several_lengths_the_surest_is_kept() -> None:
    made = model()
    candidates = torch.tensor([[2, 5], [6, 3], [4, 4]])
    both = mask_predict(made, source(), candidates)
    each = [mask_predict(made, source(), column) for column in candidates.unbind(1)]
    scores = torch.stack([one.score for one in each], 1)
    best = scores.argmax(1)
    assert torch.equal(both.score, scores.amax(1))
    for row, choice in enumerate(best.tolist()):
        n = int(candidates[row, choice])
        assert int(both.real[row].sum()) == n
        assert torch.equal(both.tokens[row, :n], each[choice].tokens[row, :n])


def test_words_may_be_drawn_each_alone() -> None:
    made = model()
    drawn = [
        mask_predict(
            made, source(), LENGTHS, temperature=1.0,
            generator=torch.Generator().manual_seed(seed),
        ).tokens
        for seed in (0, 0, 1)
    ]  # fmt: skip
    assert torch.equal(drawn[0], drawn[1])
    assert not torch.equal(drawn[0], drawn[2])


@pytest.mark.parametrize("name", ["nat", "cmlm"])
def test_lengths_are_predicted_by_the_head(name: str) -> None:
    made, objective = model(), attnlab.build(name, vocab=VOCAB - 1, length=0.1)
    objective.fitted(made)
    objective.double()
    found = predicted_lengths(objective, made, source(), best=3)
    assert found.shape == (B, 3)
    assert (found > 0).all()
    logits = objective.head(made.encode(source()), None)
    best = logits[:, 1:].topk(3, -1).indices + 1
    assert torch.equal(found, best)
    written = mask_predict(made, source(), found)
    assert (written.real.sum(1)[:, None] == found).any(1).all()


def test_collapsed_as_the_definition_says() -> None:
    torch.manual_seed(5)
    symbols = torch.randint(3, (40, 6))
    real = torch.arange(6) < torch.randint(1, 7, (40, 1))
    words, there = ctc_collapse(symbols, real, blank=2)
    for row in range(40):
        expected = collapse(symbols[row, : int(real[row].sum())].tolist(), 2)
        assert tuple(words[row, there[row]].tolist()) == expected


def test_ctc_decode_collapses_the_likeliest_symbols() -> None:
    made, real = model(), torch.arange(M) < torch.tensor([[7], [4], [6]])
    with record() as notes:
        found = ctc_decode(made, source(), source_padding=real)
    symbols = notes.last("symbols")
    assert symbols.shape == (B, 2 * M)
    for row, m in enumerate((7, 4, 6)):
        expected = collapse(symbols[row, : 2 * m].tolist(), VOCAB - 1)
        assert tuple(found.tokens[row, found.real[row]].tolist()) == expected
        one = ctc_decode(made, source()[row : row + 1, :m])
        assert tuple(one.tokens[0, one.real[0]].tolist()) == expected


def test_the_model_is_left_as_it_was() -> None:
    made, read = model(dropout=0.5).train(), source()
    for write in (
        lambda: mask_predict(made, read, LENGTHS, passes=2),
        lambda: ctc_decode(made, read),
    ):
        one, other = write(), write()
        assert torch.equal(one.score, other.score)
        assert made.training


def test_what_cannot_be_written_is_refused_in_a_sentence() -> None:
    made = model()
    with pytest.raises(ValueError, match="kind='language_model' reads no source"):
        mask_predict(model("language_model"), source(), LENGTHS)
    with pytest.raises(TypeError, match="model should be a TinyTransformer, got a Linear"):
        ctc_decode(nn.Linear(2, 2), source())
    for mask in (VOCAB, 99):
        with pytest.raises(ValueError, match=f"a token from 0 to 10, got {mask}"):
            mask_predict(made, source(), LENGTHS, mask=mask)
        with pytest.raises(ValueError, match=f"a token from 0 to 10, got {mask}"):
            ctc_decode(made, source(), blank=mask)
    for lengths, found in ((torch.tensor([3, 0, 2]), 0), (torch.tensor([3, 15, 2]), 15)):
        with pytest.raises(ValueError, match=rf"should have 1 to 14 words .* got {found}"):
            mask_predict(made, source(), lengths)
    with pytest.raises(ValueError, match=r"1 to 14 words or places .* got 21"):
        ctc_decode(made, source(), factor=3)
    with pytest.raises(ValueError, match=r"1 to 14 words or places .* got 0"):
        ctc_decode(made, source(), source_padding=torch.zeros(B, M, dtype=torch.bool))
    with pytest.raises(ValueError, match=r"3 sources need as many lengths, got shape \(2,\)"):
        mask_predict(made, source(), LENGTHS[:2])
    with pytest.raises(ValueError, match=r"lengths should be whole numbers .* got torch.float32"):
        mask_predict(made, source(), LENGTHS.float())
    with pytest.raises(ValueError, match="passes should be at least 1, got 0"):
        mask_predict(made, source(), LENGTHS, passes=0)
    with pytest.raises(ValueError, match="NAT has learned no lengths: train by build"):
        predicted_lengths(attnlab.build("nat", vocab=10), made, source())
    objective = attnlab.build("nat", vocab=10, length=0.1)
    objective.fitted(made)
    with pytest.raises(ValueError, match="14 lengths to choose from, got best=15"):
        predicted_lengths(objective.double(), made, source(), best=15)
