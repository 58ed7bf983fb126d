"""A document lies nearer to one that it cites."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import attnlab
from attnlab.objectives.batches import UNSCORED
from attnlab.objectives.specter import Specter, SpecterOptions, triplet
from attnlab.tasks import Batch, task
from attnlab.tasks.citations import reciprocal_rank
from attnlab.train import evaluate, fit, model_options


class Vectors(nn.Module):
    """The vector of a token, at its place; more at later places, if they are asked."""

    def __init__(self, *rows: tuple[float, ...]) -> None:
        super().__init__()
        self.rows = nn.Parameter(torch.tensor(rows))

    def encode(self, tokens, padding=None):
        return self.rows[tokens] + 100.0 * torch.arange(tokens.shape[1])[:, None]


MODEL = Vectors((0.0, 0.0), (3.0, 4.0), (0.0, 2.0))
ROWS = torch.tensor([[0, 2, 1, 0, 2, 0], [1, 1, 0, 1, 2, 2]])  # 0 | 1 | 2 and 1 | 0 | 2


def built(**options) -> Specter:
    return attnlab.build("specter", vocab=3, **options)


def test_the_worked_example() -> None:
    """|0 - 1| = 5 and |0 - 2| = 2: 5 - 2 + 1. |1 - 0| = 5 and |1 - 2| = √13: 5 - √13 + 1."""
    losses = [4.0, 6 - 13**0.5]
    loss, count = built()(MODEL, Batch(ROWS, ROWS))
    assert count == 2
    assert loss.item() == pytest.approx(sum(losses), rel=1e-6)
    asked = built().prepare(Batch(ROWS, ROWS))
    assert int(built().right(built().answers(MODEL, asked), asked)) == 0
    assert built(margin=3.0)(MODEL, Batch(ROWS, ROWS))[0].item() == pytest.approx(sum(losses) + 4)


def test_the_target_says_which_one_is_cited() -> None:
    """2 is nearer to 0 than 1 is, by more than the margin, and this costs nothing."""
    asked = built().prepare(Batch(ROWS, torch.tensor([1, UNSCORED])))
    assert asked.inputs[0].tolist() == [0, 2, 2, 0, 1, 0]
    assert asked.targets.tolist() == [0, UNSCORED]
    answers = built().answers(MODEL, asked)
    assert built().loss(answers, asked).item() == 0
    assert int(built().right(answers, asked)) == 1


def test_a_triplet_beyond_the_margin_teaches_nothing() -> None:
    model = Vectors((0.0, 0.0), (0.0, 9.0), (0.0, 1.0))
    rows = torch.tensor([[0, 2, 1], [0, 1, 2]])
    for row, expected in ((rows[:1], 0.0), (rows[1:], 1.0)):
        model.rows.grad = None
        loss, _ = built()(model, Batch(row, row))
        loss.backward()
        assert model.rows.grad[1, 1].item() == expected


def test_a_document_has_no_distance_to_itself() -> None:
    """PyTorch's loss gives it one; here neither that nor an undefined gradient."""
    q = torch.zeros(5, 64, requires_grad=True)
    cited, other = triplet(q, torch.zeros(5, 64), torch.zeros(5, 64))
    assert (cited == 0).all()
    (cited + other).sum().backward()
    assert (q.grad == 0).all()
    apart = torch.randn(5, 64) * 1e-6
    theirs = F.triplet_margin_loss(torch.zeros(5, 64), torch.zeros(5, 64), apart, margin=1e-5)
    assert theirs.item() > 1.05e-5 - apart.norm(dim=-1).mean().item()  # 10⁻⁶ √64 from itself


def test_the_mean_is_over_real_tokens_and_the_first_is_the_first() -> None:
    padding = torch.tensor([[True, False, True, True, True, False]])
    asked = built().prepare(Batch(ROWS[:1], ROWS[:1], padding))
    for pooling, expected in (("first", (5.0, 2.0)), ("mean", (73.1864, 2.0))):
        found = built(pooling=pooling).answers(MODEL, asked)
        assert (found.cited.item(), found.other.item()) == pytest.approx(expected, rel=1e-4)


def test_a_row_with_an_empty_document_is_not_scored() -> None:
    padding = torch.tensor([[True, True, True, True, False, False], [True] * 6])
    asked = built().prepare(Batch(ROWS, ROWS, padding))
    assert asked.targets.tolist() == [UNSCORED, 0]


def test_what_does_not_fit_is_a_sentence() -> None:
    for call, words in (
        (lambda: SpecterOptions(margin=0.0), "margin should be more than 0, got 0.0"),
        (lambda: SpecterOptions(pooling="last"), "pooling"),
        (lambda: built().prepare(Batch(ROWS[:, :5], ROWS[:, :5])), "a row of 5 tokens cannot hold"),
        (lambda: built().prepare(Batch(ROWS + 1, ROWS)), "built for vocab=3"),
        (lambda: built().fitted(nn.Linear(2, 2)), "this Linear has no encode"),
    ):
        with pytest.raises(ValueError, match=words):
            call()


def test_fit_brings_cited_documents_nearer() -> None:
    problem = task("citations", words=8)
    options = model_options(problem, "specter")
    assert (options["kind"], options["max_len"]) == ("classifier", problem.document_length)
    torch.manual_seed(0)
    model = attnlab.TinyTransformer(**options, dim=16, heads=2, layers=1)
    objective = attnlab.build("specter", vocab=problem.vocab, pooling="mean")
    tokens, real = problem.documents()

    def rank() -> float:
        vectors = model.encode(tokens, padding=real).masked_fill(~real[..., None], 0).sum(1)
        return reciprocal_rank(vectors / real.sum(1, keepdim=True), "train")

    before = rank()
    fit(model, problem, 100, objective=objective, learning_rate=1e-2, batch_size=16, progress=False)
    assert rank() > 2 * before
    assert evaluate(model, problem, objective=objective, split="train").accuracy > 0.8
