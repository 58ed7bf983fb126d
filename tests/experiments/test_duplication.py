"""The experiment `duplication`, small: what is hashed how, scores, and stored rows."""

import pytest
import torch

from attnlab.experiments import duplication
from attnlab.experiments.duplication import ALL, SCORED, TRAINED, rehash, score, train
from attnlab.tasks.duplication import Duplication


def test_all_keys_are_one_bucket_and_rounds_are_drawn() -> None:
    model, _ = train(ALL, 0, steps=1)
    layer = model.decoder.blocks[0].attention
    assert (layer.rotations == 0).all()
    assert layer.options.chunk >= Duplication().length
    rehash(model, "2 rounds", seed=3)
    assert layer.rotations.shape[1] == 2
    two = layer.rotations.clone()
    rehash(model, "2 rounds", seed=3)
    assert torch.equal(layer.rotations, two)
    rehash(model, "2 rounds", seed=4)
    assert not torch.equal(layer.rotations, two)


def test_scores_are_shares_of_the_second_word(monkeypatch: pytest.MonkeyPatch) -> None:
    model, _ = train(ALL, 0, steps=1)
    items = Duplication().items

    def knows(ids: torch.Tensor) -> torch.Tensor:
        answers = ids.roll(items, 1)  # right from the second zero on
        answers[:, -5:] = 15  # but for the last five
        return torch.nn.functional.one_hot(answers, 16).float()

    monkeypatch.setattr(model, "forward", knows)
    assert score(model) == pytest.approx(100 * (items - 5) / items, abs=0.01)


def test_models_are_scored_with_rotations_that_they_were_not_trained_with(monkeypatch) -> None:
    drawn: list[tuple[str, int]] = []
    monkeypatch.setattr(duplication, "rehash", lambda model, keys, seed: drawn.append((keys, seed)))
    monkeypatch.setattr(duplication, "score", lambda model: 0.0)
    monkeypatch.setattr(duplication, "by_fit", lambda *given, **more: None)
    assert len(list(duplication.rows(quick=True, threads=torch.get_num_threads()))) == 20
    for place, trained in enumerate(TRAINED):
        first, *scored = drawn[6 * place : 6 * place + 6]
        assert first == (trained, 0)
        assert scored == [(way, duplication.UNSEEN) for way in SCORED]
