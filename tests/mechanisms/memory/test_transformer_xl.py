"""Transformer-XL: the equation by loops, its limits, where gradients end, cuts, documents."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from attnlab.core import segments_together
from attnlab.core.cache import KeyValueCache
from attnlab.core.probe import record
from attnlab.core.relative import sinusoids
from attnlab.lens.mixing import mixing_matrix
from attnlab.mechanisms.memory import transformer_xl
from attnlab.mechanisms.memory.transformer_xl import (
    FORMS,
    SegmentState,
    TransformerXL,
    TransformerXLOptions,
    naive,
)
from attnlab.mechanisms.positions import relative
from attnlab.models.tiny import TinyTransformer
from attnlab.train import evaluate
from tests.mechanisms.memory import segments

B, H, N, D, E, P = 2, 3, 17, 5, 7, 11
SMALL = TransformerXLOptions(segment=4, memory=6)
by_form = pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)


def made() -> list[Tensor]:
    """Queries, keys, values, keys and values as memory, u, t, W_R."""
    torch.manual_seed(0)
    keys, values = (B, H, N, D), (B, H, N, E)
    shapes = (keys, keys, values, keys, values, (H, D), (H, D), (H, D, P))
    return [torch.randn(shape, dtype=torch.float64) for shape in shapes]


def layer(
    options: TransformerXLOptions = SMALL, kind: type[TransformerXL] = TransformerXL
) -> TransformerXL:
    torch.manual_seed(1)
    own = kind(12, 3, options=options).double()
    torch.nn.init.normal_(own.u), torch.nn.init.normal_(own.t)
    return own


# ---- the equation


def by_loops(inputs: list[Tensor], o: TransformerXLOptions) -> Tensor:
    """Token by token: a list of memory, a list for the segment, and a softmax over both."""
    q, k, v, memory_k, memory_v, u, t, weight = inputs
    out = torch.zeros(B, H, N, E, dtype=torch.float64)
    for b in range(B):
        for h in range(H):
            memory: list[int] = []
            segment: list[int] = []
            for i in range(N):
                if len(segment) == o.segment:
                    memory = (memory + segment)[-o.memory :] if o.memory else []
                    segment = []
                segment.append(i)
                there = [(j, memory_k, memory_v) for j in memory] + [(j, k, v) for j in segment]
                if o.same_length:
                    there = there[-o.memory :]
                scores = []
                for j, keys, _ in there:
                    r = weight[h] @ sinusoids(torch.tensor([i - j]), P)[0]
                    key, query = keys[b, h, j], q[b, h, i]
                    s = query @ key + query @ r + u[h] @ key + t[h] @ r
                    scores.append(math.exp(float(s) / math.sqrt(D)))
                for s, (j, _, values) in zip(scores, there, strict=True):
                    out[b, h, i] += s / sum(scores) * values[b, h, j]
    return out


@by_form
@pytest.mark.parametrize(
    "options",
    [
        SMALL,
        TransformerXLOptions(segment=5, memory=3),
        TransformerXLOptions(segment=3, memory=7, same_length=True),
        TransformerXLOptions(segment=5, memory=3, same_length=True),
        TransformerXLOptions(segment=6, memory=0),
    ],
    ids=str,
)
def test_the_equation_by_loops(form, options: TransformerXLOptions) -> None:
    inputs = made()
    torch.testing.assert_close(form(*inputs, options=options), by_loops(inputs, options))


def test_each_query_sees_as_many_keys_with_same_length() -> None:
    def seen(options: TransformerXLOptions) -> list[int]:
        with record() as notes:
            naive(*made(), options=options)
        return (notes.last("weights")[0, 0] > 0).sum(-1).tolist()

    assert seen(TransformerXLOptions(segment=4, memory=6))[8:12] == [7, 8, 9, 10]  # M + 1 … M + c
    assert (
        seen(TransformerXLOptions(segment=4, memory=6, same_length=True))
        == [1, 2, 3, 4, 5] + [6] * 12
    )


# ---- limits


@by_form
@pytest.mark.parametrize(
    "options",
    [TransformerXLOptions(segment=N, memory=0), TransformerXLOptions(segment=4, memory=N)],
    ids=str,
)
def test_with_all_in_reach_it_is_causal_relative_attention(
    form, options: TransformerXLOptions
) -> None:
    """P1: one segment, or a memory of everything, is attention over the concatenation."""
    q, k, v, _, _, u, t, weight = made()
    whole = relative.naive(q, k, v, u, t, weight, causal=True)
    torch.testing.assert_close(form(q, k, v, k, v, u, t, weight, options=options), whole)


@by_form
def test_without_position_terms_it_is_masked_softmax_attention(form) -> None:
    """P1: zero u, t and W_R leave the dot products."""
    q, k, v, _, _, u, t, weight = made()
    out = form(q, k, v, k, v, u * 0, t * 0, weight * 0, options=SMALL)
    i = torch.arange(N)
    mask = (i <= i[:, None]) & (i >= (i - i % 4)[:, None] - 6)
    dense = nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)
    torch.testing.assert_close(out, dense)


def test_one_segment_with_memory_is_the_tail_of_the_concatenation() -> None:
    module, x = layer(TransformerXLOptions(segment=6, memory=6)), torch.randn(B, 12, 12).double()
    whole = layer(TransformerXLOptions(segment=12, memory=0))(x)
    torch.testing.assert_close(module(x)[:, 6:], whole[:, 6:])
    _, state = module.step(x[:, :6])
    torch.testing.assert_close(module.step(x[:, 6:], state)[0], whole[:, 6:])


# ---- gradients


def test_gradients_stop_at_the_inputs_of_the_memory_and_not_at_its_keys() -> None:
    module = layer()
    x = torch.randn(B, N, 12, dtype=torch.float64, requires_grad=True)
    for name in FORMS:
        module.form = name
        late = module(x)[:, 12:16].square().sum()  # the fourth segment; 6 … 11 are its memory
        of_x, of_key = torch.autograd.grad(late, [x, module.heads.key.weight])
        assert (of_x[:, :12] == 0).all()
        assert (of_x[:, 12:16] != 0).any(-1).all()
        own = x.detach().clone().requires_grad_()
        out, _ = module.step(own[:, 12:16], module.step(x[:, :12].detach())[1])
        torch.testing.assert_close(torch.autograd.grad(out.square().sum(), own)[0], of_x)
        frozen = KeyValueCache(*module.heads.project(x)[1:]).keys.detach()
        with_old_keys = _by_old_keys(module, x, frozen)
        assert not torch.allclose(with_old_keys, of_key)


def _by_old_keys(module: TransformerXL, x: Tensor, frozen: Tensor) -> Tensor:
    """The gradient of W_K where keys of the memory are kept, and not inputs (N14)."""
    q, k, v = module.heads.project(x)
    own = (module.u, module.t, module.weight)
    cached = naive(q, k, v, frozen, v.detach(), *own, options=module.options)
    out = module.heads.merge(cached)
    torch.testing.assert_close(out, module(x))  # the same output
    (found,) = torch.autograd.grad(out[:, 12:16].square().sum(), module.heads.key.weight)
    return found


def test_the_gradient_is_that_of_a_frozen_memory() -> None:
    """By finite differences of the second segment's loss, the memory held as it was."""
    module, x = layer(), torch.randn(1, 8, 12, dtype=torch.float64)
    direction = torch.randn(12, 12, dtype=torch.float64)
    weight = module.heads.key.weight

    def loss() -> Tensor:
        state = SegmentState(x[:, :4], x[:, :0], torch.ones(1, 4, dtype=torch.bool))
        return module.step(x[:, 4:], state)[0].square().sum()

    (gradient,) = torch.autograd.grad(module(x)[:, 4:].square().sum(), weight)
    with torch.no_grad():
        weight += 1e-6 * direction
        more = loss()
        weight -= 2e-6 * direction
        less = loss()
    torch.testing.assert_close(
        (more - less) / 2e-6, (gradient * direction).sum(), rtol=1e-6, atol=0
    )


