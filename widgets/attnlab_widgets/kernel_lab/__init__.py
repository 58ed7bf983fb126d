"""How well does a feature map approximate the softmax?

    KernelLab()
    KernelLab({"my head": (q, k)}, tokens, feature="hyperbolic", features=256)

Choose a feature map, how many features, and see three maps: exact softmax, the one that the
features imply, and their difference; the share of attention that is misplaced, against the number
of features. The page draws the random rows that PyTorch draws for the same seed and computes the
maps itself, so a saved file stays alive; how long the linear form takes beside exact softmax is
measured where Python runs, in the background.
"""

import threading
from dataclasses import asdict
from typing import Any

import traitlets

from attnlab.core.arguments import check_flag, check_number, check_size
from attnlab.core.suggest import choose
from attnlab.figures.drawing import Drawing
from attnlab.lens.kernel_maps import (
    KINDS,
    MOST,
    Approximation,
    Choice,
    Speed,
    approximate,
    speed,
)
from attnlab_widgets.background import Throttled
from attnlab_widgets.base import STATIC, BaseWidget, Checked, as_trait_error, within
from attnlab_widgets.kernel_lab import words
from attnlab_widgets.kernel_lab.given import Heads, Tokens, checked, trained_heads
from attnlab_widgets.kernel_lab.picture import picture

__all__ = ["KernelLab", "trained_heads"]

NUMBERS = [2**i for i in range(2, 13)]
"""Of features: the steps of the slider, and the points of the curve."""
TEMPERATURES = [0.25, 0.5, 0.71, 1.0, 1.4, 2.0, 4.0]
COLDEST, HOTTEST = 0.01, 100.0
LENGTHS = [128, 256, 512, 1024, 2048, 4096, 8192]
LARGEST_SEED = 9999
KEPT = 8
"""Settings in the list of what was tried."""
EVERY = 0.2
"""Seconds from one measurement to the next."""


