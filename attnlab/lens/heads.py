"""Statistics of attention heads.

Trained heads fall into kinds: some attend to the previous token, some to the next, some to the
token itself, some to the first token or to delimiters, often when there is nothing to attend to
(Clark, Khandelwal, Levy, Manning. What Does BERT Look At? BlackboxNLP 2019, arXiv:1906.04341);
some are broad, some sharp. ``head_statistics`` measures this for each head, averaged over rows and
batch.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from attnlab.core.shapes import checked

DELIMITERS = frozenset({"[SEP]", "[CLS]", "</s>", "<s>", ".", ",", ";", ":", "!", "?", "\n"})

Tokens = Sequence[str] | Sequence[Sequence[str]]


@dataclass(frozen=True, eq=False)
class HeadStatistics:
    """One number per head, each an array (h,) of float64; means over the rows that count.

    ``entropy``             in nats: 0 looks at one key, ln m at all alike
    ``normalised_entropy``  divided by ln(number of keys that the row may attend to): 0 to 1; rows
                            with a single such key are left out
    ``distance``            mean of |i - j| in tokens, weighted by attention
    ``previous``, ``next``  share to j = i - 1, i + 1; rows without such a (real) key are left out
    ``same``                share to j = i
    ``first``               share to the first real token
    ``delimiter``           share to delimiters; None where no tokens were given
    ``delimiter_from_others``, ``delimiter_from_delimiters``  the same over the rows of all other
                            tokens, and over the rows of delimiters alone. Delimiters often attend
                            to each other, and they are few: only the first of the two says what the
                            words do. None also where no row is one of theirs
    """

    entropy: np.ndarray
    normalised_entropy: np.ndarray
    distance: np.ndarray
    previous: np.ndarray
    next: np.ndarray
    same: np.ndarray
    first: np.ndarray
    delimiter: np.ndarray | None = None
    delimiter_from_others: np.ndarray | None = None
    delimiter_from_delimiters: np.ndarray | None = None

    def rows(self) -> list[dict[str, float]]:
        """One plain dict per head, for a table."""
        columns = {name: column for name, column in vars(self).items() if column is not None}
        return [
            {"head": head, **{name: float(column[head]) for name, column in columns.items()}}
            for head in range(len(self.entropy))
        ]


Sum = tuple[np.ndarray, np.ndarray]
"""Of one statistic, per head: its sum over the rows that count, and how many count; (h,) each."""


@checked
def head_statistics(
    weights: Float[Tensor, "b h n m"],
    tokens: Tokens | None = None,
    delimiters: Sequence[str] | frozenset[str] = DELIMITERS,
    *,
    mask: Bool[Tensor, "#b #h #n #m"] | None = None,
    padding: Bool[Tensor, "b n"] | None = None,
) -> HeadStatistics:
    """Statistics of each head from its weights.

    ``tokens`` are those of the keys, one list for all or one per row of the batch. ``mask`` (True =
    may attend) only serves the normalised entropy. ``padding`` (True = a real token) leaves out
    rows of padding; rows without any weight (nothing to attend to) are left out too. With fewer
    queries than keys the queries are the last positions.
    """
    sums = head_sums(weights, tokens, delimiters, mask=mask, padding=padding)
    with np.errstate(invalid="ignore"):  # a head without any row: NaN
        return HeadStatistics(**{
            name: total / rows
            for name, (total, rows) in sums.items()
            if rows.any() or "_from_" not in name
        })  # fmt: skip


def head_sums(
    weights: Tensor,
    tokens: Tokens | None = None,
    delimiters: Sequence[str] | frozenset[str] = DELIMITERS,
    *,
    mask: Tensor | None = None,
    padding: Tensor | None = None,
) -> dict[str, Sum]:
    """The statistics before the division, so that those of several batches can be added.

    Arguments are those of ``head_statistics``; ``delimiter`` is there if ``tokens`` are.
    """
    w = weights.detach().double()
    b, _, n, m = w.shape
    if padding is not None:
        w = w.masked_fill(~padding[:, None, :, None], 0)
    check_weights(w)
    counts = w.sum(dim=-1) > 0
    i = torch.arange(m - n, m, device=w.device)
    j = torch.arange(m, device=w.device)
    offset = j - i[:, None]
    real = real_keys(padding, n, m)
    entropy = -torch.special.xlogy(w, w).sum(dim=-1)
    sums = {
        "entropy": summed(entropy, counts),
        "normalised_entropy": _normalised(entropy, counts, mask, m),
        "distance": summed((w * offset.abs()).sum(dim=-1), counts),
        "previous": summed(_to(w, -1), counts & _has(offset == -1, real)),
        "next": summed(_to(w, 1), counts & _has(offset == 1, real)),
        "same": summed(_to(w, 0), counts & _has(offset == 0, real)),
        "first": summed(w[..., 0] if real is None else share(w, _first(real)), counts),
    }
    if tokens is not None:
        among = _among(tokens, delimiters, b, m, w.device)
        found, own = share(w, among), among[:, :, 0, max(0, m - n) :]
        sums["delimiter"] = summed(found, counts)
        if n <= m:  # the queries are the last of the keys' tokens
            sums["delimiter_from_others"] = summed(found, counts & ~own)
            sums["delimiter_from_delimiters"] = summed(found, counts & own)
    return sums


def check_weights(w: Tensor) -> None:
    """Refuse what no attention weight can be: NaN, infinity, a negative number."""
    if w.is_meta or not bool(w.sum().isfinite()):
        raise ValueError(
            "`weights` hold NaN or infinity (a softmax gives NaN for rows that may attend to "
            "nothing): take weights.nan_to_num(), or leave such rows out by padding="
        )
    if bool((w < 0).any()):
        raise ValueError(
            "`weights` are negative somewhere, and these are statistics of attention weights; of "
            "another map take the absolute values"
        )


def share(w: Tensor, columns: Tensor) -> Tensor:
    """The part of each row's attention that goes to ``columns``."""
    return (w * columns).sum(dim=-1)


