"""Which keys the queries of a layer chose, by what scores, and what of full attention they keep.

    with attnlab.watch(model) as seen:
        model(tokens)
    layers = selected_in(seen)
    layers[0].kept("selected")         # (h, n): the share of full attention that each query reads

MoBA chooses blocks by a router, NSA blocks by the weights of its compressed branch, DeepSeek's
sparse attention tokens by an indexer. Each notes its choice as an ``attnlab.core.selection``.
Beside it stand the weights that softmax attention over all earlier keys has for the same queries
and keys: what lies on keys that are read is kept, the rest is lost.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from attnlab.core.integers import check_integer
from attnlab.core.softmax import masked_softmax
from attnlab.lens.record import Attention

SELECTED = "selected"
_WHO = "moba, nsa and deepseek_sparse"


@dataclass(frozen=True)
class Branch:
    """One way in which a layer reads keys: NSA has three, the others one.

    ``read``     (h, n, m) bool: the keys that it reads; in NSA's compressed branch, those whose
                 means it reads
    ``weights``  (h, n, m): its weights, before any gate
    ``gates``    (h, n): what its output is multiplied by
    """

    read: Tensor
    weights: Tensor
    gates: Tensor


@dataclass(frozen=True)
class Selected:
    """The choice of one layer on one sequence: n queries, the last of m keys, in h heads.

    ``of``        what is chosen: "block" or "token"
    ``unit``      (m,): the unit of each key, −1 for padding
    ``scores``    (h, n, u): by which units are chosen; −∞ where a unit cannot be chosen by its
                  score
    ``chosen``    (h, n, u) bool
    ``always``    (h, n, u) bool: read whatever their scores
    ``allowed``   (n, m) bool: real keys that are not after the query
    ``full``      (h, n, m) float64: the weights of softmax attention over them
    ``branches``  by name; "selected" is the one of the chosen units
    """

    name: str
    of: str
    unit: Tensor
    scores: Tensor
    chosen: Tensor
    always: Tensor
    allowed: Tensor
    full: Tensor
    branches: dict[str, Branch]

    def kept(self, branch: str = SELECTED) -> Tensor:
        """(h, n): how much of full attention lies on keys that the branch reads."""
        return (self.full * self.branches[branch].read).sum(-1)

    def read(self, branch: str = SELECTED) -> Tensor:
        """(h, n) int64: how many keys the branch reads."""
        return self.branches[branch].read.sum(-1)

    def mean_kept(self, branch: str = SELECTED) -> Tensor:
        """(h,): ``kept`` on the mean over the queries that may attend to something."""
        real = self.allowed.any(-1)
        return self.kept(branch)[:, real].mean(-1)

    def by_unit(self) -> Tensor:
        """(h, n, u): full attention added up over the keys of each unit."""
        u = self.scores.shape[-1]
        at = torch.where(self.unit < 0, u, self.unit).expand(self.full.shape)
        summed = self.full.new_zeros(*self.full.shape[:2], u + 1).scatter_add(-1, at, self.full)
        return summed[..., :u]


def selected_in(seen: Any, batch: int = 0) -> list[Selected]:
    """The layers of ``seen`` that chose their keys; of a batch, one sequence.

    ``seen`` is what ``attnlab.watch`` recorded, one of its records, or several. Layers of other
    mechanisms are passed over; a ValueError where no other is there.
    """
    records = [seen] if isinstance(seen, Attention) else seen
    if not isinstance(records, Iterable) or isinstance(records, str | Tensor):
        raise TypeError(
            f"`seen` should be what attnlab.watch recorded, or a record of it, got {seen!r}"
        )
    records = list(records)
    for record in records:
        if not isinstance(record, Attention):
            raise TypeError(
                "`seen` should be what attnlab.watch recorded, or records of it, got "
                f"{type(record).__name__}"
            )
    chosen = [record for record in records if "selection" in record.choice]
    if not chosen:
        names = ", ".join(record.name for record in records[:4])
        more = ", …" if len(records) > 4 else ""
        raise ValueError(
            f"no layer of `seen` notes which keys it chose, as {_WHO} do: "
            + (f"it has {names}{more}" if records else "no attention was recorded")
        )
    return [_selected(record, batch) for record in chosen]


def _selected(record: Attention, batch: int) -> Selected:
    b, h, n, m = record.shape
    if not 0 <= check_integer("`batch`", batch) < b:
        raise ValueError(f"`batch` should be 0 to {b - 1}, got {batch}")
    unit, scores, chosen, always = (_row(x, batch).cpu() for x in record.choice["selection"][1:])
    groups = h // scores.shape[0]
    scores, chosen, always = (
        x.expand(scores.shape).repeat_interleave(groups, dim=0) for x in (scores, chosen, always)
    )
    weights = _row(record.weights, batch).cpu()
    q, k = (_row(x, batch).double().cpu() for x in (record.queries, record.keys))
    causal = torch.ones(n, m, dtype=torch.bool).tril(m - n)
    real = unit >= 0
    allowed = causal & real & real[m - n :, None]
    full = masked_softmax(q @ k.repeat_interleave(h // len(k), 0).mT * q.shape[-1] ** -0.5, allowed)
    read = chosen.gather(-1, unit.clamp(min=0).expand(h, n, m)) & allowed
    own = Branch(read, weights, torch.ones(h, n))
    parts = record.choice.get("branches")
    if parts is None:
        branches = {SELECTED: own}
    else:
        gates = _row(record.choice["gates"], batch).cpu()
        branches = {}
        for at, (name, part) in enumerate(parts.items()):
            weight = _row(part, batch).cpu()
            seen = read if name == SELECTED else (weight > 0) & allowed
            branches[name] = Branch(seen, weight, gates[..., at])
    return Selected(
        record.name, record.choice["selection"].of, unit, scores, chosen, always, allowed,
        full, branches,
    )  # fmt: skip


def _row(x: Tensor, batch: int) -> Tensor:
    """One sequence of a batch, or the one that stands for all."""
    return x.detach()[batch if len(x) > 1 else 0]
