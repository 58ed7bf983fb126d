"""Checks of lesson 76: devices for a model, microbatches of a pipeline, zigzag, work in a ring."""

from collections.abc import Iterator

import torch
from torch import Tensor

from attnlab.exercises.answers import NumberExercise
from attnlab.exercises.attempt import Arguments, random_tensors, sizes
from attnlab.exercises.exercise import Exercise, but

# ---- memory

check_devices_needed = NumberExercise(
    "How many devices of 80 GB hold 70 billion parameters, their gradients and Adam's numbers, all "
    "sharded?",
    right=14,
    tolerance=1e-9,
    unit="devices",
    mistakes={
        2: "Those hold the weights alone; with gradients and Adam's numbers it is 16 bytes each.",
        4: "Those hold weights and gradients; Adam's 12 bytes for each parameter are missing.",
        11: "Those hold Adam's numbers alone; weights and gradients take 4 bytes more.",
        13: "13 devices hold 1,040 GB, and 1,120 GB are needed.",
        112: "That is for bits in place of bytes.",
    },
)

# ---- a pipeline

check_microbatches = NumberExercise(
    "What is the smallest number of microbatches with which 16 stages are idle for at most a tenth "
    "of a step?",
    right=135,
    tolerance=1e-9,
    unit="microbatches",
    mistakes={
        150: "That is 15 / m = 0.1: idle slots over slots of work. Divide by all slots, m + 15.",
        160: "That is 16 / m = 0.1. It is one stage less, and all slots are m + 15.",
        144: "That is 16 / (m + 16) = 0.1: the first microbatch reaches the last stage after 15.",
        14: "Then half of the step is idle: solve 15 / (m + 15) = 0.1 for m.",
        15: "Then half of the step is idle: solve 15 / (m + 15) = 0.1 for m.",
    },
)

# ---- who holds which positions


def _zigzag(
    n: int, P: int, *, apart: bool = True, striped: bool = False, late_first: bool = False,
    halves: bool = False,
) -> Tensor:  # fmt: skip
    """Positions of the chunks r and 2P - 1 - r; every keyword is a mistake."""
    if striped:
        return torch.arange(n).view(-1, P).T
    if not apart:
        return torch.arange(n).view(P, -1)
    chunks = torch.arange(n).view(2 * P, -1)
    early, late = chunks[:P], chunks[P:]
    late = late if halves else late.flip(0)
    return torch.cat((late, early) if late_first else (early, late), 1)


def _zigzag_cases() -> Iterator[Arguments]:
    for n, processes in sizes((24, 3), (40, 4)):
        yield {"n": n, "P": processes}


check_zigzag = Exercise(
    """Does process r hold the chunks r and 2P − 1 − r? `zigzag(n, P)`.

    It returns the positions that each process holds, whole numbers (P, n/P), the early chunk
    first. Called with n = 24, P = 3 and with n = 40, P = 4.
    """,
    right=_zigzag,
    cases=_zigzag_cases,
    axes="P n/P",
    mistakes={
        but(apart=False): "Those are contiguous shards: the last process has the most work.",
        but(striped=True): "That is striped: every P-th position. Zigzag has two chunks in a row.",
        but(halves=True): (
            "Process r has the chunks r and P + r. Then the last process holds the later chunk of "
            "both halves; it should be the last chunk that goes with the first."
        ),
        but(late_first=True): "The late chunk stands before the early one.",
    },
    praise="An early chunk and a late one: together they have equal work for every process.",
)

# ---- work


def _work(
    held: Tensor, *, other_way: bool = False, strict: bool = False, future: bool = False,
    full: bool = False, turned: bool = False,
) -> Tensor:  # fmt: skip
    """Pairs of each process in each step of the ring; every keyword is a mistake."""
    P = len(held)
    counts = torch.zeros(P, P, dtype=torch.int64)
    for rank in range(P):
        for step in range(P):
            source = (rank + step if other_way else rank - step) % P
            i, j = held[rank][:, None], held[source][None]
            allowed = i > j if strict else i < j if future else i >= j
            counts[rank, step] = allowed.numel() if full else allowed.sum()
    return counts.T if turned else counts


def _work_cases() -> Iterator[Arguments]:
    for drawn in random_tensors((3, 4), (4, 5), seed=76):
        yield {"held": drawn.flatten().argsort().view(drawn.shape)}


check_ring_work = Exercise(
    """Are they the pairs of each process in each step of a causal ring? `work(held)`.

    `held` (P, m) has the positions that each process holds. It returns whole numbers (P, P): in row
    r and column s the pairs of a query of process r and a key of process r − s (mod P), whose
    position is not later. Called with P = 3 and with P = 4, where positions are in any order.
    """,
    right=_work,
    cases=_work_cases,
    axes="P P",
    mistakes={
        but(other_way=True): (
            "Keys travel to the next process: in step s process r has those of process r − s."
        ),
        but(strict=True): "A query attends to its own position, too: not later means ≤.",
        but(future=True): "Those are the pairs that a causal mask forbids.",
        but(full=True): "All pairs are counted; a key at a later position does not count.",
        but(turned=True): "Rows and columns are exchanged: a row is a process, a column a step.",
    },
    praise="The largest number of each column is what all wait for, and their sum is the time.",
)
