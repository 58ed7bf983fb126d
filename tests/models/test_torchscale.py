"""TorchScale's switches: which of two wins, and what there is not."""

import pytest
import torch

from attnlab import TinyTransformer
from attnlab.models.torchscale import torchscale


@pytest.mark.parametrize(
    ("subln", "deepnorm", "join"),
    [
        (True, True, "deep_norm"),
        (False, True, "deep_norm"),
        (True, False, "sub_ln"),
        (False, False, "pre_norm"),
    ],
)
def test_deepnorm_clears_subln(subln: bool, deepnorm: bool, join: str) -> None:
    assert torchscale(subln=subln, deepnorm=deepnorm) == {"join": join}
    assert torchscale() == {"join": "sub_ln"}


def test_the_switches_build_models() -> None:
    for switches in ({"xpos": True}, {"subln": False, "drop_path_rate": 0.2}, {"deepnorm": True}):
        options = torchscale(**switches)
        model = TinyTransformer(11, dim=16, heads=2, layers=2, **options)
        assert model.config.items() >= options.items()
        assert model(torch.randint(11, (2, 7))).shape == (2, 7, 11)


def test_what_cannot_be_is_refused_in_sentences() -> None:
    with pytest.raises(ValueError, match="needs subln=False and deepnorm=False here"):
        torchscale(drop_path_rate=0.1)
    with pytest.raises(TypeError, match="subln should be True or False, got 1"):
        torchscale(subln=1)  # type: ignore[arg-type]
