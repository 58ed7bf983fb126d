"""How well does a feature map approximate the softmax?

    KernelLab()

Choose a feature map, how many features, and see three maps: exact softmax, the one that the
features imply, and their difference; the share of attention that is misplaced; and how long the
linear form takes beside exact softmax, measured here and now in the background.
"""

import threading
from collections.abc import Mapping, Sequence
from typing import Any

import ipywidgets as widgets
import numpy as np
import torch
from torch import Tensor

from attnlab.core.arguments import check_flag, check_size
from attnlab.core.markup import escape
from attnlab.figures.drawing import Drawing
from attnlab.figures.labels import visible
from attnlab.figures.theme import CIVIDIS, SIGNED, THEMES, auto_css, blend
from attnlab.lens.kernel_maps import (
    HEADS,
    KINDS,
    Approximation,
    Choice,
    Speed,
    approximate,
    speed,
)
from attnlab_widgets.background import Throttled
from attnlab_widgets.base import HasStill
from attnlab_widgets.messages import Line, alert, news
from attnlab_widgets.toolbar import slim

Heads = Mapping[str, tuple[Tensor, Tensor]]
NUMBERS = [2**i for i in range(2, 13)]  # of features
TEMPERATURES = [0.25, 0.5, 0.71, 1.0, 1.4, 2.0, 4.0]
LENGTHS = [128, 256, 512, 1024, 2048, 4096, 8192]
LONGEST = 128  # tokens that are drawn
KEPT = 6  # settings in the table of what was tried
EVERY = 0.2
_SIDE, _LEFT, _TOP, _GAP = 236, 72, 98, 22
_AMOUNTS = [blend(CIVIDIS, i / 254) for i in range(255)]
# Zero is the paper itself, light or dark.
_SIGNED = [f"{SIGNED[0 if i < 127 else -1]}{abs(i - 127) * 255 // 127:02x}" for i in range(255)]
_HELP = (
    "Rows are queries, columns are keys; yellow is a large weight, dark blue is zero, hatched is "
    "masked. In the difference, vermillion is too much and blue is too little."
)
_STYLE = """<style>
.attnlab-kernels { gap: 8px; }
.attnlab-kernels svg { width: 100%; max-width: 1000px !important; height: auto; }
.attnlab-kernels :is(p, summary, caption, td, th, [role="status"]) { line-height: 1.45; }
.attnlab-kernels p { margin: 4px 0; }
.attnlab-kernels table { border-collapse: collapse; margin: 6px 0; }
.attnlab-kernels td, .attnlab-kernels th { padding: 2px 12px 2px 0; text-align: right; }
.attnlab-kernels td:first-child, .attnlab-kernels th:first-child { text-align: left; }
.attnlab-kernels caption { text-align: left; opacity: 0.8; }
.attnlab-kernels .attnlab-alert {
  border-left: 4px solid #d55e00; padding: 4px 10px; line-height: 1.45; overflow-wrap: anywhere;
}
</style>"""


