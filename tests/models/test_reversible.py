"""Reversible layers: the gradients of ordinary ones, for memory that depth does not change."""

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from attnlab.architecture.feed.mlp import MLP
from attnlab.measure.count import count
from attnlab.models.inputs import Reading
from attnlab.models.tiny import TinyTransformer

VOCAB, N = 11, 13
OPTIONS = {"vocab": VOCAB, "dim": 12, "heads": 3, "layers": 3, "max_len": N, "hidden": 17}
TOKENS = torch.randint(VOCAB, (2, N), generator=torch.Generator().manual_seed(0))
PADDING = torch.arange(N) < torch.tensor([[N], [N - 4]])


def model(**changes: object) -> TinyTransformer:
    torch.manual_seed(1)
    return TinyTransformer(**{**OPTIONS, "reversible": True, **changes}).double()


def ordinary(model: TinyTransformer, tokens: Tensor, padding: Tensor | None = None) -> Tensor:
    """The same layers by the two equations, everything kept."""
    stack = model.decoder or model.encoder
    first = second = model._embedded(Reading.of(model, tokens, padding))
    for block in stack.blocks:
        one, two = block.attention_residual, block.feed_forward_residual
        out = block.attention(one.norm(second), padding)
        first = first + F.dropout(out, one.dropout, one.training)
        out = block.feed_forward(two.norm(first))
        second = second + F.dropout(out, two.dropout, two.training)
    return model.logits(stack.norm((first + second) / 2))


def gradients(model: nn.Module, out: Tensor) -> tuple[Tensor, ...]:
    direction = torch.linspace(-1, 1, out.numel(), dtype=out.dtype).view_as(out)
    wanted = [p for p in model.parameters() if p.requires_grad]
    return torch.autograd.grad((out * direction).sum(), wanted)


@pytest.mark.parametrize("padding", [None, PADDING], ids=["whole", "padded"])
@pytest.mark.parametrize(
    ("attention", "positions"),
    [("full", "learned"), ("full", "t5_bias"), ("reformer", "learned"), ("linear", "none")],
)
def test_gradients_are_the_ordinary_ones(
    attention: str, positions: str, padding: Tensor | None
) -> None:
    """Positions that all layers share collect the gradients of all."""
    ours = model(attention=attention, positions=positions, feed_forward_chunks=3)
    out, expected = ours(TOKENS, padding), ordinary(ours, TOKENS, padding)
    torch.testing.assert_close(out, expected)
    for mine, theirs in zip(gradients(ours, out), gradients(ours, expected), strict=True):
        assert (theirs != 0).any()
        torch.testing.assert_close(mine, theirs)


def test_random_numbers_are_the_same_when_a_layer_runs_again() -> None:
    ours = model(dropout=0.4).train()
    found = []
    for run in (ours, lambda tokens: ordinary(ours, tokens)):
        torch.manual_seed(2)
        out = run(TOKENS)
        torch.manual_seed(3)  # what comes between does not matter
        found.append((out, *gradients(ours, out)))
        after = torch.rand(1)
        torch.manual_seed(3)
        assert torch.equal(torch.rand(1), after)  # nor is it disturbed
    for mine, theirs in zip(*found, strict=True):
        torch.testing.assert_close(mine, theirs)
    assert not torch.allclose(found[0][0], ours.eval()(TOKENS))


def test_parameters_that_do_not_train_get_no_gradient() -> None:
    ours = model()
    ours.decoder.blocks[1].feed_forward.requires_grad_(False)
    mine, theirs = (gradients(ours, out) for out in (ours(TOKENS), ordinary(ours, TOKENS)))
    torch.testing.assert_close(mine, theirs)
    ours(TOKENS).sum().backward()
    assert ours.decoder.blocks[1].feed_forward.expand.weight.grad is None
    assert ours.decoder.blocks[1].attention.heads.query.weight.grad is not None


def test_autocast_is_the_same_when_a_layer_runs_again() -> None:
    ours = model().float()
    found = []
    for run in (ours, lambda tokens: ordinary(ours, tokens)):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            out = run(TOKENS)
        found.append(gradients(ours, out.float()))
    for mine, theirs in zip(*found, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=0.05, atol=0.05)


