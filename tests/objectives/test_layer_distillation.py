"""Layers of a student beside those of a teacher."""

import pytest
import torch
from torch import nn

import attnlab
from attnlab.objectives.layer_distillation import (
    LayerDistillation,
    LayerDistillationOptions,
    held,
    layer_map,
    map_loss,
)
from attnlab.tasks import Batch
from attnlab.train import fit

SIZES = {"kind": "token_classifier", "classes": 5, "max_len": 9}


def encoder(seed: int, dim: int, layers: int, **options: object):
    torch.manual_seed(seed)
    given = {**SIZES, "heads": 2, **options}
    return attnlab.TinyTransformer(11, dim=dim, layers=layers, **given).eval()


def texts() -> Batch:
    tokens = torch.randint(11, (3, 7), generator=torch.Generator().manual_seed(0))
    return Batch(tokens, tokens % 5, torch.arange(7) < torch.tensor([[7], [5], [3]]))


def objective(teacher: nn.Module, student: nn.Module, **options: object) -> LayerDistillation:
    made = LayerDistillation(LayerDistillationOptions(**options), teacher)
    torch.manual_seed(2)
    made.fitted(student)
    return made


def test_layers_learn_from_every_third() -> None:
    assert layer_map(12, 4) == [0, 3, 6, 9, 12]
    assert layer_map(4, 4) == [0, 1, 2, 3, 4]
    with pytest.raises(ValueError, match="5 layers do not divide 12"):
        layer_map(12, 5)


def test_what_layers_hold_is_the_stream_and_the_scores_of_their_heads() -> None:
    model, batch = encoder(0, 8, 2), texts()
    found = held(model, batch)
    assert [x.shape for x in found.vectors] == [(3, 7, 8)] * 3
    last = model.encoder.norm(found.vectors[-1])
    torch.testing.assert_close(last, model.encode(batch.inputs, padding=batch.padding))
    heads = model.encoder.blocks[1].attention.heads
    x = model.encoder.blocks[1].attention_residual.norm(found.vectors[1])
    q, k, _ = heads.project(x, padding=batch.padding)
    torch.testing.assert_close(found.scores[1], q @ k.mT / 2, rtol=1e-4, atol=1e-5)


def test_the_loss_is_the_formula() -> None:
    teacher, student, batch = encoder(0, 12, 4), encoder(1, 8, 2), texts()
    made = objective(teacher, student)
    loss, count = made(student, batch)
    mine, theirs = held(student, batch), held(teacher, batch)
    W, wanted = made.projections[0].weight.T, torch.zeros(())
    for row, length in enumerate((7, 5, 3)):
        for i, g in enumerate((0, 2, 4)):
            gap = mine.vectors[i][row, :length] @ W - theirs.vectors[g][row, :length]
            wanted = wanted + length * gap.square().mean()
            if i:
                gap = (mine.scores[i - 1] - theirs.scores[g - 1])[row, :, :length, :length]
                wanted = wanted + length * gap.square().mean()
    torch.testing.assert_close(loss, wanted)
    assert count == 15


def test_a_copy_of_the_teacher_loses_nothing_and_padding_is_left_out() -> None:
    teacher, student, batch = encoder(0, 8, 2), encoder(0, 8, 2), texts()
    for attention in ("scores", "weights"):
        made = objective(teacher, student, attention=attention)
        nn.init.eye_(made.projections[0].weight)
        assert made(student, batch)[0].item() == pytest.approx(0, abs=1e-8)
    made = objective(teacher, encoder(1, 8, 2))
    before = made(encoder(1, 8, 2), batch)[0]
    changed = batch.inputs.where(batch.padding, (batch.inputs + 3) % 11)
    after = made(encoder(1, 8, 2), Batch(changed, batch.targets, batch.padding))[0]
    torch.testing.assert_close(before, after)


