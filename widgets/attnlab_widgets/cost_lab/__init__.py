"""How does the cost of a mechanism grow? The reader says so first; then it is counted and measured.

    CostLab("longformer")
    CostLab("performer", n=8192, dim=512, heads=8, claims={"performer": "n"})

Formulas of the cards move with the sliders, in a saved file too; counting and timing need Python.
"""

import json
import threading
import zlib
from collections.abc import Mapping
from typing import Any

import traitlets

from attnlab.catalog import cards
from attnlab.core.growths import GROWTHS
from attnlab.core.options import check_value
from attnlab.core.suggest import choose
from attnlab.figures.drawing import Drawing
from attnlab.measure import by_name
from attnlab.measure.costs import Cost
from attnlab.measure.fit import crossover, fit
from attnlab.measure.measured import Measurement
from attnlab_widgets import cost_formulas
from attnlab_widgets.background import Throttled
from attnlab_widgets.base import STATIC, BaseWidget, Choice, as_trait_error
from attnlab_widgets.cost_lab.picture import picture

LENGTHS = tuple(2**power for power in range(6, 21))
DIMS = tuple(2**power for power in range(5, 12))
HEADS = (1, 2, 4, 8, 16)
WINDOW = 5
"""Lengths, each twice the one before, over which an exponent is taken; the last is n."""
LONGEST_TIMED = 16_384
LONG = 4096
"""Tokens from which on a length is timed in fewer rounds."""
PATIENCE = 30.0
"""Seconds after which no longer sequence is timed."""
BASE = "full"


