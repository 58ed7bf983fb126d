"""What a student learns from the probabilities of a teacher."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import attnlab
from attnlab.models.pruned import pruned
from attnlab.objectives.batches import UNLABELLED, UNSCORED
from attnlab.objectives.distillation import (
    Distillation,
    DistillationOptions,
    divergence,
    naive,
)
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


def half_labelled() -> Batch:
    """The second row has no label."""
    batch = TASK.batch("train", 4, seed=0)
    targets = batch.targets.clone()
    targets[1] = targets[1].where(targets[1] == UNSCORED, UNLABELLED)
    return Batch(batch.inputs, targets, batch.padding)


@pytest.mark.parametrize("weights", [(0.5, 0.5), (0.0, 1.0), (2.0, 0.25)])
def test_a_row_without_a_label_counts_for_the_teacher_alone(weights: tuple[float, float]) -> None:
    student, batch = model(1), half_labelled()
    a, b = weights
    made = soft(model(3), soft=a, hard=b, temperature=3.0)
    with torch.no_grad():
        z_s, z_t = student(batch.inputs), model(3)(batch.inputs)
    scored, labelled = batch.targets != UNSCORED, batch.targets >= 0
    wanted = a * divergence(z_s[scored], z_t[scored], 3.0).sum()
    wanted = wanted + b * F.cross_entropy(z_s[labelled], batch.targets[labelled], reduction="sum")
    for loss, count in (made(student, batch), naive(student, batch, objective=made)):
        torch.testing.assert_close(loss, wanted)
        assert count == int(scored.sum()) > int(labelled.sum())


def test_without_a_label_the_answer_of_the_teacher_is_right() -> None:
    teacher, batch = model(3), half_labelled()
    made = soft(teacher)
    asked = made.prepare(batch)
    alone = asked[1:2]
    assert int(made.right(made.answers(teacher, alone), alone)) == int(
        (batch.targets[1] == -1).sum()
    )
    with torch.no_grad():
        said = teacher(batch.inputs[1:2]).argmax(-1)[0]
    place = batch.targets[1] == UNLABELLED
    assert torch.equal(asked.targets[1][place], said[place])
    assert torch.equal(asked.targets[[0, 2, 3]], batch.targets[[0, 2, 3]])


class Unlabelled(type(TASK)):
    """No row has a label."""

    def batch(self, split, size, seed):
        found = super().batch(split, size, seed)
        targets = found.targets.where(found.targets == UNSCORED, UNLABELLED)
        return Batch(found.inputs, targets, found.padding)


def test_fit_takes_rows_without_labels_with_a_teacher_and_refuses_them_without() -> None:
    task = Unlabelled(items=4)
    more = {"batch_size": 16, "learning_rate": 1e-2, "progress": False, "evaluate_every": 40}
    found = fit(model(1), task, 40, objective=soft(model(3), hard=0.5), **more)
    assert found.column("loss")[-1] < 0.5 * found.column("loss")[0]
    with pytest.raises(ValueError, match="gave the target -1"):
        fit(model(1), task, 1, **more)


def test_distilbert_begins_with_six_layers_of_its_teacher() -> None:
    torch.manual_seed(0)
    options = {"kind": "token_classifier", "classes": 12, "max_len": 9, "heads": 2, "layers": 12}
    teacher = attnlab.TinyTransformer(12, dim=8, **options).eval()
    student = pruned(teacher, kept=(1, 3, 5, 8, 10, 12))
    for own, theirs in enumerate((0, 2, 4, 7, 9, 11)):
        mine = student.encoder.blocks[own].state_dict()
        for name, weight in teacher.encoder.blocks[theirs].state_dict().items():
            assert torch.equal(mine[name], weight)
            assert mine[name].data_ptr() != weight.data_ptr()
    assert torch.equal(student.output.weight, teacher.output.weight)
    made = attnlab.build(
        "distillation", teacher=teacher, then=attnlab.build("masked_lm", vocab=11),
        soft=5.0, hard=2.0, cosine=1.0,
    )  # fmt: skip
    made.fitted(student)
    tokens = torch.randint(11, (3, 9))
    assert made(student, Batch(tokens, tokens), torch.Generator().manual_seed(0))[0].isfinite()


def test_answers_that_are_no_numbers_and_another_vocabulary_are_refused() -> None:
    spoilt = model(3)
    spoilt.embedding.weight.data.fill_(torch.nan)
    with pytest.raises(ValueError, match="the teacher answers NaN"):
        soft(spoilt)(model(1), TASK.batch("train", 3, seed=0))
    more = {"kind": "token_classifier", "classes": 5, "dim": 8, "heads": 2, "layers": 1}
    student, teacher = (attnlab.TinyTransformer(vocab, **more) for vocab in (11, 40))
    for name in ("distillation", "layer_distillation"):
        with pytest.raises(ValueError, match="reads 40 different tokens, and the student 11"):
            attnlab.build(name, teacher=teacher).fitted(student)
