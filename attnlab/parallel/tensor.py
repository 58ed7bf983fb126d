r"""Tensor parallelism: each process holds columns of one matrix and the rows that belong to them.

Of two products with a function of each number in between, y = f(x W_1) W_2, process i holds the
columns W_1^i and the rows W_2^i, and

$$y = \sum_i f(x W_1^i)\, W_2^i,$$

so x has to be everywhere, nothing is exchanged in the middle, and the sum over the processes is one
all-reduce; backward the gradient of x is another. Attention is divided in the same way by its
heads. In the layers of attnlab:

    by columns   heads.query, heads.key, heads.value; expand (with its bias), opens
    by rows      heads.output; contract (its bias is added once, after the sum)

Everything else (embedding, norms, output) is in every process as it is. An all-reduce of N numbers
sends 2 (P - 1)/P N from each process, and N is b n dim: a layer has two of them forward. Backward
two would do as well, if the gradients of queries, keys and values were added before they are summed
over the processes, as Megatron-LM does. PyTorch sums the gradient of each matrix by columns alone:
four all-reduces for a layer with an MLP, five with gates. So each process sends

    4 (P - 1)/P b n dim      for each layer, forward
    8 (P - 1)/P b n dim      backward (10 with gates; 4 would be enough)

PyTorch does it all (``torch.distributed.tensor.parallel``): this page finds out which matrices of a
model go which way, and refuses what cannot be divided.

Shoeybi et al.: *Megatron-LM: Training Multi-Billion Parameter Language Models Using Model
Parallelism*, 2019, arXiv 1909.08053. Departure: the embedding and the output matrix are not divided
by rows of the vocabulary.
"""

import itertools
from typing import Any

from torch import nn

from attnlab.architecture.feed.gated import Gated
from attnlab.architecture.feed.mlp import MLP
from attnlab.core.heads import Heads
from attnlab.core.integers import check_integer
from attnlab.core.positions import DistanceBias

COLUMNS, ROWS = "columns", "rows"


def divided(model: nn.Module, processes: int) -> dict[str, str]:
    """Which matrices of a model are divided, by their names: by "columns" or by "rows".

    Raises ValueError, with the name of the layer, where one cannot be divided: heads or a hidden
    width that ``processes`` does not divide, a layer that has more than projections around its
    heads, a bias of its own for each head.
    """
    count = check_integer("`processes`", processes, at_least=1)
    found: dict[str, str] = {}
    for name, module in model.named_modules():
        if isinstance(module, Heads):
            _check_heads(model, name, module, count)
            found |= dict.fromkeys(
                (f"{name}.{part}" for part in ("query", "key", "value")), COLUMNS
            )
            found[f"{name}.output"] = ROWS
        elif isinstance(module, MLP | Gated):
            if module.contract.in_features % count:
                raise ValueError(
                    f"{name}: a hidden width of {module.contract.in_features} cannot be divided "
                    f"among {count} processes"
                )
            parts = [part for part in ("expand", "opens") if hasattr(module, part)]
            found |= dict.fromkeys((f"{name}.{part}" for part in parts), COLUMNS)
            found[f"{name}.contract"] = ROWS
    if not found:
        raise ValueError(
            f"{type(model).__name__} has no layer that can be divided: neither attention by heads "
            "nor a feed-forward layer of attnlab"
        )
    return found


def _check_heads(model: nn.Module, name: str, heads: Heads, count: int) -> None:
    if heads.heads % count or heads.kv_heads % count:
        raise ValueError(
            f"{name}: {heads.heads} heads of queries and {heads.kv_heads} of keys cannot be "
            f"divided among {count} processes; both should be multiples of {count}"
        )
    if isinstance(heads.positions, DistanceBias):
        raise ValueError(
            f"{name}: its position scheme has a bias for each head, which is not divided; choose "
            "positions='rope' or one at the embedding"
        )
    layer_name = name.rpartition(".")[0]
    layer = model.get_submodule(layer_name)
    own = {part for part, _ in (*layer.named_parameters(), *layer.named_buffers())}
    prefix = name.removeprefix(f"{layer_name}.")
    parts = itertools.product(("query", "key", "value", "output"), ("weight", "bias"))
    of_heads = {f"{prefix}.{part}.{kind}" for part, kind in parts}
    if type(heads) is not Heads or own - of_heads:
        what = ", ".join(sorted(own - of_heads)) or type(heads).__name__
        raise ValueError(
            f"{layer_name}: {type(layer).__name__} has more than projections around its heads "
            f"({what}), so dividing the heads would change what it computes"
        )


def parallelize(model: nn.Module, mesh: Any = None) -> nn.Module:
    """Divide the layers of a model among the processes, in place; every process calls it with the
    same model and later with the same inputs.

    mesh: the processes, as ``torch.distributed.device_mesh.init_device_mesh`` makes them; all of
        them, on CPUs, if it is not given.

    Raises ValueError as ``divided`` does.
    """
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor.parallel import (
        ColwiseParallel,
        RowwiseParallel,
        parallelize_module,
    )

    if mesh is None:
        mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    plan = divided(model, mesh.size())
    styles = {COLUMNS: ColwiseParallel, ROWS: RowwiseParallel}
    parallelize_module(model, mesh, {name: styles[way]() for name, way in plan.items()})
    return model


def numbers_sent(
    b: int, n: int, dim: int, layers: int, processes: int, *, gates: bool = False
) -> tuple[int, int]:
    """By the formula, the numbers that each process sends: forward, backward."""
    once = 2 * (processes - 1) * layers * b * n * dim // processes
    return 2 * once, (5 if gates else 4) * once