class Unstopped(TransformerXL):
    """With the full gradient, through the memory as well."""

    def forward(self, x: Tensor, padding: Tensor | None = None) -> Tensor:
        q, k, v = self.heads.project(x)
        own = (self.u, self.t, self.weight)
        return self.heads.merge(naive(q, k, v, k, v, *own, options=self.options))


def gradients(kind: type[TransformerXL], layers: int) -> dict[str, Tensor]:
    torch.manual_seed(2)
    given = [lambda dim, heads, causal: layer(kind=kind) for _ in range(layers)]
    model = TinyTransformer(
        7, dim=12, heads=3, layers=layers, attention=given, positions="none", max_len=16
    ).double()
    tokens = torch.randint(7, (2, 16))
    model(tokens).log_softmax(-1).square().sum().backward()
    return {name: p.grad for name, p in model.named_parameters() if "norm" not in name}


def test_truncation_changes_the_gradient_of_lower_layers_only() -> None:
    """One layer: truncated = full for its weights. Two: the first layer's differ."""
    one, whole = gradients(TransformerXL, 1), gradients(Unstopped, 1)
    for name in one:
        if "embedding" in name:
            assert not torch.allclose(one[name], whole[name])
        else:
            torch.testing.assert_close(one[name], whole[name])
    two, whole = gradients(TransformerXL, 2), gradients(Unstopped, 2)
    for name in two:
        if name.startswith("decoder.blocks.1"):
            torch.testing.assert_close(two[name], whole[name])
        elif name.startswith("decoder.blocks.0") and two[name].abs().max() > 1e-12:
            assert not torch.allclose(two[name], whole[name]), name


