"""Multi-head latent attention: the loop, what is kept, which way is cheaper, DeepSeek's modules."""

import itertools
import math

import pytest
import torch
from torch import Tensor

import attnlab
from attnlab.core import patterns
from attnlab.core.positions import Rotation
from attnlab.mechanisms.dense import full, multi_query
from attnlab.mechanisms.dense.multi_head_latent import (
    FORMS,
    MultiHeadLatentAttention,
    MultiHeadLatentOptions,
    absorbed,
    fused,
    naive,
)
from attnlab.mechanisms.dense.multi_head_latent.costs import (
    absorbed_time,
    fewer_absorbed,
    made_time,
)
from attnlab.mechanisms.positions.rope import RoPEOptions, pairs

each_form = pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
V3 = MultiHeadLatentOptions(
    latent_dim=512, rotated_dim=64, query_latent_dim=1536, content_dim=128, value_dim=128
)


def made(b: int = 2, h: int = 3, n: int = 5, m: int = 7) -> dict[str, Tensor]:
    d, r, k, e = 11, 4, 13, 17
    shapes = {
        "q": (b, h, n, d),
        "q_turned": (b, h, n, r),
        "latent": (b, m, k),
        "k_turned": (b, m, r),
        "w_k": (h, d, k),
        "w_v": (h, e, k),
    }
    return {name: torch.randn(shape, dtype=torch.float64) for name, shape in shapes.items()}


# ---- the equation


@each_form
def test_each_form_is_the_sum_in_plain_numbers(form) -> None:
    """Causal, the queries being the last n of m positions."""
    made_of = made()
    (b, h, n, _), m = made_of["q"].shape, made_of["latent"].shape[1]
    q, q_turned, latent, k_turned, w_k, w_v = (each.tolist() for each in made_of.values())
    expected = torch.zeros(b, h, n, 17, dtype=torch.float64)

    def times(rows: list, vector: list) -> list:
        return [sum(x * y for x, y in zip(row, vector, strict=True)) for row in rows]

    for s, a, i in itertools.product(range(b), range(h), range(n)):
        powers, values = [], []
        for j in range(m - n + i + 1):
            (content,) = times([q[s][a][i]], times(w_k[a], latent[s][j]))
            (turned,) = times([q_turned[s][a][i]], k_turned[s][j])
            powers.append(math.exp((content + turned) / math.sqrt(11 + 4)))
            values.append(times(w_v[a], latent[s][j]))
        for x in range(17):
            weighed = sum(p * value[x] for p, value in zip(powers, values, strict=True))
            expected[s, a, i, x] = weighed / sum(powers)
    found = form(**made_of, mask=patterns.causal())
    torch.testing.assert_close(found, expected, rtol=1e-11, atol=1e-11)


@each_form
def test_the_scale_is_that_of_both_parts_together(form) -> None:
    """1/√(d + r), not the 1/√(k + r) of the vectors that the absorbed form multiplies."""
    x = made()
    torch.testing.assert_close(form(**x), form(**x, scale=(11 + 4) ** -0.5))
    assert not torch.allclose(form(**x), form(**x, scale=(13 + 4) ** -0.5))


