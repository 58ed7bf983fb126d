"""Targets that a teacher writes."""

import pytest
import torch
from torch import nn

import attnlab
from attnlab.core.probe import record
from attnlab.objectives.batches import UNSCORED
from attnlab.objectives.distilled import written, written_again
from attnlab.tasks import Batch, task
from attnlab.train import fit, model_options

TASK = task("two_dialects", words=4, shortest=2)


def teacher(seed: int = 0, **options: object):
    torch.manual_seed(seed)
    given = {"dim": 12, "heads": 2, "layers": 1, **options}
    made = attnlab.TinyTransformer(**TASK.model_options(), tie=False, **given).double()
    with torch.no_grad():
        for weight in (made.embedding.weight, made.positions.weight):
            weight.mul_(50)  # so that what it writes depends on what it reads
    return made


class Successor(nn.Module):
    """Writes the token after the last one."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.eye(9).roll(1, 1))

    def forward(self, tokens, source=None, source_padding=None):
        return self.weight[tokens]


def test_both_ways_of_writing_and_generate_agree() -> None:
    made, batch = teacher(), TASK.batch("train", 7, seed=0)
    found = written(made, batch)
    assert torch.equal(found, written_again(made, batch))
    said = attnlab.generate(
        made, batch.inputs[:, :1], 4, temperature=0, source=batch.source,
        source_padding=batch.source_padding,
    )  # fmt: skip
    assert torch.equal(found, said[:, 1:])
    assert len(found.unique()) > 2


def test_a_teacher_without_steps_is_read_again() -> None:
    start = torch.tensor([[2, 0, 0], [5, 0, 0]])
    batch = Batch(start, start, source=start)
    assert written(Successor(), batch).tolist() == [[3, 4, 5], [6, 7, 8]]


def test_targets_are_the_teachers_and_end_where_it_ends() -> None:
    start = torch.tensor([[2, 1, 1, 1], [5, 1, 1, 1], [4, 1, 1, 1]])
    targets = torch.tensor([[1, 1, 1, 1], [1, 1, -100, -100], [-100] * 4])
    batch = Batch(start, targets, targets >= 0, source=start)
    objective = attnlab.build("distilled", teacher=Successor())
    with record() as notes:
        found = objective.prepare(batch)
    assert found.targets.tolist() == [[3, 4, 5, 6], [6, 7, -100, -100], [-100] * 4]
    assert found.inputs.tolist() == [[2, 3, 4, 5], [5, 6, 0, 0], [0] * 4]
    assert torch.equal(notes.last("written"), found.targets)
    ended = attnlab.build("distilled", teacher=Successor(), end=7).prepare(batch)
    assert ended.targets.tolist() == [[3, 4, 5, 6], [6, 7, -100, -100], [-100] * 4]
    ended = attnlab.build("distilled", teacher=Successor(), end=5).prepare(batch)
    assert ended.targets.tolist() == [[3, 4, 5, -100], [6, 7, 8, 0], [-100] * 4]


def test_what_the_data_say_does_not_matter() -> None:
    made, batch = teacher(), TASK.batch("train", 5, seed=0)
    other = Batch(
        batch.inputs[:, :1].expand(-1, 4),
        batch.targets.where(batch.targets < 0, batch.targets - 1),
        batch.padding, batch.source, batch.source_padding,
    )  # fmt: skip
    objective = attnlab.build("distilled", teacher=made)
    assert torch.equal(objective.prepare(batch).targets, objective.prepare(other).targets)


def test_another_objective_asks_for_the_teachers_targets() -> None:
    made, batch = teacher(), TASK.batch("train", 5, seed=0)
    alone = attnlab.build("distilled", teacher=made).prepare(batch)
    nat = attnlab.build("nat", vocab=TASK.vocab, length=0.1)
    both = attnlab.build("distilled", teacher=made, then=nat)
    asked = both.prepare(batch)
    assert torch.equal(asked.targets, alone.targets)
    assert (asked.inputs == TASK.vocab).all()
    assert (both.specials, both.orders, both.longest(9)) == (1, "given", 9)
    ctc = attnlab.build("ctc", vocab=TASK.vocab)
    assert attnlab.build("distilled", teacher=made, then=ctc).longest(9) == 18
    student = attnlab.TinyTransformer(**model_options(TASK, both), dim=12, heads=2, layers=1)
    both.fitted(student)
    answers = both.answers(student, asked)
    assert torch.equal(both.loss(answers, asked), nat.loss(answers, asked))
    assert torch.equal(both.right(answers, asked), nat.right(answers, asked))


def test_a_teacher_is_neither_trained_nor_kept_nor_left_in_another_mode() -> None:
    made = teacher(dropout=0.5).train()
    objective = attnlab.build("distilled", teacher=made)
    assert not list(objective.parameters())
    assert not objective.state_dict()
    batch = TASK.batch("train", 5, seed=0)
    one, other = objective.prepare(batch).targets, objective.prepare(batch).targets
    assert torch.equal(one, other)
    assert made.training
    student = teacher(1)
    objective(student, batch)[0].backward()
    assert all(p.grad is None for p in made.parameters())


def test_fit_learns_what_the_teacher_writes() -> None:
    objective = attnlab.build("distilled", teacher=teacher().float())
    torch.manual_seed(3)
    student = attnlab.TinyTransformer(**model_options(TASK, objective), dim=16, heads=2, layers=1)
    more = {"batch_size": 16, "learning_rate": 1e-2, "progress": False}
    losses = fit(student, TASK, 40, objective=objective, **more).column("loss")
    assert losses[-1] < 0.5 * losses[0]


def test_what_has_no_teacher_or_no_source_is_refused() -> None:
    batch = TASK.batch("train", 3, seed=0)
    with pytest.raises(ValueError, match="learns what a teacher writes, and has none"):
        attnlab.build("distilled").prepare(batch)
    with pytest.raises(ValueError, match="and this task has no source"):
        attnlab.build("distilled", teacher=Successor()).prepare(Batch(batch.inputs, batch.targets))
    made = teacher()
    with pytest.raises(ValueError, match="the teacher is the model that is trained"):
        attnlab.build("distilled", teacher=made).fitted(made)
    gap = batch.targets.clone()
    gap[0, 0] = UNSCORED
    with pytest.raises(ValueError, match="scored target after one that is not scored"):
        attnlab.build("distilled", teacher=made).prepare(
            Batch(batch.inputs, gap, batch.padding, batch.source, batch.source_padding)
        )
