"""Memory-compressed attention: its slots by hand, its limits (L3), its readings, its decoding."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

import attnlab
from attnlab.core import patterns
from attnlab.lens.mixing import mixing_matrix
from attnlab.mechanisms.dense import full
from attnlab.mechanisms.fixed.memory_compressed import (
    FORMS,
    LocalAttention,
    MemoryCompressedAttention,
    MemoryCompressedOptions,
    visible_slots,
)
from attnlab.models.generate import generate
from attnlab.models.tiny import TinyTransformer

B, H, M, D, E = 2, 3, 11, 5, 7
REAL = torch.arange(M) < torch.tensor([[M], [M - 4]])
by_form = pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)


def made(n: int = M, width: int = 3) -> list[Tensor]:
    shapes = ((B, H, n, D), (B, H, M, D), (B, H, M, E), (H, width, D, D), (H, width, E, E))
    return [torch.randn(s, dtype=torch.float64) for s in shapes]


def eyes() -> list[Tensor]:
    return [torch.eye(size, dtype=torch.float64).expand(H, 1, size, size) for size in (D, E)]


# ---- L3: full attention as a limit


@by_form
@pytest.mark.parametrize("n", [M, 4])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("padding", [None, REAL], ids=["whole", "padded"])
def test_a_window_of_one_is_full_attention(
    form: Callable[..., Tensor], padding: Tensor | None, causal: bool, n: int
) -> None:
    q, k, v, *_ = made(n)
    mask = patterns.causal() if causal else patterns.full()
    expected = full.naive(q, k, v, mask=mask & patterns.padding(padding))
    out = form(q, k, v, *eyes(), stride=1, causal=causal, padding=padding)
    torch.testing.assert_close(out, expected)


# ---- slots


def test_slots_are_a_convolution() -> None:
    """PyTorch's own, over what is filled up with zeros."""
    for width, stride in ((3, 3), (5, 2), (4, 1), (13, 4)):
        q, k, v, a, b = made(width=width)
        slots = -(-M // stride)
        more = (slots - 1) * stride + width - M
        keys, values = (
            torch.nn.functional.conv1d(
                torch.nn.functional.pad(x, (0, 0, 0, more)).transpose(2, 3).flatten(1, 2),
                kernel.permute(0, 3, 2, 1).flatten(0, 1),  # (h · out, in, width)
                stride=stride,
                groups=H,
            )
            .unflatten(1, (H, -1))
            .transpose(2, 3)
            for x, kernel in ((k, a), (v, b))
        )
        assert keys.shape[2] == slots
        for form in FORMS.values():
            out = form(q, k, v, a, b, stride=stride)
            torch.testing.assert_close(out, full.naive(q, keys, values))


def test_a_slot_is_seen_from_its_last_position_on() -> None:
    seen = visible_slots(8, 8, width=3, stride=3, causal=True)
    assert [row.nonzero().flatten().tolist() for row in seen] == [
        *([], [], [0], [0], [0], [0, 1], [0, 1], [0, 1])
    ]
    seen = visible_slots(2, 8, width=3, stride=2, causal=True)
    assert [row.nonzero().flatten().tolist() for row in seen] == [[0, 1, 2], [0, 1, 2]]
    assert visible_slots(8, 8, width=3, stride=3) is None


def test_a_slot_is_there_if_one_of_its_positions_is() -> None:
    real = torch.tensor([[1, 1, 1, 1, 0, 0, 0, 0], [0, 0, 0, 0, 0, 0, 0, 1]]).bool()
    seen = visible_slots(8, 8, width=3, stride=3, padding=real)
    assert seen[:, 0, 0].tolist() == [[True, True, False], [False, False, True]]


@by_form
def test_early_queries_see_nothing(form: Callable[..., Tensor]) -> None:
    out = form(*made(), causal=True)
    assert (out[:, :, :2] == 0).all()
    assert (out[:, :, 2:] != 0).all()


@by_form
def test_a_null_slot_is_there_for_everybody(form: Callable[..., Tensor]) -> None:
    q, k, v, a, b = made()
    key, value = torch.randn(H, D, dtype=torch.float64), torch.randn(H, E, dtype=torch.float64)
    out = form(q, k, v, a, b, causal=True, null_key=key, null_value=value)
    torch.testing.assert_close(out[:, :, :2], value[:, None].expand(B, H, 2, E))
    nothing = torch.zeros_like(REAL)
    out = form(q, k, v, a, b, padding=nothing, null_key=key, null_value=value)
    torch.testing.assert_close(out, value[:, None].expand(B, H, M, E))
    with pytest.raises(ValueError, match="give null_key and null_value, or none"):
        form(q, k, v, a, b, null_key=key)


@by_form
def test_a_stride_skips_nobody(form: Callable[..., Tensor]) -> None:
    with pytest.raises(ValueError, match="between 1 and the kernel's width of 3"):
        form(*made(), stride=4)
    with pytest.raises(ValueError, match="stride should be at least 1, got 0"):
        form(*made(), stride=0)


# ---- the module


def test_map_where_channels_keep_to_themselves() -> None:
    """With c_u · identity for a kernel the output is linear in the values, slot by slot."""
    layer = MemoryCompressedAttention(12, 3, causal=True).double()
    share = torch.tensor([0.5, -0.3, 0.8], dtype=torch.float64)
    layer.value_kernel.data = (share[:, None, None] * torch.eye(4, dtype=torch.float64)).repeat(
        3, 1, 1, 1
    )
    x = torch.randn(2, M, 12, dtype=torch.float64)
    mixing = mixing_matrix(layer, x)
    spread = torch.zeros(4, 12, dtype=torch.float64)  # slots × positions, the last one past the end
    for slot in range(4):
        spread[slot, 3 * slot : 3 * slot + 3] = share
    q, k, _ = layer.heads.project(x)
    windows = torch.nn.functional.pad(k, (0, 0, 0, 1)).unflatten(2, (4, 3))
    weights = full.naive(
        q,
        torch.einsum("bhtui,huio->bhto", windows, layer.key_kernel),
        torch.eye(4, dtype=torch.float64).expand(2, 3, 4, 4),
        mask=visible_slots(M, M, width=3, stride=3, causal=True),
    )
    assert mixing.exact
    torch.testing.assert_close(mixing.matrix, (weights @ spread)[..., :M], rtol=0, atol=1e-6)


def test_the_state_is_a_third_of_a_cache() -> None:
    layer = MemoryCompressedAttention(12, 3, causal=True)
    _, state = layer.step(torch.randn(2, 23, 12))
    assert state.slots.keys.shape[2] == 7
    assert state.open.keys.shape[2] == 2
    _, state = LocalAttention(12, 3, causal=True, block=5).step(torch.randn(2, 23, 12))
    assert state.places.tolist() == [20, 21, 22]


def test_local_layers_are_block_diagonal() -> None:
    ours = attnlab.build("memory_compressed", dim=12, heads=3, kind="local", block=4).double()
    assert isinstance(ours, LocalAttention)
    theirs = full.FullAttention(12, 3).double()
    theirs.load_state_dict(ours.state_dict())
    x = torch.randn(2, M, 12, dtype=torch.float64)
    for start in range(0, M, 4):
        piece = slice(start, start + 4)
        torch.testing.assert_close(ours(x)[:, piece], theirs(x[:, piece]))
    assert LocalAttention(12, 3, block=4, causal=True).pattern.count(8) == 20
    with pytest.raises(ValueError, match=r"a layer of its own, LocalAttention\(12, 3, block=4\)"):
        MemoryCompressedAttention(12, 3, options=MemoryCompressedOptions(kind="local", block=4))


def test_local_and_compressed_layers_take_turns() -> None:
    """LMLML; generated step by step as if everything were read anew each time."""
    local, compressed = {"kind": "local", "block": 4}, {"null": True}
    model = TinyTransformer(
        23,
        dim=12,
        layers=5,
        heads=3,
        attention="memory_compressed",
        attention_options=[local, compressed, local, compressed, local],
        max_len=17,
    )
    model = model.double().eval()
    tokens = torch.randint(23, (2, 4))
    stepped = generate(model, tokens, 9, temperature=0.0)
    for _ in range(9):
        tokens = torch.cat([tokens, model(tokens)[:, -1:].argmax(-1)], dim=1)
    assert torch.equal(stepped, tokens)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"kernel": 0}, "kernel should be at least 1, got 0"),
        ({"kernel": 2, "stride": 3}, "between 1 and the kernel's width of 2, got 3"),
        ({"kind": "local", "stride": 2}, "a local layer compresses nothing"),
        ({"kind": "local", "null": True}, "a local layer compresses nothing"),
        ({"block": 4}, "a compressed layer has no blocks"),
        ({"kind": "loca"}, "no kind 'loca'"),
        ({"form": "tiled"}, "no form 'tiled'"),
    ],
)
def test_what_cannot_be_is_said(options: dict, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        attnlab.build("memory_compressed", dim=12, heads=3, **options)


def test_only_a_causal_layer_decodes() -> None:
    with pytest.raises(ValueError, match="causal=True"):
        MemoryCompressedAttention(12, 3).step(torch.randn(2, 1, 12))
