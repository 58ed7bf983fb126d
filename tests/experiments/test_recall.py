"""The experiment `recall`, small: what its arms may see, scores, and stored rows."""

import pytest
import torch
from torch import nn

from attnlab.experiments import recall
from attnlab.experiments.recall import (
    ARMS,
    CHANCE,
    LONGER,
    TASKS,
    build,
    right,
    train,
)


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


def test_longer_arms_train_longer() -> None:
    longer = {arm: one for arm, one in recall.GRID.arms.items() if one.steps}
    assert [one.steps for one in longer.values()] == [recall.LONG] * len(LONGER) + [recall.SLOW]
    assert [one.training for one in longer.values()] == [
        *({} for _ in LONGER), {"learning_rate": recall.SLOW_RATE}
    ]  # fmt: skip
