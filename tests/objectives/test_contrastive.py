"""Each text finds its partner among those of the batch."""

import math

import pytest
import torch
from torch import nn

import attnlab
from attnlab.objectives.batches import UNSCORED
from attnlab.objectives.contrastive import Contrastive, ContrastiveOptions, info_nce
from attnlab.tasks import Batch, task
from attnlab.train import evaluate, fit, model_options


class Vectors(nn.Module):
    """A vector for each token."""

    def __init__(self, rows: torch.Tensor) -> None:
        super().__init__()
        self.rows, self.dim = nn.Parameter(rows), rows.shape[1]

    def encode(self, tokens, padding=None):
        return self.rows[tokens]


def fitted(vocab: int = 3, dim: int = 2, **options) -> Contrastive:
    """With matrices that change nothing."""
    objective = attnlab.build("contrastive", vocab=vocab, width=dim, **options)
    objective.fitted(Vectors(torch.zeros(vocab, dim)))
    for matrix in (objective.first, objective.second):
        nn.init.eye_(matrix.weight)
    return objective


def test_the_worked_example() -> None:
    """Two pairs at right angles, at scale 1: e/(e + 1) for each text, in both directions."""
    model = Vectors(torch.tensor([[2.0, 0.0], [0.0, 3.0]]))  # lengths say nothing
    rows = torch.tensor([[0, 0], [1, 1]])
    loss, count = fitted(temperature=1.0)(model, Batch(rows, rows))
    assert count == 2
    assert loss.item() == pytest.approx(2 * math.log(1 + math.exp(-1)), rel=1e-6)
    wrong = torch.tensor([[0, 1], [1, 0]])
    loss, _ = fitted(temperature=1.0)(model, Batch(wrong, wrong))
    assert loss.item() == pytest.approx(2 * math.log(1 + math.exp(1)), rel=1e-6)


def test_both_directions_count() -> None:
    """Where two first texts are alike, each of them is sure and their partners are not."""
    s = torch.tensor([[5.0, 0.0], [5.0, 0.0]])
    rows, columns = info_nce(s), info_nce(s.T)
    assert rows.tolist() == pytest.approx([math.log1p(math.exp(-5)), math.log1p(math.exp(5))])
    assert columns.tolist() == pytest.approx([math.log(2)] * 2)
    model = Vectors(torch.tensor([[1.0, 0.0], [0.0, 1.0]]))
    pairs = torch.tensor([[0, 0], [0, 1]])
    loss, _ = fitted(temperature=0.2)(model, Batch(pairs, pairs))
    assert loss.item() == pytest.approx((rows.sum() + columns.sum()).item() / 2, rel=1e-5)


def test_a_text_that_is_empty_is_no_negative_either() -> None:
    torch.manual_seed(0)
    model, rows = Vectors(torch.randn(7, 5)), torch.randint(7, (4, 6))
    padding = torch.ones(4, 6, dtype=torch.bool)
    padding[1, 3:] = False
    objective = fitted(7, 5)
    asked = objective.prepare(Batch(rows, rows, padding))
    assert asked.targets.tolist() == [0, UNSCORED, 0, 0]
    kept = [0, 2, 3]
    expected = objective(model, Batch(rows[kept], rows[kept]))
    torch.testing.assert_close(objective(model, Batch(rows, rows, padding)), expected)


def test_one_pair_alone_has_no_question() -> None:
    model = Vectors(torch.randn(3, 2))
    rows = torch.tensor([[0, 1, 2, 0, 1]])  # the last token is left out
    objective = fitted()
    loss, count = objective(model, Batch(rows, rows))
    assert (loss.item(), count) == (0.0, 1)
    asked = objective.prepare(Batch(rows, rows))
    assert asked.inputs.tolist() == [[0, 1, 2, 0]]
    assert int(objective.right(objective.answers(model, asked), asked)) == 1


def test_the_scale_is_bounded_after_each_step() -> None:
    objective = fitted(temperature=0.02, largest=60.0)
    assert objective.log_scale.exp().item() == pytest.approx(50)
    with torch.no_grad():
        objective.log_scale.fill_(9.0)
        objective.after_step(nn.Identity(), 1, 2)
    assert objective.log_scale.exp().item() == pytest.approx(60)


def test_what_does_not_fit_is_a_sentence() -> None:
    model, rows = Vectors(torch.randn(3, 2)), torch.tensor([[0, 1]])
    for call, words in (
        (lambda: ContrastiveOptions(temperature=0.0), "temperature should be more than 0"),
        (lambda: ContrastiveOptions(temperature=0.001), "begins at 1 / temperature = 1000, beyond"),
        (lambda: fitted().prepare(Batch(rows[:, :1], rows)), "a row of 1 tokens cannot hold 2"),
        (lambda: fitted().prepare(Batch(rows + 5, rows)), "built for vocab=3"),
        (lambda: fitted().fitted(nn.Linear(2, 2)), "this Linear has no encode"),
        (lambda: Contrastive(3)(model, Batch(rows, rows)), "no matrices yet"),
    ):
        with pytest.raises(ValueError, match=words):
            call()
    language_model = attnlab.TinyTransformer(3, dim=8, heads=2, layers=1)
    with pytest.raises(ValueError, match="'token_classifier' or 'classifier'"):
        fit(language_model, task("copying"), 1, objective="contrastive", progress=False)


def test_fit_lets_halves_of_texts_find_each_other() -> None:
    problem = task("documentation", length=64)
    options = model_options(problem, "contrastive")
    assert (options["kind"], options["max_len"]) == ("token_classifier", 32)
    torch.manual_seed(0)
    model = attnlab.TinyTransformer(**options, dim=32, heads=2, layers=1)
    objective = attnlab.build("contrastive", vocab=256)
    before = evaluate(model, problem, objective=objective)
    fit(model, problem, 60, objective=objective, progress=False, learning_rate=3e-3)
    after = evaluate(model, problem, objective=objective)
    assert after.targets == 256
    assert after.loss < math.log(32) - 0.3 < before.loss
    assert after.accuracy > before.accuracy
    assert objective.log_scale.item() != pytest.approx(-math.log(0.07), abs=1e-4)
