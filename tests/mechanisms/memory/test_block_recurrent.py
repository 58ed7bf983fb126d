"""Block-Recurrent Transformer: the equations by loops, gates, states, cuts, documents."""

import math

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from attnlab.core.probe import record
from attnlab.lens.mixing import mixing_matrix
from attnlab.mechanisms.memory.block_recurrent import (
    EPS,
    FORMS,
    BlockRecurrent,
    BlockRecurrentOptions,
    BlockState,
    naive,
)
from tests.mechanisms.memory import segments

B, N, DIM, HEADS, D = 2, 19, 12, 3, 4
SMALL = BlockRecurrentOptions(block=4, states=5)
WAYS = [(update, gate) for update in ("skip", "single", "dual") for gate in ("fixed", "lstm")]
by_way = pytest.mark.parametrize(("update", "gate"), WAYS)


def layer(
    update: str = "skip",
    gate: str = "fixed",
    options: BlockRecurrentOptions = SMALL,
    form: str = "chunked",
) -> BlockRecurrent:
    torch.manual_seed(1)
    made = BlockRecurrent(DIM, HEADS, update=update, gate=gate, options=options, form=form).double()
    for name, parameter in made.named_parameters():
        if "bias" in name or name in ("gain", "scale"):
            torch.nn.init.normal_(parameter)
    return made


def tokens(n: int = N, b: int = B) -> Tensor:
    return torch.randn(b, n, DIM, dtype=torch.float64)


def states_of(module: BlockRecurrent, x: Tensor) -> Tensor:
    """(b, blocks + 1, r, dim)."""
    with record() as notes, torch.no_grad():
        module(x)
    return notes.last("states")


# ---- the equations


def softmax(scores: list[Tensor]) -> list[float]:
    powers = [math.exp(float(s)) for s in scores]
    return [p / sum(powers) for p in powers]


def attended(q: Tensor, keys: list[Tensor], values: list[Tensor], scale: Tensor) -> Tensor:
    """One query of one head."""
    scores = [q @ k / (q.norm() * k.norm()) * abs(float(scale)) for k in keys]
    return sum(w * v for w, v in zip(softmax(scores), values, strict=True))


def gated(gate, s: Tensor, z: Tensor, h: Tensor) -> Tensor:
    if gate.bias is not None:
        g = 1 / (1 + torch.exp(-gate.bias))
        return s * g + z * (1 - g)
    f = gate.forget.weight @ h + gate.forget.bias + 1
    i = gate.take.weight @ h + gate.take.bias - 1
    return s / (1 + torch.exp(-f)) + z / (1 + torch.exp(-i))


def updated(u, s: Tensor, a: Tensor) -> Tensor:
    if u.kind == "single":
        h = (u.up.weight @ a).clamp(min=0)
        return gated(u.gate, s, torch.tanh(u.down.weight @ h), h)
    s = gated(u.gate, s, u.output.weight @ a, a)
    if u.kind == "skip":
        return s
    normed = s / (s.square().mean() + EPS).sqrt() * u.norm.weight
    h = (u.up.weight @ normed).clamp(min=0)
    return gated(u.second, s, u.down.weight @ h, h)


@torch.no_grad()
def by_loops(m: BlockRecurrent, x: Tensor) -> Tensor:
    """One sequence: token by token, and after each block state by state."""
    c, heads = m.options.block, range(HEADS)
    q, k, v = (part.weight @ x.mT for part in (m.tokens.query, m.tokens.key, m.tokens.value))
    q, k, v = (each.mT.unflatten(-1, (-1, D)) for each in (q, k, v))  # (n, heads, d)
    s, out = list(m.start), []
    for i in range(len(x)):
        named = [
            one / (one.square().mean() + EPS).sqrt() * m.gain + name
            for one, name in zip(s, m.ids, strict=True)
        ]
        made = [[torch.stack([w @ r for w in part]) for r in named] for part in m.of_states]
        low = 0 if m.options.itself else 1
        window = [j for j in range(i + 1) if low <= i - j < c + low]
        near, far = [], []
        for h in heads:
            nothing = torch.zeros(D, dtype=x.dtype)
            keys, values = [k[j, h] for j in window], [v[j, h] for j in window]
            near.append(attended(q[i, h], keys, values, m.scale[0, h]) if window else nothing)
            keys, values = ([r[h] for r in made[part]] for part in (2, 3))
            far.append(attended(q[i, HEADS + h], keys, values, m.scale[1, h]))
        out.append(m.tokens.output.weight @ torch.cat(near + far))
        if (i + 1) % c:
            continue
        both = range(max(0, i + 1 - 2 * c), i + 1)
        after = []
        for number, old in enumerate(s):
            own, read = [], []
            for h in heads:
                keys, values = ([r[h] for r in made[part]] for part in (2, 3))
                own.append(attended(made[0][number][h], keys, values, m.scale[2, h]))
                keys, values = [k[j, h] for j in both], [v[j, h] for j in both]
                read.append(attended(made[1][number][h], keys, values, m.scale[3, h]))
            after.append(updated(m.update, old, torch.cat(own + read)))
        s = after
    return torch.stack(out)


