"""Scores by position: those that each scheme's equation gives, and nothing of the tokens."""

import pytest
import torch

from attnlab.lens.positions import position_scores
from attnlab.mechanisms.positions.alibi import slopes
from attnlab.models.tiny import TinyTransformer


def model(positions: str, **options: object) -> TinyTransformer:
    torch.manual_seed(3)
    return TinyTransformer(7, dim=24, heads=3, layers=2, max_len=19, positions=positions, **options)


def test_alibi_is_its_slopes() -> None:
    found = position_scores(model("alibi"), 13)
    i = torch.arange(13)
    wanted = -slopes(3).double()[:, None, None] * (i[:, None] - i)
    past = i[:, None] >= i
    assert torch.allclose(found[:, past], wanted[:, past], atol=1e-6)
    assert found[:, ~past].isnan().all()


def test_without_positions_every_score_is_the_same() -> None:
    found = position_scores(model("none"), 11)
    assert torch.allclose(found.tril().nan_to_num(), torch.zeros(3, 11, 11).double(), atol=1e-9)


@pytest.mark.parametrize("scheme", ["rope", "t5_bias"])
def test_schemes_of_distance_give_one_number_for_each(scheme: str) -> None:
    made = model(scheme)
    if scheme == "t5_bias":
        torch.nn.init.normal_(made.decoder.blocks[0].attention.heads.positions.weight)
    found = position_scores(made, 17)
    for t in (1, 5, 16):
        along = found.diagonal(-t, -2, -1)
        assert torch.allclose(along, along[:, :1].expand_as(along), atol=1e-9)
    assert found.nan_to_num().abs().max() > 1e-4


def test_learned_vectors_differ_by_more_than_the_distance() -> None:
    along = position_scores(model("learned"), 17).diagonal(-3, -2, -1)
    assert along.std(-1).min() > 1e-6


def test_the_model_is_left_as_it_was() -> None:
    made = model("rope")
    position_scores(made.train(), 5, tokens=2)
    assert made.training
    assert next(made.parameters()).dtype == torch.float32


def test_others_than_language_models_are_refused() -> None:
    encoder = TinyTransformer(7, dim=8, heads=1, kind="classifier", classes=2)
    with pytest.raises(ValueError, match="needs a language model, got a classifier"):
        position_scores(encoder, 5)
    with pytest.raises(ValueError, match="n should be at least 1"):
        position_scores(model("rope"), 0)