class KernelLab(HasStill, widgets.VBox):
    """Feature maps beside exact softmax, on trained (or your own) queries and keys.

    ``heads``    names of heads with their queries (n, d) and keys (m, d); without, two trained ones
    ``tokens``   what stands at their positions: one list, or one per head
    ``causal``   whether a query sees only keys up to its own
    The rest is what is chosen to begin with: ``feature`` is one of "softmax", "elu", "relu",
    "dpfp", "positive", "hyperbolic", "relu random", "trigonometric"; ``temperature`` divides the
    logits (below 1 is sharper); ``length`` is how many tokens are timed.

    The controls are ``.head``, ``.feature``, ``.features``, ``.orthogonal``, ``.seed``,
    ``.temperature``, ``.length``; set their ``.value`` from code.
    ``.approximation`` holds the maps, ``.measured`` the speed once `wait` has returned;
    ``.description`` says what is seen.
    """

    _timer: Throttled | None = None

    def __init__(
        self,
        heads: Heads | None = None,
        tokens: Sequence[str] | Mapping[str, Sequence[str]] | None = None,
        *,
        causal: bool = True,
        feature: str = "positive",
        features: int = 64,
        orthogonal: bool = True,
        seed: int = 0,
        temperature: float = 1.0,
        length: int = 1024,
    ) -> None:
        check_flag("causal", causal)
        length = check_size("length", length, LENGTHS[-1], "tokens")
        if heads is None:
            heads, tokens = trained_heads()
        self._heads, self._causal = _checked(heads, causal), causal
        self._tokens = {name: _named(name, q, tokens) for name, (q, _) in self._heads.items()}
        self.approximation: Approximation | None = None
        self.measured: Speed | None = None
        self.description = ""
        self._tried: dict[str, float] = {}
        self._changing = threading.RLock()
        self._controls(Choice(feature, features, orthogonal, seed, temperature), length)
        self._timer = Throttled(self._time, EVERY)
        super().__init__(self._parts())
        self.add_class("attnlab-kernels")
        self._chosen()

    @property
    def choice(self) -> Choice:
        return Choice(
            self.feature.value,
            self.features.value,
            self.orthogonal.value,
            self.seed.value,
            self.temperature.value,
        )

    def wait(self, timeout: float | None = 60) -> bool:
        """Wait until the speed is measured; False if that took longer than `timeout`."""
        return self._timer is None or self._timer.settle(timeout)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.close()
        super().close()

    # The page

    def _controls(self, first: Choice, length: int) -> None:
        self.head = widgets.Dropdown(options=list(self._heads), description="Head", **_sized(180))
        self.feature = widgets.Dropdown(
            options=[(title, name) for name, title in KINDS.items()],
            value=first.feature,
            description="Feature map",
            **_sized(245),
        )
        self.features = _slider("How many", NUMBERS, first.features, "{:,}", _sized(212))
        self.temperature = _slider(
            "Temperature", TEMPERATURES, first.temperature, "{:g}", _sized(205)
        )
        self.orthogonal = widgets.Checkbox(
            value=first.orthogonal, description="orthogonal rows", indent=False
        )
        self.orthogonal.layout.width = "max-content"
        self.seed = widgets.BoundedIntText(
            value=first.seed, min=0, max=9999, description="Seed", **_sized(120)
        )
        self.length = _slider("Tokens timed", LENGTHS, length, "{:,}", _sized(260))
        for control in self._menu:
            control.observe(self._chosen, names="value")
        self.length.observe(self._ask, names="value")
        self._look, self._speed, self._table = (widgets.HTML() for _ in range(3))
        self._alert = Line()

    @property
    def _menu(self) -> list[Any]:
        drawn = [self.features, self.orthogonal, self.seed]
        return [self.head, self.feature, *drawn, self.temperature]

    def _parts(self) -> list[widgets.Widget]:
        several = [self.head] if len(self._heads) > 1 else []
        frequent = [*several, self.feature, self.features, self.temperature]
        self._look.layout.flex, self._look.layout.min_width = "1 1 640px", "0"
        beside = widgets.VBox(
            [self._speed, self._table], layout=widgets.Layout(flex="1 1 300px", min_width="0")
        )
        return [
            widgets.HTML(_STYLE, layout=widgets.Layout(display="none")),
            *slim(frequent, [self.orthogonal, self.seed, self.length], _HELP),
            self._alert,
            widgets.HBox([self._look, beside], layout=widgets.Layout(flex_flow="row wrap")),
        ]

    # What happens

    def _chosen(self, _change: Any = None) -> None:
        """After a new choice: compute the maps at once and the speed in the background."""
        try:
            with self._changing:
                choice = self.choice
                self.features.disabled = not (choice.random or choice.feature == "dpfp")
                self.orthogonal.disabled = self.seed.disabled = not choice.random
                q, k = self._heads[self.head.value]
                self.approximation = approximate(q, k, choice, causal=self._causal)
                self.description = _description(
                    self.approximation, choice, q.shape[-1], self._tokens[self.head.value]
                )
                self._look.value = self._picture(self.approximation, choice)
                self._remember(choice, self.approximation)
            self._alert.value = ""
        except Exception as error:  # no other code would report it
            self._alert.value = alert("These maps could not be made.", error)
        self._ask()

    def _picture(self, seen: Approximation, choice: Choice) -> str:
        drawing, text = self._drawing(seen, choice), self.description
        table = _row_table(seen, self._tokens[self.head.value])
        return f"<style>{auto_css()}</style>{drawing.svg(text)}{news(text)}{table}"

    def _drawing(self, seen: Approximation, choice: Choice) -> Drawing:
        names = self._tokens[self.head.value]
        return _draw(seen, KINDS[choice.feature], names, self._causal)

    def _remember(self, choice: Choice, seen: Approximation) -> None:
        q, _ = self._heads[self.head.value]
        label = _setting(choice, q.shape[-1])
        if len(self._heads) > 1:
            label = f"{self.head.value}: {label}"
        self._tried.pop(label, None)
        self._tried[label] = seen.error
        while len(self._tried) > KEPT:
            self._tried.pop(next(iter(self._tried)))
        self._table.value = _tried(self._tried)

    def _ask(self, _change: Any = None) -> None:
        self.measured = None
        self._speed.value = "<p>Measuring …</p>"
        if self._timer is not None:
            self._timer.ask()

    def _time(self) -> None:
        """In the background; a choice made meanwhile starts another run."""
        try:
            choice, n = self.choice, self.length.value
            width = self._heads[self.head.value][0].shape[-1]
            if choice.feature == "softmax":
                html = "<p>This is the exact one: there is nothing to compare it with.</p>"
            else:
                self.measured = speed(choice, width, n, causal=self._causal)
                html = news(_timed(self.measured, n, width, self._causal))
            if (choice, n) == (self.choice, self.length.value):  # otherwise another run follows
                self._speed.value = html
        except Exception as error:  # in a thread, where no other code would report it
            self._speed.value = alert("The speed could not be measured.", error)

    def still(self) -> Drawing | None:
        """The three maps, and what is seen in them."""
        if self.approximation is None:
            return None
        return self._drawing(self.approximation, self.choice).with_line(self.description)

    def __repr__(self) -> str:
        return f"KernelLab: {self.description}"


