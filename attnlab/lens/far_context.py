r"""Does a language model use its far context? Change the far context, and see whose loss changes.

The last tokens of each sequence are **measured**: the loss of token i is −ln p(token i | tokens
before i). A **distance** D divides what stands before the first measured token: the last D tokens
are the near part, all earlier ones the far part. A measured token has from D to D + last − 1 tokens
before it that are left as they are. The far part is changed in one of four ways:

``cut``      it is left out. The sequence is shorter, so absolute positions and the borders of
             segments move: a model may answer otherwise although it cannot reach the far part.
``shuffle``  its tokens stand in a random order.
``replace``  the tokens at the same places of another sequence stand there.
``random``   each of its tokens is drawn among all given tokens, so that it is as frequent as there.

The difference is the loss afterwards less the loss before, of the same token: above zero where the
far part had helped. It is averaged over classes of measured tokens:

``all``       every measured token
``frequent``  the tenth of all different tokens that occurs most often; ``rare``: the other tokens
``near``      stands in the near part, or among the measured tokens before it
``far``       stands in the far part only: it can be copied from there alone
``new``       stands nowhere before

With ``run=2``, a token *stands* somewhere only together with the token before it, as it has to for
an induction head; with 3, with the two before it. ``near``, ``far`` and ``new`` depend on the
distance, so at another distance they are other tokens.

The standard error is that of a mean over sequences that were drawn independently, each with its
tokens as one cluster. So sequences should not overlap in what is measured.

Sun, Krishna, Mattarella-Micke, Iyyer. Do Long-Range Language Models Actually Use Long-Range
Context? EMNLP 2021, arXiv:2109.09115: cutting, shuffling and replacing the prefix, and the classes.
Departures: they measure the last ten tokens, ten at a time, and average five shuffles; ``random``
and ``run`` are ours.
"""

import math
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from attnlab.core.integers import check_integer
from attnlab.core.modes import mode
from attnlab.core.suggest import check_choice

PERTURBATIONS = ("cut", "shuffle", "replace", "random")
CLASSES = ("all", "frequent", "rare", "near", "far", "new")
_FREQUENT = 0.1
_AT_ONCE = 16  # sequences


class Table(NamedTuple):
    """Means over the measured tokens of each class, in nats; NaN for a class without tokens.

    ``counts``      (classes, distances): how many tokens
    ``intact``      (classes, distances): mean loss with the far part as it is
    ``difference``  (classes, distances, perturbations): mean change of the loss
    ``error``       the same shape: its standard error; NaN where fewer than two sequences have a
                    token of the class
    """

    counts: Int[Tensor, "classes distances"]
    intact: Float[Tensor, "classes distances"]
    difference: Float[Tensor, "classes distances perturbations"]
    error: Float[Tensor, "classes distances perturbations"]


class FarContext(NamedTuple):
    """The losses of the last tokens of each sequence, before and after the far part was changed.

    ``tokens``   (b, n)
    ``intact``   (b, last): losses in nats, with the far part as it is
    ``changed``  (distances, perturbations, b, last): with the far part changed
    ``members``  (classes, distances, b, last): which tokens belong to which of ``CLASSES``
    """

    tokens: Int[Tensor, "b n"]
    distances: tuple[int, ...]
    perturbations: tuple[str, ...]
    intact: Float[Tensor, "b last"]
    changed: Float[Tensor, "distances perturbations b last"]
    members: Bool[Tensor, "classes distances b last"]

    @property
    def differences(self) -> Float[Tensor, "distances perturbations b last"]:
        """By how much the loss of each measured token grew."""
        return self.changed - self.intact

    def table(self) -> Table:
        """Means by class, distance and perturbation."""
        of_class = self.members[:, :, None].double()
        difference, error = _mean(self.differences.double(), of_class)
        intact, _ = _mean(self.intact.double(), self.members.double())
        return Table(self.members.sum((-2, -1)), intact, difference, error)

    def difference(self, token_class: str, distance: int, perturbation: str) -> float:
        """One number of the table: how much the mean loss of a class grew, in nats."""
        check_choice("class", token_class, CLASSES)
        check_choice("perturbation", perturbation, self.perturbations)
        if distance not in self.distances:
            known = ", ".join(map(str, self.distances))
            raise ValueError(f"distance should be one of those measured, {known}, got {distance}")
        at = CLASSES.index(token_class), self.distances.index(distance)
        return float(self.table().difference[*at, self.perturbations.index(perturbation)])