@by_way
@pytest.mark.parametrize("itself", [True, False])
def test_the_equations_by_loops(update: str, gate: str, itself: bool) -> None:
    module, x = (
        layer(update, gate, BlockRecurrentOptions(block=4, states=3, itself=itself)),
        tokens(14, 1),
    )
    torch.testing.assert_close(module(x)[0], by_loops(module, x[0]))


@by_way
def test_forms_agree_in_gradients(update: str, gate: str) -> None:
    x, found = tokens().requires_grad_(), []
    for form in FORMS:
        module = layer(update, gate, form=form)
        wanted = [x, *module.parameters()]
        found.append(torch.autograd.grad(module(x).square().sum(), wanted))
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other)


# ---- the two directions (N11)


def test_without_the_states_it_is_sliding_window_attention() -> None:
    module, x = layer(), tokens()
    with torch.no_grad():
        module.tokens.output.weight[:, DIM:] = 0
    q, k, v = module.tokens.project(x)
    q = F.normalize(q[:, :HEADS], dim=-1) * module.scale[0].abs()[:, None, None]
    i = torch.arange(N)
    window = (i <= i[:, None]) & (i > i[:, None] - 4)
    near = F.scaled_dot_product_attention(q, F.normalize(k, dim=-1), v, attn_mask=window, scale=1.0)
    expected = near.transpose(1, 2).flatten(2) @ module.tokens.output.weight[:, :DIM].mT
    torch.testing.assert_close(module(x), expected)


@by_way
def test_tokens_read_the_state_from_before_their_block(update: str, gate: str) -> None:
    """N12: what changes the states changes no output of the first block, and one of the second."""
    module, x = layer(update, gate), tokens()
    parameters = list(module.update.parameters())
    first, second = module(x)[:, :4], module(x)[:, 4:8]
    untouched = torch.autograd.grad(
        first.sum(), parameters, materialize_grads=True, allow_unused=True
    )
    assert not any(g.any() for g in untouched)
    assert all(g.any() for g in torch.autograd.grad(second.square().sum(), parameters))


def test_the_order_of_states_does_not_matter() -> None:
    module, x, order = layer("dual", "lstm"), tokens(), torch.tensor([3, 0, 4, 1, 2])
    out, states = module(x), states_of(module, x)
    with torch.no_grad():
        module.start.copy_(module.start[order])
        module.ids.copy_(module.ids[order])
    torch.testing.assert_close(module(x), out)
    torch.testing.assert_close(states_of(module, x), states[:, :, order])


def test_only_their_names_make_states_differ() -> None:
    module, x = layer(), tokens()
    with torch.no_grad():
        module.start.copy_(module.start[:1].expand(5, -1))
    assert (states_of(module, x)[:, 1].std(dim=1) > 1e-3).any()
    with torch.no_grad():
        module.ids.zero_()
    assert (states_of(module, x).std(dim=2) < 1e-12).all()


def test_keys_reach_one_block_back_and_states_everything() -> None:
    module, x = layer(), tokens(20).requires_grad_()
    (of_x,) = torch.autograd.grad(module(x)[:, 19].sum(), x)
    assert of_x[:, 0].any(-1).all()  # gradients pass from block to block
    with torch.no_grad():
        module.update.gate.bias.fill_(1e9)
    (of_x,) = torch.autograd.grad(module(x)[:, 19].sum(), x)
    assert not of_x[:, :16].any()
    assert of_x[:, 16:].any(-1).all()


# ---- gates (N12)


def test_gates_far_to_one_side() -> None:
    module, x = layer(), tokens()
    with torch.no_grad():
        module.update.gate.bias.fill_(1e9)
    frozen = states_of(module, x)
    torch.testing.assert_close(frozen, module.start.expand_as(frozen))
    with torch.no_grad():
        module.update.gate.bias.fill_(-1e9)
    s, a = torch.randn(B, 5, DIM).double(), torch.randn(B, 5, 2 * DIM).double()
    torch.testing.assert_close(module.update(s, a), module.update.output(a))


@pytest.mark.parametrize("update", ["skip", "single", "dual"])
def test_an_lstm_gate_without_weights_is_a_fixed_gate(update: str) -> None:
    """Of g = σ(1), since σ(1) + σ(-1) = 1."""
    fixed, lstm = layer(update, "fixed"), layer(update, "lstm")
    with torch.no_grad():
        for module in (fixed, lstm):
            for name, parameter in module.named_parameters():
                if "forget" in name or "take" in name:
                    parameter.zero_()
                elif name.endswith(("gate.bias", "second.bias")):
                    parameter.fill_(1)
    lstm.load_state_dict(fixed.state_dict(), strict=False)
    x = tokens()
    torch.testing.assert_close(lstm(x), fixed(x))


