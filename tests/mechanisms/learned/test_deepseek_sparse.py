"""DeepSeek sparse attention: the indexer's choice, its own loss, and what reaches what."""

import math
from typing import Any, Literal

import pytest
import torch
from torch import Tensor

import attnlab
from attnlab.core import patterns
from attnlab.core.probe import record
from attnlab.mechanisms.dense import full
from attnlab.mechanisms.learned.deepseek_sparse import (
    FORMS,
    DeepSeekSparseAttention,
    index_scores,
)
from attnlab.mechanisms.learned.deepseek_sparse.indexer import (
    DeepSeekSparseOptions,
    choose,
    in_pieces,
    index_loss,
    listed,
)
from attnlab.mechanisms.positions.rope import RoPEOptions, pairs

each_form = pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)


def made(n: int = 7, m: int = 7, groups: int = 3) -> list[Tensor]:
    """Queries, keys, values, and the number of each pair."""
    shapes = ((2, 6, n, 5), (2, groups, m, 5), (2, groups, m, 11), (2, n, m))
    return [torch.randn(shape, dtype=torch.float64) for shape in shapes]


def indexer(n: int = 7) -> list[Tensor]:
    """Queries of 4 heads, one key a token, and weights."""
    return [torch.randn(s, dtype=torch.float64) for s in ((2, 4, n, 8), (2, n, 8), (2, n, 4))]


def test_the_number_of_a_pair_in_plain_numbers() -> None:
    q, k, w = indexer()
    found = index_scores(q, k, w)
    for i, j in ((0, 0), (5, 2), (2, 5)):
        products = [max(0.0, float(q[1, a, i] @ k[1, j])) for a in range(4)]
        by_hand = sum(float(w[1, i, a]) * products[a] for a in range(4)) / math.sqrt(4 * 8)
        assert found[1, i, j].item() == pytest.approx(by_hand)
    assert (found < 0).any()  # weights have either sign


@pytest.mark.parametrize("holes", [False, True], ids=["whole", "padded"])
def test_a_text_of_many_pieces_gives_the_equation(holes: bool) -> None:
    """In values and gradients; the queries are the last 260 of 270 tokens, in three pieces."""
    inputs = [x.requires_grad_() for x in made(n=260, m=270)]
    padding = torch.rand(2, 270) > 0.3 if holes else None
    options, (q, k, v, index) = DeepSeekSparseOptions(chosen=40), inputs
    assert [len(x[0][0, 0]) for x in in_pieces(q, k, v, index, padding)] == [128, 128, 4]
    found, dense = (form(*inputs, padding=padding, options=options) for form in FORMS.values())
    torch.testing.assert_close(found, dense)
    along = torch.randn_like(found)
    for mine, its in zip(
        *(torch.autograd.grad((x * along).sum(), inputs[:3]) for x in (found, dense)), strict=True
    ):
        torch.testing.assert_close(mine, its)


@each_form
@pytest.mark.parametrize("chosen", [1, 3, 6])
def test_each_query_in_plain_numbers(form, chosen: int) -> None:
    q, k, v, index = given = made(n=5)
    out = form(*given, options=DeepSeekSparseOptions(chosen=chosen))
    for i in range(5):
        numbers = index[1, i, : 2 + i + 1].tolist()
        best = sorted(range(len(numbers)), key=lambda j: (-numbers[j], j))[:chosen]
        scores = torch.stack([q[1, 4, i] @ k[1, 2, j] for j in best]) / math.sqrt(5)
        torch.testing.assert_close(out[1, 4, i], scores.softmax(0) @ v[1, 2, best])


@each_form
def test_all_tokens_are_full_attention(form) -> None:
    given = made(groups=6)
    expected = full.naive(*given[:3], mask=patterns.causal())
    torch.testing.assert_close(form(*given), expected)


@each_form
def test_later_tokens_change_nothing_before(form) -> None:
    given = made()
    options = DeepSeekSparseOptions(chosen=2)
    out = form(*given, options=options)
    for x, axis in zip(given, (2, 2, 2, 2), strict=True):
        x.narrow(axis, 5, 2).mul_(100)
    assert torch.equal(form(*given, options=options)[:, :, :5], out[:, :, :5])


