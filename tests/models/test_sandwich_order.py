"""Sandwich order: the same sublayers in another order."""

from typing import Any

import pytest
import torch
from torch import Tensor

from attnlab import TinyTransformer
from attnlab.architecture.depth.sandwich import order

DIM, N, B = 12, 7, 3


def model(k: int, layers: int = 4, **options: Any) -> TinyTransformer:
    torch.manual_seed(0)
    made = TinyTransformer(
        11, dim=DIM, heads=2, layers=layers, depth="sandwich_order", depth_options={"k": k},
        **options,
    )  # fmt: skip
    return made.double().eval()


def test_the_strings_of_the_paper() -> None:
    assert order(4, 0) == "sfsfsfsf"
    assert order(4, 1) == "ssfsfsff"
    assert order(4, 3) == "ssssffff"
    assert order(16, 6) == "s" * 6 + "sf" * 10 + "f" * 6
    for n in (1, 2, 7):
        for k in range(n):
            assert order(n, k).count("s") == order(n, k).count("f") == n


def test_the_sublayers_run_in_the_order_of_the_string() -> None:
    made, ran = model(2), []
    for i, block in enumerate(made.decoder.blocks):
        for letter, part in (("s", block.attention), ("f", block.feed_forward)):
            part.register_forward_hook(lambda *_, what=f"{letter}{i}": ran.append(what))
    made(torch.randint(11, (B, N)))
    assert ran == ["s0", "s1", "s2", "f0", "s3", "f1", "f2", "f3"]


def test_k_0_is_the_usual_order_and_no_k_has_more_parameters() -> None:
    tokens = torch.randint(11, (B, N))
    torch.manual_seed(0)
    plain = TinyTransformer(11, dim=DIM, heads=2, layers=4).double().eval()
    torch.testing.assert_close(model(0)(tokens), plain(tokens))
    assert not torch.allclose(model(1)(tokens), plain(tokens))
    for k in range(4):
        assert model(k).state_dict().keys() == plain.state_dict().keys()


def test_it_decodes_step_by_step_and_padding_changes_nothing() -> None:
    made, tokens = model(3), torch.randint(11, (B, N))
    whole, state = made(tokens), None
    for i in range(N):
        scores, state = made.step(tokens[:, i : i + 1], state)
        torch.testing.assert_close(scores, whole[:, i])
    reader = model(2, kind="token_classifier", classes=3)
    padding = torch.arange(N).expand(B, N) < 5
    given: Tensor = reader(tokens, padding)[:, :5]
    torch.testing.assert_close(reader(tokens.where(padding, 1), padding)[:, :5], given)
    torch.testing.assert_close(reader(tokens[:, :5]), given)


def test_what_cannot_be_is_refused_in_sentences() -> None:
    sizes: dict[str, Any] = {"dim": DIM, "heads": 2, "layers": 4, "depth": "sandwich_order"}
    for more, words in (
        ({"depth_options": {"k": 4}}, "k should be from 0 to 3, one less than the 4 layers"),
        ({"depth_options": {"k": -1}}, "k should be at least 0"),
        ({"join": "post_norm"}, "needs a join that only adds, such as join='pre_norm', got"),
        ({"kind": "encoder_decoder"}, "has no cross-attention"),
        ({"checkpoint": True}, "leave checkpoint=True out"),
    ):
        with pytest.raises(ValueError, match=words):
            TinyTransformer(11, **{**sizes, **more})
