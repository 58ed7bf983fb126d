"""Product keys: the best of k² sums are the best of all K² keys, and values that nobody reads."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import attnlab
from attnlab.architecture.feed.product_keys import ProductKeys, naive, product
from attnlab.core.probe import record
from attnlab.measure.count import count
from attnlab.models.tiny import TinyTransformer


@given(st.integers(1, 9), st.integers(1, 81), st.integers(0, 10_000))
def test_the_best_sums_of_the_best_halves_are_the_best_of_all_keys(
    K: int, top: int, seed: int
) -> None:
    top = min(top, K * K)
    rng = torch.Generator().manual_seed(seed)
    queries = torch.randn(1, 3, 2, 2, 5, generator=rng, dtype=torch.float64)
    keys = torch.randn(2, 2, K, 5, generator=rng, dtype=torch.float64)
    values = torch.randn(K, K, 3, generator=rng, dtype=torch.float64)
    chosen = []
    for form in (naive, product):
        with record() as seen:
            form(queries, keys, values, top=top)
        chosen.append(seen["chosen"][0])
    assert torch.equal(chosen[0].sort().values, chosen[1].sort().values)


def test_the_scores_of_a_key_are_those_of_its_halves() -> None:
    """In plain numbers: one query, two half keys, the best of four values."""
    queries = torch.tensor([1.0, 2.0]).view(1, 1, 1, 2, 1)
    keys = torch.tensor([[3.0, -1.0], [0.5, 2.0]]).view(1, 2, 2, 1)
    values = torch.arange(4.0).view(2, 2, 1)  # scores 3 + 1, 3 + 4, −1 + 1, −1 + 4
    for form in (naive, product):
        assert form(queries, keys, values, top=1).item() == 1
        both = torch.tensor([7.0, 4.0]).softmax(0) @ torch.tensor([1.0, 0.0])
        torch.testing.assert_close(form(queries, keys, values, top=2), both.view(1, 1, 1))


def test_all_values_read_is_attention_over_the_whole_table() -> None:
    rng = torch.Generator().manual_seed(1)
    queries, keys, values = (
        torch.randn(shape, generator=rng) for shape in ((2, 3, 1, 2, 5), (1, 2, 4, 5), (4, 4, 7))
    )
    first, second = torch.einsum("bnqsd,qskd->sbnk", queries, keys)
    weights = (first[..., :, None] + second[..., None, :]).flatten(-2).softmax(-1)
    torch.testing.assert_close(
        product(queries, keys, values, top=16), weights @ values.flatten(0, 1)
    )


def test_a_value_that_no_token_reads_has_no_gradient() -> None:
    layer = ProductKeys(6, keys=7, top=2, queries=1).double()
    layer(torch.randn(2, 5, 6, dtype=torch.float64)).sum().backward()
    grad = layer.contract.weight.grad
    assert grad is not None
    read = (grad != 0).any(-1).sum()
    assert 1 < read <= 2 * 5 * 2


def test_the_table_grows_faster_than_the_time() -> None:
    """Four times as many values for twice the products with half keys, which are not all."""
    x = torch.randn(1, 64, 32)
    small, large = (count(ProductKeys(32, keys=K).eval(), x).flops for K in (32, 64))
    assert small < large < 1.6 * small
    assert ProductKeys(32, keys=64).contract.weight.shape[0] == 4 * 32**2


def test_padding_takes_no_part_in_the_batch_norm() -> None:
    x = torch.randn(2, 5, 6)
    padding = torch.arange(5) < torch.tensor([[5], [3]])
    outs = []
    for filled in (0.0, 1e3):
        torch.manual_seed(4)
        layer = ProductKeys(6, keys=7, batch_norm=True).train()
        given_x = x.masked_fill(~padding[..., None], filled)
        outs.append((layer(given_x, padding)[padding], layer.norm.running_mean))
    torch.testing.assert_close(outs[0], outs[1])


def test_what_cannot_be_is_refused_in_a_sentence() -> None:
    with pytest.raises(ValueError, match=r"top should be at most keys² = 9, .* got 10"):
        attnlab.build("product_keys", dim=6, keys=3, top=10)
    with pytest.raises(ValueError, match="at least 2 real tokens in a batch"):
        ProductKeys(6, keys=7, batch_norm=True).train()(torch.zeros(1, 1, 6))
    with pytest.raises(ValueError, match="has no hidden layer whose width is hidden=4"):
        TinyTransformer(11, dim=8, heads=2, layers=2, feed="product_keys", hidden=4)


def test_a_model_takes_it_by_name_and_begins_with_smaller_values() -> None:
    torch.manual_seed(0)
    options = {"keys": 9, "top": 3}
    model = TinyTransformer(11, dim=8, heads=2, layers=8, feed="pkm", feed_options=options)
    table = model.decoder.blocks[0].feed_forward.contract.weight
    assert table.std().item() == pytest.approx(8**-0.5 / 4, rel=0.1)  # 16 branches
    model(torch.zeros(1, 4, dtype=torch.long)).sum().backward()
