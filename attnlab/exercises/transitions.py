"""Checks of lesson 26: an eigenvalue of a transition, transitions of Kimi Delta Attention, a state
that learns in mini-batches.
"""

from collections.abc import Iterator

import torch
from torch import Tensor

from attnlab.exercises.answers import NumberExercise
from attnlab.exercises.attempt import Arguments, Parts, random_tensors
from attnlab.exercises.exercise import Exercise, but
from attnlab.exercises.parts import PartsExercise

# ---- an eigenvalue

check_erased_eigenvalue = NumberExercise(
    "Is it the eigenvalue along the key of Gated DeltaNet's transition with a = 0.9 and b = 0.5?",
    right=0.45,
    tolerance=1e-3,
    mistakes={
        0.5: "The decay is missing: the whole transition is multiplied by a.",
        0.9: "That is the eigenvalue across the key, where nothing is erased.",
        0.4: "The erasure is not subtracted from a: A = a (I − b k kᵀ), so the factors multiply.",
        -0.05: "b k kᵀ is subtracted from I: along a key of length 1 that leaves 1 − b.",
        0.55: "That is 1 − 0.45, what is lost; asked is what is left.",
        1.35: "Erasing makes it smaller: 1 − b, not 1 + b.",
    },
)

# ---- transitions


def _transitions(
    k: Tensor, a: Tensor, b: Tensor, *, late: bool = False, before: bool = False,
    whole: bool = False, added: bool = False, undecayed: bool = False, crossed: bool = False,
    mean: bool = False,
) -> Tensor:  # fmt: skip
    """(I - b k kᵀ) diag(a) of every token; every keyword is a mistake."""
    if mean:
        a = a.mean(dim=-1, keepdim=True).expand_as(a)
    D, eye = torch.diag_embed(a), torch.eye(k.shape[-1], dtype=k.dtype)
    size = torch.ones_like(b) if whole else b
    erased = size[:, None, None] * k[:, :, None] * k[:, None]
    if crossed:
        erased = torch.diag_embed(size[:, None] * k.square())
    if undecayed:
        return eye - erased
    if before:
        return D - erased
    kept = eye + erased if added else eye - erased
    return D @ kept if late else kept @ D


def _transition_cases() -> Iterator[Arguments]:
    k, a, b = random_tensors((7, 3), (7, 3), (7,), seed=26)
    yield {"k": k / k.norm(dim=-1, keepdim=True), "a": a.sigmoid(), "b": b.sigmoid()}


check_kimi_transition = Exercise(
    """Are they the transitions of Kimi Delta Attention? `transition(k, a, b)`.

    `k` (n, d) has rows of length 1, `a` (n, d) holds the decays of the channels and `b` (n,) the
    steps; it returns (n, d, d).
    """,
    right=_transitions,
    cases=_transition_cases,
    axes="n d d",
    mistakes={
        but(late=True): (
            "It erases first and then decays. The key has to read what has decayed: (I − b k kᵀ) "
            "diag(a)."
        ),
        but(before=True): (
            "That is the transition of RWKV-7: the key reads the state as it was before the decay."
        ),
        but(whole=True): "The step b is missing: a token erases the part b of what its key reads.",
        but(added=True): "The erasure is subtracted from I, not added.",
        but(undecayed=True): "The decay is missing: that is DeltaNet.",
        but(crossed=True): (
            "k kᵀ is a matrix of all pairs of channels; that is its diagonal alone."
        ),
        but(mean=True): "Each channel has a decay of its own; that is Gated DeltaNet.",
    },
    praise="One line decides what is kept; the rest of the recurrence is that of linear attention.",
)

# ---- mini-batches


def _learned(
    k: Tensor, v: Tensor, q: Tensor, step: float, size: int, *, newest: bool = False,
    early: bool = False, future: bool = False, climbed: bool = False, fresh: bool = False,
    doubled: bool = False, hebbian: bool = False,
) -> Parts:  # fmt: skip
    """Gradients at the weights with which the mini-batch began; every keyword is a mistake."""
    W, out = k.new_zeros(k.shape[1], v.shape[1]), []
    rate = step * (2 if doubled else 1) * (-1 if climbed else 1)
    for at in range(0, len(k), size):
        base = torch.zeros_like(W) if fresh else W
        W = base
        batch = range(at, min(at + size, len(k)))
        for i in batch:
            error = -v[i] if hebbian else k[i] @ (W if newest else base) - v[i]
            before, W = W, W - rate * torch.outer(k[i], error)
            out.append(q[i] @ (before if early else W))
        if future:
            out[at:] = [q[i] @ W for i in batch]
    return torch.stack(out), W


def _learner_cases() -> Iterator[Arguments]:
    k, v, q = random_tensors((11, 3), (11, 2), (11, 3), seed=27)
    yield {"k": k, "v": v, "q": q, "step": 0.3, "size": 4}


check_minibatch_learner = PartsExercise(
    """Does the state learn in mini-batches? `learned(k, v, q, step, size)`.

    `k` and `q` are (n, d), `v` is (n, e). The state W (d, e) begins at zero. It returns the outputs
    (n, e) and W (d, e) after the last token. Called with n = 11, d = 3, e = 2 and size = 4, so that
    the last mini-batch is shorter.
    """,
    right=_learned,
    cases=_learner_cases,
    axes={"outputs": "n e", "W": "d e"},
    mistakes={
        but(newest=True): (
            "The gradient is taken at the newest W, which is the delta rule. In a mini-batch all "
            "are taken at the W with which it began."
        ),
        but(early=True): "A token is read after it has been learned: q_i W_i with its own step.",
        but(future=True): (
            "All tokens of a mini-batch read its last W: they read what later tokens taught."
        ),
        but(climbed=True): "It goes up the gradient: W − step · k (k W − v).",
        but(
            fresh=True
        ): "Each mini-batch begins at zero; it should begin where the last one ended.",
        but(doubled=True): "The loss is |k W − v|² / 2, so that its gradient has no factor 2.",
        but(hebbian=True): (
            "That writes k v alone, as linear attention does; the gradient has k W − v."
        ),
    },
    praise="All gradients of a mini-batch are computed at once: the state is trained in parallel.",
)
