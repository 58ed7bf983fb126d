"""A cache of few bits: what is rounded when, by how much, and what it takes."""

import pytest
import torch

import attnlab
from attnlab.compression.quantized_cache import (
    CacheOptions,
    QuantizedCacheAttention,
    extended,
    quantized_cache,
    read,
    restored,
    rounded,
)
from attnlab.measure.cache import kept

SMALL = {"bits": 2, "group": 4, "residual": 8}


def drawn(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


@pytest.mark.parametrize("bits", [2, 4, 8])
def test_a_number_moves_by_at_most_half_a_step(bits: int) -> None:
    x = drawn(50, 16)
    kept = rounded(x, bits)
    assert kept.codes.shape == (50, 16 * bits // 8)
    assert kept.codes.dtype == torch.uint8
    wrong = (restored(kept, bits) - x).abs()
    assert (wrong <= kept.step / 2 * (1 + 1e-9)).all()
    assert wrong.max() > kept.step.min() / 4
    ends = torch.stack((x.amin(-1), x.amax(-1)))
    found = restored(kept, bits)
    torch.testing.assert_close(torch.stack((found.amin(-1), found.amax(-1))), ends)


def test_numbers_that_are_all_equal_are_kept_exactly() -> None:
    x = torch.full((3, 8), -2.5)
    kept = rounded(x, 2)
    assert torch.equal(restored(kept, 2), x)
    assert (kept.step == 1).all()


def through(options: CacheOptions, pieces: list[int]) -> tuple[torch.Tensor, ...]:
    k, v = drawn(2, 3, sum(pieces), 8), drawn(2, 3, sum(pieces), 8, seed=1)
    state = None
    for key, value in zip(k.split(pieces, dim=2), v.split(pieces, dim=2), strict=True):
        state = extended(state, key, value, options)
    assert state is not None
    assert state.length == sum(pieces)
    return k, v, *read(state, options)


@pytest.mark.parametrize("n", [1, 7, 8, 9, 21, 40])
def test_the_newest_tokens_are_exact_and_the_others_by_their_groups(n: int) -> None:
    k, v, keys, values = through(CacheOptions(**SMALL), [n])
    waiting, whole, old = n % 8, n - n % 8, max(0, n - 8)
    assert torch.equal(keys[:, :, whole:], k[:, :, whole:])
    assert keys[:, :, whole:].shape[2] == waiting
    assert torch.equal(values[:, :, old:], v[:, :, old:])
    by_channel = restored(rounded(k[:, :, :whole].unflatten(2, (-1, 4)).mT, 2), 2).mT.flatten(2, 3)
    torch.testing.assert_close(keys[:, :, :whole], by_channel, rtol=0, atol=0)
    by_token = restored(rounded(v[:, :, :old].unflatten(3, (2, 4)), 2), 2).flatten(3)
    torch.testing.assert_close(values[:, :, :old], by_token, rtol=0, atol=0)


@pytest.mark.parametrize("pieces", [[1] * 27, [5, 9, 13], [20, 1, 6]])
def test_the_state_does_not_depend_on_the_pieces(pieces: list[int]) -> None:
    whole, piecewise = (through(CacheOptions(**SMALL), given) for given in ([27], pieces))
    assert all(torch.equal(a, b) for a, b in zip(whole[2:], piecewise[2:], strict=True))


def test_channels_that_are_large_for_all_tokens_are_kept_better_by_channel() -> None:
    k = drawn(1, 1, 32, 32) + 50 * (torch.arange(32) == 7)
    by_channel = restored(rounded(k.mT, 2), 2).mT
    by_token = restored(rounded(k, 2), 2)
    others = torch.arange(32) != 7
    wrong = [(x - k)[..., others].square().mean().item() for x in (by_channel, by_token)]
    assert wrong[0] < wrong[1] / 5


def model(**options: object) -> attnlab.TinyTransformer:
    given = {"attention": "full", "dim": 32, "heads": 4, "layers": 2, **options}
    return attnlab.TinyTransformer(20, **given).eval()


def test_what_is_kept_costs_b_plus_32_over_g_bits_a_number() -> None:
    n, exact = 4096 + 64, 64
    small = quantized_cache(model(dim=256, heads=4, max_len=8192), bits=2, group=32, residual=64)
    per_layer = [layer.bytes for layer in kept(small, n).layers]
    old_keys, old_values = n - n % exact, n - exact  # n is a multiple: no key waits
    codes = (old_keys + old_values) * 256 * (2 + 32 / 32) / 8
    assert per_layer == 2 * [codes + exact * 256 * 2]


def test_a_copy_decodes_as_the_model_does_until_something_is_rounded() -> None:
    theirs = model()
    small = quantized_cache(theirs, bits=2, group=8, residual=32)
    tokens = torch.randint(20, (2, 30), generator=torch.Generator().manual_seed(0))
    assert torch.equal(small(tokens), theirs(tokens))
    state = other = None
    for token in tokens.split(1, dim=1):
        ours, state = small.step(token, state)
        exact, other = theirs.step(token, other)
        torch.testing.assert_close(ours, exact)
    assert not any(isinstance(x, QuantizedCacheAttention) for x in theirs.modules())


def test_eight_bits_are_nearer_than_four_and_those_than_two() -> None:
    theirs = model(positions="rope")
    tokens = torch.randint(20, (2, 120), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        exact = theirs(tokens)[:, -1]
        far = []
        for bits in (2, 4, 8):
            small, state = quantized_cache(theirs, bits=bits, group=8, residual=16), None
            for piece in tokens.split(1, dim=1):
                found, state = small.step(piece, state)
            far.append((found - exact).abs().max().item())
    assert far[2] < far[1] / 4 < far[0] / 8
    assert far[0] > 0


def test_a_layer_alone_and_shared_keys() -> None:
    layer = attnlab.build("multi_query", dim=32, heads=4, causal=True, kv_heads=2)
    small = quantized_cache(layer, group=8, residual=8)
    x = drawn(1, 20, 32, dtype=torch.float32)
    out, state = small.step(x)
    torch.testing.assert_close(out, layer(x))
    assert state.keys.shape == (1, 2, 4, 8)
    assert state.old_keys.codes.shape == (1, 2, 2, 8, 2)
    first, state = small.step(x[:, :5])
    torch.testing.assert_close(first, layer(x)[:, :5])
    rest, _ = small.step(x[:, 5:], state)  # rounded after it was read
    torch.testing.assert_close(rest, layer(x)[:, 5:])


def test_texts_are_generated() -> None:
    small = quantized_cache(model(), group=8, residual=8)
    out = attnlab.generate(small, torch.zeros(1, 3, dtype=torch.int64), 20)
    assert out.shape == (1, 23)


@pytest.mark.parametrize(
    ("given", "options", "kind", "words"),
    [
        (model(), {"bits": 3}, ValueError, "2, 4 or 8"),
        (model(), {"group": 0}, ValueError, "group"),
        (model(), {"group": 8, "residual": 12}, ValueError, "multiple of group"),
        (model(), {"group": 2, "residual": 8}, ValueError, "fill bytes"),
        (model(), {"group": 16, "residual": 16}, ValueError, "divide the width"),
        (model(attention="linear", positions="none"), {"group": 8}, ValueError, "no causal layer"),
        (model(kind="classifier", classes=2), {"group": 8}, ValueError, "no causal layer"),
        ("full", {}, TypeError, "module"),
    ],
)  # fmt: skip
def test_refusals(given: object, options: dict, kind: type[Exception], words: str) -> None:
    with pytest.raises(kind, match=words):
        quantized_cache(given, **options)  # type: ignore[type-var]


def test_the_state_of_another_layer_is_refused() -> None:
    layer = attnlab.build("full", dim=32, heads=4, causal=True)
    x = drawn(1, 3, 32, dtype=torch.float32)
    _, other = layer.step(x)
    with pytest.raises(TypeError, match="another mechanism"):
        quantized_cache(layer, group=8).step(x, other)


@pytest.mark.parametrize(
    "name", ["sink", "gated_attention", "soft_cap", "qk_norm", "differential", "multi_head_latent"]
)
def test_layers_with_more_than_queries_keys_and_values_decode_too(name: str) -> None:
    """Nothing is rounded yet: token by token it is the layer; then it is not, by a little."""
    layer = attnlab.build(name, dim=32, heads=4, causal=True).double()
    x = drawn(2, 20, 32)
    for residual, moved in ((24, False), (8, True)):
        small, state, outs = quantized_cache(layer, bits=8, group=8, residual=residual), None, []
        for token in x.split(1, dim=1):
            out, state = small.step(token, state)
            outs.append(out)
        apart = (torch.cat(outs, dim=1) - layer(x)).abs().max()
        assert (1e-6 < apart < 0.1) if moved else apart < 1e-12