def trained_heads() -> tuple[dict[str, tuple[Tensor, Tensor]], dict[str, list[str]]]:
    """A gentle and a sharp head of the models that come with attnlab, and their tokens."""
    from attnlab.lens.watch import watch
    from attnlab.pretrained import load

    heads, tokens = {}, {}
    for name, which in (("gentle head", "documentation"), ("sharp head", "induction")):
        model, task = load(which)
        if which == "documentation":
            ids = task.encode("The class statement creates a new class, and its body is run.")  # type: ignore[attr-defined]
        else:
            ids = torch.randperm(14, generator=torch.Generator().manual_seed(0)).repeat(2)
        with watch(model) as seen, torch.no_grad():
            model(ids[None])
        heads[name] = seen[1].queries[0, 0].clone(), seen[1].keys[0, 0].clone()
        tokens[name] = task.tokens(ids)  # type: ignore[attr-defined]
    return heads, tokens


# ---- what is given


def _checked(heads: Heads, causal: bool) -> dict[str, tuple[Tensor, Tensor]]:
    if not isinstance(heads, Mapping) or not heads:
        raise TypeError(
            '`heads` should name at least one head: {"my head": (q, k)} with q (n, d) and k (m, d)'
        )
    return {str(name): _pair(name, pair, causal) for name, pair in heads.items()}


