"""Who writes the token that comes: the parts of its logit, as the board holds them."""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from attnlab.lens.head_states import Head, Written, switches, written
from attnlab.lens.logit_parts import Part
from attnlab.models.tiny import TinyTransformer


def writers(
    model: TinyTransformer, ids: Tensor, heads: list[Head]
) -> tuple[Written | None, dict[str, Any]]:
    """The parts of the logits, and what the page is told of them: names, the switch that silences
    a part, and whether there are parts for every choice; or why there are none."""
    try:
        found = written(model, ids, heads)
    except ValueError as error:
        return None, {"why": str(error)}
    silenced = switches(model, ids, heads)
    names = [
        {"name": name_of(part), "short": _short(part)}
        | ({"switch": silenced[part]} if part in silenced else {})
        for part in found.parts
    ]
    return found, {"parts": names, "choices": len(found.values)}


def buffer(found: Written | None) -> bytes:
    """float32: for each choice and token the parts, then the logit and the mean of all logits."""
    if found is None:
        return b""
    ends = np.stack([found.logits, found.means], -1)
    return np.concatenate([found.values, ends], -1).astype("<f4").tobytes()


def mean_parts(found: Written, state: int, at: NDArray[np.bool_]) -> dict[str, float]:
    """Each part by its name, in the mean over the tokens ``at`` (n - 1,), in one choice; in the
    first where this is the only one that is known."""
    values = found.values[state if len(found.values) > 1 else 0][at].astype(np.float64).mean(0)
    return {name_of(part): float(each) for part, each in zip(found.parts, values, strict=True)}


def largest(parts: dict[str, float], most: int) -> dict[str, float]:
    """At most ``most`` parts in their order: the others, the smallest, are one."""
    if len(parts) <= most:
        return dict(parts)
    kept = sorted(parts, key=lambda name: -abs(parts[name]))[: most - 1]
    found = {name: value for name, value in parts.items() if name in kept}
    rest = [value for name, value in parts.items() if name not in kept]
    return found | {f"{len(rest)} others": sum(rest)}


def name_of(part: Part) -> str:
    """The name of a part on the board, where all biases are one."""
    return "biases" if part == Part("bias") else str(part)


def _short(part: Part) -> str:
    """As narrow as a column of a phone."""
    if part.head is not None:
        return f"{part.layer}.{part.head}"
    words = {"embedding": "emb.", "positions": "pos.", "feed_forward": "ff", "attention": "att"}
    name = words.get(part.what, part.what)
    return name if part.layer is None else f"{name} {part.layer}"
