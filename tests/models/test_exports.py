"""What exports, compiles and vmaps, cell by cell, as docs/guides/exports.md says."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.export import Dim, export

from attnlab import catalog
from attnlab.testing.mechanisms import DIM, causalities, module

PAGE = Path(__file__).parents[2] / "docs/guides/exports.md"
NAMES = (
    *("full", "multi_query", "longformer", "bigbird", "linear", "performer", "reformer"),
    *("linformer", "hyena", "s4d", "selective_scan", "gru"),
)
ROWS = [(name, causal) for name in NAMES for causal in causalities(catalog.card(name))]


def same(run: Callable[[Tensor], Tensor], layer: nn.Module, x: Tensor) -> None:
    torch.testing.assert_close(run(x), layer(x))


def exported(layer: nn.Module, x: Tensor) -> None:
    same(export(layer, (x,)).module(), layer, x)


def of_any_size(layer: nn.Module, x: Tensor) -> None:
    sizes = {0: Dim("b", max=64), 1: Dim("n", min=5, max=64)}
    same(export(layer, (x,), dynamic_shapes=(sizes,)).module(), layer, x.new_ones(3, 11, DIM))


def compiled(layer: nn.Module, x: Tensor) -> None:
    torch.compiler.reset()
    made = torch.compile(layer, fullgraph=True, backend="aot_eager")
    same(made, layer, x)
    torch.testing.assert_close(of_all(layer, made(x)), of_all(layer, layer(x)))


def of_all(layer: nn.Module, out: Tensor) -> tuple[Tensor, ...]:
    return torch.autograd.grad(out.square().sum(), [*layer.parameters()])


def vmapped(layer: nn.Module, x: Tensor) -> None:
    many = torch.stack((x, x.flip(0), -x))
    torch.testing.assert_close(torch.func.vmap(layer)(many), torch.stack([*map(layer, many)]))


def gradients_of_each(layer: nn.Module, x: Tensor) -> None:
    def loss(parameters: dict[str, Tensor], one: Tensor) -> Tensor:
        return torch.func.functional_call(layer, parameters, (one[None],)).square().sum()

    each = torch.func.vmap(torch.func.grad(loss), (None, 0))(dict(layer.named_parameters()), x)
    torch.testing.assert_close([*each.values()], [
        torch.stack(of_one) for of_one in zip(*(of_all(layer, layer(one[None])) for one in x))
    ])  # fmt: skip


COLUMNS = {
    "export": exported,
    "any size": of_any_size,
    "compile": compiled,
    "vmap": vmapped,
    "gradients of each": gradients_of_each,
}


class Limit:
    """Why some cells are "no": the sentence of the page, and the error that says so."""

    def __init__(self, reason: str, message: str, **rows: str) -> None:
        self.reason, self.message, self.rows = reason, message, rows

    def holds(self, name: str, column: str) -> bool:
        return column in self.rows.get(name, "").split(", ")


LIMITS: tuple[Limit, ...] = ()


def limit_of(name: str, column: str) -> int | None:
    found = [i for i, limit in enumerate(LIMITS, 1) if limit.holds(name, column)]
    return found[0] if found else None
