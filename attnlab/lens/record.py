"""The records of ``watch``: one per attention call."""

import difflib
import functools
import math
from collections.abc import Iterator, Sequence
from numbers import Integral
from typing import Any, overload

import torch
from torch import Tensor

from attnlab.core import patterns
from attnlab.core.precision import no_autocast, upcast
from attnlab.lens.axes import Axis, leaves, size
from attnlab.lens.snapshots import BLOCKED, History, Roles, Snapshot

RECOGNISED = (
    "what attnlab recognises: its own mechanisms, PyTorch's scaled_dot_product_attention and the "
    "modules that use it, and a softmax over the products of queries and keys that then weighs "
    "values (for anything else attnlab.lens.mixing.mixing_matrix(module, x) gives a map)"
)


class Attention:
    """One attention call: its queries, keys, values, mask and weights, in one layout.

    Tensors are detached views of what the model computed; only those made under
    ``torch.inference_mode`` are copied, because PyTorch does not count their changes. What needs
    work (masks, weights that a fused kernel never formed) is computed when it is read.

    ``name``     the path of the module that attended, in ``model.named_modules()`` (the class for
                 the model itself); a second call of the same module is ``name#2``
    ``form``     how it was found: "fused" (PyTorch's ``scaled_dot_product_attention``), "softmax"
                 (a softmax over a product of two tensors), "noted" (an attnlab form noted it)
    ``dropout``  the probability applied to the weights after the softmax; ``weights`` are those
                 before dropout
    ``doubt``    None, or a sentence that says why this may be no attention, or not all of it
    ``choice``   what a mechanism that chooses keys noted of it, by name (``attnlab.lens.selected``)
    """

    def __init__(
        self,
        name: str,
        form: str,
        roles: Roles,
        queries: Snapshot,
        keys: Snapshot,
        values: Snapshot,
        history: History,
        *,
        weights: Snapshot | None = None,
        dropout: float = 0.0,
        log_sum_exp: Snapshot | None = None,
        missing: str | None = None,
        doubt: str | None = None,
        choice: dict[str, Any] | None = None,
    ) -> None:
        self.name, self.choice = name, choice or {}
        self.form = form
        self.dropout = dropout
        self._doubt = doubt
        self._roles = roles
        self._queries, self._keys, self._values = queries, keys, values
        self._history = history
        self._weights = weights
        self._log_sum_exp = log_sum_exp
        self._missing = missing

    @property
    def doubt(self) -> str | None:
        """None, or a sentence that says why this may be no attention, or not as it is filed."""
        return "; ".join(filter(None, [self._doubt, *self._roles.doubts])) or None

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """(b, h, n, m)."""
        b, h, n, m = map(size, self._roles.groups())
        return b, h, n, m

    @property
    def queries(self) -> Tensor:
        """(b, h, n, d)."""
        batch, heads, queries, _ = self._roles.groups()
        return self._queries.arranged([batch, heads, queries, self._roles.width], (0, 1))

    @property
    def keys(self) -> Tensor:
        """(b, g, m, d): g = h, or fewer where query heads share a key head (g divides h)."""
        batch, heads, _, keys = self._roles.groups()
        return self._keys.arranged(
            [batch, heads_of(self._keys, heads), keys, self._roles.width], (0,)
        )

    @property
    def values(self) -> Tensor:
        """(b, g, m, e)."""
        batch, heads, _, keys = self._roles.groups()
        own = heads_of(self._values, heads)
        return self._values.arranged([batch, own, keys, self._roles.value_width], (0,))

    @property
    def scale(self) -> float | Tensor | None:
        """What query-key products were multiplied by; a tensor where heads differ; None if
        another function was applied to the scores as well (a soft cap, for example)."""
        return None if self._history.through else self._factor()

    def _factor(self) -> float | Tensor:
        scale: float | Tensor = self._history.factor
        for factor in self._history.factors:
            scale = scale * factor.arranged(self._roles.groups())
        return scale

    @property
    def mask(self) -> Tensor | None:
        """Bool, True = may attend, broadcastable to (b, h, n, m); None where all may.

        Additive entries at or below −10⁴ count as "may not".
        """
        found = [mask for mask in self._masks() if not bool(mask.all())]
        if not found:
            return None
        return functools.reduce(torch.logical_and, found)

    @property
    def bias(self) -> Tensor | None:
        """The finite part of what was added to the scores, or None; 0 at masked pairs. What is
        constant along the softmax is left out, for it changes no weight."""
        if self._history.through:
            return None
        total: Tensor | None = None
        for value, constant in zip(self._additive(), self._constant(), strict=True):
            if constant:
                continue
            finite = value.masked_fill(value <= BLOCKED, 0)
            if bool(finite.any()):
                total = finite if total is None else total + finite
        return total

    @property
    def weights(self) -> Tensor:
        """(b, h, n, m), those the model used, before dropout.

        Where the model formed them itself they are its own tensor, NaN rows included. Where a fused
        kernel did not form them they are computed now from queries, keys, scale and mask, half
        precisions in float32; a query that may attend to nothing then has a row of zeros.
        """
        if self._weights is not None:
            return self._weights.arranged(self._roles.groups(), (0, 1, 2, 3))
        if self._missing is not None:
            raise ValueError(self._missing)
        return self._computed()

    def _computed(self) -> Tensor:
        queries, keys = upcast(self.queries), upcast(self.keys)
        keys = keys.repeat_interleave(queries.shape[1] // keys.shape[1], dim=1)
        with no_autocast(queries.device):
            scores = queries @ keys.mT * self._factor()
        for value in self._additive():
            scores = scores + value
        for mask in self._masks(additive=False):
            scores = scores.masked_fill(~mask, -math.inf)
        empty = (scores == -math.inf).all(dim=-1, keepdim=True)
        self._verify(scores, empty)
        return scores.softmax(dim=-1).masked_fill(empty, 0)

    def _verify(self, scores: Tensor, empty: Tensor) -> None:
        """The log-sum-exp that a form noted must agree with the scores computed here."""
        if self._log_sum_exp is None:
            return
        noted = self._log_sum_exp.arranged(self._roles.groups()[:3], (0, 1, 2))
        ours = scores.logsumexp(dim=-1).masked_fill(empty.squeeze(-1), math.inf)
        if not torch.allclose(ours.to(noted), noted, rtol=1e-3, atol=1e-3):
            raise ValueError(
                f"the log-sum-exp that {self.name} noted is not that of its queries, keys and "
                "mask, so its weights cannot be computed from them"
            )

    def _additive(self) -> Iterator[Tensor]:
        groups = self._roles.groups()
        for addend, by in self._history.addends:
            value = addend.arranged(groups)
            yield value if by == 1 else value * by

    def _constant(self) -> list[bool]:
        """Whether each addend is constant along the softmax, so that it changes no weight."""
        roles, history = self._roles, self._history
        along = roles.queries if history.over_queries else roles.keys
        return [not addend.has(along) for addend, _ in history.addends]

    def _masks(self, additive: bool = True) -> Iterator[Tensor]:
        groups = self._roles.groups()
        n, m = self.shape[2:]
        for mask, meaning in self._history.masks:
            allowed = mask.arranged(groups)
            yield allowed if meaning else ~allowed
        device = self._queries.tensor.device
        if self._history.causal:
            yield torch.ones(1, 1, n, m, dtype=torch.bool, device=device).tril()
        dense = patterns.as_mask(self._history.pattern, n, m, device)
        if dense is not None:
            yield dense[(None,) * (4 - dense.dim())]
        if additive:
            for value, constant in zip(self._additive(), self._constant(), strict=True):
                yield value > (-math.inf if constant else BLOCKED)

    def __repr__(self) -> str:
        b, h, n, m = self.shape
        return (
            f"<Attention {self.name!r}: batch {b}, {h} heads, {n} queries × {m} keys, "
            f"width {size(self._roles.width)}, by {self._how()}>"
        )

    def _how(self) -> str:
        kinds = {
            "fused": "scaled_dot_product_attention",
            "softmax": "a softmax over scores",
            "noted": "an attnlab form",
        }
        over = "a softmax over the queries of each key"
        count = self._history.sinks
        sinks = f", beside {count} {'sink' if count == 1 else 'sinks'}" if count else ""
        through = "".join(f", scores through {name}" for name in self._history.through)
        doubt = f"; in doubt: {self.doubt}" if self.doubt else ""
        return (over if self._history.over_queries else kinds[self.form]) + sinks + through + doubt


def heads_of(snapshot: Snapshot, heads: Sequence[Axis]) -> list[Axis]:
    """The head axes that a tensor has: the leading ones, if query heads share key heads."""
    own = set(leaves(axis for axes in snapshot.layout for axis in axes))
    has = [axis in own for axis in heads]
    count = sum(has)
    return list(heads[:count]) if all(has[:count]) else list(heads)


class Seen(Sequence[Attention]):
    """The attention calls of a model, in the order in which they happened.

    ``seen[0]`` is the first, ``seen["encoder.layers.0.self_attn"]`` the one of that module.
    """

    def __init__(self, model: str = "the model") -> None:
        self._records: list[Attention] = []
        self._model = model
        self._called_elsewhere = False
        self._unread: set[str] = set()
        """The kinds of tensors whose attention could not be recorded."""

    @property
    def names(self) -> list[str]:
        return [record.name for record in self._records]

    def __len__(self) -> int:
        return len(self._records)

    def __iter__(self) -> Iterator[Attention]:
        return iter(self._records)

    @overload
    def __getitem__(self, which: int | str) -> Attention: ...
    @overload
    def __getitem__(self, which: slice) -> list[Attention]: ...
    def __getitem__(self, which: int | str | slice) -> Attention | list[Attention]:
        if isinstance(which, slice):
            return self._records[which]
        if isinstance(which, str):
            return self._named(which)
        if isinstance(which, bool) or not isinstance(which, Integral):
            raise TypeError(
                f"records are found by a number, a slice or the name of a module, got {which!r}"
            )
        if not -len(self) <= which < len(self):
            raise IndexError(f"there is no seen[{which}]; {self._summary()}")
        return self._records[which]

    def _named(self, name: str) -> Attention:
        for record in self._records:
            if record.name == name:
                return record
        near = difflib.get_close_matches(name, self.names, n=3, cutoff=0.3) or self.names[:3]
        hint = f"nearest are {', '.join(map(repr, near))}" if near else self._summary()
        raise KeyError(f"no attention call was recorded under {name!r}; {hint}")

    def _summary(self) -> str:
        if self._records:
            calls = "1 attention call" if len(self) == 1 else f"{len(self)} attention calls"
            return f"{calls} recognised in {self._model}{self._missed()}"
        elsewhere = "; it was called in another thread or asyncio task, which a watch cannot follow"
        return (
            f"no attention was recognised in {self._model}; {RECOGNISED}"
            f"{elsewhere if self._called_elsewhere else ''}{self._missed()}"
        )

    def _missed(self) -> str:
        kinds = " and ".join(sorted(self._unread))
        return f"; what it computed with {kinds} could not be recorded" if kinds else ""

    def __repr__(self) -> str:
        lines = "".join(f"\n  {record!r}" for record in self._records)
        return f"<Seen: {self._summary()}{lines}{chr(10) if lines else ''}>"
