"""The experiment `look_back`, small: texts whose answers are certain, and stored rows."""

import json
from pathlib import Path

import pytest
import torch

from attnlab.experiments import look_back
from attnlab.experiments.look_back import (
    ARMS,
    FARTHEST,
    GROUPS,
    LENGTH,
    LETTERS,
    LONGER,
    SEEDS,
    LookBack,
    build,
    distance_of,
    score,
)
from attnlab.tasks import UNSCORED

STORED = Path(__file__).parents[2] / "attnlab/experiments/assets/42_look_back.json"


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


def test_a_score_for_each_distance(monkeypatch: pytest.MonkeyPatch) -> None:
    """A model that answers a everywhere is right by chance; one that knows is always right."""
    model = build("Transformer-XL", 0)
    always = torch.zeros(LETTERS * FARTHEST)
    always[0] = 1
    monkeypatch.setattr(model, "forward", lambda ids: always.expand(*ids.shape, -1))
    found = score(model)
    assert len(found) == FARTHEST
    assert all(8 < share < 17 for share in found)

    def knows(ids: torch.Tensor) -> torch.Tensor:
        places = (torch.arange(ids.shape[1]) - distance_of(ids)).clamp(min=0)
        letters = (ids % LETTERS).gather(1, places)
        return torch.nn.functional.one_hot(letters, LETTERS * FARTHEST)

    monkeypatch.setattr(model, "forward", knows)
    assert score(model, LONGER) == [100.0] * FARTHEST

    def knows_three(ids: torch.Tensor) -> torch.Tensor:
        out = knows(ids)
        return torch.where((distance_of(ids) == 3)[..., None], out, out.roll(1, -1))

    monkeypatch.setattr(model, "forward", knows_three)
    assert score(model) == [100.0 if back == 3 else 0.0 for back in range(1, FARTHEST + 1)]


@pytest.mark.parametrize("arm", ARMS)
def test_one_layer_of_attention(arm: str) -> None:
    assert len(build(arm, 0).decoder.blocks) == 1


def test_rows_of_the_quick_run() -> None:
    torch.manual_seed(3)
    state = torch.get_rng_state()
    rows = list(look_back.rows(quick=True, threads=torch.get_num_threads()))
    assert torch.equal(torch.get_rng_state(), state)
    assert len(rows) == len(ARMS) * 2 * len(GROUPS)
    stored = json.loads(STORED.read_text())["experiments"]["look_back"]
    assert {row.figure for row in rows} <= {row["figure"] for row in stored}


def test_what_the_lesson_draws_is_whole() -> None:
    rows = json.loads(STORED.read_text())["experiments"]["look_back"]
    found = {row["figure"]: row["measured"] for row in rows}
    for arm in ARMS:
        for length in (LENGTH, LONGER):
            for group in GROUPS:
                assert all(f"{arm}; {length}; {group}; seed {s}" in found for s in SEEDS)
    for seed in SEEDS:
        near, far = (found[f"Shaw, k = 8; 32; {group}; seed {seed}"] for group in list(GROUPS)[:2])
        assert near > 2 * far