class CostLab(BaseWidget):
    """The cost of a mechanism against its length, beside full attention's.

    ``mechanism``  its name; ``options`` its options as numbers: {"window": 64}
    ``n``          a power of two from 64 to 1,048,576; exponents are taken from n / 16 to n
    ``dim``        a power of two from 32 to 2,048; ``heads`` 1, 2, 4, 8 or 16
    ``claims``     how the reader says that each cost grows: {"longformer": "n"}, one of "n",
                   "n log n", "n√n", "n²"; a curve is shown once its growth is claimed
    ``quantity``   "time" (FLOPs) or "memory" (elements of the largest tensor)
    ``backward``   whether the backward pass is timed, too

    All of this can be read and set. ``measure`` times in the background, ``wait`` waits for it,
    ``measured`` has what came of it. FLOPs are those of the mixing alone, without projections; a
    time is that of the whole layer, on one sequence.
    """

    _esm = STATIC / "cost_lab.js"

    mechanism = traitlets.Unicode("longformer").tag(sync=True)
    n = traitlets.Int(8192).tag(sync=True)
    dim = traitlets.Int(256).tag(sync=True)
    heads = traitlets.Int(4).tag(sync=True)
    options: Any = traitlets.Dict().tag(sync=True)
    claims: Any = traitlets.Dict().tag(sync=True)
    quantity = Choice(("time", "memory"), "time").tag(sync=True)
    backward = traitlets.Bool(False).tag(sync=True)
    _about = traitlets.Bytes().tag(sync=True)
    _counted: Any = traitlets.Dict().tag(sync=True)
    _times: Any = traitlets.Dict().tag(sync=True)
    _progress: Any = traitlets.Dict().tag(sync=True)
    _live = traitlets.Bool(True).tag(sync=True)

    def __init__(
        self,
        mechanism: str = "longformer",
        *,
        n: int = 8192,
        dim: int = 256,
        heads: int = 4,
        options: Mapping[str, int] | None = None,
        claims: Mapping[str, str] | None = None,
        quantity: str = "time",
        backward: bool = False,
        theme: str = "auto",
    ) -> None:
        self._cards = {one.name: one for one in cards() if one.mixes}
        self._known = {name: cost_formulas.told(one) for name, one in self._cards.items()}
        about = {
            "mechanisms": list(self._known.values()),
            "lengths": LENGTHS, "dims": DIMS, "heads": HEADS, "window": WINDOW,
            "base": BASE, "longest": LONGEST_TIMED,
        }  # fmt: skip
        self._stopped = threading.Event()
        super().__init__(_about=zlib.compress(json.dumps(about).encode(), 9), theme=theme)
        chosen = {"n": n, "dim": dim, "heads": heads, "quantity": quantity, "backward": backward}
        self._changing = True
        for name, value in {"mechanism": mechanism, **chosen, "claims": dict(claims or {})}.items():
            setattr(self, name, value)
        self.options = dict(options or {})
        self._changing = False
        self._counter = Throttled(self._count, 0.3)
        self._timer = Throttled(self._time, 0)
        self.observe(self._renewed, ["mechanism"])
        self.observe(lambda _: self._counter.ask(), ["n", "dim", "heads", "options"])
        self.on_msg(self._told)
        self._counter.ask()

    # What follows from the state

    def lengths(self) -> list[int]:
        """The lengths over which exponents are taken: n / 16 to n."""
        return [length for length in LENGTHS if self.n // 2 ** (WINDOW - 1) <= length <= self.n]

    def cost(self, n: float, mechanism: str | None = None) -> float:
        """What the card says of the present ``quantity`` at length n, under the present options."""
        told = self._known[mechanism or self.mechanism]
        own = self.options if told["name"] == self.mechanism else {}
        known = {
            letter: own.get(one["option"], one["usual"]) for letter, one in told["letters"].items()
        }
        width = self.dim // self.heads
        known |= {"n": n, "h": self.heads, "d": width, "e": width, "dim": self.dim}
        return cost_formulas.value(told[self.quantity], known)

    def exponent(self) -> float:
        """The power of n with which the cost grows from n / 16 to n, by the card's formula."""
        lengths = self.lengths()
        return fit(lengths, [self.cost(n) for n in lengths]).slope

    def crossover(self) -> float | None:
        """The length from which on the mechanism costs less than full attention, by the formulas;
        0 if it always does, None if it never does up to 16 million tokens."""

        def ratio(power: float) -> float:
            return self.cost(2.0**power) / self.cost(2.0**power, BASE)

        grid = [power / 8 for power in range(8, 8 * 24 + 1)]
        above = [power for power in grid if ratio(power) >= 1]
        if not above:
            return 0.0
        if above[-1] == grid[-1]:
            return None
        low, high = above[-1], above[-1] + 1 / 8
        for _ in range(40):
            middle = (low + high) / 2
            low, high = (middle, high) if ratio(middle) >= 1 else (low, middle)
        return 2.0**high

    def counted(self) -> dict[int, int]:
        """FLOPs of the mixing, counted, at each of ``lengths``; fewer where it refuses some."""
        found = {}
        for n in self.lengths():
            try:
                given = self.mechanism, n, self.dim, self.heads, self.options
                found[n] = by_name.flops(*given).mixing_flops
            except ValueError:
                continue
        return found

    @property
    def measured(self) -> dict[str, Any] | None:
        """What holds for the present setting: lengths, medians and quartiles of seconds, of the
        mechanism ("own") and full attention ("base"), and the exponents; None before it was
        measured."""
        return self._times.get(self._key)

    def measure(self) -> None:
        """Time the layer and full attention's in the background, from n / 16 to n."""
        self._stopped.clear()
        self._timer.ask()

    def stop(self) -> None:
        """Stop after the length that is being timed."""
        self._stopped.set()

    def wait(self, timeout: float | None = 120) -> bool:
        """Wait until all is counted and timed; False if that took longer than ``timeout``."""
        return self._counter.settle(timeout) and self._timer.settle(timeout)

    def close(self) -> None:
        if "_timer" in vars(self):  # not where the arguments were refused
            self.stop()
            self._counter.close()
            self._timer.close()
        super().close()

    def description(self) -> str:
        """What is seen, in sentences."""
        title = self._known[self.mechanism]["title"]
        claim = self.claims.get(self.mechanism)
        if claim is None:
            return f"{title}: how does its cost grow with the length? Choose before you see."
        lengths = self.lengths()
        parts = [
            f"{title}: claimed to grow like {claim}; its formula grows like n to the power "
            f"{self.exponent():.2f} from {lengths[0]:,} to {lengths[-1]:,} tokens.",
            self.crossover_said(),
        ]
        if found := self.measured:
            parts.append(found["said"])
        return " ".join(parts)

    def crossover_said(self) -> str:
        """Where the formulas of the mechanism and of full attention cross, as a sentence."""
        if self.mechanism == BASE:
            return "This is full attention itself."
        unit = {"time": "FLOPs", "memory": "elements in its largest tensor"}[self.quantity]
        at = self.crossover()
        if at is None:
            return f"By the formulas it never has fewer {unit} than full attention."
        if at == 0:
            return f"By the formulas it has fewer {unit} than full attention at every length."
        return f"By the formulas it has fewer {unit} than full attention from n = {at:,.0f} on."

    def still(self) -> Drawing:
        """The curves with the claim, as a picture."""
        return picture(self)

    def __repr__(self) -> str:
        return f"CostLab: {self.description()}"

    # In the background

    @property
    def _given(self) -> str:
        return ",".join(f"{name}={value}" for name, value in sorted(self.options.items()))

    @property
    def _key(self) -> str:
        """The setting, as ``key`` of ``costs.js`` writes it."""
        both = "both" if self.backward else "forward"
        return f"{self.mechanism} {self.n} {self.dim} {self.heads} {both} {self._given}"

    def _renewed(self, _change: Any) -> None:
        """Another mechanism has other options."""
        if not self._changing:
            self.options = {
                name: value for name, value in self.options.items() if name in self._sliders()
            }
        self._counter.ask()

    def _count(self) -> None:
        try:
            key = f"{self.mechanism} {self.dim} {self.heads} {self._given}"
            self._counted = {"key": key, "flops": {str(n): x for n, x in self.counted().items()}}
        except Exception as error:  # in a thread, where no other code would report it
            self._progress = {"error": f"This cannot be counted: {error}"}

    def _time(self) -> None:
        """Lengths from the shortest on; what was measured before a stop or an error stays."""
        key, lengths = self._key, [n for n in self.lengths() if n <= LONGEST_TIMED]
        names = [(self.mechanism, self.options), (BASE, {})]
        widths = self.dim, self.heads
        given: dict[str, Any] = {"dim": self.dim, "heads": self.heads, "backward": self.backward}
        spent = 0.0
        timed: list[Timed] = []
        if not lengths:
            self._progress = {"error": f"Sequences of up to {LONGEST_TIMED:,} tokens are timed."}
            return
        try:
            for at, n in enumerate(lengths):
                self._progress = {"key": key, "done": at, "of": len(lengths), "n": n}
                rounds = 5 if n < LONG else 3
                own, base = by_name.times(names, n, rounds=rounds, **given)
                counted = by_name.flops(self.mechanism, n, *widths, self.options)
                timed.append((n, own, base, counted))
                self._times = {**self._times, key: _result(timed)}
                spent += sum(own.seconds) + sum(base.seconds)
                if self._stopped.is_set() or spent > PATIENCE:
                    break
            self._progress = {"key": key, "done": len(lengths), "of": len(lengths)}
        except Exception as error:  # in a thread, where no other code would report it
            self._progress = {"key": key, "error": f"This cannot be timed: {error}"}

    def _told(self, _widget: Any, content: Any, _buffers: Any) -> None:
        if content == {"kind": "measure"}:
            self.measure()
        elif content == {"kind": "stop"}:
            self.stop()

    def _saved_state(self) -> dict[str, Any]:
        self._count()
        return {**super()._saved_state(), "_live": False, "_progress": {}}

    def _sliders(self) -> dict[str, dict[str, Any]]:
        return {one["option"]: one for one in self._known[self.mechanism]["letters"].values()}

    # What may be set

    @traitlets.validate("mechanism")
    def _mechanism_exists(self, proposal: Any) -> str:
        known = {name: name for name in self._known}
        return as_trait_error(choose, "mechanism", proposal["value"], known)

    @traitlets.validate("n", "dim", "heads")
    def _on_its_slider(self, proposal: Any) -> int:
        name, value = proposal["trait"].name, proposal["value"]
        allowed = {"n": LENGTHS, "dim": DIMS, "heads": HEADS}[name]
        if value not in allowed:
            raise traitlets.TraitError(
                f"`{name}` should be one of {', '.join(map(str, allowed))}, got {value}"
            )
        return int(value)

    @traitlets.validate("options")
    def _options_fit(self, proposal: Any) -> dict[str, int]:
        known, one = self._sliders(), self._cards[self.mechanism]
        kinds, found = one.option_names(), {}
        try:
            for name, value in proposal["value"].items():
                choose("option", name, known)
                found[name] = check_value(name, value, kinds[name])
            one.arguments(one.build, found)
        except (TypeError, ValueError) as error:
            raise traitlets.TraitError(f"{self.mechanism}: {error}") from None
        return found

    @traitlets.validate("claims")
    def _claims_exist(self, proposal: Any) -> dict[str, str]:
        for name, claim in proposal["value"].items():
            if name not in self._known or claim not in GROWTHS:
                raise traitlets.TraitError(
                    f"`claims` should map mechanisms to one of {', '.join(GROWTHS)}, "
                    f"got {name!r}: {claim!r}"
                )
        return dict(proposal["value"])


Timed = tuple[int, Measurement, Measurement, Cost]
"""A length, the layer's time, full attention's, and what the layer costs by counting."""


def _result(timed: list[Timed]) -> dict[str, Any]:
    """What was measured, with the exponents of the layer's time and FLOPs and a sentence."""
    rows = [
        [n, own.median, *own.quartiles, base.median, *base.quartiles] for n, own, base, _ in timed
    ]
    found: dict[str, Any] = {"rows": rows, "said": "", "crossing": ""}
    if len(timed) < 3:  # two points leave nothing to judge the scatter by
        return found
    lengths = [n for n, *_ in timed]
    line = fit(lengths, [own.median for _, own, *_ in timed])
    layer = fit(lengths, [cost.flops for *_, cost in timed]).slope
    where = crossover(
        {n: own.seconds for n, own, *_ in timed}, {n: base.seconds for n, _, base, _ in timed}
    )
    crossing = f"Beside full attention, its layer is {where.sentence}."
    said = (
        f"The time of the layer grows like n to the power {line.slope:.2f} ({line.low:.2f} to "
        f"{line.high:.2f}), its FLOPs with projections to the power {layer:.2f}. {crossing}"
    )
    ends = {"slope": line.slope, "low": line.low, "high": line.high, "layer": layer}
    return found | ends | {"said": said, "crossing": crossing}
