"""Two dialects: translations, who tosses the coin, and what is exact about them."""

import math

import pytest
import torch

from attnlab.objectives.nat import conditional_total_correlation
from attnlab.tasks import UNSCORED, task
from attnlab.tasks.two_dialects import TwoDialects


def tossed(made: TwoDialects, size: int = 500):
    """The source, and of each word whether it is in dialect B."""
    batch = made.batch("train", size, seed=1)
    real = batch.targets != UNSCORED
    offset = torch.where(real, batch.targets - batch.source, made.symbols)
    assert ((offset == made.symbols) | (offset == 2 * made.symbols)).all()
    return batch, real, offset == 2 * made.symbols


def test_a_row_by_hand() -> None:
    made = TwoDialects(words=4, symbols=6)
    batch = made.batch("validation", 1, seed=0)
    source, target = made.tokens(batch.source[0]), made.tokens(batch.targets[0])
    names = dict(zip("012345", "abcdef", strict=True))
    assert target in ([names[s] for s in source], [names[s].upper() for s in source])
    assert made.tokens(batch.inputs[0]) == ["start", *target[:-1]]
    assert (made.vocab, made.length, made.kind) == (19, 4, "encoder_decoder")
    assert made.example().labels == made.tokens(made.batch("validation", 1, seed=0).targets[0])


def test_one_coin_for_a_sentence() -> None:
    _, _, upper = tossed(TwoDialects(words=5))
    assert (upper.all(1) | ~upper.any(1)).all()
    assert abs(upper[:, 0].double().mean() - 0.5) < 0.09  # four standard errors


def test_one_coin_for_each_word() -> None:
    _, _, upper = tossed(TwoDialects(words=5, coin="word"))
    assert ((upper.double().mean(0) - 0.5).abs() < 0.09).all()
    together = (upper.all(1) | ~upper.any(1)).double().mean()
    assert abs(together - 2 / 2**5) < 0.045


def test_the_first_word_of_the_source_decides() -> None:
    batch, _, upper = tossed(TwoDialects(words=5, coin="source"))
    assert torch.equal(upper, (batch.source[:, :1] % 2 == 1).expand_as(upper))


@pytest.mark.parametrize(("coin", "nats"), [("sentence", 3), ("word", 0), ("source", 0)])
def test_what_is_exact(coin: str, nats: int) -> None:
    made = TwoDialects(words=4, coin=coin)
    source = made.batch("train", 3, seed=0).source
    every, p = made.translations(source)
    torch.testing.assert_close(p.sum(1), torch.ones(3, dtype=torch.float64))
    for sentences, each in zip(every, p, strict=True):
        found = conditional_total_correlation(sentences, each)
        assert found == pytest.approx(nats * math.log(2), abs=1e-9)
        assert -torch.special.xlogy(each, each).sum() == pytest.approx(made.entropy())
    k = every.shape[1]
    right = made.right(source.repeat_interleave(k, 0), every.flatten(0, 1))
    assert torch.equal(right, p.flatten() > 0)


@pytest.mark.parametrize("coin", ["sentence", "word", "source"])
def test_batches_hold_translations_and_nothing_else_counts_as_one(coin: str) -> None:
    made = TwoDialects(words=5, shortest=2, coin=coin)
    batch = made.batch("train", 300, seed=3)
    real = batch.targets != UNSCORED
    assert torch.equal(real, batch.padding)
    assert torch.equal(real, batch.source_padding)
    assert sorted({*real.sum(1).tolist()}) == [2, 3, 4, 5]
    said = batch.targets.masked_fill(~real, 0)
    assert made.right(batch.source, said, real).all()
    wrong = said.clone()
    wrong[:, 1] = made.symbols + (wrong[:, 1] - made.symbols + 1) % (2 * made.symbols)
    assert not made.right(batch.source, wrong, real).any()
    other = said.clone()  # one word in the other dialect
    other[:, 0] = torch.where(said[:, 0] < 2 * made.symbols, said[:, 0] + 8, said[:, 0] - 8)
    assert bool(made.right(batch.source, other, real).all()) == (coin == "word")


def test_bad_options_are_refused_in_a_sentence() -> None:
    with pytest.raises(ValueError, match="there is no coin 'nobody'"):
        TwoDialects(coin="nobody")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="shortest=7 is more than words=6"):
        TwoDialects(shortest=7)
    with pytest.raises(ValueError, match="only 16 different sequences"):
        TwoDialects(words=2, symbols=4)
    with pytest.raises(ValueError, match="shortest should be at least 1, got 0"):
        TwoDialects(shortest=0)
    long = task("two_dialects", words=13, coin="word")
    with pytest.raises(ValueError, match="a sentence of 13 words has 8192 translations"):
        long.translations(long.batch("train", 1, seed=0).source)