def far_context(
    model: Callable[..., Any],
    tokens: Int[Tensor, "b n"],
    *,
    last: int,
    distances: Sequence[int],
    perturbations: Sequence[str] = PERTURBATIONS,
    other: Int[Tensor, "b m"] | None = None,
    counts: Int[Tensor, "vocab"] | None = None,
    run: int = 1,
    segment: int | None = None,
    seed: int = 0,
) -> FarContext:
    """How the losses of the ``last`` tokens of each sequence depend on what stands far before them.

    ``model``          a language model, tokens (b, n) → logits (b, n, vocab); a module is in
                       evaluation mode meanwhile
    ``distances``      how many tokens before the measured ones are left as they are: at least 1
                       each, and fewer than n − last
    ``other``          sequences whose first m tokens replace the far part; without them the next
                       sequence of the batch, the last one's being the first
    ``counts``         (vocab,): how often each token occurs, say in the training text; without it,
                       among the given tokens
    ``run``            how many tokens in a row have to stand before for a token to stand there
    ``segment``        the length of the pieces in which a model with ``advance(tokens, state)``
                       reads; without it the model is called on whole sequences
    ``seed``           of shuffles and random tokens

    Raises TypeError or ValueError, in a sentence, for whatever does not fit together.
    """
    measured = check_integer("last", last, at_least=1)
    check_integer("seed", seed, at_least=0)
    found = _check_tokens("tokens", tokens)
    n = found.shape[1]
    kept = _check_distances(distances, n - measured)
    ways = tuple(perturbations)
    for way in ways:
        check_choice("perturbation", way, PERTURBATIONS)
    if not ways:
        raise ValueError(f"perturbations should hold at least one of {', '.join(PERTURBATIONS)}")
    others = _others(found, other, n - measured - min(kept)) if "replace" in ways else found
    if "replace" not in ways and other is not None:
        raise ValueError("other has no effect without the perturbation 'replace': leave it out")
    _check_segment(model, segment)
    members = [token_classes(found, last=last, distance=d, counts=counts, run=run) for d in kept]
    start = n - measured
    with torch.no_grad(), mode(model, False) if isinstance(model, nn.Module) else nullcontext():
        intact = _losses(model, found, measured, segment)
        changed = torch.stack([
            torch.stack([
                _losses(model, _perturbed(found, way, start - distance, others, seed), measured,
                        segment)
                for way in ways
            ])
            for distance in kept
        ])  # fmt: skip
    return FarContext(found, kept, ways, intact, changed, torch.stack(members, dim=1))


def token_classes(
    tokens: Int[Tensor, "b n"],
    *,
    last: int,
    distance: int,
    counts: Int[Tensor, "vocab"] | None = None,
    run: int = 1,
) -> Bool[Tensor, "classes b last"]:
    """Which of the last tokens belong to which of ``CLASSES``, as the module's docstring has it."""
    check_integer("run", run, at_least=1)
    if counts is None:
        counts = torch.bincount(tokens.flatten())
    if counts.ndim != 1 or len(counts) <= int(tokens.max()):
        raise ValueError(
            f"counts should be one number for each token of the vocabulary, (vocab,), and the "
            f"largest token is {int(tokens.max())}, got {tuple(counts.shape)}"
        )
    start = tokens.shape[1] - last
    often = _frequent(counts)[tokens[:, start:]]
    found = _latest(tokens, start, run)
    near = found - run + 1 >= start - distance
    before = found >= 0
    return torch.stack([
        torch.ones_like(often), often, ~often, near & before, before & ~near, ~before,
    ])  # fmt: skip


def _frequent(counts: Tensor) -> Tensor:
    """(vocab,): the tenth of the tokens that occur, rounded up, with the highest counts."""
    most = math.ceil(_FREQUENT * int((counts > 0).sum()))
    chosen = torch.zeros(len(counts), dtype=torch.bool, device=counts.device)
    chosen[counts.argsort(descending=True, stable=True)[:most]] = True
    return chosen


def _latest(tokens: Tensor, start: int, run: int) -> Tensor:
    """(b, last): where each token from ``start`` on last stood before, with the ``run`` − 1 tokens
    before it; −1 where it did not."""
    b, n = tokens.shape
    i = torch.arange(start, n, device=tokens.device)[:, None]
    j = torch.arange(n, device=tokens.device)
    same = (j < i) & (j >= run - 1) & (i >= run - 1)
    same = same.expand(b, -1, -1).clone()
    for back in range(run):
        earlier = tokens.roll(back, dims=1)  # at place j: the token j − back
        same &= earlier[:, start:, None] == earlier[:, None, :]
    return torch.where(same, j, -1).amax(dim=-1)


