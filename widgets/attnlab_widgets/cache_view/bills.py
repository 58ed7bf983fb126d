"""What the layers of a model keep after so many tokens; ``bills.js`` computes the same.

A kind of layer keeps a number of bytes for each of the last ``cap`` tokens (of all, where it is
None), and ``fixed`` bytes besides. ``rounds`` says that what it keeps are keys and values, which a
cache of few bits rounds: beyond the newest 128 tokens b bits, and one more for the scales of groups
of 32 (``attnlab.compression.quantized_cache``).
"""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

EXACT = 128  # newest tokens that a cache of few bits leaves as they are
WIDE = 16  # bits of a number that is not rounded
LATENT, TURNED = 512, 64  # numbers of the latent in DeepSeek-V2 and V3, and of its rotated key
NUMBER = 2  # bytes
STATE = 4  # bytes of a number in a state
PLAIN_WINDOW = 1024


@dataclass(frozen=True)
class Kind:
    """A kind of layer, in words, and what it keeps."""

    title: str
    per_token: float
    cap: int | None = None
    fixed: float = 0
    rounds: bool = False

    def bytes(self, tokens: int, bits: int = WIDE) -> float:
        """After so many tokens, with keys and values of so many bits."""
        kept = tokens if self.cap is None else min(tokens, self.cap)
        if bits == WIDE or not self.rounds:
            return self.fixed + kept * self.per_token
        rounded = max(0, kept - EXACT)
        return self.fixed + self.per_token * (kept - rounded + rounded * (bits + 1) / WIDE)


@dataclass(frozen=True)
class Preset:
    """A model: its kinds of layers and those that its layers could be, and the kind of each."""

    name: str
    kinds: dict[str, Kind]
    layers: list[str]
    source: str

    def as_json(self) -> dict[str, Any]:
        """As the page is given it."""
        kinds = {name: asdict(kind) for name, kind in self.kinds.items()}
        return {"name": self.name, "kinds": kinds, "layers": self.layers, "source": self.source}


def alternatives(heads: int, groups: int, width: int, window: int | None) -> dict[str, Kind]:
    """What a layer with so many heads could keep instead, at 16 bits a number."""

    def grouped(g: int) -> float:
        return 2 * g * width * NUMBER

    last = window or PLAIN_WINDOW
    named = {
        "mha": Kind(f"keys and values of {heads} heads", grouped(heads), rounds=True),
        "gqa": Kind(f"keys and values of {groups} groups", grouped(groups), rounds=True),
        "mqa": Kind("keys and values of one group", grouped(1), rounds=True),
        "mla": Kind(f"a latent of {LATENT} + {TURNED} numbers", (LATENT + TURNED) * NUMBER),
        "window": Kind(f"window of {last:,} tokens", grouped(groups), last, rounds=True),
        "state": Kind("a state", 0, fixed=heads * width * width * STATE),
        "shared": Kind("the cache of another layer", 0),
    }
    if groups in (1, heads):
        del named["gqa"]
    return named


def merged(own: dict[str, Kind], others: dict[str, Kind]) -> dict[str, Kind]:
    """The kinds that a model has, then those that it could have and that keep something else. A
    kind that keeps as much as one of the others has its title."""

    def alike(one: Kind) -> Kind:
        sizes = (one.per_token, one.cap, one.fixed)
        same = (k for k in others.values() if (k.per_token, k.cap, k.fixed) == sizes)
        return next(same, one)

    mine = {name: alike(kind) if kind.per_token else kind for name, kind in own.items()}
    new = {n: k for n, k in others.items() if k not in mine.values() and n not in own}
    return {**mine, **new}


def total(kinds: dict[str, Kind], layers: Sequence[str], tokens: int, bits: int = WIDE) -> float:
    """What all layers keep together, in bytes."""
    return sum(kinds[name].bytes(tokens, bits) for name in layers)


@lru_cache(maxsize=1)
def presets() -> dict[str, Preset]:
    """Models of today by their names in Transformers; ``counting.py`` has counted them."""
    stored = json.loads(Path(__file__).with_name("models.json").read_text("utf-8"))
    source = (
        "the default configuration of this name in Transformers "
        f"{stored['transformers']}, counted by attnlab.measure.cache in bfloat16"
    )
    return {name: _preset(name, one, source) for name, one in stored["models"].items()}


def _preset(name: str, stored: dict[str, Any], source: str) -> Preset:
    own = {key: Kind(**kind) for key, kind in stored["kinds"].items()}
    kinds = merged(own, alternatives(**stored["shape"]))
    runs = [[key] * times for key, times in stored["layers"]]
    return Preset(name, kinds, [key for run in runs for key in run], source)
