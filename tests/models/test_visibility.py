"""A model that is told which token sees which, and where each stands."""

import pytest
import torch

import attnlab
from attnlab.core.visibility import Visibility
from attnlab.models.tiny import TinyTransformer

VOCAB, B, N = 11, 3, 7
DENSE = ("full", "flash", "multi_query", "entmax", "hopfield")
SCHEMES = ("learned", "sinusoidal", "rope", "alibi", "kerple", "t5_bias", "complex")


def model(kind: str = "language_model", **options: object) -> TinyTransformer:
    torch.manual_seed(1)
    classes = {} if kind in ("language_model", "encoder_decoder") else {"classes": VOCAB}
    given = {"dim": 12, "heads": 2, "layers": 2, "max_len": 2 * N, "kind": kind, **classes}
    return TinyTransformer(VOCAB, **{**given, **options}).double()


def tokens() -> torch.Tensor:
    torch.manual_seed(2)
    return torch.randint(VOCAB, (B, N))


def past() -> Visibility:
    return Visibility(torch.ones(N, N, dtype=torch.bool).tril().expand(B, N, N))


def both_sides(n: int = N, positions: torch.Tensor | None = None) -> Visibility:
    return Visibility(torch.ones(B, n, n, dtype=torch.bool), positions)


@pytest.mark.parametrize("attention", DENSE)
def test_the_past_alone_is_what_a_causal_layer_sees(attention: str) -> None:
    made, padding = model(attention=attention), torch.arange(N) < torch.tensor([[7], [5], [1]])
    given = made(tokens(), padding=padding, structure=past())
    torch.testing.assert_close(given[padding], made(tokens(), padding=padding)[padding])


@pytest.mark.parametrize("scheme", SCHEMES)
def test_both_sides_are_what_an_encoder_sees(scheme: str) -> None:
    made, places = model("token_classifier", positions=scheme), torch.arange(N).expand(B, N)
    for padding in (None, torch.arange(N) < torch.tensor([[7], [5], [1]])):
        real = torch.ones(B, N, dtype=torch.bool) if padding is None else padding
        expected = made(tokens(), padding=padding)[real]
        for visibility in (both_sides(), both_sides(positions=places)):
            found = made(tokens(), padding=padding, structure=visibility)
            torch.testing.assert_close(found[real], expected)


@pytest.mark.parametrize(
    ("kind", "scheme"),
    [("token_classifier", each) for each in SCHEMES] + [("language_model", "learned")],
)
def test_tokens_stand_at_their_positions_wherever_they_are_read(kind: str, scheme: str) -> None:
    """Read in another order, with their positions, padding and who sees whom turned along."""
    made, turn = model(kind, positions=scheme), torch.randperm(N)
    seen, real = torch.rand(B, N, N) < 0.5, torch.rand(B, N) < 0.8
    there = Visibility(seen, torch.arange(N).expand(B, N))
    turned = Visibility(seen[:, turn][:, :, turn], turn.expand(B, N))
    out = made(tokens()[:, turn], padding=real[:, turn], structure=turned)
    expected = made(tokens(), padding=real, structure=there)[:, turn]
    torch.testing.assert_close(out[real[:, turn]], expected[real[:, turn]])


@pytest.mark.parametrize("join", ["pre_norm", "post_norm"])
@pytest.mark.parametrize("depth", ["plain", "checkpointed", "shared", "universal"])
def test_any_depth_has_the_gradients_of_what_was_seen(join: str, depth: str) -> None:
    """Also where the layers are computed again during backward."""
    made = model(join=join, depth=depth)
    seen = Visibility(torch.rand(B, N, N) < 0.5)
    weight = made.embedding.weight

    def gradient() -> torch.Tensor:
        out = made(tokens(), structure=seen).log_softmax(-1)[..., 0].sum()
        return torch.autograd.grad(out, weight)[0]

    found, step = gradient(), 1e-6
    with torch.no_grad():
        weight[3, 4] += step
        after = made(tokens(), structure=seen).log_softmax(-1)[..., 0].sum()
        weight[3, 4] -= 2 * step
        before = made(tokens(), structure=seen).log_softmax(-1)[..., 0].sum()
        weight[3, 4] += step
    torch.testing.assert_close(found[3, 4], (after - before) / (2 * step), rtol=1e-5, atol=1e-8)


def test_reversible_layers_compute_what_was_seen_again() -> None:
    made, seen = model(depth="reversible"), Visibility(torch.rand(B, N, N) < 0.5)
    loss = made(tokens(), structure=seen).log_softmax(-1)[..., 0].sum()
    gradient = torch.autograd.grad(loss, made.embedding.weight)[0]
    direction = torch.randn_like(gradient)
    ahead, back = (
        torch.func.functional_call(
            made, {"embedding.weight": made.embedding.weight + sign * 1e-6 * direction},
            (tokens(),), {"structure": seen},
        ).log_softmax(-1)[..., 0].sum()
        for sign in (1, -1)
    )  # fmt: skip
    torch.testing.assert_close(
        (gradient * direction).sum(), (ahead - back) / 2e-6, rtol=1e-5, atol=0
    )


