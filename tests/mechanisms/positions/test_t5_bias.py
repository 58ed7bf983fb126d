"""T5's buckets: the published table, Hugging Face's function at every distance, the bias itself."""

import pytest
import torch

import attnlab
from attnlab.mechanisms.positions.t5_bias import T5BiasOptions, naive

TABLE = {0: 0, -1: 1, 1: 17, -7: 7, -8: 8, -11: 8, -12: 9, -16: 10, -64: 14, -90: 14, -91: 15}


def test_the_table_of_both_sides() -> None:
    distances = torch.tensor([*TABLE, 128])
    assert T5BiasOptions().of(distances, causal=False).tolist() == [*TABLE.values(), 31]


def test_the_table_of_the_past() -> None:
    distances = torch.tensor([-15, -16, -127, 5])
    assert T5BiasOptions().of(distances, causal=True).tolist() == [15, 16, 31, 0]


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("buckets", "far"), [(32, 128), (64, 256), (32, 100), (128, 512), (8, 20)])
def test_buckets_as_in_hugging_face(buckets: int, far: int, causal: bool) -> None:
    t5 = pytest.importorskip("transformers.models.t5.modeling_t5")
    distances = torch.arange(-3000, 3001)
    theirs = t5.T5Attention._relative_position_bucket(distances, not causal, buckets, far)
    mine = T5BiasOptions(buckets=buckets, max_distance=far).of(distances, causal=causal)
    assert torch.equal(mine, theirs)


def test_far_distances_are_one_bucket() -> None:
    of = T5BiasOptions().of(torch.tensor([-128, -129, -5000]), causal=False)
    assert of.unique().tolist() == [15]


@pytest.mark.parametrize("largest", [128, 10**6, 10**9 + 7])
def test_buckets_begin_where_the_powers_say(largest: int) -> None:
    """Bucket 16 + s begins at the least t with t^16 ≥ 16^(16 - s) D^s, asked of its two sides."""
    options = T5BiasOptions(buckets=32, max_distance=largest)
    for s in range(1, 16):
        at = round(16 * (largest / 16) ** (s / 16))
        near = range(max(16, at - 2), at + 3)
        right = [t**16 >= 16 ** (16 - s) * largest**s for t in near]
        found = options.of(-torch.tensor(near), causal=True) >= 16 + s
        assert found.tolist() == right


def test_a_weight_belongs_to_its_bucket_and_head() -> None:
    weight = torch.zeros(32, 3)
    weight[17, 1] = 5.0  # keys one to the right, in head 1
    at = torch.arange(4)
    bias = naive(at, at, weight)
    assert bias.nonzero().tolist() == [[1, 0, 1], [1, 1, 2], [1, 2, 3]]


def test_gradients_are_sums_over_pairs() -> None:
    weight = torch.randn(32, 2, requires_grad=True)
    at = torch.arange(5)
    (grad,) = torch.autograd.grad(naive(at, at, weight).sum(), weight)
    assert grad[0].tolist() == [5.0, 5.0]
    assert grad[4].tolist() == [1.0, 1.0]
    assert grad[17 + 4 - 1].tolist() == [1.0, 1.0]


def test_layers_share_the_weights() -> None:
    model = attnlab.TinyTransformer(9, dim=8, heads=2, layers=3, positions="t5_bias")
    found = [p for name, p in model.named_parameters() if "positions" in name]
    assert [tuple(p.shape) for p in found] == [(32, 2)]


def test_wrong_options_are_answered_in_sentences() -> None:
    with pytest.raises(ValueError, match="buckets should be a multiple of 4, got 6"):
        T5BiasOptions(buckets=6)
    with pytest.raises(ValueError, match="max_distance=16 should be above buckets / 2 = 16"):
        T5BiasOptions(max_distance=16)
    with pytest.raises(ValueError, match="weight has 5 buckets, expected 32"):
        naive(torch.arange(3), torch.arange(3), torch.zeros(5, 2))
    past = attnlab.build("t5_bias", dim=8, heads=2, causal=True)
    with pytest.raises(ValueError, match="its buckets are all for the past"):
        attnlab.build("full", dim=8, heads=2, positions=past)
