"""Objectives that learn something themselves: a head, and a teacher that follows the model."""

from pathlib import Path

import pytest
import torch
from torch import nn

import attnlab
from attnlab.objectives.batches import UNSCORED, CrossEntropy, summed_loss
from attnlab.tasks import task
from attnlab.train import CheckpointError, TrainingError, evaluate, fit, load_checkpoint
from tests.train.test_processes import launched

COPYING = {"symbols": 5, "items": 5}
QUIET = {"progress": False, "batch_size": 6}


class Headed(CrossEntropy):
    """The next token, answered by a head of its own on the decoder's vectors; ``mean`` follows a
    weight of the model."""

    models = ("language_model",)

    def __init__(self, vocab: int, keep: bool = False) -> None:
        super().__init__()
        self.vocab, self.keep, self.head, self.steps = vocab, keep, None, []

    def fitted(self, model: nn.Module) -> None:
        if self.head is None:
            if model.dim % 4:
                raise ValueError(f"the head needs a width that 4 divides, got {model.dim}")
            self.head = nn.Linear(model.dim, self.vocab)
            self.register_buffer("mean", torch.zeros(model.dim))
        if self.keep:
            self.decoder = model.decoder

    def after_step(self, model: nn.Module, step: int, steps: int) -> None:
        self.steps.append((step, steps))
        self.mean.lerp_(model.embedding.weight.mean(0), 0.5)

    def answers(self, model, batch):
        return self.head(model.decode(batch.inputs, batch.padding))


def tiny(problem, dim=8, tie=True):
    torch.manual_seed(0)
    return attnlab.TinyTransformer(**problem.model_options(), dim=dim, heads=2, layers=1, tie=tie)


def started(steps, objective=None, problem=None, tie=True, **options):
    problem = problem or task("copying", **COPYING)
    objective = objective or Headed(problem.vocab)
    model = tiny(problem, tie=tie)
    history = fit(model, problem, steps, objective=objective, **{**QUIET, **options})
    return model, objective, history.rows


def test_a_head_is_trained_with_the_model() -> None:
    first = started(1, learning_rate=1e-9)[1].head.weight
    _, trained, rows = started(60, learning_rate=1e-2)
    assert not torch.equal(first, trained.head.weight)
    assert rows[-1]["loss"] < 0.8 * rows[0]["loss"]
    assert trained.steps == [(step, 60) for step in range(1, 61)]
    assert trained.head.weight.grad is None


def test_the_first_values_of_a_head_follow_from_the_seed() -> None:
    heads = [started(1, seed=seed, learning_rate=1e-9)[1].head.weight for seed in (0, 0, 1)]
    assert torch.equal(heads[0], heads[1])
    assert not torch.equal(heads[0], heads[2])


def test_head_and_teacher_go_on_from_a_checkpoint(tmp_path) -> None:
    whole, objective, rows = started(6)
    started(6, folder=tmp_path, callbacks=[lambda state: state.step < 3])
    model, resumed, again = started(6, folder=tmp_path)
    assert [row["loss"] for row in again] == [row["loss"] for row in rows]
    for name, tensor in objective.state_dict().items():
        assert torch.equal(tensor, resumed.state_dict()[name]), name
    for one, other in zip(whole.parameters(), model.parameters(), strict=True):
        assert torch.equal(one, other)
    stored = load_checkpoint(tmp_path)
    assert set(stored.objective) == {"head.weight", "head.bias", "mean"}
    assert "objective.head.weight/exp_avg" in stored.optimizer
    stored.restore(fresh := tiny(task("copying", **COPYING)))  # without the head
    assert torch.equal(fresh.embedding.weight, model.embedding.weight)


def test_a_checkpoint_without_the_head_is_refused(tmp_path) -> None:
    problem = task("copying", **COPYING)
    fit(tiny(problem), problem, 1, folder=tmp_path, **QUIET)
    headed = Headed(problem.vocab)
    headed.fitted(model := tiny(problem))
    with pytest.raises(CheckpointError, match=r"fit this objective: it lacks 'mean'"):
        load_checkpoint(tmp_path).restore(model, objective=headed)


def test_evaluation_takes_the_head_that_was_trained() -> None:
    problem = task("copying", **COPYING)
    model, objective, _ = started(80, problem=problem, learning_rate=1e-2)
    trained = evaluate(model, problem, objective=objective)
    fresh = [evaluate(model, problem, objective=Headed(problem.vocab)) for _ in range(2)]
    assert trained.loss < 0.8 * fresh[0].loss
    assert fresh[0] == fresh[1]


def test_what_the_objective_cannot_train_is_its_own_sentence() -> None:
    problem = task("copying", **COPYING)
    objective = Headed(problem.vocab)
    with pytest.raises(ValueError, match="a width that 4 divides, got 6"):
        fit(tiny(problem, dim=6), problem, 1, objective=objective, **QUIET)
    with pytest.raises(
        ValueError, match="Headed keeps a part of the model it trains, as 'decoder'"
    ):
        started(1, objective=Headed(problem.vocab, keep=True))


def test_a_head_that_is_no_longer_finite_is_named() -> None:
    problem = task("copying", **COPYING)

    class Breaking(Headed):
        def after_step(self, model, step, steps):
            self.head.bias[0] = torch.nan

    with pytest.raises(TrainingError, match=r"'objective.head.bias' itself, after the update"):
        started(1, objective=Breaking(problem.vocab))


def test_answers_may_be_several_tensors() -> None:
    class Twice(Headed):
        def answers(self, model, batch):
            found = super().answers(model, batch)
            return found, found.detach()

        def loss(self, answers, batch):
            return summed_loss(answers[0], batch.targets)

        def right(self, answers, batch):
            return (answers[1].argmax(-1) == batch.targets).sum()

    problem = task("copying", **COPYING)
    _, _, rows = started(3, evaluate_every=3, objective=Twice(problem.vocab), problem=problem)
    _, _, usual = started(3, evaluate_every=3, problem=problem)
    assert [row["loss"] for row in rows] == [row["loss"] for row in usual]
    assert UNSCORED < 0 <= rows[-1]["validation_accuracy"] <= 1


@pytest.mark.slow
def test_two_processes_average_the_gradients_of_the_head(script, run, tmp_path) -> None:
    """The output matrix of the model is not asked, so it has no gradient in any process."""
    source = Path(__file__).read_text().split("@pytest.mark.slow")[0]
    (tmp_path / "headed.py").write_text(source)
    program = script(
        """
        import os
        import torch
        from accelerate import PartialState
        sys.path.insert(0, sys.argv[1])
        import headed
        _, objective, rows = headed.started(4, batch_size=6, accumulate=2, device="cpu", tie=False)
        state = PartialState()
        assert state.num_processes == 2
        torch.save([rows, objective.state_dict()], f"{sys.argv[1]}/{state.process_index}.pt")
        state.destroy_process_group()
        os._exit(0)  # PyTorch's threads may still run when the interpreter tears down
        """
    )
    run([*launched("accelerate", program), str(tmp_path)])
    (rows, heads), (_, others) = (torch.load(tmp_path / f"{rank}.pt") for rank in (0, 1))
    _, objective, alone = started(4, batch_size=12, device="cpu", tie=False)
    for column in ("loss", "gradient_norm"):
        found = [row[column] for row in rows]
        assert found == pytest.approx([row[column] for row in alone], rel=1e-5)
    for name, tensor in objective.state_dict().items():
        assert torch.equal(heads[name], others[name]), name
        torch.testing.assert_close(heads[name], tensor, rtol=1e-4, atol=1e-6)
