"""The experiment `exits`, small: its task, its control, and how exits are dealt out."""

import torch

from attnlab.experiments import exits
from attnlab.experiments.exits import JUMPS, PLACES, Jumps, dealt_out, jumps_of
from attnlab.tasks import UNSCORED


def test_answers_are_where_the_jumps_end() -> None:
    for empty in (False, True):
        batch = Jumps(empty=empty).batch("train", 7, seed=3)
        for text, targets in zip(batch.inputs.tolist(), batch.targets.tolist(), strict=True):
            table, asked = text[:PLACES], text[PLACES:]
            assert set(targets[:PLACES]) == {UNSCORED}
            for token, target in zip(asked, targets[PLACES:], strict=True):
                jumps, at = divmod(token, PLACES)
                assert 1 <= jumps <= JUMPS
                for _ in range(1 if empty else jumps):
                    at = table[at]
                assert target == at
    assert Jumps().tokens(torch.tensor([2, 2 + 3 * PLACES])) == ["2", "2+3"]


def test_marks_are_the_same_where_they_are_empty() -> None:
    texts = [Jumps(empty=empty).batch("train", 5, seed=1).inputs for empty in (False, True)]
    assert torch.equal(*texts)
    assert not torch.equal(texts[0], Jumps().batch("validation", 5, seed=1).inputs)


def test_exits_that_are_dealt_out_are_as_frequent_as_before() -> None:
    left = torch.tensor([[1, 2, 2], [4, 4, 1]])
    right = torch.eye(4, dtype=torch.bool)[left - 1]  # right at the own exit alone
    assert dealt_out(left, right).sum() < 6
    always = torch.zeros(2, 3, 4, dtype=torch.bool)
    always[..., 0] = True  # right after the first layer alone: as many as leave there
    assert dealt_out(left, always).sum() == 2


def test_scores_of_a_model_that_has_learned_nothing_are_those_of_all_layers() -> None:
    model = exits.build("exits").eval()
    batch = Jumps().batch("validation", 9, seed=0)
    left, right = exits.exits_and_answers(model, batch)
    every = exits.right_at_every_exit(model, batch)
    assert (left == exits.LAYERS).all()
    assert torch.equal(every[..., -1], right)
    assert every.shape == (*jumps_of(batch.inputs).shape, exits.LAYERS)
