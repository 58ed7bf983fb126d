"""What a student learns from the probabilities of a teacher."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import attnlab
from attnlab.objectives.distillation import Distillation, DistillationOptions, divergence
from attnlab.tasks import Batch
from attnlab.train import fit, model_options

TASK = attnlab.tasks.task("copying", items=4)


def model(seed: int = 0, dim: int = 12, **options: object):
    torch.manual_seed(seed)
    sizes = {"dim": dim, "heads": 2, "layers": 1}
    return attnlab.TinyTransformer(**TASK.model_options(), **sizes, **options)


def soft(teacher: nn.Module, **options: object) -> Distillation:
    return attnlab.build("distillation", **{"soft": 1.0, "hard": 0.0, **options}, teacher=teacher)


def logits(seed: int) -> torch.Tensor:
    return torch.randn(5, 7, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("T", [0.5, 1.0, 2.0, 8.0])
def test_the_divergence_and_its_gradient(T: float) -> None:
    z_s, z_t = logits(0).requires_grad_(), logits(1)
    loss = divergence(z_s, z_t, T)
    theirs = F.kl_div((z_s / T).log_softmax(-1), (z_t / T).softmax(-1), reduction="none").sum(-1)
    torch.testing.assert_close(loss, T**2 * theirs)
    (found,) = torch.autograd.grad(loss.sum(), z_s)
    torch.testing.assert_close(found, T * ((z_s / T).softmax(-1) - (z_t / T).softmax(-1)))


def test_it_is_zero_where_logits_agree_up_to_a_constant() -> None:
    z = logits(0)
    assert divergence(z + torch.arange(5)[:, None], z, 3.0).abs().max() < 1e-12
    assert (divergence(logits(1), z, 3.0) > 1e-3).all()


def test_a_high_temperature_matches_logits() -> None:
    z_s, z_t = (logits(seed) - logits(seed).mean(-1, keepdim=True) for seed in (0, 1))
    z_s.requires_grad_()
    (found,) = torch.autograd.grad(divergence(z_s, z_t, 1e4).sum(), z_s)
    torch.testing.assert_close(found, (z_s - z_t) / 7, rtol=1e-3, atol=1e-4)
    small = [
        torch.autograd.grad(divergence(z_s, z_t, T).sum() / T**2, z_s)[0].norm() for T in (4, 40)
    ]
    assert small[0] / small[1] == pytest.approx(100, rel=0.3), "without T² it falls as 1 / T²"


def test_a_teacher_that_is_sure_is_a_label() -> None:
    z, y = logits(0), torch.tensor([1, 2, 3, 4, 0])
    sure = torch.full((5, 7), -torch.inf, dtype=torch.float64)
    sure[range(5), y] = 0
    torch.testing.assert_close(divergence(z, sure, 1.0), F.cross_entropy(z, y, reduction="none"))


def test_the_three_terms_of_distilbert() -> None:
    torch.manual_seed(0)
    masked = attnlab.build("masked_lm", vocab=11)
    options = {"kind": "token_classifier", "classes": 12, "max_len": 9, "heads": 2, "layers": 1}
    teacher, student = (attnlab.TinyTransformer(12, dim=8, **options).eval() for _ in range(2))
    tokens = torch.randint(11, (3, 9))
    objective = attnlab.build(
        "distillation",
        teacher=teacher,
        then=masked,
        soft=5.0,
        hard=2.0,
        cosine=1.0,
    )
    assert (objective.models, objective.specials) == (("token_classifier",), 1)
    draws = torch.Generator().manual_seed(0)
    loss, count = objective(student, Batch(tokens, tokens), draws)
    asked = masked.prepare(Batch(tokens, tokens), draws.manual_seed(0))
    scored = asked.targets >= 0
    with torch.no_grad():
        z_s, z_t = student(asked.inputs)[scored], teacher(asked.inputs)[scored]
        h_s, h_t = student.encode(asked.inputs)[scored], teacher.encode(asked.inputs)[scored]
    wanted = (
        5 * 4 * F.kl_div((z_s / 2).log_softmax(-1), (z_t / 2).softmax(-1), reduction="sum")
        + 2 * F.cross_entropy(z_s, asked.targets[scored], reduction="sum")
        + F.cosine_embedding_loss(h_s, h_t, torch.ones(len(h_s)), reduction="sum")
    )
    torch.testing.assert_close(loss, wanted)
    assert count == int(scored.sum())


def test_the_teacher_is_in_evaluation_mode_without_gradient_and_no_part_of_the_objective() -> None:
    teacher = model(dropout=0.5).train()
    objective, batch = soft(teacher), TASK.batch("train", 5, seed=0)
    one, other = (objective.prepare(batch).kept["teacher"] for _ in range(2))
    assert torch.equal(one, other)
    assert teacher.training
    assert not one.requires_grad
    assert not list(objective.parameters())
    assert not objective.state_dict()
    objective(model(1), batch)[0].backward()
    assert all(p.grad is None for p in teacher.parameters())


def test_fit_learns_what_the_teacher_answers_without_a_label() -> None:
    teacher = model(3)
    student = model(1)
    objective = soft(teacher)
    more = {"batch_size": 16, "learning_rate": 1e-2, "progress": False}
    losses = fit(student, TASK, 40, objective=objective, **more).column("loss")
    assert losses[-1] < 0.5 * losses[0]


def test_classifiers_are_distilled_too() -> None:
    teacher, digits = attnlab.pretrained.load("digits")
    objective = attnlab.build("distillation", teacher=teacher, temperature=4.0)
    torch.manual_seed(0)
    student = attnlab.TinyTransformer(**model_options(digits, objective), dim=8, heads=2, layers=1)
    loss, count = objective(student, digits.batch("train", 7, seed=0))
    assert count == 7
    assert loss.isfinite()


def test_bad_calls_are_sentences() -> None:
    batch, made = TASK.batch("train", 3, seed=0), model()
    larger = {**TASK.model_options(), "vocab": 40}
    other = attnlab.TinyTransformer(**larger, dim=8, heads=2, layers=1)
    for wrong, words in (
        (lambda: attnlab.build("distillation").prepare(batch), "has none"),
        (lambda: soft(made).fitted(made), "the model that is trained"),
        (lambda: soft(other)(made, batch), "both need the same vocabulary"),
        (lambda: soft(made, cosine=1.0)(made, batch), "or cosine=0"),
        (lambda: DistillationOptions(temperature=0.0), "temperature should be above 0"),
        (lambda: DistillationOptions(soft=-1.0), "a weight of a loss, at least 0"),
    ):
        with pytest.raises(ValueError, match=words):
            wrong()
    kind = {"kind": "token_classifier", "classes": 11, "max_len": 99}
    wide = attnlab.TinyTransformer(11, dim=8, heads=2, layers=1, **kind)
    narrow = attnlab.TinyTransformer(11, dim=4, heads=2, layers=1, **kind)
    tokens = torch.zeros(1, 5, dtype=torch.long)
    with pytest.raises(ValueError, match="of the teacher are 8 wide, of the student 4"):
        soft(wide, cosine=1.0)(narrow, Batch(tokens, tokens))


def test_the_objective_that_asks_hears_of_every_step() -> None:
    """Such as one that moves a copy of the model after each."""
    steps = []

    class Counts(torch.nn.Module):
        models, specials = ("classifier",), 0

        def after_step(self, model, step, of):
            steps.append((step, of))

    objective = attnlab.build("distillation", teacher=torch.nn.Linear(1, 1), then=Counts())
    objective.after_step(torch.nn.Linear(1, 1), 3, 9)
    assert steps == [(3, 9)]
