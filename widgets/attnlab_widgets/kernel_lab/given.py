"""What KernelLab is given: heads with their queries and keys, and tokens; two trained heads."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from attnlab.core.markup import printable
from attnlab.figures.labels import visible

LONGEST = 128
"""Tokens that are drawn."""

Heads = Mapping[str, tuple[Tensor, Tensor]]
Tokens = Sequence[str] | Mapping[str, Sequence[str]] | None


@dataclass(frozen=True)
class Head:
    """Queries (n, d) and keys (m, d) in float32, as the page has them, and a label each query."""

    q: Tensor
    k: Tensor
    names: list[str]

    @property
    def width(self) -> int:
        return self.q.shape[1]

    def key(self, j: int) -> str:
        """A key by the label of the query at its position; causal queries are the last ones."""
        offset = len(self.k) - len(self.q)
        return self.names[j - offset] if offset <= j else f"key {j}"


def checked(heads: Any, tokens: Tokens, causal: bool) -> dict[str, Head]:
    """The heads by their names."""
    if not isinstance(heads, Mapping) or not heads:
        raise TypeError(
            '`heads` should name at least one head: {"my head": (q, k)} with q (n, d) and k (m, d)'
        )
    found = {}
    for name, pair in heads.items():
        q, k = _pair(name, pair, causal)
        found[printable(str(name))] = Head(q, k, _named(name, q, tokens))
    return found


def _pair(name: str, pair: Any, causal: bool) -> tuple[Tensor, Tensor]:
    if not isinstance(pair, tuple | list) or len(pair) != 2:
        raise TypeError(f"head {name!r} should be a pair (q, k), got {type(pair).__name__}")
    q, k = (torch.as_tensor(x).detach().to("cpu", torch.float32) for x in pair)
    if q.ndim != 2 or k.ndim != 2 or q.shape[1] != k.shape[1] or not q.shape[1]:
        raise ValueError(
            f"head {name!r}: q should be (n, d) and k (m, d), got {tuple(q.shape)} and "
            f"{tuple(k.shape)}; pick one sequence and one head, as queries[0, 0]"
        )
    if not 1 <= len(q) <= LONGEST or not 1 <= len(k) <= LONGEST:
        raise ValueError(
            f"head {name!r}: between 1 and {LONGEST} queries and keys can be drawn, got {len(q)} "
            f"and {len(k)}"
        )
    if causal and len(q) > len(k):
        raise ValueError(
            f"head {name!r}: causal queries are the last of the positions, but there are {len(q)} "
            f"queries for {len(k)} keys; use causal=False"
        )
    if not (q.isfinite().all() and k.isfinite().all()):
        raise ValueError(f"head {name!r} has entries that are NaN or infinite")
    return q, k


def _named(name: str, q: Tensor, tokens: Tokens) -> list[str]:
    """A label for each query, its position where none is given."""
    given = tokens.get(name) if isinstance(tokens, Mapping) else tokens
    if given is None:
        return [str(i) for i in range(len(q))]
    if isinstance(given, str) or len(given) != len(q):
        raise ValueError(f"`tokens` should be a list of {len(q)} for the queries of head {name!r}")
    return [visible(token) for token in given]


def trained_heads() -> tuple[dict[str, tuple[Tensor, Tensor]], dict[str, list[str]]]:
    """A gentle and a sharp head of the models that come with attnlab, and their tokens."""
    from attnlab.lens.watch import watch
    from attnlab.pretrained import load

    heads, tokens = {}, {}
    for name, which in (("gentle head", "documentation"), ("sharp head", "induction")):
        model, task = load(which)
        if which == "documentation":
            ids = task.encode("The class statement creates a new class, and its body is run.")  # type: ignore[attr-defined]
        else:
            ids = torch.randperm(14, generator=torch.Generator().manual_seed(0)).repeat(2)
        with watch(model) as seen, torch.no_grad():
            model(ids[None])
        heads[name] = seen[1].queries[0, 0].clone(), seen[1].keys[0, 0].clone()
        tokens[name] = task.tokens(ids)  # type: ignore[attr-defined]
    return heads, tokens
