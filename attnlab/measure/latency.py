"""The latency of networks of a space, timed on this machine."""

from collections.abc import Sequence
from typing import Any

import torch

from attnlab.measure.timing import taken_by, thread_count
from attnlab.models.supernet import Sizes, Space, network


@torch.no_grad()
def latencies(
    space: Space, chosen: Sequence[Sizes], inputs: dict[str, Any], *,
    rounds: int = 20, threads: int = 1, **options: Any,
) -> dict[Sizes, float]:  # fmt: skip
    """Sizes → processor seconds of one forward pass on ``inputs``, the keyword arguments of a call.

    The networks are timed in turn, ``rounds`` times, and each has the smallest of its times: what
    else runs on the machine makes a time longer, and never shorter. ``options`` are those of a
    ``TinyTransformer``.
    """
    made = {sizes: network(space, sizes, **options).eval() for sizes in chosen}
    found = dict.fromkeys(made, float("inf"))
    with thread_count(threads):
        for _ in range(rounds):
            for sizes, model in made.items():
                taken = taken_by(lambda model=model: model(**inputs))  # type: ignore[misc]
                found[sizes] = min(found[sizes], taken.user + taken.system)
    return found