def _pair(name: str, pair: Any, causal: bool) -> tuple[Tensor, Tensor]:
    if not isinstance(pair, tuple | list) or len(pair) != 2:
        raise TypeError(f"head {name!r} should be a pair (q, k), got {type(pair).__name__}")
    q, k = (torch.as_tensor(x).detach().to("cpu", torch.float64) for x in pair)
    if q.ndim != 2 or k.ndim != 2 or q.shape[1] != k.shape[1]:
        raise ValueError(
            f"head {name!r}: q should be (n, d) and k (m, d), got {tuple(q.shape)} and "
            f"{tuple(k.shape)}; pick one sequence and one head, as queries[0, 0]"
        )
    if not 1 <= len(q) <= LONGEST or not 1 <= len(k) <= LONGEST:
        raise ValueError(
            f"head {name!r}: between 1 and {LONGEST} queries and keys can be drawn, got {len(q)} "
            f"and {len(k)}"
        )
    if causal and len(q) > len(k):
        raise ValueError(
            f"head {name!r}: causal queries are the last of the positions, but there are {len(q)} "
            f"queries for {len(k)} keys; use causal=False"
        )
    if not (q.isfinite().all() and k.isfinite().all()):
        raise ValueError(f"head {name!r} has entries that are NaN or infinite")
    return q, k


def _named(name: str, q: Tensor, tokens: Any) -> list[str]:
    """A label for each query, its position where none is given."""
    given = tokens.get(name) if isinstance(tokens, Mapping) else tokens
    if given is None:
        return [str(i) for i in range(len(q))]
    if isinstance(given, str) or len(given) != len(q):
        raise ValueError(f"`tokens` should be a list of {len(q)} for the queries of head {name!r}")
    return [visible(token) for token in given]


def _sized(width: int) -> dict[str, Any]:
    layout = widgets.Layout(width=f"{width}px", margin="0")
    return {"style": {"description_width": "initial"}, "layout": layout}


def _slider(name: str, options: list[Any], value: Any, look: str, sized: dict[str, Any]) -> Any:
    """A slider through `options`, and through `value` if that is none of them."""
    if isinstance(value, bool) or not isinstance(value, int | float) or value <= 0:
        raise ValueError(f"`{name.lower()}` should be a number above 0, got {value!r}")
    steps = sorted({*options, value})
    pairs = [(look.format(step), step) for step in steps]
    return widgets.SelectionSlider(options=pairs, value=value, description=name, **sized)


# ---- descriptions


def _setting(choice: Choice, width: int) -> str:
    count = choice.count(width)
    label = KINDS[choice.feature]
    if count is not None:
        label += f", {count:,} features"
    if choice.random:
        rows = "orthogonal" if choice.orthogonal else "i.i.d."
        label += f", {rows}, seed {choice.seed}"
    return label + (f", temperature {choice.temperature:g}" if choice.temperature != 1 else "")


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %" if share >= 0.0095 or share == 0 else "less than 1 %"


def _description(seen: Approximation, choice: Choice, width: int, names: Sequence[str]) -> str:
    setting = _setting(choice, width)
    if choice.feature == "softmax":
        return f"{setting[0].upper()}{setting[1:]}: the map that all others are measured by."
    worst = int(seen.misplaced.argmax())
    text = (
        f"{setting[0].upper()}{setting[1:]}: {_percent(seen.error)} of the attention sits in the "
        f"wrong place; in the worst row, {names[worst]} at position {worst}, "
        f"{_percent(float(seen.misplaced[worst]))}."
    )
    if seen.negative:
        text += (
            f" {seen.negative} of {len(seen.map)} rows are divided by a number below zero: "
            "their weights change sign."
        )
    if seen.empty:
        text += f" {seen.empty} of {len(seen.map)} rows have no weight at all."
    return text


def _timed(measured: Speed, n: int, width: int, causal: bool) -> str:
    ratio = measured.ratio
    verdict = (
        f"it is {1 / ratio:.1f} × as fast" if ratio <= 1 else f"it takes {ratio:.1f} × as long"
    )
    return (
        f"{n:,} tokens, {HEADS} heads of width {width}{', causal' if causal else ''}: "
        f"{1e3 * measured.own:.3g} ms, exact softmax {1e3 * measured.exact:.3g} ms: {verdict}. "
        "Median of 5 forward passes here and now, in turns."
    )


