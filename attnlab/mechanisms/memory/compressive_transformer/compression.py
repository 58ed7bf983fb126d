"""How a segment that leaves the memory is compressed, and what that loses."""

from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn import functional as F

from attnlab.core.options import Options, Size
from attnlab.core.precision import upcast


@dataclass(frozen=True, kw_only=True)
class CompressiveOptions(Options):
    """The lengths, and how is compressed; by default those of a small model.

    ``segment``        how many tokens are read at once.
    ``memory``         how many inputs before its segment a query attends to as they are; a
                       multiple of ``segment``.
    ``compressed``     how many compressed vectors are kept for what is further back.
    ``rate``           how many inputs are compressed into one vector.
    ``compression``    the mean or the maximum of each ``rate`` inputs; a learned convolution of
                       them, or one whose taps are two positions apart; or the most used of them.
    ``task_gradient``  whether a convolution gets the gradient of the task; otherwise it learns
                       from ``reconstruction_loss`` alone.
    """

    segment: Size = 128
    memory: Size = 128
    compressed: Size = 64
    rate: Size = 4
    compression: Literal["mean", "max", "convolution", "dilated", "most_used"] = "mean"
    task_gradient: bool = False

    def check(self) -> None:
        if self.memory % self.segment:
            raise ValueError(
                f"memory={self.memory} should be a multiple of segment={self.segment}: whole "
                "segments enter the memory and leave it"
            )
        if self.rate > self.segment:
            raise ValueError(
                f"rate={self.rate} should be at most segment={self.segment}, or nothing of a "
                "segment is kept"
            )
        if self.task_gradient and not self.learned:
            raise ValueError(
                f"compression={self.compression!r} has nothing that a task_gradient could train; "
                "leave it out, or choose 'convolution' or 'dilated'"
            )

    @property
    def learned(self) -> bool:
        """Whether the compression has weights."""
        return self.compression in ("convolution", "dilated")

    @property
    def linear(self) -> bool:
        """Whether keys and values may be compressed in place of inputs, with the same result."""
        return self.compression in ("mean", "most_used")

    @property
    def each(self) -> int:
        """How many vectors a segment is compressed into; what is left over is lost."""
        return self.segment // self.rate

    @property
    def columns(self) -> int:
        """The largest number of columns that a segment of queries attends to."""
        return self.compressed + self.memory + self.segment


def convolution(dim: int, options: CompressiveOptions) -> nn.Conv1d | None:
    """The weights of a learned compression, None for the others."""
    if not options.learned:
        return None
    far = options.compression == "dilated"
    return nn.Conv1d(dim, dim, options.rate, stride=options.rate, dilation=2 if far else 1)


def windows(x: Tensor, options: CompressiveOptions) -> Tensor:
    """(b, segment, …) → (b, each, rate, …)."""
    return x[:, : options.each * options.rate].unflatten(1, (options.each, options.rate))


def compressed(
    x: Float[Tensor, "b s dim"], seen: Bool[Tensor, "b s"], kernel: nn.Conv1d | None,
    options: CompressiveOptions,
) -> Float[Tensor, "b r dim"]:  # fmt: skip
    """The vectors of one whole segment, from the inputs that are ``seen``; not for "most_used"."""
    if options.compression == "mean":
        return mean(x, seen, options)
    if options.compression == "max":
        shown = windows(x.masked_fill(~seen[..., None], -torch.inf), options).amax(dim=2)
        return shown.masked_fill(shown == -torch.inf, 0)
    assert kernel is not None
    rows = x.masked_fill(~seen[..., None], 0).mT
    if options.compression == "dilated":  # as many windows as without dilation
        before = (options.rate - 1) // 2
        rows = F.pad(rows, (before, options.rate - 1 - before))
    found: Tensor = kernel(rows).mT
    return found


def compressed_for_task(
    x: Tensor, seen: Tensor, kernel: nn.Conv1d | None, options: CompressiveOptions
) -> Tensor:
    """The vectors as later segments read them: constants unless ``task_gradient`` is set."""
    found = compressed(x, seen, kernel, options)
    return found if options.task_gradient else found.detach()


def mean(x: Tensor, seen: Tensor, options: CompressiveOptions) -> Tensor:
    """The mean of the ``seen`` inputs of each window; zero for a window without one."""
    there = windows(seen, options)[..., None]
    count = there.sum(dim=2).clamp(min=1)
    return (upcast(windows(x, options) * there).sum(dim=2) / count).to(x.dtype)


def most_used(usage: Float[Tensor, "b s"], options: CompressiveOptions) -> Tensor:
    """The places (b, each) within a segment of those inputs that were attended to most, in
    order."""
    return usage.topk(options.each, dim=1).indices.sort(dim=1).values


def reconstruction_loss(
    q: Float[Tensor, "b h n d"], old: tuple[Tensor, Tensor], new: tuple[Tensor, Tensor],
    seen: tuple[Bool[Tensor, "b m"], Bool[Tensor, "b r"]], by: Bool[Tensor, "b n"],
) -> Float[Tensor, ""]:  # fmt: skip
    """The mean of ‖attn(h, old) - attn(h, new)‖: what attention by contents alone loses.

    ``old`` and ``new`` are keys and values, (b, h, m, d) before the compression and (b, h, r, d)
    after it; ``seen`` says which of them may be attended to, and ``by`` which queries are tokens.
    """
    read = (
        F.scaled_dot_product_attention(q, *pair, attn_mask=there[:, None, None])
        for pair, there in zip((old, new), seen, strict=True)
    )
    lost = (upcast(next(read)) - upcast(next(read))) * by[:, None, :, None]
    norms = torch.linalg.vector_norm(lost, dim=(1, 2, 3))
    return norms.sum() / by.any(dim=1).sum().clamp(min=1)
