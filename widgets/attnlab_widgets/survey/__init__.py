"""The survey's table, to be checked: what each mechanism is said to cost, what it costs by
counting and by the clock, and whether it decodes.

    table = attnlab.survey()
    table.add("block means", BlockMeans, claims="n√n")  # a mechanism of your own
    attnlab.survey(gpu="gpu.jsonl")  # and what ``python -m attnlab.measure gpu`` wrote elsewhere

The table of "Efficient Transformers: A Survey" (Tay et al., arXiv:2009.06732) lists what papers
state. Here every number comes from the catalogue: FLOPs are counted, times are those that
``python -m attnlab_widgets.survey --all`` stored with the machine that they were taken on, and a
row that is checked is counted, tried and timed again where it stands. A row of which nothing is
stored is counted in the background while the table is already there.
"""

import datetime
import json
import platform
import re
from argparse import ArgumentParser
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

import torch
import traitlets
from torch import nn

from attnlab.catalog import TITLES, card, cards
from attnlab.core.card import Card
from attnlab.core.files import write_file
from attnlab.core.growths import GROWTHS
from attnlab.core.suggest import choose
from attnlab.figures.drawing import Drawing
from attnlab.measure import by_name
from attnlab.measure.costs import Layer, counted
from attnlab.measure.fit import fit
from attnlab.measure.rows import read
from attnlab.measure.subject import OwnLayer, subject
from attnlab.models.mixers import built
from attnlab_widgets import cost_formulas
from attnlab_widgets.background import Throttled
from attnlab_widgets.base import STATIC, BaseWidget, Choice
from attnlab_widgets.card_maps import links
from attnlab_widgets.survey import gains, on_a_gpu, parts
from attnlab_widgets.survey.beside import beside_full_attention
from attnlab_widgets.survey.picture import picture
from attnlab_widgets.wall.around import SHELVES
from attnlab_widgets.wall_cards import growth

STORED = Path(__file__).parent / "survey.json"
DIM, WIDE = 256, 4
COUNTED = (1024, 2048, 4096, 8192)
TIMED = (512, 1024, 2048, 4096)
ROUNDS = 3
ORDERS = (
    "name", "year", "family", "claimed", "counted", "measured", "compiled", "decodes",
    *on_a_gpu.ONLY,
)  # fmt: skip
GPU = "gpu"
"""The shelf of the forms that were timed on a GPU."""
YOURS = "yours"
"""The family of the mechanisms that a reader has added."""


@dataclass(frozen=True)
class Own:
    """A mechanism that is not of the catalogue, as a reader adds it to the table."""

    name: str
    build: Callable[..., nn.Module]
    claims: str