class KernelLab(BaseWidget):
    """Feature maps beside exact softmax, on trained (or your own) queries and keys.

    ``heads``        names of heads with their queries (n, d) and keys (m, d), at most 128 of each;
                     without, two trained ones
    ``tokens``       what stands at their positions: one list, or one per head
    ``causal``       whether a query sees only keys up to its own
    ``head``         the name of the one that is shown; the first unless given
    ``feature``      "softmax", "elu", "relu", "dpfp", "positive", "hyperbolic", "relu random" or
                     "trigonometric"
    ``features``     how many, from 1 to 16,384; of random ones, how many rows are drawn
    ``orthogonal``   whether these are orthogonal within blocks; ``seed`` draws them, 0 to 9,999
    ``temperature``  divides the logits (below 1 is sharper); from 0.01 to 100
    ``length``       how many tokens are timed, at most 8,192

    From ``head`` on all of this can be read and set, and so can ``tried``, a list of the last
    settings as dicts. ``approximation`` has the maps of the present one, ``errors`` its error for
    each number of features, ``measured`` the speed once ``wait`` has returned.
    """

    _esm = STATIC / "kernel_lab.js"

    head = traitlets.Unicode().tag(sync=True)
    feature = traitlets.Unicode("positive").tag(sync=True)
    features = traitlets.Int(64).tag(sync=True)
    orthogonal = traitlets.Bool(True).tag(sync=True)
    seed = traitlets.Int(0).tag(sync=True)
    temperature = traitlets.Float(1.0).tag(sync=True)
    length = traitlets.Int(1024).tag(sync=True)
    tried: Any = Checked([]).tag(sync=True)
    _told: Any = traitlets.Dict().tag(sync=True)
    _numbers = traitlets.Bytes().tag(sync=True)
    _times: Any = traitlets.Dict().tag(sync=True)
    _measuring = traitlets.Unicode().tag(sync=True)
    _trouble = traitlets.Unicode().tag(sync=True)
    _live = traitlets.Bool(True).tag(sync=True)

    def __init__(
        self,
        heads: Heads | None = None,
        tokens: Tokens = None,
        *,
        causal: bool = True,
        head: str | None = None,
        feature: str = "positive",
        features: int = 64,
        orthogonal: bool = True,
        seed: int = 0,
        temperature: float = 1.0,
        length: int = 1024,
        theme: str = "auto",
    ) -> None:
        check_flag("causal", causal)
        if heads is None:
            heads, tokens = trained_heads()
        self._heads, self._causal = checked(heads, tokens, causal), causal
        first = next(iter(self._heads)) if head is None else head
        setting = _setting(self._heads, {
            "head": first, "feature": feature, "features": features, "orthogonal": orthogonal,
            "seed": seed, "temperature": temperature,
        })  # fmt: skip
        length = check_size("length", length, LENGTHS[-1], "tokens")
        self._known: dict[str, Approximation] = {}
        self._errors: dict[str, float] = {}
        self._from_page, self._lock = False, threading.RLock()
        packed = [x for one in self._heads.values() for x in (one.q, one.k)]
        super().__init__(
            _told=self._all(), _numbers=b"".join(x.numpy().astype("<f4").tobytes() for x in packed),
            tried=[setting], length=length, theme=theme, **setting,
        )  # fmt: skip
        self._timer = Throttled(self._time, EVERY)
        self.observe(self._chosen, [*setting])
        self.observe(lambda _: self._timer.ask(), [*setting, "length"])
        self._timer.ask()

    # What follows from the state

    @property
    def choice(self) -> Choice:
        """The feature map and its options."""
        return self.choice_of(self._present())

    @staticmethod
    def choice_of(setting: dict[str, Any]) -> Choice:
        """The choice of a setting of ``tried``."""
        return _choice(setting)

    @property
    def approximation(self) -> Approximation:
        """The exact map, the one that the features imply, and how they differ."""
        return self._approximated(self._present())

    def errors(self) -> dict[int, float]:
        """The share of attention in the wrong place, for each number of features of the slider; one
        entry where the number has no effect."""
        present = self._present()
        if self.feature in ("softmax", "elu", "relu"):
            return {self.features: self._error(present)}
        numbers = sorted({*NUMBERS, self.features})
        return {number: self._error(present | {"features": number}) for number in numbers}

    @property
    def measured(self) -> Speed | None:
        """The speed under the present setting; None before it was measured."""
        found = self._times.get(self._key())
        return Speed(*(found[name] for name in ("own", "exact", "ratio"))) if found else None

    def wait(self, timeout: float | None = 60) -> bool:
        """Wait until the speed is measured; False if that took longer than ``timeout``."""
        return self._timer.settle(timeout)

    def close(self) -> None:
        if "_timer" in vars(self):  # not where the arguments were refused
            self._timer.close()
        super().close()

    def description(self) -> str:
        """How much of the attention is in the wrong place, in a sentence or two."""
        head = self._heads[self.head]
        return words.description(self.approximation, self.choice, head, self._digits())

    def still(self) -> Drawing:
        """The three maps, and the error against the number of features."""
        return picture(self)

    def __repr__(self) -> str:
        return f"KernelLab: {self.description()}"

    # Maps and errors

    def _present(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in _SETTING}

    def _approximated(self, setting: dict[str, Any]) -> Approximation:
        key = repr(setting)
        with self._lock:
            if key not in self._known:
                head = self._heads[setting["head"]]
                self._known = {
                    key: approximate(head.q, head.k, _choice(setting), causal=self._causal)
                }
            return self._known[key]

    def _error(self, setting: dict[str, Any]) -> float:
        key = repr(setting)
        if key not in self._errors:
            self._errors[key] = self._approximated(setting).error
        return self._errors[key]

    # What was tried

    def set_state(self, sync_data: dict[str, Any]) -> None:
        """A page says itself when a setting was tried: not while a slider is on its way."""
        self._from_page = True
        try:
            super().set_state(sync_data)
        finally:
            self._from_page = False

    def _chosen(self, _change: Any) -> None:
        if self._from_page:
            return
        present = self._present()
        others = [one for one in self.tried if self._effect(one) != self._effect(present)]
        self.tried = [*others, present][-KEPT:]

    def _effect(self, setting: dict[str, Any]) -> tuple[Any, ...]:
        """What has an effect of a setting, as ``keyOf`` of ``study.js`` has it."""
        choice = self.choice_of(setting)
        drawn = (choice.orthogonal, choice.seed) if choice.random else ()
        count = choice.count(self._heads[setting["head"]].width)
        return (setting["head"], choice.feature, count, *drawn, choice.temperature)

    def said(self, setting: dict[str, Any]) -> str:
        """A setting of ``tried`` in words: those with another effect have other words."""
        width = self._heads[setting["head"]].width
        said = words.setting(self.choice_of(setting), width, self._digits())
        return f"{setting['head']}: {said}" if len(self._heads) > 1 else said

    def _digits(self) -> int:
        """How many digits of temperatures are said: enough to tell those apart that were tried."""
        return words.digits_of([self.temperature, *(one["temperature"] for one in self.tried)])

    # Speed, in the background

    def _key(self) -> str:
        """What a time depends on, as ``timeKey`` of ``study.js`` writes it."""
        width = self._heads[self.head].width
        return f"{self.feature} {self.choice.count(width)} {width} {self.length}"

    def _time(self) -> None:
        key, choice, n = self._key(), self.choice, self.length
        if choice.feature == "softmax" or key in self._times:
            return
        width = self._heads[self.head].width
        try:
            self._measuring, self._trouble = key, ""
            found = speed(choice, width, n, causal=self._causal)
            said = words.timed(found, n, width, self._causal)
            self._times = {**self._times, key: {**asdict(found), "said": said}}
        except Exception as error:  # in a thread, where no other code would report it
            self._trouble = f"The speed could not be measured: {error}"
        finally:
            self._measuring = ""

    def _saved_state(self) -> dict[str, Any]:
        self.wait(20)
        return {**super()._saved_state(), "_live": False, "_measuring": "", "_trouble": ""}

    def _all(self) -> dict[str, Any]:
        return {
            "heads": [{"name": name, "n": len(one.q), "m": len(one.k), "d": one.width,
                       "names": one.names} for name, one in self._heads.items()],
            "causal": self._causal, "kinds": [*KINDS.items()], "numbers": NUMBERS,
            "temperatures": TEMPERATURES, "lengths": LENGTHS, "kept": KEPT,
            "seeds": LARGEST_SEED,
        }  # fmt: skip

    # What may be set

    @traitlets.validate("head")
    def _a_head(self, proposal: Any) -> str:
        as_trait_error(choose, "head", proposal["value"], self._heads)
        return str(proposal["value"])

    @traitlets.validate("feature")
    def _a_feature_map(self, proposal: Any) -> str:
        as_trait_error(choose, "feature map", proposal["value"], KINDS)
        return str(proposal["value"])

    @traitlets.validate("features", "seed", "length")
    def _a_number(self, proposal: Any) -> int:
        name = proposal["trait"].name
        return within(name, proposal["value"], *_BOUNDS[name])

    @traitlets.validate("temperature")
    def _a_temperature(self, proposal: Any) -> float:
        return as_trait_error(_heat, proposal["value"])

    @traitlets.validate("tried")
    def _settings(self, proposal: Any) -> list[dict[str, Any]]:
        given = proposal["value"]
        if not isinstance(given, list | tuple) or len(given) > KEPT:
            raise traitlets.TraitError(f"`tried` should be a list of at most {KEPT} settings")
        return [as_trait_error(_setting, self._heads, one) for one in given]


