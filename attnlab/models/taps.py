r"""Attention that is a convolution: one head for each tap of the kernel, its weights set by hand.

Pixel $q$ and pixel $k$ of an image are $\delta = k - q$ apart. If scores depend on $\delta$ alone,

$$r_\delta = (|\delta|^2,\ \delta_1,\ \delta_2), \qquad v_h = -\alpha\,(1,\ -2\Delta_1,\
-2\Delta_2), \qquad v_h \cdot r_\delta = -\alpha\,|\delta - \Delta|^2 + \alpha\,|\Delta|^2,$$

then the softmax of head h is a small hill around the pixel at $q + \Delta$, the narrower the larger
α. With α = 0 it is the mean of the image, and as α grows it becomes that one pixel. So K² heads,
one for each offset $\Delta$ of a K × K kernel, read all pixels under the kernel, and if $W_V W_O$
of a head is the kernel's matrix at its offset, their sum is the convolution. Each head needs as
many channels as the input or the output has, whichever are fewer.

At the borders an offset may point outside the image. The softmax has to choose among the pixels
that there are, and chooses the nearest: the convolution has its **border repeated**, not zeros.

Common mistakes: comparing with zero padding, which is equal in the interior only; kernels that are
turned round, as "convolution" here is a correlation, as everywhere in the field.

Cordonnier, Loukas, Jaggi. On the Relationship between Self-Attention and Convolutional Layers.
ICLR 2020, arXiv:1911.03584, section 3 and theorem 1.
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from attnlab.core.options import Size, check_value
from attnlab.core.shapes import checked
from attnlab.mechanisms.dense.full import naive


def offsets(size: Size) -> Int[Tensor, "h 2"]:
    """The offsets (down, right) of the taps of a size × size kernel, row by row."""
    if check_value("size", size, Size) % 2 == 0:
        raise ValueError(f"size should be odd, so that a kernel has a middle, got {size}")
    one = torch.arange(size) - size // 2
    return torch.cartesian_prod(one, one)


def scores(
    height: Size, width: Size, size: Size, alpha: float, dtype: torch.dtype = torch.float32
) -> Float[Tensor, "h n n"]:
    """The scores of each head for the n = height · width pixels in reading order."""
    at = torch.cartesian_prod(torch.arange(height), torch.arange(width))
    apart = (at[None] - at[:, None]).to(dtype)
    r = torch.cat((apart.square().sum(-1, keepdim=True), apart), dim=-1)
    toward = offsets(size).to(dtype)
    v = -alpha * torch.cat((torch.ones_like(toward[:, :1]), -2 * toward), dim=-1)
    return torch.einsum("hr,qkr->hqk", v, r)


def weights(height: Size, width: Size, size: Size, alpha: float) -> Float[Tensor, "h n n"]:
    """What each head attends to: the softmax of its scores."""
    return scores(height, width, size, alpha).softmax(-1)


@checked
def convolved(
    image: Float[Tensor, "b c height width"], kernel: Float[Tensor, "out c K K"], *,
    alpha: float = 40.0,
) -> Float[Tensor, "b out height width"]:  # fmt: skip
    """Attention whose heads are set so that it is the convolution by ``kernel``.

    Queries and keys are zero, so the scores of positions alone decide. The values of each head are
    the pixels, and its output matrix is the kernel's at one offset.
    """
    size, (height, width) = kernel.shape[-1], image.shape[-2:]
    pixels = image.flatten(2).mT[:, None].expand(-1, size**2, -1, -1)  # (b, h, n, c)
    nothing = pixels.new_zeros(pixels.shape)
    bias = scores(height, width, size, alpha, image.dtype).to(image.device)
    bias = bias.expand(len(image), -1, -1, -1)
    read = naive(nothing, nothing, pixels, bias=bias)
    taps = kernel.flatten(2)  # (out, c, h)
    return torch.einsum("bhnc,och->bon", read, taps).unflatten(-1, (height, width))