def summed(value: Tensor, counts: Tensor) -> Sum:
    """Over batch and rows (b, h, n) that count, per head, and how many do."""
    counts = counts.expand(value.shape)
    total = value.masked_fill(~counts, 0).sum(dim=(0, 2))
    return total.cpu().numpy(), counts.sum(dim=(0, 2)).cpu().numpy()


def _normalised(entropy: Tensor, counts: Tensor, mask: Tensor | None, m: int) -> Sum:
    choices = torch.full_like(entropy, m)
    if mask is not None:
        choices = mask.expand(*entropy.shape, m).sum(dim=-1).to(entropy)
    several = choices > 1
    return summed(entropy / choices.clamp_min(2).log(), counts & several)


def real_keys(padding: Tensor | None, n: int, m: int) -> Tensor | None:
    """(b, m): the queries' padding, for the keys at the same positions; earlier keys are real."""
    if padding is None or n > m:
        return None
    return torch.nn.functional.pad(padding, (m - n, 0), value=True)


def _has(neighbour: Tensor, real: Tensor | None) -> Tensor:
    """Rows (b, 1, n) whose neighbour (n, m) exists and is a real token."""
    there = neighbour if real is None else neighbour & real[:, None, None, :]
    return there.any(dim=-1)


def _to(w: Tensor, by: int) -> Tensor:
    """The weight of each row's key ``by`` places on, 0 where there is none."""
    n, m = w.shape[-2:]
    places = torch.arange(m - n, m, device=w.device) + by
    there = (places >= 0) & (places < m)
    found = w.gather(-1, places.clamp(0, m - 1).view(1, 1, n, 1).expand(*w.shape[:3], 1))
    return found[..., 0] * there


def _first(real: Tensor) -> Tensor:
    return ((real.cumsum(dim=-1) == 1) & real)[:, None, None, :]


def _among(
    tokens: Tokens, delimiters: Sequence[str] | frozenset[str], b: int, m: int, device: torch.device
) -> Tensor:
    known = check_delimiters(delimiters)
    if isinstance(tokens, str):
        raise TypeError("tokens should be a list of tokens, got one text; split it first")
    if not isinstance(tokens, Iterable) or isinstance(tokens, Tensor):
        raise TypeError(f"tokens should be texts in a list, got {type(tokens).__name__}")
    tokens = list(tokens)
    shared = all(isinstance(token, str) for token in tokens)
    if not shared and any(isinstance(row, str) or not isinstance(row, Sequence) for row in tokens):
        raise TypeError("tokens should be texts, one list for all or one list per row of the batch")
    rows = [tokens] if shared else tokens
    if len(rows) not in (1, b) or any(len(row) != m for row in rows):
        lengths = sorted({len(row) for row in rows})
        raise ValueError(
            f"tokens should be {m} keys' tokens, or {b} lists of them, got {len(rows)} "
            f"of lengths {lengths}"
        )
    hit = [[token in known for token in row] for row in rows]
    return torch.tensor(hit, device=device)[:, None, None, :]


def check_delimiters(delimiters: object) -> frozenset[str]:
    if isinstance(delimiters, str | Mapping | Tensor):
        raise TypeError(f"delimiters should be a collection of tokens, got {delimiters!r}")
    found = list(delimiters) if isinstance(delimiters, Iterable) else [delimiters]
    texts = {each for each in found if isinstance(each, str)}
    if not isinstance(delimiters, Iterable) or not all(isinstance(each, str) for each in found):
        raise TypeError(f"delimiters should be a collection of tokens, got {delimiters!r}")
    return frozenset(texts)