def test_who_looks_on_is_shown_what_was_seen() -> None:
    made, seen = model("token_classifier").float(), torch.rand(B, N, N) < 0.5
    with attnlab.watch(made) as records:
        made(tokens(), structure=Visibility(seen))
    for record in records:
        assert torch.equal(record.weights[:, 0] > 0, seen)


def test_a_token_that_sees_nothing_takes_nothing() -> None:
    seen = both_sides().allowed.clone()
    seen[:, 2] = False
    out = model("token_classifier")(tokens(), structure=Visibility(seen))
    assert out.isfinite().all()
    other = tokens()
    other[:, 4] = (other[:, 4] + 1) % VOCAB
    changed = model("token_classifier")(other, structure=Visibility(seen))
    torch.testing.assert_close(changed[:, 2], out[:, 2])
    assert not torch.allclose(changed[:, 3], out[:, 3])


def test_it_can_be_compiled() -> None:
    made, seen = model(), Visibility(torch.rand(B, N, N) < 0.5)
    compiled = torch.compile(made, fullgraph=True, backend="eager")
    out = compiled(tokens(), structure=seen)
    torch.testing.assert_close(out, made(tokens(), structure=seen))


def test_rows_are_cut_and_moved_together() -> None:
    seen = Visibility(torch.rand(B, N, N) < 0.5, torch.randint(N, (B, N)))
    part = seen[1:]
    assert len(part) == 2
    assert torch.equal(part.allowed, seen.allowed[1:])
    assert part.positions is not None
    assert torch.equal(part.positions, seen.positions[1:])
    assert seen.to("meta").allowed.device.type == "meta"
    assert seen.to("meta").positions.device.type == "meta"


@pytest.mark.parametrize(
    ("kind", "options", "visibility", "sentence"),
    [
        ("language_model", {"attention": "longformer", "attention_options": {"window": 2}},
         both_sides(), "decides itself which token sees which"),
        ("classifier", {}, both_sides(), "this model's kind is 'classifier'"),
        ("language_model", {}, both_sides(5), r"should be bool of shape \(3, 7, 7\)"),
        ("language_model", {}, Visibility(torch.ones(B, N, N)), "got torch.float32"),
        ("language_model", {}, both_sides(positions=torch.arange(N)[None]),
         r"positions of 3 sequences of 7 tokens should be of shape \(3, 7\)"),
        ("language_model", {"positions": "t5_bias"}, both_sides(), "for the past alone"),
        ("language_model", {"positions": "rope", "position_options": {"scaling": "xpos"}},
         both_sides(), "for the past alone"),
        ("token_classifier", {"feed": "switch"},
         both_sides(positions=torch.arange(N).expand(B, N)), "Switch treats the tokens"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused_in_a_sentence(kind, options, visibility, sentence) -> None:
    made = model(kind, **options)
    with pytest.raises(ValueError, match=sentence):
        made(tokens(), structure=visibility)


def test_experts_may_take_tokens_in_the_order_of_the_text() -> None:
    assert model(feed="switch")(tokens(), structure=past()).isfinite().all()


def test_the_decoder_of_an_encoder_decoder_is_told_of_its_own_tokens() -> None:
    made, source = model("encoder_decoder"), tokens()[:, :5]
    causal = made(tokens(), source=source)
    torch.testing.assert_close(made(tokens(), source=source, structure=past()), causal)
    open_ = made(tokens(), source=source, structure=both_sides())
    other = tokens()
    other[:, -1] = (other[:, -1] + 1) % VOCAB
    assert not torch.isclose(
        made(other, source=source, structure=both_sides())[:, 0], open_[:, 0]
    ).all()
    torch.testing.assert_close(made(other, source=source)[:, 0], causal[:, 0])
    memory = made.encode(source)
    x = made.decode(tokens(), memory=memory, structure=both_sides())
    torch.testing.assert_close(made.logits(x), open_)


def test_where_no_order_can_be_told_it_is_refused() -> None:
    made, source = model("encoder_decoder"), tokens()
    with pytest.raises(ValueError, match=r"leave structure out here, and give it to decode\(\)"):
        made.encode(source, structure=both_sides())
    memory = made.encode(source)
    for which, read in ((made, {"memory": memory}), (model(), {})):
        with pytest.raises(ValueError, match=r"cannot be told to step\(\)"):
            which.step(tokens(), structure=both_sides(), **read)
    with pytest.raises(ValueError, match=r"bool of shape \(3, 7, 7\)"):
        made(tokens(), source=source, structure=both_sides(5))
