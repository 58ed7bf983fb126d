"""The stream and its gradient by depth, before training."""

import pytest
import torch

from attnlab.lens.depth_profile import depth_profile, token_similarity


def test_a_profile_has_one_number_for_each_layer_and_is_the_same_again() -> None:
    before = torch.random.get_rng_state()
    found, again = depth_profile("pre_norm", 7), depth_profile("pre", 7)
    assert found.variance.shape == found.gradient.shape == (7,)
    assert found.variance.dtype == found.gradient.dtype == torch.float64
    assert torch.equal(found.variance, again.variance)
    assert found.gradient[-1] == 1
    assert torch.equal(torch.random.get_rng_state(), before)
    with torch.no_grad():
        assert torch.equal(depth_profile("pre_norm", 7).gradient, found.gradient)


def test_the_stream_grows_under_pre_norm_and_its_first_gradient_is_larger() -> None:
    found = depth_profile("pre_norm", 32)
    assert found.variance[31] > 1.7 * found.variance[15] > 2.8 * found.variance[7]
    assert found.gradient[0] > 2 > found.gradient[15]
    shrunk = depth_profile("pre_norm", 32, shrink=True)
    assert shrunk.variance[31] < 1.5


def test_under_post_norm_some_of_the_gradient_is_lost_on_its_way() -> None:
    found = depth_profile("post_norm", 32)
    torch.testing.assert_close(found.variance, torch.ones_like(found.variance), atol=1e-3, rtol=0)
    assert found.gradient.min() < 0.6
    assert depth_profile("post_norm", 32, shrink=True).gradient.min() > 0.8


def test_tokens_become_alike_where_the_stream_is_renewed() -> None:
    found = {name: token_similarity(name, 24) for name in ("post_norm", "deep_norm", "rezero")}
    assert found["post_norm"].shape == (24,)
    assert found["post_norm"][-1] > 0.9 > 0.2 > found["deep_norm"][-1]
    assert found["rezero"].abs().max() < 0.1
    assert found["post_norm"][-1] > found["post_norm"][3] > found["post_norm"][0]


@pytest.mark.parametrize(
    ("name", "layers", "options", "words"),
    [
        ("pre-norm", 3, {}, "no join 'pre-norm'; did you mean 'pre_norm'"),
        ("full", 3, {}, "no join 'full'"),
        ("pre_norm", 0, {}, "layers should be at least 1"),
        ("pre_norm", 3, {"normal": 1}, "pre_norm has no option 'normal'; did you mean 'norm'"),
        ("pre_norm", 3, {"norm": "batch"}, "no norm 'batch'"),
    ],
)
def test_bad_calls_are_answered_in_sentences(
    name: str, layers: int, options: dict[str, object], words: str
) -> None:
    with pytest.raises((ValueError, TypeError), match=words):
        depth_profile(name, layers, **options)
