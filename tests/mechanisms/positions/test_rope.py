"""RoPE: relative, length-preserving; layouts equal up to a permutation; scalings by their rules."""

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

import attnlab
from attnlab.mechanisms.positions.rope import RoPEOptions, RotaryPositions, naive, pairs

D = 12
CPU = torch.device("cpu")


def vectors(n: int = 9, d: int = D) -> tuple[torch.Tensor, torch.Tensor]:
    torch.manual_seed(0)
    q, k = torch.randn(2, 1, 2, n, d, dtype=torch.float64).unbind(0)
    return q, k


def test_rotations_keep_lengths_and_add_up() -> None:
    q, k = vectors()
    at = torch.randint(1000, (9,))
    turned = pairs(q, k, at)[0]
    torch.testing.assert_close(turned.norm(dim=-1), q.norm(dim=-1))
    twice = pairs(turned, k, torch.full((9,), 7))[0]
    torch.testing.assert_close(twice, pairs(q, k, at + 7)[0])


def test_scores_depend_on_the_distance_only() -> None:
    """One vector at every place: the scores are constant along diagonals, and not symmetric."""
    q, k = (x[:, :, :1].expand(-1, -1, 9, -1) for x in vectors())
    q, k = pairs(q, k, torch.arange(9))
    scores = q @ k.mT
    for distance in range(-8, 9):
        diagonal = scores.diagonal(distance, -2, -1)
        torch.testing.assert_close(diagonal, diagonal[..., :1].expand_as(diagonal))
    assert not torch.allclose(scores, scores.mT)


