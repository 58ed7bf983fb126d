"""Where a model's parameters and floating-point operations are.

Parameters are counted on the parts themselves; operations by running one sequence through the model
and counting every matrix product, at 2 per multiply-add (additions, norms and softmax are left out,
as everywhere in the field). PyTorch's FlopCounterMode does not know the CPU kernel of scaled
dot-product attention; here it counts as what it computes, the naive form: two products with the
full n × n matrix, also where it is causal, because the naive form computes the masked half too.
"""

from collections.abc import Iterator
from itertools import chain
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode, sdpa_flop_count

from attnlab.core.integers import check_integer
from attnlab.core.modes import mode
from attnlab.models.layers import Block
from attnlab.models.tiny import TinyTransformer, check_model


class Row(NamedTuple):
    """One part of a model; flops are those of one forward pass over one sequence."""

    part: str
    parameters: int
    flops: int


def count(model: TinyTransformer, n: int) -> list[Row]:
    """A row per part for one sequence of length n (the source too), and a last row "total".

    A matrix that is used twice (tied output) counts once, at its first use, and layers that share
    their parameters are one row with the operations of all. The model stays as it
    was, and so do the global random generators.
    """
    check_model(model)
    flops = _flops(model, check_integer("n", n, at_least=0))
    seen: set[int] = set()
    rows = [
        Row(name, _parameters(modules, seen), sum(flops.get(address, 0) for address in addresses))
        for name, modules, addresses in _parts(model)
    ]
    left = flops[""] - sum(row.flops for row in rows)
    # A tied output matrix is applied by the model itself: its FLOPs are the rest of the total.
    rows.append(Row("output", _parameters([model.output], seen), left))
    total = Row("total", sum(r.parameters for r in rows), sum(r.flops for r in rows))
    return [*rows, total]


def _parts(model: TinyTransformer) -> Iterator[tuple[str, list[nn.Module | None], list[str]]]:
    """(name, its modules, their addresses in the model)."""
    yield "embedding", [model.embedding], ["embedding"]
    if model.positions is not None:
        yield "positions", [model.positions], ["positions"]
    for name in ("encoder", "decoder"):
        stack = getattr(model, name)
        if stack is None:
            continue
        seen: set[int] = set()
        for i, block in enumerate(stack.blocks):
            yield from _block_parts(f"{name}.blocks.{i}", block, seen)
        if own := [child for child, _ in stack.depth.named_children()]:
            yield f"{name}.depth", [stack.depth], [f"{name}.depth.{child}" for child in own]
        yield f"{name}.norm", [stack.norm], [f"{name}.norm"]


def _block_parts(
    address: str, block: Block, seen: set[int]
) -> Iterator[tuple[str, list[nn.Module | None], list[str]]]:
    """Parts that are not in ``seen``; all operations of a part that layers share count once."""
    if not block.sublayers():  # the block of a paper is one part
        if id(block) not in seen:
            seen.add(id(block))
            yield address, [block], [address]
        return
    for part in ("attention", "cross", "feed_forward"):
        module = getattr(block, part)
        if module is not None and id(module) not in seen:
            seen.add(id(module))
            join = f"{part}_residual"  # which calls the part, and counts its operations too
            yield f"{address}.{part}", [module, getattr(block, join)], [f"{address}.{join}"]


def _parameters(modules: list[nn.Module | None], seen: set[int]) -> int:
    """Parameters of these modules that are not in ``seen`` yet; they are added to it."""
    total = 0
    for module in modules:
        for parameter in [] if module is None else module.parameters():
            if id(parameter) not in seen:
                seen.add(id(parameter))
                total += parameter.numel()
    return total


def _flops(model: TinyTransformer, n: int) -> dict[str, int]:
    """FLOPs of one forward pass inside each module, by its address; "" is the model."""
    counter = FlopCounterMode(display=False, custom_mapping=_cpu_attention())
    with mode(model, training=False), torch.random.fork_rng(), torch.no_grad(), counter:
        model(**_blank_input(model, n))
    root = type(model).__name__
    return {
        address.removeprefix(root).removeprefix("."): sum(by_operator.values())
        for address, by_operator in counter.get_flop_counts().items()
    } | {"": counter.get_total_flops()}


def _blank_input(model: TinyTransformer, n: int) -> dict[str, Tensor]:
    device = next(chain(model.embedding.parameters(), model.embedding.buffers())).device
    if model.features is not None:
        return {"tokens": torch.zeros(1, n, model.features, device=device)}
    tokens = torch.zeros(1, n, dtype=torch.long, device=device)
    return {"tokens": tokens} | ({"source": tokens} if model.kind == "encoder_decoder" else {})


def _cpu_attention() -> dict[Any, Any]:
    kernel = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
    return {kernel: _attention_flops}


def _attention_flops(
    q_shape: Any, k_shape: Any, v_shape: Any, *args: Any, out_shape: Any = None, **kwargs: Any
) -> int:
    return sdpa_flop_count(q_shape, k_shape, v_shape)