@each_form
def test_grouped_queries_are_a_latent_that_holds_their_keys_and_values(form) -> None:
    """k = 2 G d, without a rotated part; the matrices select the keys or values of a group."""
    g, h, d = 2, 6, 5
    q = torch.randn(2, h, 7, d, dtype=torch.float64)
    k, v = torch.randn(2, 2, g, 7, d, dtype=torch.float64)
    latent = torch.cat((k, v), dim=1).transpose(1, 2).flatten(2)  # (b, m, 2 G d)
    select = torch.eye(2 * g * d, dtype=torch.float64).unflatten(0, (2, g, d))
    of_head = select.repeat_interleave(h // g, dim=1)
    nothing = torch.zeros(2, h, 7, 1, dtype=torch.float64)
    found = form(q, nothing, latent, nothing[:, 0], *of_head, scale=d**-0.5)
    torch.testing.assert_close(found, multi_query.naive(q, k, v))


def test_the_keys_of_all_heads_have_the_rank_of_the_latent() -> None:
    h, d, k, m = 6, 5, 4, 23
    latent, w_k = torch.randn(m, k).double(), torch.randn(h, d, k).double()
    keys = torch.cat(list(latent @ w_k.mT), dim=-1)  # (m, h d)
    assert torch.linalg.matrix_rank(keys) == k < h * d


def test_a_rotation_between_the_matrices_cannot_be_absorbed() -> None:
    """Turned keys of the content: the matrix in the middle is another one for each distance."""
    d, k = 6, 5
    w_q, w_k = torch.randn(2, k, d, dtype=torch.float64)
    eye = torch.eye(k, dtype=torch.float64)[None, None]

    def middle(i: int, j: int) -> Tensor:
        """What stands between the latents of positions i and j."""
        at_i, at_j = torch.full((k,), i), torch.full((k,), j)
        turned_q, _ = pairs(eye @ w_q, eye @ w_q, at_i, options=RoPEOptions())
        turned_k, _ = pairs(eye @ w_k, eye @ w_k, at_j, options=RoPEOptions())
        return (turned_q @ turned_k.mT)[0, 0]

    torch.testing.assert_close(middle(9, 7), middle(5, 3))
    assert not torch.allclose(middle(9, 7), middle(9, 8))


# ---- what is kept, and which way is cheaper


def test_the_cache_holds_the_latent_and_the_rotated_key_alone() -> None:
    layer = MultiHeadLatentAttention(24, 6, causal=True)
    _, state = layer.step(torch.randn(2, 5, 24))
    assert sum(part.numel() for part in state) == 2 * 5 * (16 + 4)
    d, r, k, e = V3.widths(56)
    assert k + r == 576
    assert 128 * (d + e) == 32_768  # multi-head attention with as many heads
    assert (k + r) / (2 * d) == 2.25  # groups of grouped-query attention
    assert 61 * (k + r) == 35_136
    assert 60 * (k + r) == 34_560


def test_costs_of_a_layer_of_deepseek_v3() -> None:
    """Of a pair of query and key, and of what is made of a key or a query alone."""

    def at(cost, n: int, m: int) -> int:
        letters = {x.name: x for x in cost.free_symbols}
        return int(cost.subs({letters["n"]: n, letters["m"]: m, letters["h"]: 128}))

    made, kept = made_time(V3), absorbed_time(V3)
    pair, alone = (at(made, 2, 1) - at(made, 1, 1), at(kept, 1, 2) - at(kept, 1, 1))
    assert (pair, alone) == (81_920, 278_528)
    assert at(made, 1, 1) - pair == at(kept, 1, 1) - alone == 33_554_432
    with torch.device("meta"):
        layer = attnlab.build("mla", dim=7168, heads=128, causal=True, **vars(V3))
    assert sum(p.numel() for p in layer.parameters()) == 187_107_328


def test_the_form_of_fewer_flops_decodes() -> None:
    widths = V3.widths(56)
    for n, m in ((1, 2), (170, 10**6), (171, 10**6), (3, 4), (100, 171), (64, 128)):
        letters = {x.name: x for x in made_time(V3).free_symbols}
        sizes = {letters["n"]: n, letters["m"]: m, letters["h"]: 128}
        fewer = absorbed_time(V3).subs(sizes) < made_time(V3).subs(sizes)
        assert fewer_absorbed(n, m, widths) == bool(fewer), (n, m)
    assert fewer_absorbed(170, 10**6, widths)
    assert not fewer_absorbed(171, 10**6, widths)
    assert not fewer_absorbed(1, 1, widths)


# ---- the layer


def test_yarn_changes_the_scale_by_the_square_of_its_factor() -> None:
    """DeepSeek-V3: 1.8739; V2, with mscale 0.707: 1.5896."""
    widths = V3.widths(56)
    plain = V3.scale(widths)
    assert plain == pytest.approx(192**-0.5)
    for mscale, expected in ((1.0, 1.8739), (0.707, 1.5896)):
        stretched = MultiHeadLatentOptions(**{**vars(V3), "stretch": 40.0, "mscale": mscale})
        assert stretched.scale(widths) / plain == pytest.approx(expected, abs=5e-5)


@pytest.mark.parametrize("form", FORMS)
def test_what_is_watched_makes_the_output(form: str) -> None:
    """Absorbed, the latents are keys and values; fused, zeros stand behind the values."""
    layer = MultiHeadLatentAttention(12, 3, causal=True, form=form).double()
    x = torch.randn(2, 7, 12, dtype=torch.float64)
    with attnlab.watch(layer) as seen:
        layer(x)
    (one,) = seen
    mixed = one.weights @ one.values
    if form == "absorbed":
        mixed = mixed @ layer.heads.value.weight.detach().unflatten(0, (3, 4)).mT
    else:
        scores = full.naive(one.queries, one.keys, one.values, mask=patterns.causal())
        torch.testing.assert_close(mixed, scores)
    torch.testing.assert_close(layer.heads.merge(mixed[..., :4]), layer(x))


def test_cross_attention_reads_latents_of_the_context() -> None:
    x, context = torch.randn(2, 5, 12).double(), torch.randn(2, 7, 12).double()
    layers = [MultiHeadLatentAttention(12, 3, form=form).double() for form in FORMS]
    for layer in layers[1:]:
        layer.load_state_dict(layers[0].state_dict())
    outs = [layer(x, context=context) for layer in layers]
    for out in outs[1:]:
        torch.testing.assert_close(out, outs[0])
    own = layers[0](torch.cat((x, context), dim=1)[:, :5], context=context)
    torch.testing.assert_close(own, outs[0])


def test_wrong_calls() -> None:
    with pytest.raises(ValueError, match=r"stretch is how many times longer .* got 0\.5"):
        MultiHeadLatentOptions(stretch=0.5)
    with pytest.raises(ValueError, match=r"rotation was built for heads of width 4, .* width 2"):
        attnlab.build("mla", dim=12, heads=3, rotated_dim=2, positions="rope")
    rotating = attnlab.build("mla", dim=12, heads=3, positions="rope")
    x = torch.randn(2, 5, 12)
    with pytest.raises(ValueError, match="a layer with positions has no cross-attention"):
        rotating(x, context=x)
    with pytest.raises(ValueError, match="causal=True"):
        rotating.step(x)
    narrow, wide = (
        attnlab.build("mla", dim=12, heads=3, causal=True, latent_dim=k) for k in (5, 7)
    )
    with pytest.raises(ValueError, match="values of 1 heads of width 5, but 1 of width 7"):
        wide.step(x, narrow.step(x)[1])


# ---- Hugging Face


class Turning(Rotation):
    """Turns neighbouring coordinates by given frequencies, as the released weights do."""

    def __init__(self, frequencies: Tensor) -> None:
        super().__init__()
        self.head_dim, self.frequencies = 2 * len(frequencies), frequencies.double()

    def queries(self, q: Tensor, positions: Tensor) -> Tensor:
        angle = positions[:, None] * self.frequencies
        pairs = torch.view_as_complex(q.contiguous().unflatten(-1, (-1, 2)))
        return torch.view_as_real(pairs * torch.polar(torch.ones_like(angle), angle)).flatten(-2)

    keys = queries


SMALL = {
    "hidden_size": 24,
    "num_attention_heads": 3,
    "num_key_value_heads": 3,
    "kv_lora_rank": 10,
    "qk_rope_head_dim": 4,
    "v_head_dim": 5,
    "qk_nope_head_dim": 7,
    "max_position_embeddings": 64,
    "num_hidden_layers": 1,
}
YARN = {
    "rope_type": "yarn",
    "factor": 40.0,
    "mscale": 1.0,
    "mscale_all_dim": 1.0,
    "original_max_position_embeddings": 16,
    "beta_fast": 32,
    "beta_slow": 1,
    "rope_theta": 10000.0,
}
PLAIN = {"rope_type": "default", "rope_theta": 10000.0}


@pytest.mark.parametrize("q_lora_rank", [6, None])
@pytest.mark.parametrize("rope", [PLAIN, YARN], ids=["plain", "yarn"])
@pytest.mark.parametrize("version", [2, 3])
def test_equals_hugging_face(version: int, rope: dict, q_lora_rank: int | None) -> None:
    """With its weights, and by each form and step by step; its norms are in float32."""
    from transformers.models.deepseek_v2 import modeling_deepseek_v2 as v2
    from transformers.models.deepseek_v3 import modeling_deepseek_v3 as v3

    torch.manual_seed(0)
    code, name = (v2, "DeepseekV2") if version == 2 else (v3, "DeepseekV3")
    config = getattr(code, f"{name}Config")(
        **SMALL, q_lora_rank=q_lora_rank, rope_parameters=rope, attn_implementation="eager"
    )
    theirs = getattr(code, f"{name}Attention")(config, 0).double().eval()
    turning = getattr(code, f"{name}RotaryEmbedding")(config)
    x, at = torch.randn(2, 9, 24, dtype=torch.float64), torch.arange(9)[None]
    hidden = torch.full((9, 9), -torch.inf, dtype=torch.float64).triu(1)[None, None]
    expected, _ = theirs(hidden_states=x, position_embeddings=turning(x, at), attention_mask=hidden)
    stretched = {"stretch": rope["factor"]} if rope is YARN else {}
    for form in FORMS:
        ours = attnlab.build(
            "mla", dim=24, heads=3, causal=True, form=form,
            latent_dim=10, rotated_dim=4, content_dim=7, value_dim=5,
            query_latent_dim=q_lora_rank, positions=Turning(turning.inv_freq), **stretched,
        ).double()  # fmt: skip
        put(theirs, ours)
        torch.testing.assert_close(ours(x), expected, rtol=2e-6, atol=2e-6)
        first, state = ours.step(x[:, :4])
        rest, _ = ours.step(x[:, 4:], state)
        torch.testing.assert_close(torch.cat((first, rest), dim=1), expected, rtol=2e-6, atol=2e-6)


def put(theirs, ours: MultiHeadLatentAttention) -> None:
    """Their weights: W_k and W_v of a head are the first and last rows of one matrix."""
    heads, d = ours.heads, 7
    both = theirs.kv_b_proj.weight.data.unflatten(0, (3, -1))
    heads.key.weight.data, heads.value.weight.data = (
        part.flatten(0, 1) for part in both.split((d, both.shape[1] - d), dim=1)
    )
    if isinstance(heads.query, torch.nn.Linear):
        heads.query.weight.data = theirs.q_proj.weight.data
    else:
        heads.query[0].weight.data = theirs.q_a_proj.weight.data
        heads.query[2].weight.data = theirs.q_b_proj.weight.data
    heads.latent.weight.data = theirs.kv_a_proj_with_mqa.weight.data
    heads.output.weight.data = theirs.o_proj.weight.data


def test_the_forms_are_those_of_the_card() -> None:
    assert [*FORMS.values()] == [naive, fused, absorbed]
