"""Parts of a score: they sum to query · key; a planted edge comes from the head that made it."""

import pytest
import torch

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
