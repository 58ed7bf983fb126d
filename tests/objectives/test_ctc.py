"""Words and blanks at more places than a target has words."""

import itertools
import math

import pytest
import torch
from torch.nn import functional as F

import attnlab
from attnlab.objectives.alignments import alignments, collapse, repeats
from attnlab.objectives.batches import UNSCORED
from attnlab.objectives.ctc import uniform_loss
from attnlab.tasks import Batch, task
from attnlab.train import evaluate, fit, model_options

VOCAB, BLANK = 5, 5


def pairs(sources: list[int], targets: list[list[int]]) -> Batch:
    torch.manual_seed(1)
    b, m, n = len(sources), max(sources), max(1, *map(len, targets))
    source = torch.randint(VOCAB, (b, m))
    there = torch.arange(m) < torch.tensor(sources)[:, None]
    asked = torch.tensor([[*row, *[UNSCORED] * (n - len(row))] for row in targets])
    return Batch(asked.clamp(min=0), asked, asked != UNSCORED, source, there)


BATCH = pairs([2, 3, 4, 3], [[1], [2, 2, 0], [4, 1, 4], []])


def model(max_len: int = 8):
    torch.manual_seed(2)
    given = {"dim": 12, "heads": 2, "layers": 2, "max_len": max_len, "kind": "encoder_decoder"}
    return attnlab.TinyTransformer(VOCAB + 1, **given).double()


def test_what_alignments_are_read_as() -> None:
    assert collapse([1, 1, BLANK, 2, BLANK, 2], BLANK) == (1, 2, 2)
    assert collapse([BLANK, BLANK], BLANK) == ()
    assert collapse([2, 2, 2], BLANK) == (2,)


@pytest.mark.parametrize("target", [(0,), (0, 1), (1, 1), (0, 0, 1), (0, 1, 0), (1, 1, 1), ()])
@pytest.mark.parametrize("length", [1, 3, 5, 6])
def test_as_many_alignments_as_the_formula_says(target: tuple[int, ...], length: int) -> None:
    found = alignments(target, length, blank=2)
    assert len({*found}) == len(found)
    every = [a for a in itertools.product(range(3), repeat=length) if collapse(a, 2) == target]
    assert sorted(found) == sorted(every)
    r, n = sum(a == b for a, b in itertools.pairwise(target)), len(target)
    assert len(found) == (math.comb(length + n - r, 2 * n) if length >= n + r else 0)


def test_probabilities_of_all_targets_sum_to_one() -> None:
    """Of three places and two words, whatever the model says."""
    torch.manual_seed(4)
    logp = torch.randn(3, 3, dtype=torch.float64).log_softmax(-1)
    total = 0.0
    for n in range(4):
        for target in itertools.product(range(2), repeat=n):
            for each in alignments(target, 3, blank=2):
                total += float(logp[torch.arange(3), list(each)].sum().exp())
    assert total == pytest.approx(1)


@pytest.mark.parametrize("form", ["naive", "recursive", "fused"])
def test_each_form_is_pytorchs_loss(form: str) -> None:
    made, card = model(), attnlab.card("ctc")
    loss, count = card.forms[form](made, BATCH, vocab=VOCAB)
    assert count == 7
    objective = attnlab.build("ctc", vocab=VOCAB)
    asked = objective.prepare(BATCH)
    logits = objective.answers(made, asked).detach().requires_grad_()
    each = F.ctc_loss(
        logits.log_softmax(-1).transpose(0, 1)[:, :3], BATCH.targets[:3].clamp(min=0),
        torch.tensor([4, 6, 8]), torch.tensor([1, 3, 3]), blank=BLANK, reduction="none",
    )  # fmt: skip
    torch.testing.assert_close(loss, each.sum())
    grads = torch.autograd.grad(loss, list(made.parameters()), allow_unused=True)
    expected = torch.autograd.grad(
        card.forms["fused"](made, BATCH, vocab=VOCAB)[0], list(made.parameters()), allow_unused=True
    )
    for one, other in zip(grads, expected, strict=True):
        torch.testing.assert_close(one, other)


def test_places_beyond_a_rows_own_get_no_gradient() -> None:
    objective = attnlab.build("ctc", vocab=VOCAB)
    asked = objective.prepare(BATCH)
    assert asked.padding.sum(1).tolist() == [4, 6, 8, 6]
    logits = torch.randn(4, 8, VOCAB + 1, dtype=torch.float64, requires_grad=True)
    objective.loss(logits, asked).backward()
    nonzero = (logits.grad != 0).any(-1)
    assert nonzero.sum(1).tolist() == [4, 6, 8, 0]
    assert nonzero[0, :4].all()


def test_words_may_stand_anywhere() -> None:
    objective = attnlab.build("ctc", vocab=VOCAB)
    asked = objective.prepare(pairs([3], [[1, 2]]))
    for symbols in ([1, 2, 5, 5, 5, 5], [5, 5, 5, 5, 1, 2], [1, 1, 5, 5, 2, 2]):
        logits = 60.0 * F.one_hot(torch.tensor([symbols]), VOCAB + 1).double()
        assert objective.loss(logits, asked).item() == pytest.approx(0, abs=1e-9)
        assert objective.right(logits, asked) == 2
    logits = 60.0 * F.one_hot(torch.tensor([[2, 5, 1, 5, 5, 2]]), VOCAB + 1).double()
    assert objective.right(logits, asked) == 0


def test_repeats_and_the_uniform_loss() -> None:
    assert repeats(BATCH.targets).tolist() == [0, 1, 0, 0]
    objective = attnlab.build("ctc", vocab=VOCAB)
    asked = objective.prepare(BATCH)
    found = objective.loss(torch.zeros(4, 8, VOCAB + 1, dtype=torch.float64), asked).item()
    assert found / 7 == pytest.approx(uniform_loss(asked, VOCAB + 1))


def test_a_target_that_does_not_fit_is_refused() -> None:
    objective = attnlab.build("ctc", vocab=VOCAB)
    with pytest.raises(ValueError, match=(
        r"target of 3 words, of which 2 equal the word before, needs 5 places, .* source has 2 "
        "words, which give 4; take a larger factor than 2"
    )):  # fmt: skip
        objective.prepare(pairs([4, 2], [[1], [3, 3, 3]]))
    attnlab.build("ctc", vocab=VOCAB, factor=3).prepare(pairs([4, 2], [[1], [3, 3, 3]]))
    with pytest.raises(ValueError, match=r"should return logits of shape \(4, 8, 6\)"):
        objective.answers(lambda *_, **__: torch.zeros(4, 8, 5), objective.prepare(BATCH))
    with pytest.raises(ValueError, match="factor"):
        attnlab.build("ctc", vocab=VOCAB, factor=0)


def test_fit_learns_by_it() -> None:
    dialects = task("two_dialects", words=4, shortest=1, coin="source")
    torch.manual_seed(0)
    made = attnlab.TinyTransformer(**model_options(dialects, "ctc"), dim=16, heads=2, layers=1)
    assert made.max_len == 8
    before = evaluate(made, dialects, objective="ctc", batches=1).loss
    more = {"batch_size": 16, "learning_rate": 1e-2, "progress": False}
    fit(made, dialects, 30, objective="ctc", **more)
    assert evaluate(made, dialects, objective="ctc", batches=1).loss < 0.9 * before