_SETTING = ("head", "feature", "features", "orthogonal", "seed", "temperature")
_BOUNDS = {"features": (1, MOST), "seed": (0, LARGEST_SEED), "length": (1, LENGTHS[-1])}


def _choice(setting: dict[str, Any]) -> Choice:
    return Choice(**{name: value for name, value in setting.items() if name != "head"})


def _heat(value: Any) -> float:
    found = check_number("temperature", value)
    if not COLDEST <= found <= HOTTEST:
        raise ValueError(f"`temperature` should be from {COLDEST:g} to {HOTTEST:g}, got {found:g}")
    return found


def _setting(heads: dict[str, Any], given: Any) -> dict[str, Any]:
    """A setting whose values are all allowed."""
    if not isinstance(given, dict) or set(given) != set(_SETTING):
        raise TypeError(f"a setting should be a dict of {', '.join(_SETTING)}, got {given!r}")
    found = {name: given[name] for name in _SETTING}
    choose("head", found["head"], heads)
    found["temperature"] = _heat(found["temperature"])
    _choice(found)
    if found["seed"] > LARGEST_SEED:
        raise ValueError(f"`seed` should be from 0 to {LARGEST_SEED}, got {found['seed']}")
    return found | {"features": int(found["features"]), "seed": int(found["seed"])}
