"""Do two texts belong together? The wrong ones are chosen to be alike."""

import math

import pytest
import torch
from torch import nn

import attnlab
from attnlab.objectives.batches import UNSCORED
from attnlab.objectives.matching import Matching, MatchingOptions, hard_negatives
from attnlab.tasks import Batch, task
from attnlab.train import fit, model_options

HALF = torch.full((4,), 0.5, dtype=torch.float64)


class Reader(nn.Module):
    """Encodes a token by its vector; answers by the sum of (token + 1) · (place + 1)."""

    def __init__(self, rows: torch.Tensor) -> None:
        super().__init__()
        self.rows = nn.Parameter(rows)
        self.read: list[list[int]] = []

    def encode(self, tokens, padding=None):
        return self.rows[tokens]

    def forward(self, tokens, padding=None):
        self.read += tokens.tolist()
        score = (tokens + 1) @ torch.arange(1, tokens.shape[1] + 1)
        return torch.stack([torch.zeros(len(score)), score / 100], -1)


def built(vocab: int = 4, **options) -> Matching:
    return attnlab.build("matching", vocab=vocab, **options)


def asked_of(rows, seed: int = 0, padding=None, vocab: int = 4, **options):
    objective = built(vocab, **options)
    given = Batch(rows, rows, padding)
    return objective, objective.prepare(given, torch.Generator().manual_seed(seed))


def test_the_worked_example() -> None:
    """Two pairs, so each partner of the other is the wrong one."""
    model = Reader(torch.eye(4))
    rows = torch.tensor([[0, 1], [2, 3]])
    objective, asked = asked_of(rows)
    logits = objective.answers(model, asked)
    assert model.read == [[0, 4, 1], [0, 4, 3], [2, 4, 1], [2, 4, 3], [2, 4, 1], [0, 4, 3]]
    assert asked.targets.tolist() == [[1, 0, 0]] * 2
    scores = [0.17, 0.23, 0.19, 0.25, 0.19, 0.23]  # (0+1)·1 + (4+1)·2 + (1+1)·3 = 17 …
    assert logits[..., 1].flatten().tolist() == pytest.approx(scores)
    yes, no = (lambda z: math.log1p(math.exp(-z))), (lambda z: math.log1p(math.exp(z)))
    expected = yes(0.17) + no(0.23) + no(0.19) + yes(0.25) + no(0.19) + no(0.23)
    loss, count = objective(model, Batch(rows, rows))
    assert count == 6
    assert loss.item() == pytest.approx(expected, rel=1e-5)