def _perturbed(
    tokens: Int[Tensor, "b n"], way: str, far: int, other: Int[Tensor, "b m"], seed: int
) -> Int[Tensor, "b k"]:
    """The sequences with their first ``far`` tokens changed; fewer tokens after "cut".

    ``other`` (b, at least far) is read by "replace" alone; ``seed`` by "shuffle" and "random".
    """
    drawn = torch.Generator().manual_seed(seed)
    rest = tokens[:, far:]
    if way == "cut":
        return rest
    if way == "shuffle":
        order = torch.rand(len(tokens), far, generator=drawn).argsort(dim=1)
        first = tokens[:, :far].gather(1, order.to(tokens.device))
    elif way == "replace":
        first = other[:, :far]
    else:
        at = torch.randint(tokens.numel(), (len(tokens), far), generator=drawn)
        first = tokens.flatten()[at.to(tokens.device)]
    return torch.cat((first, rest), dim=1)


def _losses(model: Callable[..., Any], tokens: Tensor, last: int, segment: int | None) -> Tensor:
    """(b, last): −ln p of the last tokens, each from all before it."""
    parts = []
    for rows in tokens.split(_AT_ONCE):
        logits = _logits(model, rows[:, :-1], segment)
        wanted = (*rows[:, :-1].shape,)
        if not isinstance(logits, Tensor) or logits.ndim != 3 or logits.shape[:2] != wanted:
            got = tuple(logits.shape) if isinstance(logits, Tensor) else type(logits).__name__
            raise ValueError(
                f"the model should return logits of shape (b, n, vocab) = {wanted} and the "
                f"vocabulary, got {got}"
            )
        if int(rows.max()) >= logits.shape[2]:
            raise ValueError(
                f"tokens should be below the model's vocabulary, {logits.shape[2]}; the largest is "
                f"{int(rows.max())}"
            )
        scores = logits[:, -last:].float().transpose(1, 2)
        parts.append(F.cross_entropy(scores, rows[:, -last:], reduction="none"))
    return torch.cat(parts)


def _logits(model: Any, tokens: Tensor, segment: int | None) -> Any:
    if segment is None:
        return model(tokens)
    state, parts = None, []
    for piece in tokens.split(segment, dim=1):
        logits, state = model.advance(piece, state)
        parts.append(logits)
    return torch.cat(parts, dim=1)


def _mean(values: Tensor, member: Tensor) -> tuple[Tensor, Tensor]:
    """Over the members (…, b, last): the mean of ``values`` and its standard error, where the
    tokens of one sequence are one cluster."""
    member = member.expand(*torch.broadcast_shapes(values.shape, member.shape))
    sums, sizes = (values * member).sum(-1), member.sum(-1)
    total = sizes.sum(-1)
    mean = sums.sum(-1) / total  # NaN where there are none
    clusters = (sizes > 0).sum(-1)
    apart = (sums - mean[..., None] * sizes).square().sum(-1)
    error = (apart * clusters / (clusters - 1)).sqrt() / total
    return mean, error.masked_fill(clusters < 2, math.nan)


# ---- what may be given


def _check_tokens(name: str, tokens: object) -> Tensor:
    if not isinstance(tokens, Tensor) or tokens.is_floating_point() or tokens.ndim != 2:
        got = f"{tokens.dtype} {tuple(tokens.shape)}" if isinstance(tokens, Tensor) else tokens
        raise TypeError(
            f"{name} should be a tensor of whole numbers, (b, n), one row for each sequence, "
            f"got {got!r}"
        )
    if not tokens.numel():
        raise ValueError(f"{name} should hold at least one token, got {tuple(tokens.shape)}")
    return tokens.long()


def _check_distances(distances: Sequence[int], before: int) -> tuple[int, ...]:
    found = tuple(check_integer("a distance", d, at_least=1) for d in distances)
    if not found or list(found) != sorted(set(found)):
        raise ValueError(f"distances should rise from one to the next, got {list(distances)}")
    if found[-1] >= before:
        raise ValueError(
            f"a distance should be less than n − last = {before}, got {found[-1]}, which leaves no "
            "far part; give longer sequences, or smaller distances"
        )
    return found


def _others(tokens: Tensor, other: Tensor | None, most: int) -> Tensor:
    if other is None:
        if len(tokens) == 1:
            raise ValueError(
                "to replace the far part of a single sequence, give another one as other (1, m), "
                "or choose perturbations without 'replace'"
            )
        return tokens.roll(-1, dims=0)
    found = _check_tokens("other", other)
    if len(found) != len(tokens) or found.shape[1] < most:
        raise ValueError(
            f"other should hold {len(tokens)} sequences of at least {most} tokens, as many as the "
            f"longest far part has, got {tuple(found.shape)}"
        )
    return found


def _check_segment(model: object, segment: int | None) -> None:
    if segment is None:
        return
    check_integer("segment", segment, at_least=1)
    if not callable(getattr(model, "advance", None)):
        raise TypeError(
            f"segment needs a model that reads on from a state, by advance(tokens, state) as "
            f"TinyTransformer has it; {type(model).__name__} has none; leave segment out"
        )
