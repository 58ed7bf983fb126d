"""The experiment `look_back`, small: texts whose answers are certain, and stored rows."""

import pytest
import torch

from attnlab.experiments import stored
from attnlab.experiments.look_back import (
    ARMS,
    FARTHEST,
    GROUPS,
    LETTERS,
    LONGER,
    SEEDS,
    build,
    distance_of,
    score,
)


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


def test_what_the_lesson_says_of_the_stored_rows() -> None:
    """Distances beyond the clip are as good as unknown."""
    found = stored("42_look_back.json", "look_back")
    for seed in SEEDS:
        near, far = (found[f"Shaw, k = 8; 32; {group}; seed {seed}"] for group in list(GROUPS)[:2])
        assert near > 2 * far
