"""A student that answers as its teacher, and what keeps both from saying always the same."""

import math

import pytest
import torch
from torch import nn

import attnlab
from attnlab.objectives.batches import UNSCORED
from attnlab.objectives.dino import Dino, DinoOptions, distilled, momentum
from attnlab.objectives.views import Head, drawn_pieces, pieces
from attnlab.tasks import Batch, task
from attnlab.train import fit, load_checkpoint, model_options

KINDS, EACH, LENGTH = 5, 6, 20


class Kinds:
    """Sequences of one of five alphabets of six tokens, which no target tells."""

    name, kind, vocab = "kinds", "token_classifier", KINDS * EACH

    def labelled(self, split: str, size: int, seed: int):
        generator = torch.Generator().manual_seed(2 * seed + (split != "train"))
        kind = torch.randint(KINDS, (size, 1), generator=generator)
        tokens = torch.randint(EACH, (size, LENGTH), generator=generator)
        return kind[:, 0], kind * EACH + tokens

    def batch(self, split: str, size: int, seed: int) -> Batch:
        tokens = self.labelled(split, size, seed)[1]
        return Batch(tokens, tokens)


def tiny(**options):
    torch.manual_seed(0)
    given = {"vocab": 30, "kind": "token_classifier", "classes": 30, "max_len": LENGTH} | options
    return attnlab.TinyTransformer(**given, dim=32, heads=2, layers=1)


def fitted(model=None, **options) -> Dino:
    objective = attnlab.build("dino", **options)
    torch.manual_seed(1)
    objective.fitted(model or tiny())
    return objective