def test_the_choice_ignores_scales_and_rotations_of_the_indexer() -> None:
    """relu keeps positive factors, and an orthogonal matrix on both sides keeps every product."""
    q, k, w = indexer()
    allowed = torch.ones(7, 7, dtype=torch.bool).tril()[None]
    options = DeepSeekSparseOptions(chosen=3)
    expected = choose(index_scores(q, k, w), allowed, options)
    turn = torch.linalg.qr(torch.randn(8, 8, dtype=torch.float64)).Q
    for other in ((7 * q, k, w), (q, 7 * k, w), (q, k, 7 * w), (q @ turn, k @ turn, w)):
        assert torch.equal(choose(index_scores(*other), allowed, options), expected)
    assert not torch.equal(choose(index_scores(q, k, -w), allowed, options), expected)


def test_equal_numbers_choose_the_earlier_token() -> None:
    allowed = torch.ones(5, 5, dtype=torch.bool).tril()[None]
    options = DeepSeekSparseOptions(chosen=2)
    chosen = listed(choose(torch.zeros(1, 5, 5), allowed, options), options)
    assert chosen[0].tolist() == [[0, -1], [0, 1], [0, 1], [0, 1], [0, 1]]


def test_the_half_split_trap() -> None:
    """Weights that were trained with one layout, turned by the other: the same choice while all
    tokens are chosen, another one beyond."""
    q, k, w = indexer(12)
    at, allowed = torch.arange(12), torch.ones(12, 12, dtype=torch.bool).tril()[None]

    def chosen(layout: str, budget: int) -> set[tuple[int, int]]:
        turned_q, turned_k = pairs(q, k[:, None], at, options=RoPEOptions(layout=layout))
        scores = index_scores(turned_q, turned_k[:, 0], w)
        found = choose(scores, allowed, DeepSeekSparseOptions(chosen=budget))
        return {tuple(row) for row in found.flatten(0, 1).nonzero().tolist()}

    assert chosen("half", 12) == chosen("interleaved", 12)
    assert chosen("half", 3) != chosen("interleaved", 3)


# ---- the indexer's own loss


def test_the_loss_is_zero_where_the_indexer_says_log_p() -> None:
    """One head of weight 1, and products that are log p plus what keeps them positive."""
    q, k = (torch.randn(1, 2, 6, 5, dtype=torch.float64) for _ in range(2))
    seen = torch.ones(6, 6, dtype=torch.bool).tril()
    weights = (q @ k.mT * 5**-0.5).masked_fill(~seen, -torch.inf).softmax(-1).mean(1)
    wanted = weights.masked_fill(~seen, 1).log()[0] + 30
    index_q, index_k = wanted[None, None], torch.eye(6, dtype=torch.float64)[None]
    index_w = torch.full((1, 6, 1), 6**0.5, dtype=torch.float64)
    for aligned in ("all", "chosen"):
        loss = index_loss(
            q, k, index_scores(index_q, index_k, index_w),
            options=DeepSeekSparseOptions(aligned=aligned),
        )  # fmt: skip
        assert loss.item() == pytest.approx(0, abs=1e-12)
        other = index_loss(
            q, k, index_scores(index_q.flip(-1), index_k, index_w),
            options=DeepSeekSparseOptions(aligned=aligned),
        )  # fmt: skip
        assert other.item() > 0.01


@pytest.mark.parametrize("form", FORMS)
def test_each_loss_reaches_its_own_parameters(form: str) -> None:
    """The indexer's gradient is that of its loss alone, whatever the output is used for; that of
    all other parameters and of the input is as without an indexer's loss."""
    layer = DeepSeekSparseAttention(
        12, 3, form=form, options=DeepSeekSparseOptions(chosen=2)
    ).double()
    x = torch.randn(2, 7, 12, dtype=torch.float64, requires_grad=True)
    own = dict(layer.named_parameters())
    index = {name for name in own if name.startswith("index")}
    for factor in (1.0, 1000.0):
        layer.zero_grad()
        (factor * layer(x).sum()).backward()
        grads = {name: own[name].grad.clone() for name in index}  # type: ignore[union-attr]
        layer.zero_grad()
        q, k, _ = layer.heads.project(x)
        index_loss(q, k, index_scores(*layer.indexed(x)), options=layer.options).backward()
        assert all(own[name].grad is None for name in own if name not in index)
        for name in index:
            torch.testing.assert_close(grads[name], own[name].grad)