def kept(**changes: object) -> int:
    """Bytes at the end of a forward pass, beyond those of one without gradients."""
    ours = TinyTransformer(**{**OPTIONS, "dim": 24, "hidden": 96, "max_len": 256, **changes})
    tokens = torch.randint(VOCAB, (2, 256))
    saved: dict[int, int] = {}

    def book(x: Tensor) -> Tensor:
        if not isinstance(x, nn.Parameter):
            saved[x.untyped_storage().data_ptr()] = x.untyped_storage().nbytes()
        return x

    with torch.autograd.graph.saved_tensors_hooks(book, lambda x: x):
        out = ours(tokens)
    assert out.requires_grad
    return sum(saved.values())


def test_what_is_kept_does_not_grow_with_the_number_of_layers() -> None:
    few, many = (kept(reversible=True, layers=layers) for layers in (2, 9))
    assert few == many
    few, many = (kept(layers=layers) for layers in (2, 9))
    assert many > 3 * few


def test_peak_of_both_passes_hardly_grows_with_the_number_of_layers() -> None:
    """Gradients of the parameters apart, which are there in any case."""
    peaks = {}
    for reversible in (False, True):
        for layers in (2, 6):
            made = model(layers=layers, reversible=reversible, max_len=256).float()
            own = sum(4 * p.numel() for p in made.parameters())
            tokens = torch.randint(VOCAB, (2, 256))
            peaks[reversible, layers] = count(made, tokens, backward=True).peak_bytes - own
    assert peaks[True, 6] < 1.1 * peaks[True, 2]
    assert peaks[False, 6] > 2 * peaks[False, 2]


@pytest.mark.parametrize("chunks", [2, 5, N, N + 2])
def test_feed_forward_in_pieces_is_the_same(chunks: int) -> None:
    torch.manual_seed(4)
    whole, pieces = MLP(5, 19).double(), MLP(5, 19, chunks).double()
    pieces.load_state_dict(whole.state_dict())
    x = torch.randn(2, N, 5, dtype=torch.float64, requires_grad=True)
    found = []
    for layer in (whole, pieces):
        out = layer(x)
        direction = torch.linspace(-1, 1, out.numel(), dtype=out.dtype).view_as(out)
        found.append((out, *torch.autograd.grad((out * direction).sum(), [x, *layer.parameters()])))
    torch.testing.assert_close(found[1], found[0])
    with torch.no_grad():
        torch.testing.assert_close(pieces(x), found[0][0])


def test_feed_forward_in_pieces_keeps_its_input_and_one_piece() -> None:
    x = torch.randn(2, 512, 8, requires_grad=True)
    whole, pieces = (count(MLP(8, 256, n), x, backward=True) for n in (1, 8))
    assert pieces.peak_bytes < whole.peak_bytes / 4
    assert pieces.largest_tensor.elements == whole.largest_tensor.elements / 8


def test_step_by_step_equals_all_at_once() -> None:
    ours = model().eval()
    parts, state = [], None
    with torch.no_grad():
        for piece in TOKENS.split([4, 1, 1, 1, 6], dim=1):
            out, state = ours.step(piece, state)
            parts.append(out)
        whole = ours(TOKENS)
    torch.testing.assert_close(torch.stack(parts, dim=1), whole[:, [3, 4, 5, 6, 12]])


def test_a_saved_model_is_reversible_again(tmp_path) -> None:
    ours = TinyTransformer(**OPTIONS, reversible=True, feed_forward_chunks=3)
    ours.save(tmp_path / "model.safetensors")
    again = TinyTransformer.load(tmp_path / "model.safetensors")
    assert again.config["depth"] == "reversible"
    assert again.config["feed_options"] == {"chunks": 3}
    torch.testing.assert_close(again(TOKENS), ours(TOKENS))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (
            {"norm": "post"},
            "needs a join that only adds, such as join='pre_norm', got join='post_norm'",
        ),
        ({"kind": "encoder_decoder"}, "depth='reversible' has no cross-attention"),
        ({"checkpoint": True}, "leave checkpoint=True out"),
        ({"feed_forward_chunks": 0}, "chunks should be at least 1"),
        ({"reversible": 1}, "reversible should be True or False, got 1"),
    ],
)
def test_what_cannot_be_reversed_is_refused(changes: dict[str, object], words: str) -> None:
    with pytest.raises((ValueError, TypeError), match=words):
        model(**changes)


def test_checkpointing_cannot_be_switched_on_later() -> None:
    ours = model()
    ours.checkpoint = True
    with pytest.raises(ValueError, match="nothing that checkpoint=True could drop"):
        ours(TOKENS)
