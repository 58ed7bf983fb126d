"""The arguments of `fit`, checked once, and the part of them that a resumed run must share."""

import math
from dataclasses import dataclass
from typing import Any

from attnlab.train.objective import check_count
from attnlab.train.optimizer import default_warmup


def _check_number(name: str, value: object, *, above: bool, optional: bool = False) -> None:
    """A finite number > 0 (`above`) or ≥ 0."""
    if optional and value is None:
        return
    number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    if not number or value < 0 or (above and value == 0):  # type: ignore[operator]
        limit = "above 0" if above else "of at least 0"
        raise ValueError(
            f"{name} must be a finite number {limit}{' or None' if optional else ''}; "
            f"{value!r} was given."
        )


@dataclass(frozen=True, kw_only=True)
class Settings:
    steps: int
    batch_size: int
    learning_rate: float
    warmup: int | None
    weight_decay: float
    clip: float | None
    accumulate: int
    precision: str
    seed: int
    save_every: int | None
    evaluate_every: int | None
    evaluate_batches: int

    def __post_init__(self) -> None:
        for name in ("steps", "batch_size", "accumulate", "evaluate_batches"):
            check_count(name, getattr(self, name))
        for name in ("save_every", "evaluate_every"):
            if getattr(self, name) is not None:
                check_count(name, getattr(self, name))
        _check_number("learning_rate", self.learning_rate, above=True)
        _check_number("weight_decay", self.weight_decay, above=False)
        _check_number("clip", self.clip, above=True, optional=True)
        if isinstance(self.seed, bool) or not isinstance(self.seed, int):
            raise ValueError(f"seed must be a whole number; {self.seed!r} was given.")
        self._check_warmup()
        if self.batch_size % self.accumulate:
            raise ValueError(
                f"batch_size={self.batch_size} cannot be split into accumulate={self.accumulate} "
                "equal parts; choose a batch_size that accumulate divides."
            )

    def _check_warmup(self) -> None:
        warmup = self.warmup
        if warmup is None:
            return
        if isinstance(warmup, bool) or not isinstance(warmup, int) or not 0 <= warmup < self.steps:
            raise ValueError(
                f"warmup must be a whole number from 0 to steps - 1 = {self.steps - 1}, or None; "
                f"{warmup!r} was given."
            )

    @property
    def warmup_steps(self) -> int:
        return default_warmup(self.steps) if self.warmup is None else self.warmup

    def identity(self, processes: int) -> dict[str, Any]:
        """What makes a run this run. Steps may grow; device, precision and splitting may change."""
        return {
            "seed": self.seed,
            "batch_size × processes": self.batch_size * processes,
            "learning_rate": float(self.learning_rate),
            "warmup": self.warmup,
            "weight_decay": float(self.weight_decay),
            "clip": None if self.clip is None else float(self.clip),
        }
