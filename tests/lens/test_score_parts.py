"""Parts of a score: they sum to query · key; a planted edge comes from the head that made it."""

import pytest
import torch

from attnlab.lens.logit_parts import check_sum
from attnlab.lens.record import Attention
from attnlab.lens.score_parts import score_parts
from attnlab.lens.watch import watch
from attnlab.models.tiny import TinyTransformer

TEXTS = torch.tensor([[0, 1, 2, 3, 4, 5, 6, 1], [0, 6, 3, 5, 1, 2, 4, 6]])


def random_model(**options):
    torch.manual_seed(3)
    given = {"dim": 12, "layers": 3, "heads": 2, "max_len": 16} | options
    model = TinyTransformer(11, **given)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return model.double().eval()


def products(model, layer, head, query):
    """(b, n): query · key over the root of the width, as they are recorded."""
    with torch.no_grad(), watch(model) as seen:
        model(TEXTS)
    q, k = seen[layer].queries[:, head, query], seen[layer].keys[:, head]
    return (k @ q[..., None])[..., 0] * q.shape[-1] ** -0.5


@pytest.mark.parametrize("side", ["key", "query"])
@pytest.mark.parametrize("join", ["pre_norm", "post_norm", "layer_scale", "rezero", "deep_norm"])
def test_parts_of_both_sides_sum_to_the_recorded_product(join: str, side: str) -> None:
    model = random_model(join=join)
    for layer, head, query in ((0, 1, 5), (1, 0, -1), (2, 1, 3)):
        found = score_parts(model, TEXTS, layer, head, query, side=side)
        wanted = products(model, layer, head, query)
        torch.testing.assert_close(found.logits, wanted)
        torch.testing.assert_close(found.values.sum(0), wanted)
        layers = {part.layer for part in found.parts} - {None}
        assert layers == set(range(layer)), "only what stands below"
        if layer == 2:
            names = {str(part) for part in found.parts}
            assert {"embedding", "positions", "head 0.0", "head 1.1", "feed-forward 1"} < names


def test_the_planted_edge_comes_from_the_head_that_wrote_at_the_key(
    planted: TinyTransformer,
) -> None:
    """Head 0.0 writes the token before; head 1.1 looks for its own token there."""
    query = 7  # token 1 again, whose successor stands at 2
    found = score_parts(planted, TEXTS[:1], 1, 1, query)
    assert int(found.logits[0].argmax()) == 2
    from_head = found.of("attention", 0, 0)
    assert float(from_head[0, 2]) == pytest.approx(float(found.logits[0, 2]))
    assert float(found.logits[0, 2]) > 10
    asked = score_parts(planted, TEXTS[:1], 1, 1, query, side="query")
    assert float(asked.of("embedding")[0, 2]) == pytest.approx(float(found.logits[0, 2]))
    assert not any(part.head is not None for part in asked.parts)


@pytest.mark.parametrize("side", ["key", "query"])
def test_parts_of_another_key_are_taken_off(side: str) -> None:
    model = random_model()
    whole = score_parts(model, TEXTS, 1, 0, 5, side=side)
    less = score_parts(model, TEXTS, 1, 0, 5, side=side, minus=2)
    torch.testing.assert_close(less.values, whole.values - whole.values[..., 2:3])
    assert not less.logits[:, 2].any()
    mean = score_parts(model, TEXTS, 1, 0, 5, side=side, minus="mean")
    torch.testing.assert_close(
        mean.values, whole.values - whole.values[..., :6].mean(-1, keepdim=True)
    )
    torch.testing.assert_close(mean.values.sum(0), mean.logits)


def row_of(model, layer, head, query, **more):
    """(b, n) the weights of one query as they are recorded, and where it may attend."""
    with torch.no_grad(), watch(model) as seen:
        model(TEXTS, **more)
    call = seen[layer]
    return call.weights[:, head, query], call.mask.expand(call.shape)[:, head, query]


OTHERS = {
    "alibi": {"positions": "alibi"},
    "t5_bias": {"positions": "t5_bias"},
    "sandwich": {"positions": "sandwich"},
    "alibi, grouped heads": {
        "positions": "alibi", "attention": "grouped_query", "heads": 4,
        "attention_options": {"kv_heads": 2},
    },
    "window": {"attention": "longformer", "attention_options": {"window": 2}},
    "grouped heads": {
        "attention": "grouped_query", "heads": 4, "attention_options": {"kv_heads": 2}
    },
    "one key for all heads": {"attention": "multi_query"},
    "gated heads": {"attention": "gated_attention"},
    "root mean square norm": {"join_options": {"norm": "rms_norm"}},
    "no norm": {"join_options": {"norm": "no_norm"}},
    "layers that share parameters": {"depth": "shared"},
}  # fmt: skip


