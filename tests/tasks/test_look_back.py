"""Look back: answers stand where the tokens say."""

import torch

from attnlab.tasks import UNSCORED
from attnlab.tasks.look_back import FARTHEST, LETTERS, LookBack, distance_of


def test_answers_stand_where_tokens_say() -> None:
    task = LookBack(11)
    batch = task.batch("train", 7, seed=3)
    for text, answers in zip(batch.inputs.tolist(), batch.targets.tolist(), strict=True):
        for place, (token, answer) in enumerate(zip(text, answers, strict=True)):
            back = distance_of(token)
            assert 1 <= back <= FARTHEST
            assert answer == (UNSCORED if back > place else text[place - back] % LETTERS)
    assert task.tokens(torch.tensor([2 + LETTERS * 4, 0])) == ["c5", "a1"]


def test_splits_and_seeds_have_texts_of_their_own() -> None:
    texts = [
        LookBack().batch(s, 3, seed).inputs for s in ("train", "validation") for seed in (0, 1)
    ]
    assert len({tuple(text.flatten().tolist()) for text in texts}) == 4
    again = LookBack().batch("validation", 3, seed=1).inputs
    assert torch.equal(again, texts[-1])