def _row_table(seen: Approximation, names: Sequence[str]) -> str:
    """Each row as text, folded: the key with the largest weight, exactly and by the features."""
    offset = seen.exact.shape[1] - len(names)
    cells = []
    for i, name in enumerate(names):
        cells_of_row = []
        for weights in (seen.exact[i], seen.map[i]):
            j = int(weights.argmax())
            key = names[j - offset] if j >= offset else f"key {j}"
            cells_of_row.append(f"{key} ({j}), {weights[j].item():.2f}")
        row = (f"{name} ({i})", *cells_of_row, _percent(float(seen.misplaced[i])))
        cells.append("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>")
    head = "".join(
        f'<th scope="col">{name}</th>'
        for name in ("query", "exact: most on", "features: most on", "misplaced")
    )
    table = f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(cells)}</tbody></table>"
    return (
        '<details class="tex2jax_ignore mathjax_ignore"><summary>These maps in words</summary>'
        f"{table}</details>"
    )


def _tried(rows: Mapping[str, float]) -> str:
    body = "".join(
        f"<tr><td>{escape(label)}</td><td>{_percent(error)}</td></tr>"
        for label, error in rows.items()
    )
    return (
        '<table><caption>Tried so far</caption><thead><tr><th scope="col">setting</th>'
        f'<th scope="col">in the wrong place</th></tr></thead><tbody>{body}</tbody></table>'
    )


# ---- the drawing


def _draw(seen: Approximation, title: str, names: Sequence[str], causal: bool) -> Drawing:
    n, m = seen.map.shape
    drawing = Drawing(_LEFT + 3 * _SIDE + 2 * _GAP + 8, _TOP + _SIDE + 34, THEMES["light"])
    largest = max(1e-12, float(seen.exact.max()))
    difference = seen.map - seen.exact
    signed = bool((seen.map < -1e-9).any())
    for place, (name, map, scale, both) in enumerate(
        (
            ("exact softmax", seen.exact, largest, False),
            (title, seen.map, largest, signed),
            ("the difference", difference, max(1e-12, float(difference.abs().max())), True),
        )
    ):
        x = _LEFT + place * (_SIDE + _GAP)
        palette = _SIGNED if both else _AMOUNTS
        share = (map / scale).clamp(-1, 1)
        levels = (127 + 127 * share if both else 254 * share.clamp(min=0)).round().int().numpy()
        drawing.map(levels, palette, x, _TOP, _SIDE, _SIDE)
        if causal:
            drawing.hatch(~np.tri(n, m, m - n, dtype=bool), x, _TOP, _SIDE, _SIDE)
        drawing.frame(x - 0.5, _TOP - 0.5, _SIDE + 1, _SIDE + 1, drawing.theme.grid)
        drawing.text(name, x, 16, size=14)
        low = f"{-scale:.2g}".replace("-", "−") if both else "0"
        cut = ", more is cut off" if float(map.abs().max()) > scale * 1.001 else ""
        label = f"from {low} to {scale:.2g}{cut}"
        drawing.text(label, x, _TOP + _SIDE + 20, quiet=True, size=11)
    step = max(1, -(-max(n, m) // 17))
    for i in range(0, n, step):
        y = _TOP + (i + 0.5) * _SIDE / n
        drawing.text(_short(names[i]), _LEFT - 6, y, anchor="end", quiet=True, size=11)
    for place in range(3):
        x = _LEFT + place * (_SIDE + _GAP)
        for j in range(m - n, m, step) if n <= m else ():
            across = x + (j + 0.5) * _SIDE / m
            word = _short(names[j - (m - n)])
            drawing.text(word, across, _TOP - 5, quiet=True, turned=True, size=11)
    return drawing


def _short(word: str) -> str:
    return word if len(word) <= 8 else word[:7] + "…"
