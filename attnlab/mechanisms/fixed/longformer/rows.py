"""Rows of the map that are computed apart: those of the global positions."""

from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from attnlab.core.patterns import Pattern
from attnlab.core.precision import upcast
from attnlab.core.probe import note
from attnlab.core.shapes import SelfKeys, SelfValues
from attnlab.core.softmax import masked_softmax
from attnlab.core.sparse import blocked as engine
from attnlab.core.sparse.attention import scaled_scores


class GlobalRows(NamedTuple):
    """Queries of the global ``positions``, and the keys and values that they attend to."""

    positions: tuple[int, ...]
    queries: Float[Tensor, "b h rows d"]
    keys: SelfKeys
    values: SelfValues

    def rows(self, n: int, m: int) -> Tensor:
        """The positions as a tensor; a ValueError unless n = m."""
        if n != m:
            raise ValueError(f"global rows are for whole sequences, got {n} queries, {m} keys")
        at, rows = list(self.positions), self.queries.shape[2]
        if rows != len(at):
            expected = f"one for each of positions={at}, which are {len(at)}"
            raise ValueError(f"global_rows has {rows} queries; expected {expected}")
        return torch.tensor(at, device=self.queries.device)


def with_rows(out: Tensor, v: Tensor, mask: Pattern | None, global_rows: GlobalRows) -> Tensor:
    """The output, in which the rows of the global positions are replaced."""
    rows = global_rows.rows(out.shape[2], v.shape[2])
    valid = None if mask is None else engine.without_padding(mask)[1]
    valid = None if valid is None else valid[:, None, None].to(v.device)
    weights = masked_softmax(scaled_scores(global_rows.queries, global_rows.keys), valid)
    note("log_sum_exp", None)  # global rows have scores of another kind, and are not in it
    return out.index_copy(2, rows, (weights @ upcast(global_rows.values)).to(v.dtype))
