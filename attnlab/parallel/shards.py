"""What all ways to share attention check: that the shards fit, and fit those of the others."""

from torch import Tensor

from attnlab.parallel.group import Group


def check_shards(name: str, group: Group, q: Tensor, k: Tensor, v: Tensor, *more: object) -> None:
    """Raises ValueError for shapes that make no attention, ProcessesError if those of another
    process are others."""
    if q.shape[1] % k.shape[1]:
        raise ValueError(
            f"{name}: {q.shape[1]} heads of queries cannot share {k.shape[1]} heads of keys "
            "evenly; give a number of key heads that divides them"
        )
    shapes = ", ".join(
        f"{letter} {tuple(x.shape)}" for letter, x in zip("qkv", (q, k, v), strict=True)
    )
    dtype = str(q.dtype).removeprefix("torch.")
    group.agree(f"{name}({', '.join([shapes, dtype, *map(str, more)])})")


def scale_of(q: Tensor) -> float:
    return float(q.shape[-1] ** -0.5)