# ---- segments and documents


@pytest.mark.parametrize("sizes", [[N], [4] * 4 + [1], [1] * N, [2, 7, 1, 7], [16, 1]], ids=str)
@pytest.mark.parametrize("same_length", [False, True])
def test_any_cut_gives_the_same(sizes: list[int], same_length: bool) -> None:
    """Gradients end at segments, and not where the calls do."""
    module = layer(TransformerXLOptions(segment=4, memory=6, same_length=same_length))
    x = torch.randn(2, N, 12, dtype=torch.float64)
    segments.a_cut_gives_the_same(module, x, sizes)


def test_the_state_is_bounded_and_can_be_saved() -> None:
    x = torch.randn(2, 60, 12, dtype=torch.float64)
    state = segments.the_state_is_bounded_and_can_be_saved(layer(), x)
    assert [part.shape[1] for part in state] == [6, 2, 8]


def test_documents_do_not_read_each_other() -> None:
    """Of two sequences one begins a new document; in the middle of a segment, too."""
    module, x = layer(), torch.randn(2, 30, 12, dtype=torch.float64)
    _, state = module.step(x[:, :8])
    out, _ = module.step(x[:, 8:], state.cleared(torch.tensor([True, False])))
    torch.testing.assert_close(out[0], module(x[:1, 8:])[0])  # 8 is a multiple of the segment
    torch.testing.assert_close(out[1], module(x[1:])[0, 8:])
    other = x.clone()
    other[:, :10] = torch.randn(2, 10, 12)
    ended = torch.tensor([True, True])
    mine, theirs = (
        module.step(x[:, 10:], module.step(y[:, :10])[1].cleared(ended))[0] for y in (x, other)
    )
    torch.testing.assert_close(mine, theirs)


# ---- in a model


def model(**options: object) -> TinyTransformer:
    given = {"segment": 4, "memory": 6, **options}
    return segments.model("transformer_xl", attention_options=given, positions="none")