# ---- blocks and documents


@by_way
@pytest.mark.parametrize("sizes", [[N], [1] * N, [2, 7, 1, 8, 1]], ids=str)
def test_any_cut_gives_the_same(update: str, gate: str, sizes: list[int]) -> None:
    segments.a_cut_gives_the_same(layer(update, gate), tokens(), sizes)


def test_a_detached_state_is_old_keys_and_a_constant() -> None:
    """The same output; W_K gets no gradient from the tokens before the cut (11.7)."""
    module, x = layer(), tokens(8)
    _, state = module.step(x[:, :4])
    cut = BlockState(*(part.detach() for part in state))
    once, again = (module.step(x[:, 4:], each)[0] for each in (state, cut))
    assert torch.equal(once, again)
    key, start = module.tokens.key.weight, module.start
    whole, truncated = (
        torch.autograd.grad(y.square().sum(), [key, start], allow_unused=True)
        for y in (once, again)
    )
    assert not torch.allclose(whole[0], truncated[0])
    assert whole[1].any()
    assert truncated[1] is None


def test_the_state_is_bounded_and_can_be_saved() -> None:
    state = segments.the_state_is_bounded_and_can_be_saved(layer(), tokens(60))
    assert state.keys.shape == (B, HEADS, 6, D)
    assert state.states.shape == (B, 5, DIM)


def test_documents_do_not_read_each_other() -> None:
    module, x = layer(), tokens(30)
    ended = torch.tensor([True, False])
    out, _ = module.step(x[:, 8:], module.cleared(module.step(x[:, :8])[1], ended))
    torch.testing.assert_close(out[0], module(x[:1, 8:])[0])  # 8 is a multiple of the block
    torch.testing.assert_close(out[1], module(x[1:])[0, 8:])
    other = x.clone()
    other[0, :10] = torch.randn(10, DIM)
    mine, theirs = (
        module.step(x[:, 10:], module.cleared(module.step(y[:, :10])[1], ended))[0]
        for y in (x, other)
    )
    torch.testing.assert_close(mine, theirs)


# ---- in a model


def test_a_model_trains_in_segments_and_generates_from_its_state() -> None:
    options = {"block": 4, "states": 3}
    cut, whole = (segments.model("block_recurrent", attention_options=options) for _ in range(2))
    first, second = zip(segments.losses(cut, segment=8), segments.losses(whole), strict=True)
    assert first[0] == pytest.approx(first[1])  # the same values, other gradients
    assert second[0] != pytest.approx(second[1], rel=1e-9)
    segments.it_generates_from_its_state(cut)


def test_what_is_seen_inside() -> None:
    """The window's weights as one n × n map, the states after every block, and a map of both."""
    module, x = layer(form="naive"), tokens(N, 1)
    with record() as notes, torch.no_grad():
        module(x)
    weights = notes.last("weights")
    assert weights.shape == (1, HEADS, N, N)
    assert ((weights > 0).sum(-1) == torch.arange(1, N + 1).clamp(max=4)).all()
    assert notes.last("states").shape == (1, 5, 5, DIM)
    found = mixing_matrix(module, x)
    assert not found.exact
    assert (found.matrix[0].tril() > 0).sum() == N * (N + 1) // 2
    assert not found.matrix[0].triu(1).any()


def test_without_an_update_the_states_stand_still() -> None:
    module, x = layer(), tokens()
    q, k, v = module.tokens.project(x)
    own = (module.start, module.ids, module.gain, module.of_states, module.scale)
    with record() as notes:
        naive(*q.chunk(2, dim=1), k, v, *own, options=SMALL)
    states = notes.last("states")
    assert torch.equal(states, module.start.expand_as(states))


# ---- refusals


def test_what_makes_no_sense_is_refused() -> None:
    with pytest.raises(ValueError, match="block should be at least 1"):
        BlockRecurrentOptions(block=0)
    module = layer()
    _, state = module.step(tokens())
    for wrong, words in (
        (layer(options=BlockRecurrentOptions(block=4, states=3)), "state's states is of shape"),
        (
            layer(options=BlockRecurrentOptions(block=3, states=5)),
            "holds 7 keys, but this layer keeps less than",
        ),
    ):
        with pytest.raises(ValueError, match=words):
            wrong.step(tokens(), state)
    with pytest.raises(ValueError, match="one bool for each of the 2 sequences"):
        module.cleared(state, torch.tensor([True]))
    with pytest.raises(ValueError, match="state's values is of shape"):
        module.step(tokens(), state._replace(values=state.values[:, :, 1:]))
