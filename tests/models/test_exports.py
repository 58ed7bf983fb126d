"""What exports, compiles and vmaps, cell by cell, as docs/guides/exports.md says."""

import functools
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
import torch
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram, export

from attnlab import catalog
from attnlab.core.sparse.decompositions import decompositions
from attnlab.testing.mechanisms import DIM, causalities, module

PAGE = Path(__file__).parents[2] / "docs/guides/exports.md"
NAMES = (
    *("full", "multi_query", "longformer", "bigbird", "linear", "performer", "reformer"),
    *("linformer", "hyena", "s4d", "selective_scan", "gru"),
)
ROWS = [(name, causal) for name in NAMES for causal in causalities(catalog.card(name))]


def same(run: Callable[[Tensor], Tensor], layer: nn.Module, x: Tensor) -> None:
    torch.testing.assert_close(run(x), layer(x))


@functools.lru_cache(maxsize=1)
def asked(name: str, causal: bool) -> tuple[nn.Module, Tensor]:
    """A layer and an input for the cells of a row, which come one after the other."""
    return module(catalog.card(name), 0, causal), torch.randn(2, 7, DIM, dtype=torch.float64)


@functools.lru_cache(maxsize=1)
def program(layer: nn.Module, x: Tensor) -> ExportedProgram:
    """For the two cells of a row that begin with it."""
    return export(layer, (x,))


def exported(layer: nn.Module, x: Tensor) -> None:
    same(program(layer, x).module(), layer, x)


def of_any_size(layer: nn.Module, x: Tensor) -> None:
    sizes = {0: Dim("b", max=64), 1: Dim("n", min=5, max=256)}
    same(export(layer, (x,), dynamic_shapes=(sizes,)).module(), layer, x.new_ones(3, 11, DIM))


def decomposed(layer: nn.Module, x: Tensor) -> None:
    plain = program(layer, x).run_decompositions(decompositions())
    assert "ops.attnlab" not in plain.graph_module.code
    same(plain.module(), layer, x)


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
    expected = zip(*(of_all(layer, layer(one[None])) for one in x), strict=True)
    torch.testing.assert_close([*each.values()], [*map(torch.stack, expected)])


COLUMNS = {
    "export": exported,
    "any size": of_any_size,
    "plain": decomposed,
    "compile": compiled,
    "vmap": vmapped,
    "gradients of each": gradients_of_each,
}


class Limit(NamedTuple):
    """Why some cells are "no": the reason on the page, and the beginning of the error."""

    reason: str
    error: str
    cells: tuple[str, ...]


LIMITS = (
    Limit(
        'Chunks of its tokens are counted while it is traced; `form="naive"` takes any size, at '
        "the cost of all pairs.",
        "Constraints violated",
        ("linear, causal: any size", "performer, causal: any size"),
    ),
    Limit(
        "Every form has a loop that depends on the length: over tokens, chunks, or the powers that "
        "make a kernel.",
        "Constraints violated",
        ("s4d, causal: any size", "selective_scan, causal: any size", "gru, causal: any size"),
    ),
    Limit(
        "Random keys are a table, and PyTorch refuses new constants where it rewrites a program.",
        "",
        ("bigbird: plain",),
    ),
    Limit(
        'Its rounds are an operator without a decomposition; `form="naive"` has none of its own.',
        "",
        ("reformer: plain", "reformer, causal: plain"),
    ),
    Limit(
        'The backward pass is written by hand and unknown to `torch.func`; `form="naive"` does it.',
        "In order to use an autograd.Function",
        tuple(
            f"{row}: {column}"
            for row in ("reformer", "reformer, causal")
            for column in ("vmap", "gradients of each")
        ),
    ),
    Limit(
        'PyTorch\'s kernel of the GRU has no rule for `vmap`; `form="naive"` does it.',
        "Batching rule not implemented",
        ("gru, causal: vmap",),
    ),
)


def label(name: str, causal: bool) -> str:
    return f"{name}, causal" if causal else name


def limit(name: str, causal: bool, column: str) -> int:
    """The number of the cell's limit on the page; 0 if there is none."""
    cell = f"{label(name, causal)}: {column}"
    return next((i for i, each in enumerate(LIMITS, 1) if cell in each.cells), 0)


@pytest.mark.filterwarnings("ignore")  # of PyTorch's tracers
@pytest.mark.parametrize("column", COLUMNS)
@pytest.mark.parametrize(("name", "causal"), ROWS)
def test_a_cell_of_the_table(name: str, causal: bool, column: str) -> None:
    layer, x = asked(name, causal)
    if not (number := limit(name, causal, column)):
        return COLUMNS[column](layer, x)
    with pytest.raises(Exception, match=LIMITS[number - 1].error):
        COLUMNS[column](layer, x)


@pytest.mark.filterwarnings("ignore")  # of PyTorch's tracers
@pytest.mark.parametrize("name", ["linear", "performer"])
def test_the_equation_exports_for_any_size(name: str) -> None:
    layer = catalog.build(name, dim=DIM, heads=2, causal=True, form="naive").eval().double()
    of_any_size(layer, torch.randn(2, 7, DIM, dtype=torch.float64))


def table() -> str:
    lines = [("", *COLUMNS), ("---",) * (1 + len(COLUMNS))]
    for row in ROWS:
        numbers = [limit(*row, column) for column in COLUMNS]
        lines.append((label(*row), *(f"no ({i})" if i else "yes" for i in numbers)))
    reasons = "\n".join(f"{i}. {each.reason}" for i, each in enumerate(LIMITS, 1))
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + f"\n\n{reasons}\n"


def test_the_page_has_this_table() -> None:
    assert table() in PAGE.read_text(encoding="utf-8"), table()