class Survey(BaseWidget):
    """A row for every mechanism that mixes positions; sorted, filtered and checked where it stands.

    ``order`` is one of "name", "year", "family", "claimed", "counted", "measured", "compiled",
    "decodes", ``down`` whether the largest comes first, ``family`` and ``search`` a filter; all can
    be read and set. ``shelf`` is "mechanisms" or a role of the other shelves ("feed", "join",
    "depth", "objective", "compress"), whose pages stand with what their cards claim. ``rows`` are
    the numbers as a list of dicts, ``check`` counts a row again and tries whether it decodes,
    ``time`` times it too, in the background; ``wait`` waits for both. ``add`` gives a mechanism of
    your own a row, which is counted and tried like all others.

    ``gpu`` names a file of ``python -m attnlab.measure gpu --json FILE``. With it there is a shelf
    "gpu" more, and the orders "forward", "both" and "share": ``forms`` are its rows, the times of
    every form on that device with its exponent beside the CPU's, from where on it is faster than
    fused full attention, the operations that both passes start, and the share of the device's peak.

    Exponents are powers of n: counted from FLOPs of the mixing at n = 1,024 to 8,192, measured
    from times of the whole layer, projections included, at 512 to 4,096; width 256, 4 heads.
    Compiled: how many times as fast ``torch.compile`` makes the layer on a CPU.
    """

    _esm = STATIC / "survey.js"

    order = Choice(ORDERS, "year").tag(sync=True)
    down = traitlets.Bool(False).tag(sync=True)
    family = traitlets.Unicode("").tag(sync=True)
    search = traitlets.Unicode("").tag(sync=True)
    shelf = Choice((*SHELVES, GPU), "mechanisms").tag(sync=True)
    _parts: Any = traitlets.List().tag(sync=True)
    _rows: Any = traitlets.List().tag(sync=True)
    _busy: Any = traitlets.List().tag(sync=True)
    _machine = traitlets.Unicode("").tag(sync=True)
    _compiled_on = traitlets.Unicode("").tag(sync=True)
    _forms: Any = traitlets.List().tag(sync=True)
    _device = traitlets.Unicode("").tag(sync=True)
    _timed_on = traitlets.Unicode("").tag(sync=True)
    _live = traitlets.Bool(True).tag(sync=True)

    def __init__(self, *, gpu: str | Path | None = None, theme: str = "auto") -> None:
        stored = _stored()
        forms: list[dict[str, Any]] = []
        device = timed_on = ""
        if gpu is not None:
            forms, device, timed_on = on_a_gpu.of_file(gpu, stored["rows"])
        super().__init__(
            _machine=stored["machine"], _compiled_on=gains.machine(), theme=theme,
            _forms=forms, _device=device, _timed_on=timed_on,
        )  # fmt: skip
        self._own: dict[str, Own] = {}
        self._asked: SimpleQueue[tuple[str, str]] = SimpleQueue()
        self._worker = Throttled(self._work, 0)
        self._rows = [row_of(one, stored["rows"].get(one.name)) for one in cards() if one.mixes]
        for row in self._rows:
            if row["counted"] is None:
                self._ask(row["name"], "count")
        self.on_msg(self._told)
        self.observe(lambda _: self._tell_parts(), ["shelf"])

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The table as dicts: name, title, family, year, claimed, formula (the exponent of the
        card's formula), launches (how the number of operations called grows, of each form in
        launched), compiled (how many times as fast torch.compile makes the forward pass of the last
        form, None where that is not measured; compiled_quartiles are those of the rounds, and all
        forms are in compiled_said), counted, measured, interval, decodes, because, page, lesson,
        checked.

        What is still being counted is None; ``wait`` first."""
        return [dict(row) for row in self._rows]

    @property
    def forms(self) -> list[dict[str, Any]]:
        """The rows of the file that ``gpu`` named, as dicts; none where no file was given.

        name, mechanism, title, family, year; cpu and measured (the exponents of the forward pass
        there and on the device, with their intervals), forward and both (seconds, at forward_n and
        both_n tokens, the longest that were timed), beside (from where on it is faster than fused
        full attention, both passes), starts (pairs of a length and the operations that both passes
        start), share (of the peak rate, forward, at share_n tokens), because and unfitted (why
        times or the exponent are missing)."""
        return [dict(row) for row in self._forms]

    def add(self, name: str, build: Callable[..., nn.Module], *, claims: str = "n") -> None:
        """Give a mechanism of your own a row, and count and try it in the background.

        ``build(dim, heads, causal)`` gives its layer, as ``TinyTransformer(attention=…)`` takes
        it: a module from (b, n, dim) to (b, n, dim), called as ``module(x, padding)``. ``claims``
        is the growth that you claim for its FLOPs: "n", "n log n", "n√n" or "n²". A name that you
        added before gets the new layer; a name of the catalogue is refused.
        """
        choose("claim", claims, GROWTHS)
        if not isinstance(name, str) or not name.strip():
            raise ValueError(f"name should be a text, such as 'block means', got {name!r}")
        if name in {row["name"] for row in self._rows} - set(self._own):
            raise ValueError(f"{name!r} is in the catalogue: give your mechanism another name")
        if not callable(build):
            raise TypeError(
                "build should be a module's class, or another callable that takes (dim, heads, "
                f"causal) and gives the layer, got {build!r}"
            )
        with torch.random.fork_rng(devices=[]):
            built(build, DIM, WIDE, causal=False)
        self._own[name] = Own(name, build, claims)
        kept = [row for row in self._rows if row["name"] != name]
        self._rows = [*kept, row_of(self._own[name], None)]
        self._ask(name, "check")

    def check(self, name: str) -> None:
        """Count the FLOPs of a mechanism again, and try whether it decodes."""
        self._ask(name, "check")

    def time(self, name: str) -> None:
        """Count the FLOPs of a mechanism again, and time its layer on this machine."""
        self._ask(name, "time")

    def wait(self, timeout: float | None = 120) -> bool:
        """Wait until what was asked for is checked; False if that took longer than ``timeout``."""
        return self._worker.settle(timeout)

    @traitlets.validate("shelf", "order")
    def _needs_a_file(self, proposal: Any) -> str:
        """What stands in the rows of a GPU can be chosen only where such rows are."""
        name, value = proposal["trait"].name, str(proposal["value"])
        if value in (GPU, *on_a_gpu.ONLY) and not self._forms:
            raise traitlets.TraitError(
                f"{name}={value!r} is for the times of a GPU, and this table was given none: "
                "survey(gpu=FILE), with what `python -m attnlab.measure gpu --json FILE` wrote"
            )
        return value

    def _tell_parts(self) -> None:
        """Fill the rows of the other shelves, once somebody looks at one."""
        if self.shelf not in ("mechanisms", GPU) and not self._parts:
            self._parts = parts.rows()

    def close(self) -> None:
        if "_worker" in vars(self):  # not where the arguments were refused
            self._worker.close()
        super().close()

    def description(self) -> str:
        """What is seen, in sentences."""
        if self.shelf == GPU:
            return (
                f"{len(self.shown())} forms and kernels of other packages as they were timed on "
                f"{self._timed_on}."
            )
        if self.shelf != "mechanisms":
            pages = len(self.shown())
            what = "page with what its card claims" if pages == 1 else "pages with what they claim"
            return f"{TITLES[self.shelf]}. {pages} {what}."
        able = sum(row["decodes"] is True for row in self._rows)
        return (
            f"{len(self._rows)} mechanisms with the growth that their cards claim, the exponents "
            f"of n that were counted and measured, and whether they decode: {able} do."
        )

    def still(self) -> Drawing:
        """The table as a picture."""
        return picture(self)

    def shown(self) -> list[dict[str, Any]]:
        """The rows that pass the filter, in order, as ``arranged`` of ``rows.js``."""
        if self.shelf == GPU:
            return on_a_gpu.shown(self._forms, self)
        if self.shelf != "mechanisms":
            return parts.shown(self._parts, self)
        words = self.search.casefold()
        kept = [
            row
            for row in self._rows
            if self.family in ("", row["family"])
            and words in f"{row['title']} {row['name']}".casefold()
        ]
        if self.order in on_a_gpu.ONLY:
            return kept
        found = [row for row in kept if row[_KEYS[self.order]] is not None]
        rest = [row for row in kept if row[_KEYS[self.order]] is None]
        found.sort(key=lambda row: _sortable(row[_KEYS[self.order]]), reverse=self.down)
        return found + rest

    def __repr__(self) -> str:
        return f"Survey: {self.description()}"

    def _ask(self, name: str, what: str) -> None:
        name = choose("mechanism", name, {row["name"]: row["name"] for row in self._rows})
        self._asked.put((name, what))
        self._busy = [*self._busy, name]
        self._worker.ask()

    def _work(self) -> None:
        """In the background: all that was asked for, in turn."""
        while True:
            try:
                name, what = self._asked.get_nowait()
            except Empty:
                return
            found = self._found(self._own.get(name) or card(name), what)
            self._rows = [row | found if row["name"] == name else row for row in self._rows]
            busy = [*self._busy]
            busy.remove(name)
            self._busy = busy

    def _found(self, one: Card | Own, what: str) -> dict[str, Any]:
        try:
            if what == "count":
                return stored_of(one, timed=False)
            return checked(one, timed=what == "time")
        except Exception as error:  # in a thread, where no other code would report it
            return {"checked": f"It could not be checked: {error}"}

    def _told(self, _widget: Any, content: Any, _buffers: Any) -> None:
        known = {row["name"] for row in self._rows}
        name = content.get("name") if isinstance(content, dict) else None
        if isinstance(name, str) and name in known:
            self._ask(name, "time" if content.get("kind") == "time" else "check")

    def _saved_state(self) -> dict[str, Any]:
        told = {"_live": False, "_busy": [], "_parts": parts.rows()}
        return {**super()._saved_state(), **told}


_KEYS = {order: {"name": "title", "claimed": "formula"}.get(order, order) for order in ORDERS}


def _sortable(value: Any) -> Any:
    return value.casefold() if isinstance(value, str) else value


def survey(*, gpu: str | Path | None = None, theme: str = "auto") -> Survey:
    """Every mechanism with its claimed, counted and measured cost; see ``Survey``.

    gpu: a file that ``python -m attnlab.measure gpu --json FILE`` wrote, on whatever machine; its
        rows are one more table. Raises ValueError, with the reason, where it holds none.
    """
    return Survey(gpu=gpu, theme=theme)


_NOTHING = dict.fromkeys(("counted", "measured", "interval", "decodes"), None) | {
    "because": "it is being tried"
}


def row_of(one: Card | Own, stored: dict[str, Any] | None) -> dict[str, Any]:
    """What the table says of a mechanism; what is not stored is None."""
    told = _of_own(one) if isinstance(one, Own) else _of_card(one)
    return told | {"formula": _formula(one), **(stored or _NOTHING), "checked": ""}


def _of_card(one: Card) -> dict[str, Any]:
    addresses = {text.split()[0]: [url, text] for url, text in links(one.name)}
    return {
        "name": one.name,
        "title": one.title,
        "family": one.family,
        "year": one.paper.year,
        "claimed": growth(one, "time", {}),
        "order": one.order_text("time", list(one.forms)[-1]),
        "launches": _launches(one),
        "launched": one.launches_text(),
        **gains.gain(one),
        "page": addresses.get("page"),
        "lesson": addresses.get("lesson"),
    }


def _launches(one: Card) -> str:
    """How the number of operations that the last form calls grows, in n alone."""
    grows = one.order("launches", list(one.forms)[-1]) != 1
    return growth(one, "launches", {}) if grows else "constant"


def _of_own(one: Own) -> dict[str, Any]:
    return {
        "name": one.name,
        "title": one.name,
        "family": YOURS,
        "year": datetime.date.today().year,
        "claimed": one.claims,
        "order": f"O({one.claims})",
        "launches": None,
        "launched": "not counted: a layer of your own has no card that claims it",
        "compiled": None,
        "compiled_quartiles": None,
        "compiled_said": "Not measured: it is a layer of your own.",
        "page": None,
        "lesson": None,
    }


def stored_of(one: Card | Own, *, timed: bool) -> dict[str, Any]:
    """What is stored of a mechanism: exponents, and whether it decodes."""
    if isinstance(one, Own):
        able, because = by_name.tried(OwnLayer(one.name, one.build, dim=32, heads=2))
    else:
        able, because = by_name.decodes(one.name)
    found: dict[str, Any] = {"counted": _counted(one), "measured": None, "interval": None}
    if timed:
        slope, *interval = _measured(one)
        found |= {"measured": slope, "interval": interval}
    return found | {"decodes": able, "because": because}


def checked(one: Card | Own, *, timed: bool) -> dict[str, Any]:
    """What comes out now, with the sentence that compares it with the card, or with the claim."""
    found = stored_of(one, timed=timed)
    formula = _formula(one)
    agrees = "as" if abs(found["counted"] - formula) <= 0.1 else "where"
    what = "your claim" if isinstance(one, Own) else "the card's formula"
    said = (
        f"Counted now: n^{found['counted']:.2f}, {agrees} {what} gives n^{formula:.2f} "
        f"at these lengths. Decodes: {found['because']}."
    )
    if timed:
        low, high = found["interval"]
        said += f" Timed now: n^{found['measured']:.2f} ({low:.2f} to {high:.2f}), the whole layer."
    else:
        del found["measured"], found["interval"]
    return found | {"checked": said}


def _layer(one: Card | Own) -> Layer:
    if isinstance(one, Own):
        return OwnLayer(one.name, one.build, DIM, WIDE)
    return subject(one.name, dim=DIM, heads=WIDE)


def _counted(one: Card | Own) -> float:
    """The order of the FLOPs of the mixing; of its element-wise work where it has no products."""
    costs = [counted(_layer(one), n) for n in COUNTED]
    counts = [cost.mixing_flops or cost.elements_written for cost in costs]
    return round(fit(COUNTED, counts).slope, 3)


def _formula(one: Card | Own) -> float:
    """The exponent of the card's formula, or of the claim, over the counted lengths."""
    if isinstance(one, Own):
        values = [GROWTHS[one.claims](n) for n in COUNTED]
        return round(fit(COUNTED, values).slope, 3)
    told = cost_formulas.told(one)
    usual = {letter: each["usual"] for letter, each in told["letters"].items()}
    width = DIM // WIDE
    known = usual | {"h": WIDE, "d": width, "e": width, "dim": DIM}
    values = [cost_formulas.value(told["time"], known | {"n": n}) for n in COUNTED]
    return round(fit(COUNTED, values).slope, 3)


