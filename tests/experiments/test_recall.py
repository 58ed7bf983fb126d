"""The experiment `recall`, small: what its arms may see, scores, and stored rows."""

import json
from pathlib import Path

import pytest
import torch
from torch import nn

from attnlab.experiments import recall
from attnlab.experiments.recall import (
    ARMS,
    CHANCE,
    LONGER,
    SEEDS,
    TASKS,
    build,
    figures,
    right,
    train,
)

STORED = Path(__file__).parents[2] / "attnlab/experiments/assets/37_recall.json"


class Knows(nn.Module):
    """Answers what followed the last token of the same kind."""

    def __init__(self, vocab: int) -> None:
        super().__init__()
        self.vocab, self.bias = vocab, nn.Parameter(torch.zeros(()))

    def forward(self, tokens, padding=None):
        same = (tokens[:, :, None] == tokens[:, None]).tril(-1)
        n = tokens.shape[1]
        place = (same * torch.arange(1, n + 1)).amax(-1).clamp(max=n - 1)
        return 9.0 * nn.functional.one_hot(tokens.gather(1, place), self.vocab) + self.bias


def test_lengths_and_chances_are_those_of_the_paper() -> None:
    assert {name: task.length for name, task in TASKS.items()} == {"recall": 20, "induction": 30}
    assert {"recall": 100 / TASKS["recall"].values, "induction": 100 / 20} == CHANCE


@pytest.mark.parametrize("task", TASKS)
def test_both_tasks_ask_what_followed_a_token(task: str) -> None:
    knows = Knows(TASKS[task].vocab)
    assert right(knows, task) == 100
    knows.register_forward_hook(lambda _module, _given, logits: -logits)
    assert right(knows, task) == 0


@pytest.mark.parametrize("arm", ARMS)
def test_no_arm_reads_the_future(arm: str) -> None:
    model, tokens = build("induction", arm, 1).eval(), torch.randint(20, (3, 30))
    changed = tokens.clone()
    changed[:, 11:] = (tokens[:, 11:] + 7) % 20
    with torch.no_grad():
        torch.testing.assert_close(model(tokens)[:, :11], model(changed)[:, :11])


def test_longer_rows_train_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[int, float | None]] = []
    monkeypatch.setattr(recall, "right", lambda model, task: 0.0)
    monkeypatch.setattr(
        recall,
        "train",
        lambda *given, steps, learning_rate=None: asked.append((steps, learning_rate)),
    )
    for figure in figures(quick=True)[-4:]:
        recall.row(figure, quick=False, threads=torch.get_num_threads())
    longer = [(recall.LONG, None)] * len(LONGER)
    assert asked == [(recall.STEPS, None), *longer, (recall.SLOW, recall.SLOW_RATE)]


def test_the_arm_without_shift_lacks_it() -> None:
    assert [name for name, (_, options) in ARMS.items() if options.get("shift") == 1] == [
        "h3 without shift"
    ]


def test_the_same_seed_gives_the_same_model() -> None:
    found = []
    for elsewhere in (3, 4):  # a seed that must not matter
        torch.manual_seed(elsewhere)
        found.append(train("recall", "h3", 2, steps=3))
    for mine, theirs in zip(*(model.parameters() for model in found), strict=True):
        assert torch.equal(mine, theirs)
    assert not torch.equal(found[0].embedding.weight, build("recall", "h3", 2).embedding.weight)


def test_rows_of_the_quick_run() -> None:
    torch.manual_seed(3)
    state = torch.get_rng_state()
    rows = list(recall.rows(quick=True, threads=torch.get_num_threads()))
    assert torch.equal(torch.get_rng_state(), state)
    assert [row.figure for row in rows] == figures(quick=True)
    assert len(rows) == len(TASKS) * len(ARMS) + len(LONGER) + 1


def test_what_the_lesson_draws_is_whole() -> None:
    rows = json.loads(STORED.read_text())["experiments"]["recall"]
    found = {row["figure"]: row["measured"] for row in rows}
    assert list(found) == figures(quick=False)
    assert len(found) == (len(TASKS) * len(ARMS) + len(LONGER) + 1) * len(SEEDS)
    assert all(0 <= measured <= 100 for measured in found.values())