def test_a_wrong_partner_is_drawn_by_its_likeness() -> None:
    """Logarithms of 1, 2, 4 as cosines, at temperature 1; the own one is likest and never drawn."""
    cosines = torch.tensor([[9.0, 0.0, math.log(2), math.log(4)]]).expand(4, 4)
    noise = torch.rand(4, 7000, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    drawn = [hard_negatives(cosines, HALF > 0, u, temperature=1.0)[0] for u in noise.T]
    shares = torch.stack(drawn).bincount(minlength=4) / 7000
    torch.testing.assert_close(shares, torch.tensor([0, 1, 2, 4]) / 7, atol=0.02, rtol=0)


def test_at_a_low_temperature_the_likest_is_drawn() -> None:
    torch.manual_seed(0)
    cosines = torch.rand(4, 4) * 0.9
    drawn = hard_negatives(cosines, HALF > 0, HALF, temperature=1e-4)
    assert drawn.tolist() == cosines.clone().fill_diagonal_(-1).argmax(-1).tolist()


def test_texts_that_are_not_scored_are_nobodys_partner() -> None:
    scored = torch.tensor([True, False, True, False])
    drawn = hard_negatives(torch.zeros(4, 4), scored, HALF, temperature=1.0)
    assert drawn[[0, 2]].tolist() == [2, 0]
    alone = hard_negatives(torch.zeros(4, 4), HALF < 0, HALF, temperature=1.0)
    assert alone.tolist() == [0, 1, 2, 3]


def test_hard_negatives_are_alike_and_random_ones_are_not() -> None:
    """Tokens 0 and 1 have nearly the same vector, as have 2 and 3."""
    rows = torch.arange(4)[:, None].expand(4, 2)
    model = Reader(torch.tensor([[1.0, 0.0], [0.99, 0.1], [0.0, 1.0], [0.1, 0.99]]))
    shares = {}
    for kind in ("hard", "random"):
        found = []
        for seed in range(100):
            objective, asked = asked_of(rows, seed, negatives=kind)
            wrong = objective.wrong_partners(model, asked)
            assert (wrong != torch.arange(4)[:, None]).all()
            found.append((wrong // 2 == torch.arange(4)[:, None] // 2).double().mean().item())
        shares[kind] = sum(found) / 100
    assert shares["hard"] > 0.99
    assert shares["random"] == pytest.approx(1 / 3, abs=0.1)


def test_the_draw_passes_no_gradient() -> None:
    model = Reader(torch.randn(4, 2))
    rows = torch.tensor([[0, 1], [2, 3], [1, 1]])
    objective, asked = asked_of(rows)
    assert not objective.answers(model, asked).requires_grad
    assert not objective.wrong_partners(model, asked).requires_grad
    assert all(p.grad is None for p in model.parameters())


def test_the_only_pair_has_no_wrong_partner() -> None:
    rows = torch.tensor([[0, 1], [2, 3]])
    padding = torch.tensor([[True, True], [True, False]])
    for given in (Batch(rows[:1], rows), Batch(rows, rows, padding)):
        asked = built().prepare(given)
        assert asked.targets[0].tolist() == [1, UNSCORED, UNSCORED]
    assert asked.targets[1].tolist() == [UNSCORED] * 3
    loss, count = built()(Reader(torch.eye(4)), Batch(rows, rows, padding))
    assert (count, bool(loss.isfinite())) == (1, True)


def test_padding_of_both_texts_goes_with_them() -> None:
    seen = []

    class Seeing(Reader):
        def forward(self, tokens, padding=None):
            seen.append(padding)
            return super().forward(tokens, padding)

    rows = torch.arange(8).remainder(4).reshape(2, 4)
    padding = torch.tensor([[True, False, True, True], [True, True, True, False]])
    objective, asked = asked_of(rows, padding=padding)
    objective.answers(Seeing(torch.eye(4)), asked)
    t, f = True, False
    own, mixed = [[t, f, t, t, t], [t, t, t, t, f]], [[t, f, t, t, f], [t, t, t, t, t]]
    expected = [own[0], mixed[0], mixed[1], own[1], mixed[1], mixed[0]]
    assert seen[0].tolist() == expected


def test_what_does_not_fit_is_a_sentence() -> None:
    rows = torch.tensor([[0, 1], [2, 3]])
    objective, asked = asked_of(rows)
    for call, words in (
        (lambda: MatchingOptions(temperature=0.0), "temperature should be more than 0"),
        (lambda: MatchingOptions(negatives="easy"), "negatives"),
        (lambda: objective.answers(Reader(torch.eye(4)), asked[:1]), "here is one pair alone"),
        (lambda: objective.fitted(nn.Linear(2, 2)), "this Linear has no encode"),
        (lambda: built(2).prepare(Batch(rows, rows)), "built for vocab=2"),
    ):
        with pytest.raises(ValueError, match=words):
            call()
    with pytest.raises(ValueError, match=r"classes=2; it returned \(6, 3\)"):
        built(negatives="random").answers(lambda read, padding: torch.zeros(6, 3), asked)


def test_fit_trains_a_classifier_by_it() -> None:
    problem = task("documentation", length=32)
    options = model_options(problem, "matching")
    assert (options["kind"], options["classes"], options["max_len"]) == ("classifier", 2, 33)
    torch.manual_seed(0)
    model = attnlab.TinyTransformer(**options, dim=16, heads=2, layers=1)
    rows = fit(model, problem, 5, batch_size=8, objective="matching", progress=False).rows
    assert all(math.isfinite(row["loss"]) for row in rows)
    assert rows[0]["loss"] == pytest.approx(math.log(2), abs=0.2)
