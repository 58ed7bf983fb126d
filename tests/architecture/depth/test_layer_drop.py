"""LayerDrop: layers that are skipped in training, and models that are left with fewer."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from attnlab.architecture.depth.layer_drop import every_other
from attnlab.models.pruned import pruned
from attnlab.models.tiny import TinyTransformer

VOCAB, N, LAYERS = 11, 13, 4
TOKENS = torch.randint(VOCAB, (2, N), generator=torch.Generator().manual_seed(0))


def model(depth_options: dict[str, Any] | None = None, **changes: Any) -> TinyTransformer:
    torch.manual_seed(1)
    options: dict[str, Any] = {
        "vocab": VOCAB, "dim": 12, "heads": 3, "layers": LAYERS, "max_len": N,
        "depth": "layer_drop", "depth_options": depth_options,
    }  # fmt: skip
    return TinyTransformer(**{**options, **changes}).double()


def ran(ours: TinyTransformer) -> list[int]:
    """The numbers of the layers that run in one pass."""
    found: list[int] = []
    stack: Any = ours.decoder
    hooks = [
        block.register_forward_pre_hook(lambda *_, number=number: found.append(number))
        for number, block in enumerate(stack.blocks, 1)
    ]
    ours(TOKENS)
    for hook in hooks:
        hook.remove()
    return found


def test_each_layer_is_skipped_with_probability_p_anew_in_every_pass() -> None:
    ours, passes = model({"p": 0.3}).train(), 200
    found = [ran(ours) for _ in range(passes)]
    skipped = [sum(number not in one for one in found) for number in range(1, LAYERS + 1)]
    assert all(0.15 * passes < each < 0.45 * passes for each in skipped)  # 4.6 deviations
    assert len({tuple(one) for one in found}) > 8


def test_all_layers_run_in_evaluation_and_nothing_is_rescaled() -> None:
    ours, plain = model({"p": 0.9}).eval(), model(depth="plain", depth_options=None).eval()
    assert ran(ours) == [1, 2, 3, 4]
    assert torch.equal(ours(TOKENS), plain(TOKENS))
    assert torch.equal(ours.step(TOKENS)[0], plain.step(TOKENS)[0])


def test_without_a_probability_it_is_plain_in_training_too() -> None:
    ours, plain = model({"p": 0.0}).train(), model(depth="plain", depth_options=None).train()
    assert torch.equal(ours(TOKENS), plain(TOKENS))


def test_a_skipped_layer_has_no_gradient() -> None:
    ours = model({"kept": [1, 4]}).eval()
    ours(TOKENS).sum().backward()
    blocks: Any = ours.decoder.blocks  # type: ignore[union-attr]
    assert [blocks[i].feed_forward.expand.weight.grad is None for i in range(LAYERS)] == [
        False, True, True, False,
    ]  # fmt: skip


def test_every_other_layer_stays() -> None:
    assert every_other(12, 1 / 2) == (1, 3, 5, 7, 9, 11)
    assert every_other(12, 1 / 3) == (1, 2, 4, 5, 7, 8, 10, 11)
    assert every_other(12, 0.3) == every_other(12, 1 / 3)
    assert every_other(93, 1 / 93) == tuple(range(1, 93))  # in floats 1 / (1 / 93) is below 93
    for share in (0, -1, 0.51, 1):
        with pytest.raises(ValueError, match="share should be above 0 and at most 1/2"):
            every_other(12, share)
    with pytest.raises(ValueError, match="of 4 layers is less than one layer"):
        every_other(4, 0.1)


@pytest.mark.parametrize("kind", ["language_model", "encoder_decoder"])
def test_a_pruned_model_is_smaller_and_computes_the_same(kind: str, tmp_path: Path) -> None:
    ours = model({"p": 0.2}, kind=kind).eval()
    source = {"source": TOKENS} if kind == "encoder_decoder" else {}
    kept = model({"p": 0.2, "kept": [1, 3]}, kind=kind).eval()
    smaller = pruned(ours, [3, 1])
    assert torch.equal(smaller(TOKENS, **source), kept(TOKENS, **source))
    assert smaller.config["layers"] == 2
    assert parameters(smaller) < parameters(ours) == parameters(kept)
    smaller.save(tmp_path / "model.safetensors")
    read = TinyTransformer.load(tmp_path / "model.safetensors").double().eval()
    assert torch.allclose(read(TOKENS, **source), smaller(TOKENS, **source), atol=1e-5)
    before: Tensor = ours(TOKENS, **source)
    torch.nn.init.zeros_(smaller.embedding.weight)
    assert torch.equal(ours(TOKENS, **source), before)


def parameters(model: TinyTransformer) -> int:
    return sum(p.numel() for p in model.parameters())


def test_lists_of_the_layers_are_pruned_with_them() -> None:
    ours = model(attention=["full", "linear", "full", "retention"], depth="plain")
    smaller = pruned(ours, every_other(4, 0.5))
    assert smaller.config["attention"] == ["full", "full"]
    assert TinyTransformer(**smaller.config).config == smaller.config


@pytest.mark.parametrize("kept", [[], [0], [5], [1.5], [1, 5]], ids=str)
def test_layers_that_there_are_not_are_refused(kept: list[Any]) -> None:
    words = "kept should name some of the 4 layers|should be at least 1|whole number|kept"
    for call in (lambda: model({"kept": kept}), lambda: pruned(model(), kept)):
        with pytest.raises((ValueError, TypeError), match=words):
            call()


@pytest.mark.parametrize("p", [-0.1, 1, 1.5])
def test_probabilities_that_leave_nothing_are_refused(p: float) -> None:
    with pytest.raises(ValueError, match="p is the probability that a layer is skipped, 0 ≤ p < 1"):
        model({"p": p})


def test_layers_that_share_are_not_pruned() -> None:
    for way in ("shared", "universal"):
        with pytest.raises(ValueError, match=f"depth={way!r} has layers that belong together"):
            pruned(model(depth=way), [1])