@pytest.mark.parametrize("side", ["key", "query"])
@pytest.mark.parametrize("name", OTHERS)
def test_the_softmax_of_the_sums_is_what_the_model_attends_with(name: str, side: str) -> None:
    """With biases by distance, windows, heads that share keys, and norms of other kinds."""
    model = random_model(**OTHERS[name])
    for layer, head, query in ((0, 1, 5), (1, 0, -1), (2, 1, 6)):
        found = score_parts(model, TEXTS, layer, head, query, side=side)
        weights, allowed = row_of(model, layer, head, query)
        shares = found.values.sum(0).masked_fill(~allowed, -torch.inf).softmax(-1)
        torch.testing.assert_close(shares, weights / weights.sum(-1, keepdim=True))
        torch.testing.assert_close(found.logits, found.values.sum(0))
        given = OTHERS[name].get("positions", "learned")
        assert ("distance" in map(str, found.parts)) == (given != "learned")


@pytest.mark.parametrize("side", ["key", "query"])
@pytest.mark.parametrize("name", ["window", "alibi, grouped heads", "grouped heads"])
def test_the_mean_is_over_the_keys_that_the_query_may_attend_to(name: str, side: str) -> None:
    model = random_model(**OTHERS[name])
    whole = score_parts(model, TEXTS, 1, 1, 6, side=side)
    mean = score_parts(model, TEXTS, 1, 1, 6, side=side, minus="mean")
    keys = slice(5, 7) if name == "window" else slice(7)
    wanted = whole.values - whole.values[..., keys].mean(-1, keepdim=True)
    torch.testing.assert_close(mean.values, wanted)
    torch.testing.assert_close(mean.values.sum(0), mean.logits)
    assert mean.logits[:, keys].mean(-1).abs().max() < 1e-9


def test_a_query_without_a_real_key_has_no_mean() -> None:
    model = random_model()
    padding = torch.ones_like(TEXTS, dtype=torch.bool)
    padding[1, :3] = False
    said = "query 1 of text 1 may attend to no real key, so there is no mean"
    with pytest.raises(ValueError, match=said):
        score_parts(model, TEXTS, 1, 0, 1, minus="mean", padding=padding)
    assert score_parts(model, TEXTS, 1, 0, 1, padding=padding).values.isfinite().all()
    found = score_parts(model, TEXTS, 1, 0, 5, minus="mean", padding=padding)
    whole = score_parts(model, TEXTS, 1, 0, 5, padding=padding)
    wanted = whole.values[:, 1] - whole.values[:, 1, 3:6].mean(-1, keepdim=True)
    torch.testing.assert_close(found.values[:, 1], wanted)


def test_a_bias_that_was_not_recorded_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Attention, "bias", None)
    with pytest.raises(ValueError, match="adds more to its scores than its queries, keys and"):
        score_parts(random_model(positions="alibi"), TEXTS, 1, 0, 5)


def test_parts_that_miss_are_called_those_of_scores() -> None:
    values, scores = torch.ones(2, 1, 3).double(), torch.full((1, 3), 3.0).double()
    with pytest.raises(ValueError, match="do not sum to its scores"):
        check_sum(values, scores, None, of="scores")


def test_a_model_in_single_precision_is_as_exact_as_it_computes() -> None:
    found = score_parts(random_model().float(), TEXTS, 2, 0, 5)
    torch.testing.assert_close(found.values.sum(0), found.logits, atol=1e-4, rtol=1e-4)


def test_padding_is_no_key() -> None:
    model = random_model()
    padding = torch.ones_like(TEXTS, dtype=torch.bool)
    padding[1, 5:] = False
    found = score_parts(model, TEXTS, 1, 0, 4, minus="mean", padding=padding)
    assert found.real.equal(padding)
    whole = score_parts(model, TEXTS, 1, 0, 4, padding=padding)
    torch.testing.assert_close(
        found.values, whole.values - whole.values[..., :5].mean(-1, keepdim=True)
    )
    assert "sum" in repr(found)


def test_what_has_no_parts_is_refused() -> None:
    model = random_model()
    with pytest.raises(ValueError, match="query should be from -8 to 7, got 8"):
        score_parts(model, TEXTS, 1, 0, 8)
    with pytest.raises(ValueError, match="minus should be from -8 to 7, got 9"):
        score_parts(model, TEXTS, 1, 0, 3, minus=9)
    with pytest.raises(ValueError, match="a key, or \"mean\", got 'all'"):
        score_parts(model, TEXTS, 1, 0, 3, minus="all")
    with pytest.raises(ValueError, match="side"):
        score_parts(model, TEXTS, 1, 0, 3, side="value")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="layer should be from 0 to 2"):
        score_parts(model, TEXTS, 3, 0, 3)
    with pytest.raises(ValueError, match="rotates queries and keys"):
        score_parts(random_model(positions="rotary", dim=16), TEXTS, 1, 0, 3)
    for attention in ("soft_cap", "qk_norm"):
        options = {"cap": 50.0} if attention == "soft_cap" else {}
        capped = random_model(attention=attention, attention_options=options)
        with pytest.raises(ValueError, match="are not the softmax of queries · keys"):
            score_parts(capped, TEXTS, 1, 0, -1)