def test_a_model_trains_in_segments_as_on_the_whole() -> None:
    """Its gradients end where fit detaches the state, if both have the same segments."""
    cut, whole = model(), model()
    torch.testing.assert_close(segments.losses(cut, segment=4), segments.losses(whole))
    of_task = segments.COPYING
    assert evaluate(cut, of_task).loss == pytest.approx(evaluate(whole, of_task).loss)


def test_a_model_generates_from_its_state() -> None:
    segments.it_generates_from_its_state(model())


def test_the_map_goes_across_segments() -> None:
    module, x = layer().eval(), torch.randn(1, N, 12, dtype=torch.float64)
    with record() as notes:
        naive(*module.heads.project(x), *module.heads.project(x)[1:], module.u, module.t,
              module.weight, options=SMALL)  # fmt: skip
    found = mixing_matrix(module, x)
    assert found.exact
    torch.testing.assert_close(found.matrix, notes.last("weights"))
    assert (found.matrix[0, :, 12, 6:13] > 0).all()  # its segment begins with 12
    assert (found.matrix[0, :, 12, :6] == 0).all()


# ---- refusals


def test_what_makes_no_sense_is_refused() -> None:
    with pytest.raises(ValueError, match="memory=0 keys, which is nothing"):
        TransformerXLOptions(memory=0, same_length=True)
    with pytest.raises(ValueError, match="segment should be at least 1"):
        TransformerXLOptions(segment=0)
    module, x = layer(), torch.randn(2, 11, 12, dtype=torch.float64)
    _, state = module.step(x)
    with pytest.raises(ValueError, match="one bool for each of the 2 sequences"):
        state.cleared(torch.tensor([True]))
    with pytest.raises(ValueError, match="memory holds 6 vectors, but that of this layer at most"):
        layer(TransformerXLOptions(segment=4, memory=5)).step(x, state)
    with pytest.raises(ValueError, match=r"state's memory is torch\.float32"):
        module.step(x, SegmentState(state.memory.float(), *state[1:]))
    with pytest.raises(ValueError, match="state's seen is of shape"):
        module.step(x, state._replace(seen=state.seen[:, 1:]))
    with pytest.raises(TypeError, match="state should be what step returned, whose segment has 3"):
        module.step(x, state._replace(segment=None))


@pytest.mark.parametrize("at_once", [1, 2, 10**9], ids=["one", "some", "all"])
@pytest.mark.parametrize(
    "options",
    [{"segment": 5, "memory": 7}, {"segment": 4, "memory": 0}, {"segment": 64, "memory": 80},
     {"segment": 4, "memory": 6, "same_length": True}],
    ids=str,
)  # fmt: skip
def test_segments_together_are_segments_one_by_one(
    options: dict[str, Any], at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A GPU computes many segments in one call: the same values and gradients."""
    torch.manual_seed(0)
    sizes = [(2, 3, 23, 5), (2, 3, 23, 5), (2, 3, 23, 11)]
    made = [torch.randn(size, dtype=torch.float64) for size in (*sizes, *sizes[1:])]
    made += [torch.randn(size, dtype=torch.float64) for size in ((3, 5), (3, 5), (3, 5, 15))]
    made = [x.requires_grad_() for x in made]
    given = {"options": TransformerXLOptions(**options)}
    direction = torch.randn(2, 3, 23, 11, dtype=torch.float64)
    for padding in (None, torch.rand(2, 23) > 0.4):
        wanted = transformer_xl.chunked(*made, padding=padding, **given)
        with monkeypatch.context() as patched:
            patched.setattr(transformer_xl, "on_cpu", lambda x: False)
            c, memory = min(23, options["segment"]), min(23, options["memory"])
            room = at_once * 2 * 3 * c * (c + memory)
            patched.setattr(segments_together, "TOGETHER", room)
            found = transformer_xl.chunked(*made, padding=padding, **given)
        torch.testing.assert_close(found, wanted)
        grads = (
            torch.autograd.grad(x, made, direction, materialize_grads=True) for x in (found, wanted)
        )
        torch.testing.assert_close(*grads)