def _measured(one: Card | Own) -> list[float]:
    """The exponent of the layer's time, and the interval that holds it at 95 %."""
    layer = _layer(one)
    medians = [by_name.timed([layer], n, rounds=ROUNDS)[0].median for n in TIMED]
    line = fit(TIMED, medians)
    return [round(each, 3) for each in (line.slope, line.low, line.high)]


@cache
def _stored() -> dict[str, Any]:
    if not STORED.is_file():
        return {"machine": "", "rows": {}}
    return dict(json.loads(STORED.read_text(encoding="utf-8")))


def machine() -> str:
    """Where times are taken, in words."""
    threads = torch.get_num_threads()
    version = re.sub(r"\+.*", "", torch.__version__)
    kind = f"{threads} thread{'s' * (threads > 1)} of {platform.machine()}"
    return f"{kind}, PyTorch {version}, float32, forward"


def main(given: Sequence[str] | None = None) -> None:
    """Count and time mechanisms, and store each row as it comes."""
    mixing = {one.name: one for one in cards() if one.mixes}
    about = f"Count and time mechanisms, and store their rows in attnlab's own {STORED.name}."
    parser = ArgumentParser(prog="python -m attnlab_widgets.survey", description=about)
    parser.add_argument("names", nargs="*", metavar="mechanism")
    parser.add_argument("--all", action="store_true", help="every mechanism; takes minutes")
    parser.add_argument("--missing", action="store_true", help="those of which no row is stored")
    parser.add_argument(
        "--picture", nargs=2, type=Path, metavar=("ROWS", "PICTURE"),
        help="draw the rows that a sweep has written, as an SVG",
    )  # fmt: skip
    asked = parser.parse_args(given)
    if asked.picture:
        try:
            beside_full_attention(read(asked.picture[0])).save_svg(asked.picture[1])
        except (ValueError, OSError) as error:
            parser.error(str(error))
        return
    if unknown := [name for name in asked.names if name not in mixing]:
        parser.error(f"no mechanism that mixes positions is called {unknown[0]!r}")
    if bool(asked.names) + asked.all + asked.missing != 1:
        parser.error("name mechanisms, or give --all or --missing")
    rows = {name: row for name, row in _stored()["rows"].items() if name in mixing}
    wanted = [name for name in mixing if name not in rows] if asked.missing else mixing
    for name in asked.names or wanted:
        rows[name] = stored_of(mixing[name], timed=True)
        found = {"machine": machine(), "rows": dict(sorted(rows.items()))}
        write_file(STORED, json.dumps(found, indent=1) + "\n")