@pytest.mark.parametrize("aligned", ["all", "chosen"])
def test_a_small_step_of_the_indexer_lowers_its_loss(aligned) -> None:
    layer = DeepSeekSparseAttention(
        12, 3, options=DeepSeekSparseOptions(chosen=4, aligned=aligned)
    ).double()
    x = torch.randn(4, 9, 12, dtype=torch.float64)
    q, k, _ = layer.heads.project(x)

    def loss() -> Tensor:
        return index_loss(q, k, index_scores(*layer.indexed(x)), options=layer.options)

    before = loss()
    before.backward()
    with torch.no_grad():
        for name, parameter in layer.named_parameters():
            if name.startswith("index"):
                parameter -= 1e-3 * parameter.grad
    assert loss() < before


@pytest.mark.parametrize("aligned", ["chosen", "all"])
def test_the_loss_by_hand_and_what_is_padding(aligned: Literal["chosen", "all"]) -> None:
    """KL of each query that is no padding, over the chosen tokens or over all before it."""
    q, k, _, index = made()
    padding = torch.arange(7) < torch.tensor([[7], [4]])
    options = DeepSeekSparseOptions(chosen=3, aligned=aligned)
    index.requires_grad_()
    loss = index_loss(q, k, index, padding=padding, options=options)
    numbers, sums, count = index.detach(), 0.0, 0
    for s, length in enumerate((7, 4)):
        for i in range(length):
            order = sorted(range(i + 1), key=lambda j, row=numbers[s, i]: -float(row[j]))
            among = order[:3] if aligned == "chosen" else order
            heads = [
                torch.stack([q[s, a, i] @ k[s, a // 2, j] for j in among]).div(5**0.5).softmax(0)
                for a in range(6)
            ]
            p, guess = torch.stack(heads).mean(0), numbers[s, i, among].softmax(0)
            sums, count = sums + float((p * (p / guess).log()).sum()), count + 1
    assert loss.item() == pytest.approx(sums / count)
    (gradient,) = torch.autograd.grad(loss, index)
    assert (gradient[1, 4:] == 0).all()
    assert (gradient[1, :, 4:] == 0).all()
    assert (gradient.triu(1) == 0).all()
    torch.testing.assert_close(gradient.sum(-1), torch.zeros(2, 7, dtype=torch.float64))
    assert (gradient[0] != 0).sum() == (2 + 5 * 3 if aligned == "chosen" else 27)


@pytest.mark.parametrize("aligned", ["chosen", "all"])
def test_padding_alone_has_no_loss(aligned: Literal["chosen", "all"]) -> None:
    q, k, _, index = made()
    index.requires_grad_()
    loss = index_loss(
        q, k, index, padding=torch.zeros(2, 7, dtype=torch.bool),
        options=DeepSeekSparseOptions(chosen=3, aligned=aligned),
    )  # fmt: skip
    assert loss.item() == 0
    assert (torch.autograd.grad(loss, index)[0] == 0).all()


def test_one_chosen_token_teaches_the_indexer_nothing() -> None:
    q, k, _, index = made()
    index.requires_grad_()
    loss = index_loss(q, k, index, options=DeepSeekSparseOptions(chosen=1))
    assert loss.item() == pytest.approx(0, abs=1e-12)
    assert (torch.autograd.grad(loss, index)[0].abs() < 1e-12).all()


def test_decoding_is_the_whole_sequence_and_keeps_the_indexers_keys() -> None:
    options = DeepSeekSparseOptions(chosen=3, index_heads=2, index_dim=7)
    layer = DeepSeekSparseAttention(12, 3, options=options).double()
    x, state, outs = torch.randn(2, 9, 12, dtype=torch.float64), None, []
    for part in x.split((1, 1, 4, 3), dim=1):
        out, state = layer.step(part, state)
        outs.append(out)
    torch.testing.assert_close(torch.cat(outs, dim=1), layer(x))
    assert state is not None
    assert state.index_keys.shape == (2, 9, 7)


def turned(**given: Any) -> Any:
    """A layer whose positions turn queries and keys, those of its indexer too."""
    return attnlab.build(
        "deepseek_sparse", dim=12, heads=3, causal=True, positions="rope", chosen=3,
        index_heads=2, index_dim=6, **given,
    ).double()  # fmt: skip


def test_the_indexer_of_a_layer_in_plain_numbers() -> None:
    """Linear maps of the token, a LayerNorm of the key, and turns of both by the token's place."""
    layer = turned()
    torch.nn.init.normal_(layer.index_norm.weight)
    x = torch.randn(2, 5, 12, dtype=torch.float64, requires_grad=True)
    q, k, w = layer.indexed(x, start=3)
    wanted_q = (x @ layer.index_query.weight.T).unflatten(-1, (2, 6)).transpose(1, 2)
    key = x @ layer.index_key.weight.T
    key = (key - key.mean(-1, keepdim=True)) / (
        key.var(-1, correction=0, keepdim=True) + 1e-5
    ) ** 0.5
    wanted_k = key * layer.index_norm.weight + layer.index_norm.bias
    wanted_q, turned_k = pairs(wanted_q, wanted_k[:, None], torch.arange(3, 8))
    torch.testing.assert_close(q, wanted_q)
    torch.testing.assert_close(k, turned_k[:, 0])
    torch.testing.assert_close(w, x @ layer.index_weight.weight.T)
    for found in (q, k, w):
        assert torch.autograd.grad(found.sum(), x, allow_unused=True, retain_graph=True) == (None,)


@pytest.mark.parametrize("form", FORMS)
def test_decoding_with_positions_is_the_whole_sequence(form: str) -> None:
    layer = turned(form=form)
    x, state, outs = torch.randn(2, 9, 12, dtype=torch.float64), None, []
    for part in x.split((2, 1, 5, 1), dim=1):
        out, state = layer.step(part, state)
        outs.append(out)
    torch.testing.assert_close(torch.cat(outs, dim=1), layer(x))


@each_form
def test_padding_is_chosen_by_nobody(form) -> None:
    """Real tokens get what they get alone, though padding has the largest numbers."""
    q, k, v, index = made()
    padding = torch.tensor([[True] * 7, [False, True, True, False, True, True, False]])
    index[1, :, ~padding[1]] += 100
    options = DeepSeekSparseOptions(chosen=2)
    real = padding[1]
    alone = form(
        q[1:, :, real], k[1:, :, real], v[1:, :, real], index[1:, real][..., real], options=options
    )
    out = form(q, k, v, index, padding=padding, options=options)
    torch.testing.assert_close(out[1:, :, real], alone)
    torch.testing.assert_close(out[:1], form(q[:1], k[:1], v[:1], index[:1], options=options))


def test_the_loss_is_part_of_the_backward_pass_wherever_gradients_are_kept() -> None:
    """In evaluation mode as in training; without gradients nothing of it is computed."""
    x = torch.randn(1, 6, 12, dtype=torch.float64)
    layer = turned().eval()
    layer(x).sum().backward()
    assert layer.index_key.weight.grad.abs().sum() > 0
    with record() as notes, torch.no_grad():
        layer(x)
    assert len(notes["selection"]) == 1, "the loss chooses once more"


def test_under_a_half_precision_the_choice_is_made_of_float32() -> None:
    q, k, w = (x.bfloat16() for x in indexer(40))
    assert index_scores(q, k, w).dtype == torch.float32
    with torch.autocast("cpu", torch.bfloat16):
        assert index_scores(q.float(), k.float(), w.float()).dtype == torch.float32


# ---- Hugging Face


@pytest.fixture
def theirs() -> Any:
    """Its attention: multi-head latent attention to what an indexer chose."""
    modeling = pytest.importorskip("transformers.models.deepseek_v32.modeling_deepseek_v32")
    config = modeling.DeepseekV32Config(
        hidden_size=16, num_attention_heads=3, num_key_value_heads=3, q_lora_rank=14,
        kv_lora_rank=10, qk_nope_head_dim=6, qk_rope_head_dim=4, v_head_dim=5,
        index_n_heads=3, index_head_dim=8, index_topk=3,
    )  # fmt: skip
    config._attn_implementation = "eager"
    layer = modeling.DeepseekV32Attention(config, 0).eval()
    for parameter in layer.parameters():
        torch.nn.init.normal_(parameter)
    return modeling, layer


N = 9
CAUSAL = torch.zeros(1, N, N).masked_fill(~torch.ones(N, N).tril().bool(), -torch.inf)
TURNING = RoPEOptions(fraction=0.5)  # 4 of the indexer's 8 channels


def angles() -> tuple[Tensor, Tensor]:
    each = torch.arange(N)[:, None] * TURNING.frequencies(8, torch.device("cpu"))
    cos, sin = (torch.cat((f, f), -1)[None].float() for f in (each.cos(), each.sin()))
    return cos, sin


def numbers_of(their_indexer: Any, x: Tensor, latent: Tensor) -> Tensor:
    """I with the weights of theirs, whose queries read the latent of attention's queries."""
    q = their_indexer.wq_b(latent).unflatten(-1, (3, 8)).transpose(1, 2)
    k = their_indexer.k_norm(their_indexer.wk(x))
    q, turned = pairs(q, k[:, None], torch.arange(N), options=TURNING)
    return index_scores(q, turned[:, 0], their_indexer.weights_proj(x))


@torch.no_grad()
def test_the_indexer_of_hugging_face(theirs) -> None:
    """The same tokens, with copied weights and half-split turns of the first channels."""
    x, latent = torch.randn(2, N, 16), torch.randn(2, N, 14)
    found = theirs[1].indexer(x, latent, angles(), CAUSAL, torch.arange(N)[None])
    options = DeepSeekSparseOptions(chosen=3)
    allowed = torch.ones(N, N, dtype=torch.bool).tril()[None]
    mine = listed(choose(numbers_of(theirs[1].indexer, x, latent), allowed, options), options)
    for row in range(2, N):  # before, there are fewer than 3
        for s in range(2):
            assert set(mine[s, row].tolist()) == set(found[s, row].tolist())


@torch.no_grad()
@each_form
def test_the_attention_of_hugging_face(theirs, form, monkeypatch) -> None:
    """Its queries, keys and values of latent attention in this page's forms: the same output."""
    modeling, layer = theirs
    x = torch.randn(2, N, 16)
    expected = layer(x, angles(), CAUSAL[None])[0]

    def ours(_: Any, q: Tensor, k: Tensor, v: Tensor, *mask: Tensor, **options: Any) -> Any:
        assert options["scaling"] == pytest.approx(q.shape[-1] ** -0.5)
        latent = layer.q_a_layernorm(layer.q_a_proj(x))
        index = numbers_of(layer.indexer, x, latent)
        out = form(q, k, v, index, options=DeepSeekSparseOptions(chosen=3))
        return out.transpose(1, 2), None

    monkeypatch.setattr(modeling, "eager_attention_forward", ours)
    torch.testing.assert_close(layer(x, angles(), CAUSAL[None])[0], expected, rtol=1e-4, atol=1e-3)


def test_both_forms_note_the_same() -> None:
    """The weights at the places of all tokens, the mask, what was chosen, and by which numbers."""
    given, found = made(), []
    for form in FORMS.values():
        with record() as notes:
            form(*given, options=DeepSeekSparseOptions(chosen=3))
        found.append(notes)
    for name in ("weights", "mask", "chosen"):
        torch.testing.assert_close(found[0].last(name), found[1].last(name))
    selection = found[1].last("selection")
    assert torch.equal(selection.chosen, found[0].last("mask"))
    scores = given[3].masked_fill(~patterns.causal().dense(7, 7, torch.device("cpu")), -torch.inf)
    assert torch.equal(selection.scores[:, 0], scores)


def test_notes_and_wrong_calls() -> None:
    layer = DeepSeekSparseAttention(12, 3, options=DeepSeekSparseOptions(chosen=2)).double()
    x = torch.randn(1, 6, 12, dtype=torch.float64)
    with record() as notes:
        layer(x)
    assert notes.last("chosen").shape == (1, 6, 2)
    with pytest.raises(ValueError, match="deepseek_sparse is always causal"):
        attnlab.build("deepseek_sparse", dim=12, heads=3)
    with pytest.raises(ValueError, match=r"chosen .*should be"):
        attnlab.build("dsa", dim=12, heads=3, causal=True, chosen=0)
    _, state = layer.step(x)
    with pytest.raises(ValueError, match="the state's index_keys is of shape"):
        layer.step(x, state._replace(index_keys=state.index_keys[..., :2]))
