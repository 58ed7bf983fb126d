"""Attention as convolution: PyTorch's, with the border repeated; a mean where α = 0."""

from itertools import pairwise

import pytest
import torch
from torch.nn import functional as F

from attnlab.models.taps import convolved, offsets, weights


def drawn(size: int) -> tuple[torch.Tensor, torch.Tensor]:
    rng = torch.Generator().manual_seed(size)
    image = torch.randn(2, 3, 7, 11, generator=rng, dtype=torch.float64)
    return image, torch.randn(5, 3, size, size, generator=rng, dtype=torch.float64)


@pytest.mark.parametrize("size", [1, 3, 5])
def test_heads_set_by_hand_are_the_convolution_with_its_border_repeated(size: int) -> None:
    image, kernel = drawn(size)
    r = size // 2
    expected = F.conv2d(F.pad(image, (r, r, r, r), mode="replicate"), kernel)
    torch.testing.assert_close(convolved(image, kernel), expected)


def test_zeros_beyond_the_border_are_equal_in_the_interior_only() -> None:
    image, kernel = drawn(3)
    ours, zeros = convolved(image, kernel), F.conv2d(image, kernel, padding=1)
    same = torch.isclose(ours, zeros).all(1).all(0)
    inside = torch.zeros(7, 11, dtype=torch.bool)
    inside[1:-1, 1:-1] = True
    assert torch.equal(same, inside)


def test_without_alpha_every_head_takes_the_mean() -> None:
    image, kernel = drawn(3)
    mean = torch.einsum("ocij,bc->bo", kernel, image.mean((2, 3)))
    expected = mean[..., None, None].expand(2, 5, 7, 11)
    torch.testing.assert_close(convolved(image, kernel, alpha=0.0), expected)


def test_a_head_attends_to_the_pixel_at_its_offset_the_more_the_larger_alpha() -> None:
    at, query = offsets(3), 3 * 11 + 4
    shares = []
    for alpha in (0.0, 0.5, 2.0, 40.0):
        found = weights(7, 11, 3, alpha)[:, query]
        shares.append(
            torch.stack([found[h, query + 11 * d + r] for h, (d, r) in enumerate(at.tolist())])
        )
    assert all((later > earlier).all() for earlier, later in pairwise(shares))
    torch.testing.assert_close(shares[-1], torch.ones(9))
    corner = weights(7, 11, 3, 40.0)[
        :, 0
    ]  # of the upper left pixel: offsets up and left stay there
    assert [int(row.argmax()) for row in corner] == [0, 0, 1, 0, 0, 1, 11, 11, 12]


def test_a_kernel_has_a_middle() -> None:
    with pytest.raises(ValueError, match="size should be odd"):
        offsets(4)