def test_scores_are_free_up_to_a_constant_that_the_loss_punishes_and_weights_do_not() -> None:
    torch.manual_seed(0)
    S, real = torch.randn(2, 3, 5, 5), torch.ones(2, 5, dtype=torch.bool)
    moved = S + torch.randn(2, 3, 5, 1)
    assert map_loss(S, moved, real).item() > 1
    assert map_loss(S, moved, real, "weights").item() == pytest.approx(0, abs=1e-5)
    theirs = torch.randn(2, 3, 5, 5)
    wanted = torch.nn.functional.kl_div(
        S.log_softmax(-1), theirs.log_softmax(-1), log_target=True, reduction="sum"
    )
    torch.testing.assert_close(map_loss(S, theirs, real, "weights"), wanted / 3)


@pytest.mark.parametrize("attention", ["scores", "weights"])
def test_keys_at_padding_are_left_out_of_a_map(attention: str) -> None:
    torch.manual_seed(0)
    S, T = torch.randn(2, 3, 5, 5), torch.randn(2, 3, 5, 5)
    real = torch.arange(5) < torch.tensor([[5], [3]])
    parts = [
        map_loss(S[:1], T[:1], real[:1], attention),
        map_loss(S[1:, :, :3, :3], T[1:, :, :3, :3], real[1:, :3], attention),
    ]
    torch.testing.assert_close(map_loss(S, T, real, attention), sum(parts))


def test_layers_learn_one_after_the_other() -> None:
    teacher, student, batch = encoder(0, 8, 3), encoder(1, 8, 3), texts()
    made = objective(teacher, student, upto=1)
    made(student, batch)[0].backward()
    first, second = (student.encoder.blocks[at].parameters() for at in (0, 1))
    assert any(p.grad is not None for p in first)
    assert all(p.grad is None for p in second)


@pytest.mark.parametrize(("shared", "matrices"), [(True, 1), (False, 3)])
def test_fit_trains_the_matrices_too_and_not_the_teacher(shared: bool, matrices: int) -> None:
    task = attnlab.tasks.task("sorting", items=4)
    torch.manual_seed(0)
    options = {**task.model_options(), "kind": "token_classifier", "classes": 5}
    teacher = attnlab.TinyTransformer(**options, dim=12, heads=2, layers=4, dropout=0.3)
    student = attnlab.TinyTransformer(**options, dim=8, heads=2, layers=2)
    made = LayerDistillation(LayerDistillationOptions(shared=shared), teacher)
    before = {name: x.clone() for name, x in teacher.state_dict().items()}
    more = {"batch_size": 16, "learning_rate": 1e-2, "progress": False}
    losses = fit(student, task, 40, objective=made, **more).column("loss")
    assert losses[-1] < 0.7 * losses[0]
    assert len(made.projections) == matrices == len(made.state_dict())
    assert all(torch.equal(x, before[name]) for name, x in teacher.state_dict().items())
    assert teacher.training


def test_bad_calls_are_sentences() -> None:
    teacher, student, batch = encoder(0, 8, 2), encoder(1, 8, 2), texts()
    for wrong, words in (
        (lambda: LayerDistillation().prepare(batch), "has none"),
        (lambda: objective(teacher, teacher), "the model that is trained"),
        (lambda: objective(encoder(0, 8, 3), student), "2 layers do not divide 3"),
        (lambda: LayerDistillation(teacher=teacher)(student, batch), r"call fitted\(model\) first"),
        (lambda: LayerDistillationOptions(maps=-1.0), "at least 0"),
        (lambda: objective(teacher, attnlab.TinyTransformer(11, dim=8, layers=1)), "no encoder"),
    ):
        with pytest.raises((ValueError, TypeError), match=words):
            wrong()
    wide = encoder(0, 8, 2, heads=4)
    made = objective(wide, student)
    with pytest.raises(ValueError, match="the teacher has 4 in a layer, the student 2"):
        made(student, batch)
