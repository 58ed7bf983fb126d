"""How states change: gates, and three ways to what enters them."""

import torch
from torch import Tensor, nn

EPS = 2**-23
"""What a mean square of states is increased by: one number, whatever they are computed in."""


class Gate(nn.Module):
    """From the old states s, the new z and what z was made of, h: the next states."""

    def __init__(self, dim: int, width: int, kind: str) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.ones(dim)) if kind == "fixed" else None
        self.forget, self.take = (
            None if kind == "fixed" else nn.Linear(width, dim) for _ in range(2)
        )

    def forward(self, s: Tensor, z: Tensor, h: Tensor) -> Tensor:
        if self.forget is None or self.take is None:
            g = torch.sigmoid(self.bias)  # type: ignore[arg-type]
            return s * g + z * (1 - g)
        return s * torch.sigmoid(self.forget(h) + 1) + z * torch.sigmoid(self.take(h) - 1)


class StateUpdate(nn.Module):
    """The horizontal direction after its attention: one of three ways, with one or two gates."""

    def __init__(self, dim: int, kind: str, gate: str) -> None:
        super().__init__()
        self.kind = kind
        self.output = None if kind == "single" else nn.Linear(2 * dim, dim, bias=False)
        self.gate = Gate(dim, 4 * dim if kind == "single" else 2 * dim, gate)
        if kind == "skip":
            return
        self.up = nn.Linear(2 * dim if kind == "single" else dim, 4 * dim, bias=False)
        self.down = nn.Linear(4 * dim, dim, bias=False)
        if kind == "dual":
            self.norm, self.second = nn.RMSNorm(dim, EPS), Gate(dim, 4 * dim, gate)

    def forward(self, s: Tensor, a: Tensor) -> Tensor:
        if self.output is None:
            hidden = torch.relu(self.up(a))
            changed: Tensor = self.gate(s, torch.tanh(self.down(hidden)), hidden)
            return changed
        s = self.gate(s, self.output(a), a)
        if self.kind == "skip":
            return s
        hidden = torch.relu(self.up(self.norm(s)))
        found: Tensor = self.second(s, self.down(hidden), hidden)
        return found