def draws(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def test_the_worked_example() -> None:
    """Two large pieces and a small one, two outputs, temperatures of 1: four terms."""
    options = DinoOptions(local=1, outputs=2, student=1.0, teacher=1.0)
    teacher = torch.tensor([[[math.log(3), 0.0], [0.0, 0.0]]])  # 3/4, 1/4 and 1/2, 1/2
    student = torch.tensor([[[0.0, 0.0], [math.log(4), 0.0], [0.0, math.log(9)]]])
    # Of the first to the second piece: -3/4 log 4/5 - 1/4 log 1/5; to the third: 1/10, 9/10. Of the
    # second to the first: log 2; to the third: -1/2 log 9/100.
    terms = [
        -0.75 * math.log(0.8) - 0.25 * math.log(0.2),
        -0.75 * math.log(0.1) - 0.25 * math.log(0.9),
        math.log(2),
        -0.5 * math.log(0.09),
    ]
    found = distilled(student, teacher, torch.zeros(2), options)
    assert found.tolist() == pytest.approx([sum(terms)], rel=1e-6)


@pytest.mark.parametrize("local", [0, 1, 4])
def test_there_are_2v_minus_2_terms(local) -> None:
    objective = fitted(local=local, outputs=7)
    batch = Kinds().batch("train", 3, 0)
    asked = objective.prepare(batch, draws())
    assert asked.targets.shape == (3, 2 * (local + 2) - 2)
    outputs = objective.answers(tiny(), asked)
    flat = outputs._replace(student=torch.zeros_like(outputs.student))
    terms = objective.loss(flat, asked).item() / math.log(7)
    assert terms == pytest.approx(3 * (2 * (local + 2) - 2), rel=1e-5)


def test_a_constant_in_all_outputs_changes_nothing() -> None:
    options, student = DinoOptions(), torch.randn(3, 6, 5)
    teacher, centre = torch.randn(3, 2, 5), torch.randn(5)
    found = distilled(student, teacher, centre, options)
    for moved in (
        distilled(student + 3, teacher - 2, centre, options),
        distilled(student, teacher + torch.arange(5), centre + torch.arange(5), options),
    ):
        torch.testing.assert_close(moved, found, rtol=1e-4, atol=1e-4)


def test_a_constant_teacher_is_centred_to_the_uniform_distribution() -> None:
    same = torch.tensor([3.0, -1.0, 0.0])
    student = torch.tensor([0.5, 0.0, 0.2]).expand(2, 4, 3)
    options = DinoOptions(outputs=3, local=2)
    found = distilled(student, same.expand(2, 2, 3), same, options)
    expected = -6 * (student[0, 0] / options.student).log_softmax(-1).mean()
    assert found.tolist() == pytest.approx([expected.item()] * 2, rel=1e-5)


def test_the_centre_follows_after_the_loss() -> None:
    objective, model, batch = fitted(outputs=7), tiny(), Kinds().batch("train", 4, 0)
    objective.train()
    asked = objective.prepare(batch, draws())
    for part in (asked[:1], asked[1:]):
        outputs = objective.answers(model, part)
        objective.loss(outputs, part)
    assert (objective.centre == 0).all()
    raw = objective.answers(model, asked).teacher.mean((0, 1))
    with torch.no_grad():
        objective.after_step(model, 1, 10)
    torch.testing.assert_close(objective.centre, 0.1 * raw)
    before = objective.centre.clone()
    objective.eval()
    objective.loss(objective.answers(model, asked), asked)
    with torch.no_grad():
        objective.after_step(model, 2, 10)
    torch.testing.assert_close(objective.centre, before)


def test_the_teacher_follows_the_student_and_has_no_gradient() -> None:
    model = tiny()
    objective = fitted(model, momentum=0.5)
    trained = {name for name, p in objective.named_parameters() if p.requires_grad}
    assert {name.split(".")[1] for name in trained} == {"student"}
    objective(model, Kinds().batch("train", 3, 0), draws())[0].backward()
    assert all(p.grad is None for p in objective.part("encoder").parameters())
    assert all(p.grad is not None for p in objective.part("student").parameters())
    old = objective.part("encoder").embedding.weight.clone()
    with torch.no_grad():
        model.embedding.weight.add_(1.0)
        objective.after_step(model, 1, 3)
    m = momentum(0.5, 1, 3)
    torch.testing.assert_close(objective.part("encoder").embedding.weight, old + (1 - m))
    assert m == pytest.approx(1 - 0.5 * 0.75)
    assert (momentum(0.996, 0, 9), momentum(0.996, 9, 9)) == (0.996, 1.0)


def test_pieces_lie_in_the_text_and_have_their_sizes() -> None:
    n = torch.tensor([100] * 500 + [3, 1, 0])
    start, length = drawn_pieces(n, [(0.4, 1.0), (0.05, 0.4)], draws())
    assert ((start >= 0) & (start + length <= n[:, None])).all()
    large, small = length[:500].unbind(1)
    assert 40 <= large.min() < 45 < 95 < large.max() <= 100
    assert 5 <= small.min() < 8 < 37 < small.max() <= 40
    assert length[500:].tolist() == [[length[500, 0], 1], [1, 1], [0, 0]]
    assert start[:500, 1].max() > 70


def test_what_is_cut_is_the_text_of_tokens_or_vectors() -> None:
    tokens = torch.arange(20).reshape(2, 10)
    start, length = torch.tensor([[2, 0], [7, 9]]), torch.tensor([[3, 2], [3, 1]])
    cut, real = pieces(tokens, start, length, 4)
    assert [cut[0, 0][real[0, 0]].tolist(), cut[0, 1][real[0, 1]].tolist()] == [[2, 3, 4], [0, 1]]
    assert [cut[1, 0][real[1, 0]].tolist(), cut[1, 1][real[1, 1]].tolist()] == [[17, 18, 19], [19]]
    assert pieces(torch.randn(2, 10, 3), start, length, 4)[0].shape == (2, 2, 4, 3)


def test_sequences_of_vectors_can_be_learned_from() -> None:
    model = tiny(vocab=None, features=3, classes=2)
    objective = fitted(model)
    x = torch.randn(4, 10, 3)
    padding = torch.arange(10) < torch.tensor([[10], [7], [1], [0]])
    batch = Batch(x, torch.zeros(4, dtype=torch.int64), padding)
    loss, count = objective(model, batch, draws())
    assert (count, bool(loss.isfinite())) == (30, True)
    assert objective.prepare(batch, draws()).targets[3].tolist() == [UNSCORED] * 10


def test_the_head_compares_directions() -> None:
    head = Head(4, 8, 3)
    out = head(torch.randn(5, 4) * 100)
    assert (out.abs() <= 1 + 1e-6).all()
    with torch.no_grad():
        before = head(torch.ones(4))
        head.directions.mul_(7.0)
        torch.testing.assert_close(head(torch.ones(4)), before)


def told_apart(steps: int = 200, **options) -> tuple[float, int]:
    """How much the teacher's answer says about the input, in nats, and how many outputs it uses."""
    problem, model = Kinds(), tiny()
    objective = attnlab.build("dino", outputs=16, momentum=0.98, **options)
    fit(model, problem, steps, objective=objective, learning_rate=1e-3, progress=False)
    tokens = problem.labelled("validation", 200, 0)[1]
    with torch.no_grad():
        asked = objective.prepare(Batch(tokens, tokens), draws())
        raw = objective.answers(model, asked).teacher[:, 0]
    centre = objective.centre * objective.options.centring
    p = ((raw - centre) / objective.options.teacher).softmax(-1)

    def entropy(p):
        return -(p * p.clamp(min=1e-12).log()).sum(-1)

    return float(entropy(p.mean(0)) - entropy(p).mean()), len(p.argmax(-1).unique())


def test_without_centring_or_sharpening_it_collapses() -> None:
    """Five kinds are log 5 = 1.61 nats. Without a centre some outputs win everywhere; without a low
    temperature all answers become the same."""
    both, _ = told_apart()
    assert both == pytest.approx(math.log(KINDS), abs=0.1)
    assert told_apart(centring=False)[0] < both - 0.3
    assert told_apart(teacher=1.0, student=1.0)[0] < 0.05


def test_the_teacher_goes_on_from_a_checkpoint(tmp_path) -> None:
    def started(**options):
        objective = attnlab.build("dino", outputs=5)
        given = {"objective": objective, "progress": False, "batch_size": 4}
        fit(tiny(), Kinds(), 4, **given, **options)
        return objective.state_dict()

    whole = started()
    started(folder=tmp_path, callbacks=[lambda state: state.step < 2])
    resumed = started(folder=tmp_path)
    assert whole["centre"].abs().sum() > 0
    for name, tensor in whole.items():
        assert torch.equal(tensor, resumed[name]), name
    assert "centre" in load_checkpoint(tmp_path).objective


def test_what_does_not_fit_is_a_sentence() -> None:
    tokens = torch.zeros(2, 4, dtype=torch.int64)
    padding = torch.tensor([[False, True, True, True]] * 2)
    for call, words in (
        (lambda: DinoOptions(teacher=0.0), "teacher should be a temperature above 0, got 0.0"),
        (lambda: DinoOptions(momentum=1.5), "momentum"),
        (lambda: DinoOptions(local=-1), "local"),
        (lambda: fitted().prepare(Batch(tokens, tokens, padding)), "a real token after padding"),
        (lambda: fitted().fitted(nn.Linear(2, 2)), "this Linear has no encode"),
        (lambda: Dino()(tiny(), Batch(tokens, tokens)), "no teacher yet"),
    ):
        with pytest.raises(ValueError, match=words):
            call()
    assert model_options(task("documentation"), "dino")["kind"] == "token_classifier"
