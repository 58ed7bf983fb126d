"""Layers of a student beside those of a teacher."""

import pytest
import torch
from torch import nn

import attnlab
from attnlab.objectives.held_layers import held, layer_map, map_loss
from attnlab.objectives.layer_distillation import (
    LayerDistillation,
    LayerDistillationOptions,
    naive,
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


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"attention": "weights", "shared": False},
        {"vectors": 0.5, "maps": 3.0, "upto": 1},
        {"upto": 2, "alone": True},
        {"upto": 1, "alone": True, "projected": False},
    ],
)
def test_naive_computes_the_same_losses_and_gradients(options: dict[str, object]) -> None:
    wide = 12 if options.get("projected", True) else 8
    teacher, batch = encoder(0, wide, 4), texts()
    found = []
    for form in (naive, lambda model, batch, *, objective: objective(model, batch)):
        student = encoder(1, 8, 2)
        made = objective(teacher, student, **options)
        loss, count = form(student, batch, objective=made)
        loss.backward()
        every = [*student.named_parameters(), *made.named_parameters()]
        found.append((loss, count, {name: p.grad for name, p in every if p.grad is not None}))
    torch.testing.assert_close(*found, rtol=1e-4, atol=1e-6)


def test_a_layer_that_learns_alone_leaves_those_below_and_above_as_they_were() -> None:
    task = attnlab.tasks.task("sorting", items=4)
    torch.manual_seed(0)
    options = {**task.model_options(), "kind": "token_classifier", "classes": 5, "heads": 2}
    teacher, student = (attnlab.TinyTransformer(**options, dim=8, layers=3) for _ in range(2))
    more = {"batch_size": 4, "progress": False}
    for layer in (1, 2):
        made = attnlab.build(
            "layer_distillation", teacher=teacher, projected=False, upto=layer, alone=True,
            attention="weights",
        )  # fmt: skip
        before = {name: x.clone() for name, x in student.state_dict().items()}
        fit(student, task, 3, objective=made, **more)
        moved = {name for name, x in student.state_dict().items() if not x.equal(before[name])}
        inside = f"encoder.blocks.{layer - 1}."
        assert any(name.startswith(inside) for name in moved)
        others = {name for name in moved if not name.startswith(inside)}
        assert all("blocks" not in name and layer == 1 for name in others)
        assert not any(name.startswith("output") for name in moved)


def test_mobilebert_learns_from_ib_bert_without_a_matrix() -> None:
    torch.manual_seed(0)
    own = {"kind": "token_classifier", "classes": 5, "max_len": 9, "heads": 4, "layers": 2}
    teacher, student = (
        attnlab.TinyTransformer(11, dim=32, block=block, **own)
        for block in ("ib_bert", "mobilebert")
    )
    made = objective(teacher, student, attention="weights", projected=False)
    assert not list(made.parameters())
    loss, count = made(student, texts())
    assert count == 15
    loss.backward()
    assert loss.isfinite()
    for block in student.encoder.blocks:
        assert any(p.grad is not None and p.grad.any() for p in block.parameters())


def test_tinybert_learns_in_two_stages() -> None:
    """Layers without the output first; the answers of the teacher afterwards."""
    task = attnlab.tasks.task("sorting", items=4)
    torch.manual_seed(0)
    options = {
        **task.model_options(),
        "kind": "token_classifier",
        "classes": task.vocab,
        "heads": 2,
    }
    teacher = attnlab.TinyTransformer(**options, dim=12, layers=2)
    student = attnlab.TinyTransformer(**options, dim=8, layers=1)
    more = {"batch_size": 8, "progress": False, "learning_rate": 1e-2}
    before = student.output.weight.clone()
    fit(student, task, 10, objective=attnlab.build("layer_distillation", teacher=teacher), **more)
    assert torch.equal(student.output.weight, before)
    answers = attnlab.build("distillation", teacher=teacher, soft=1.0, hard=0.0, temperature=1.0)
    losses = fit(student, task, 30, objective=answers, **more).column("loss")
    assert losses[-1] < losses[0]
    assert not torch.equal(student.output.weight, before)


def test_sizes_that_cannot_be_compared_are_refused() -> None:
    teacher, student, batch = encoder(0, 12, 4), encoder(1, 8, 2), texts()
    for wrong, words in (
        (lambda: LayerDistillationOptions(alone=True), "give upto"),
        (lambda: objective(teacher, student, upto=3)(student, batch), "the student has 2 layers"),
        (lambda: objective(teacher, student, projected=False), "are 12 wide, of the student 8"),
    ):
        with pytest.raises(ValueError, match=words):
            wrong()
