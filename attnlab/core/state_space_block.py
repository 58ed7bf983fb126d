"""The block of Mamba-2, around any scan whose heads have one decay per token."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from attnlab.core.matrix_memory import HeadNorm, MatrixMemory, decay_bias
from attnlab.core.precision import upcast
from attnlab.core.shapes import Tokens


class GroupNorm(HeadNorm):
    """Multiplied by SiLU of the gate first, then each group divided by its root mean square; a gain
    per channel."""

    def __init__(self, groups: int, width: int, dim: int, gate: nn.Module) -> None:
        super().__init__(groups, width, dim, gate=gate, epsilon=1e-5)
        self.gain = nn.Parameter(torch.ones(groups * width))

    def forward(self, out: Tensor, x: Tokens) -> Tokens:
        assert self.gate is not None
        gated = (upcast(out) * F.silu(upcast(self.gate(x)))).unflatten(-1, (self.heads, -1))
        normed = F.rms_norm(gated, gated.shape[-1:], eps=self.epsilon).flatten(-2)
        return self.project((upcast(self.gain) * normed).to(x.dtype))


class StateSpaceBlock(MatrixMemory):
    """(b, n, dim) → (b, n, dim), causal; zeros at padding.

    Its ``heads`` share ``expand`` · dim channels of values; queries and keys have the width
    ``state``, and consecutive heads share those of their group. Queries, keys and values pass a
    convolution of ``width`` taps with a bias, and SiLU. ``steps`` projects to one step per head.
    """

    def __init__(
        self, dim: int, heads: int, *, state: int, expand: int, groups: int, width: int
    ) -> None:
        channels = expand * dim
        if channels % heads:
            raise ValueError(
                f"heads={heads} does not divide dim={dim} times expand={expand}: choose heads "
                f"among the divisors of {channels}"
            )
        if heads % groups:
            raise ValueError(
                f"groups={groups} does not divide heads={heads}: each group has equally many heads"
            )
        super().__init__(
            dim, groups, width=width, head_dim=state, value_dim=channels // heads,
            value_heads=heads, bias=True,
        )  # fmt: skip
        self.steps = nn.Linear(dim, heads)
        self.steps.bias = decay_bias(heads)
        self.log_A = nn.Parameter(torch.empty(heads).uniform_(1, 16).log())
        self.skip = nn.Parameter(torch.ones(heads))
        gate = nn.Linear(dim, channels, bias=False)
        self.set_output(GroupNorm(groups, channels // groups, dim, gate))

    def _gates(self, x: Tokens) -> tuple[Tensor, ...]:
        return self.steps(x).mT, self.log_A, self.skip
