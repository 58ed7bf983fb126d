"""Queries, keys and values of one head as bytes: its weights can be followed step by step.

A saved page holds them where they are small (`PAGE`); in a notebook the kernel is asked for those
of one head. What was added to the scores (a bias) comes with them; what else happened to them, such
as a soft cap, is named in a sentence.
"""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from attnlab.lens.record import Attention
from attnlab.lens.sources.layers import Held
from attnlab_widgets.quantization import Block

PAGE = 1_500_000
"""Bytes of all heads together that a saved page holds at most."""
_LARGEST = 60_000.0  # of float16, with some room
_WEIGHTS_ONLY = (
    "This source holds weights only. A recording of attnlab.watch also holds the queries, keys and "
    "values behind them."
)
_FORGOTTEN = (
    "The recording is no longer in memory. Keep it in a variable, as in `with attnlab.watch(model) "
    "as seen:`, and make the view from it again."
)

Records = list[list[list[tuple[Held | None, int]]]]
"""For each training step, recording and layer: the way to its record, and the row of the batch."""


def of_head(record: Attention, row: int, head: int) -> Block:
    """Queries (n, d), keys (m, d), values (m, e) of one head, and its bias (n, m) if there is one.

    ``scale`` is what query-key products were multiplied by, ``doubt`` a sentence on what else
    happened to the scores, or None.
    """
    h = record.shape[1]
    queries = record.queries.detach()[row, head]
    keys, values = (
        part.detach()[row, head // (h // part.shape[1])] for part in (record.keys, record.values)
    )
    bias = record.bias
    parts = [queries, keys, values]
    if bias is not None:
        parts.append(bias.detach().expand(record.shape)[row, head])
    header: dict[str, Any] = {
        "d": queries.shape[-1],
        "e": values.shape[-1],
        "scale": _scale(record, row, head),
        "bias": bias is not None,
        "doubt": _doubt(record),
    }
    coded = [_coded(part) for part in parts]
    header["kinds"] = [kind for kind, _ in coded]
    return Block(b"".join(data + bytes(-len(data) % 4) for _, data in coded), header)


def size(record: Attention) -> int:
    """Bytes of all heads of one row, as float16."""
    _, h, n, m = record.shape
    d, e = record.queries.shape[-1], record.values.shape[-1]
    return 2 * h * (n * d + m * (d + e) + (n * m if record.bias is not None else 0))


def answer(held_record: Held | None, row: int, head: int) -> Block | str:
    """The vectors of a head, or a sentence that says why there are none."""
    if held_record is None:
        return _WEIGHTS_ONLY
    record = held_record()
    if record is None:
        return _FORGOTTEN
    try:
        return of_head(record, row, head)
    except (ValueError, RuntimeError) as error:  # changed in place since, say
        return f"The record cannot give them: {error}"


def saved(records: Records) -> dict[str, Any]:
    """What a saved page holds: ``_vectors`` in bytes, and where each head's are, or a sentence."""
    known = [of() for step in records for one in step for of, _ in one if of is not None]
    needed = sum(size(record) for record in known if record is not None)
    if needed > PAGE:
        return {
            "_vector_blocks": "This page does not hold the queries, keys and values, which would "
            f"take {needed / 1e6:.0f} MB. In the notebook, the kernel has them."
        }
    parts: list[bytes] = []
    at = 0

    def placed(found: Block | str) -> dict[str, Any] | str:
        nonlocal at
        if isinstance(found, str):
            return found
        parts.append(found.data)
        at += len(found.data)
        return {**found.header, "at": at - len(found.data)}

    def layer(of: Held | None, row: int) -> list[dict[str, Any] | str]:
        record = None if of is None else of()
        heads = 1 if record is None else record.shape[1]
        return [placed(answer(of, row, head)) for head in range(heads)]

    blocks = [[[layer(*pair) for pair in one] for one in step] for step in records]
    return {"_vectors": b"".join(parts), "_vector_blocks": blocks}


def _coded(part: Tensor) -> tuple[str, bytes]:
    numbers = part.to(torch.float32).cpu().numpy()
    kind = "f2" if float(np.abs(numbers).max(initial=0)) < _LARGEST else "f4"
    return kind, numbers.astype(f"<{kind}").tobytes()


def _scale(record: Attention, row: int, head: int) -> float | None:
    scale = record.scale
    if not isinstance(scale, Tensor):
        return scale
    one = scale.detach().expand(record.shape)[row, head]
    same = bool((one == one.reshape(-1)[0]).all())
    return float(one.reshape(-1)[0]) if same else None


def _doubt(record: Attention) -> str | None:
    history = record._history
    if history.through:
        return f"The scores went through {', '.join(history.through)} before the softmax."
    if history.over_queries:
        return "The softmax runs over the queries of each key, not over the keys of each query."
    if history.sinks:
        return "The softmax also runs over sinks, which are no keys and take a part of the weight."
    return None