def test_layouts_are_equal_up_to_a_permutation() -> None:
    q, k = vectors()
    at = torch.arange(9)
    order = torch.arange(D).view(2, D // 2).T.flatten()  # half: t, t + d/2 -> 2t, 2t + 1
    half = pairs(q, k, at)
    mixed = pairs(q[..., order], k[..., order], at, options=RoPEOptions(layout="interleaved"))
    for one, other in zip(half, mixed, strict=True):
        torch.testing.assert_close(one[..., order], other)
    assert not torch.allclose(
        pairs(q, k, at, options=RoPEOptions(layout="interleaved"))[0], half[0]
    )


def test_as_in_hugging_face() -> None:
    llama = pytest.importorskip("transformers.models.llama.modeling_llama")
    gptj = pytest.importorskip("transformers.models.gptj.modeling_gptj")
    q, k = vectors()
    angle = torch.arange(9)[:, None] * 10000 ** (-torch.arange(0.0, D, 2).double() / D)
    cos, sin = (torch.cat((f, f), dim=-1)[None] for f in (angle.cos(), angle.sin()))
    expected = llama.apply_rotary_pos_emb(q, k, cos, sin)
    for mine, theirs in zip(pairs(q, k, torch.arange(9)), expected, strict=True):
        torch.testing.assert_close(mine, theirs)
    theirs = gptj.apply_rotary_pos_emb(q.transpose(1, 2), angle.sin()[None], angle.cos()[None])
    mine = pairs(q, k, torch.arange(9), options=RoPEOptions(layout="interleaved"))[0]
    torch.testing.assert_close(mine, theirs.transpose(1, 2))


def test_interpolation_divides_positions() -> None:
    q, k = vectors()
    at = torch.arange(9)
    scaled = pairs(q, k, 4 * at, options=RoPEOptions(scaling="interpolation", factor=4.0))
    for mine, plain in zip(scaled, pairs(q, k, at), strict=True):
        torch.testing.assert_close(mine, plain)


def test_ntk_keeps_the_fastest_angle_and_divides_the_slowest() -> None:
    plain = RoPEOptions().frequencies(D, CPU)
    ntk = RoPEOptions(scaling="ntk", factor=4.0).frequencies(D, CPU)
    torch.testing.assert_close(ntk[0], plain[0])
    torch.testing.assert_close(ntk[-1], plain[-1] / 4)
    assert (ntk[1:-1] < plain[1:-1]).all()
    assert (ntk[1:-1] > plain[1:-1] / 4).all()


def test_xpos() -> None:
    """RoPE when the factor is endless; otherwise the formula of the paper, pair by pair."""
    q, k = (x[:, :, :1].expand(-1, -1, 200, -1) for x in vectors())
    at = torch.arange(200)
    far = pairs(q, k, at, options=RoPEOptions(scaling="xpos", factor=1e12))
    for mine, plain in zip(far, pairs(q, k, at), strict=True):
        torch.testing.assert_close(mine, plain)
    turned_q, turned_k = pairs(q, k, at, options=RoPEOptions(scaling="xpos", factor=20.0))
    scores = (turned_q @ turned_k.mT)[0, 0]
    one, other = (torch.complex(*x[0, 0, 0].chunk(2)) for x in (q, k))
    t = torch.arange(D // 2)
    zeta, theta = (2 * t / D + 0.4) / 1.4, 10000.0 ** (-2 * t / D)
    for i, j in ((5, 5), (60, 50), (199, 0)):
        turn = torch.polar(zeta.double() ** ((i - j) / 20), (i - j) * theta.double())
        expected = (turn * one * other.conj()).sum().real
        torch.testing.assert_close(scores[i, j], expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_tells_far_positions_apart(dtype: torch.dtype) -> None:
    """The angles are computed exactly: bfloat16 holds no whole number beyond 256."""
    q, k = (x.to(dtype) for x in vectors())
    at = torch.arange(9) + 100_000
    exact = pairs(q.double(), k.double(), at)
    for mine, other in zip(pairs(q, k, at), exact, strict=True):
        torch.testing.assert_close(mine.double(), other, atol=2e-2, rtol=2e-2)


def test_cost_is_two_products_and_a_sum_for_each_coordinate() -> None:
    class Counted(TorchDispatchMode):
        operations = 0

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
            out, name = func(*args, **(kwargs or {})), func.overloadpacket.__name__
            if getattr(out, "ndim", 0) == 4:  # of queries and keys, not of angles
                self.operations += {"mul": 1, "add": 1, "addcmul": 2}.get(name, 0) * out.numel()
            return out

    with Counted() as counted:
        pairs(*vectors(), torch.arange(9))
    formula = attnlab.card("rope").time["pairs"]
    sizes = {"h": 2, "n": 9, "d": D}
    assert counted.operations == formula.subs({s: sizes[s.name] for s in formula.free_symbols})


def test_a_fraction_of_the_channels_is_a_rope_of_its_own_width() -> None:
    """As in GPT-NeoX: the first channels turn by their own angles, the rest stay."""
    q, k = vectors()
    at = torch.arange(9)
    found = pairs(q, k, at, options=RoPEOptions(fraction=0.5))
    inside = pairs(q[..., :6], k[..., :6], at)
    for each, own, given in zip(found, inside, (q, k), strict=True):
        torch.testing.assert_close(each[..., :6], own)
        assert torch.equal(each[..., 6:], given[..., 6:])


@pytest.mark.parametrize(("fraction", "width"), [(0.1, 2), (0.25, 2), (0.4, 4), (1.0, 12)])
def test_a_fraction_is_an_even_number_of_channels_and_at_least_a_pair(
    fraction: float, width: int
) -> None:
    assert RoPEOptions(fraction=fraction).width(D) == width


def test_as_in_gpt_neox() -> None:
    neox = pytest.importorskip("transformers.models.gpt_neox.modeling_gpt_neox")
    config = pytest.importorskip("transformers").GPTNeoXConfig(
        hidden_size=48, num_attention_heads=4, max_position_embeddings=64,
        rope_parameters={"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.5},
    )  # fmt: skip
    q, k = (x.float() for x in vectors())
    at = torch.arange(9)[None]
    cos, sin = neox.GPTNeoXRotaryEmbedding(config)(q, at)
    expected = neox.apply_rotary_pos_emb(q, k, cos, sin)
    found = pairs(q, k, at[0], options=RoPEOptions(fraction=0.5))
    for mine, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-5, atol=1e-5)


def test_a_fraction_of_the_pairs_keeps_the_angles_of_the_whole_head() -> None:
    """Of six pairs the two fastest turn, channels 0, 1, 6 and 7; the others stand still."""
    q, k = vectors()
    at = torch.arange(9)
    options = RoPEOptions(fraction=1 / 3, fraction_of="pairs")
    found, whole = (pairs(q, k, at, options=each)[0] for each in (options, RoPEOptions()))
    turning = [0, 1, 6, 7]
    still = [2, 3, 4, 5, 8, 9, 10, 11]
    torch.testing.assert_close(found[..., turning], whole[..., turning])
    assert torch.equal(found[..., still], q[..., still])
    other = pairs(q, k, at, options=RoPEOptions(fraction=1 / 3))[0]
    assert not torch.allclose(found, other)


def test_longrope_divides_each_angle_by_its_own_factor() -> None:
    factors = (1.0, 1.5, 2.0, 3.0, 5.0, 7.0)
    options = RoPEOptions(scaling="long", factors=factors, factor=32.0, original=4096)
    usual = RoPEOptions().frequencies(D, CPU)
    torch.testing.assert_close(options.frequencies(D, CPU) * torch.tensor(factors), usual)
    assert options.magnitude == pytest.approx(1.1902, abs=1e-4)  # 131,072 from 4,096
    q, k = vectors()
    for form in (naive, pairs):
        still = form(q, k, torch.zeros(9, dtype=torch.long), options=options)[0]
        torch.testing.assert_close(still, options.magnitude * q)
    assert not RotaryPositions(24, 2, options=options).keeps_lengths


def test_longrope_as_in_hugging_face() -> None:
    utils = pytest.importorskip("transformers.modeling_rope_utils")
    config = pytest.importorskip("transformers").Phi3Config(
        hidden_size=24, num_attention_heads=2, max_position_embeddings=131072,
        original_max_position_embeddings=4096,
        rope_parameters={
            "rope_type": "longrope", "rope_theta": 1e4, "long_factor": [1.0, 2, 3, 4, 5, 6],
            "short_factor": [1.0, 1, 1, 1, 2, 2], "original_max_position_embeddings": 4096,
        },
    )  # fmt: skip
    theirs, size = utils.ROPE_INIT_FUNCTIONS["longrope"](config, CPU, seq_len=5000)
    options = RoPEOptions(
        scaling="long", factors=(1.0, 2.0, 3.0, 4.0, 5.0, 6.0), factor=32.0, original=4096
    )
    torch.testing.assert_close(options.frequencies(D, CPU).float(), theirs)
    assert options.magnitude == pytest.approx(size)


def test_naive_equals_pairs_under_every_option() -> None:
    q, k = vectors()
    at = torch.arange(9)
    long = {"scaling": "long", "factors": (1.0, 2.0, 3.0), "factor": 8.0, "original": 64}
    for given in (long | {"fraction": 0.5}, {"fraction": 0.7, "fraction_of": "pairs"}):
        for layout in ("half", "interleaved"):
            options = RoPEOptions(layout=layout, **given)
            for one, other in zip(
                *(f(q, k, at, options=options) for f in (naive, pairs)), strict=True
            ):
                torch.testing.assert_close(one, other)


def test_fractions_and_factors_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ValueError, match="fraction should be above 0 and at most 1, got 0"):
        RoPEOptions(fraction=0.0)
    with pytest.raises(ValueError, match="xPos scales every pair"):
        RoPEOptions(scaling="xpos", factor=64.0, fraction=0.5)
    with pytest.raises(ValueError, match="scaling='long' takes factors, and no other scaling does"):
        RoPEOptions(factors=(1.0,))
    with pytest.raises(ValueError, match="factors has 2 numbers, but 6 pairs are turned"):
        attnlab.build(
            "rope", dim=24, heads=2, scaling="long", factors=(1.0, 2.0), factor=2.0, original=64
        )


def test_wrong_options_are_answered_in_sentences() -> None:
    q, k = vectors(d=5)
    for form in (naive, pairs):
        with pytest.raises(ValueError, match="pairs of coordinates, but heads have width 5"):
            form(q, k, torch.arange(9))
    with pytest.raises(ValueError, match=r"heads have width 3: odd; choose .* even"):
        attnlab.build("rope", dim=6, heads=2)
    with pytest.raises(ValueError, match="heads=3 does not divide dim=8"):
        attnlab.build("rope", dim=8, heads=3)
    with pytest.raises(ValueError, match=r"factor=2\.0 is for a scaling"):
        RoPEOptions(factor=2.0)
    with pytest.raises(ValueError, match="factor should be above 0"):
        RoPEOptions(scaling="ntk", factor=0.0)
    with pytest.raises(ValueError, match="base should be above 1"):
        RoPEOptions(base=1.0)
    with pytest.raises(ValueError, match="n is 5, expected 9 as in `q`"):
        pairs(*vectors(), torch.arange(5))
