"""Which query may attend to which key, and at what cost? A pattern composed, written or painted.

    PatternStudio("local(2) | global_([0])", n=32)

Three ways lead to one mask: a list of parts to choose from, the expression (the text that
``attnlab.core.patterns.read`` reads), and the cells themselves, by mouse or keyboard. Beside it
stand its pairs and FLOPs, the softmax of each row under it, and its receptive field over layers.

The page computes all of it without a kernel, so a saved file stays interactive. The primitives come
from Python as formulas; their algebra is written once more in JavaScript, and tests compare the
masks.
"""

import functools
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
import traitlets
from numpy.typing import NDArray
from torch import Tensor

from attnlab.catalog import cards
from attnlab.core.arrays import numbers
from attnlab.core.patterns import Pattern, read
from attnlab.core.patterns.by_table import Listed
from attnlab.core.patterns.primitives import for_page
from attnlab.core.patterns.reading import names
from attnlab.core.softmax import masked_softmax
from attnlab.core.sparse.attention import PatternOptions
from attnlab.figures.drawing import Drawing
from attnlab.figures.patterns import runs
from attnlab_widgets.base import STATIC, BaseWidget, as_trait_error, within
from attnlab_widgets.pattern_studio.picture import draw

MOST = 128
WORDS = {
    "local": "a window",
    "strided": "every so many",
    "summaries": "the ends of blocks",
    "prefix": "the first positions",
    "places": "given rows or columns",
    "edges": "first and last positions",
    "local_2d": "a square of pixels",
    "axial": "a line of a grid",
    "random": "drawn keys",
    "dilated": "a window with gaps",
    "fixed": "own block and summaries",
    "global_": "to all and from all",
    "hub": "one such position",
    "block_diagonal": "the own block",
    "full": "everything",
    "causal": "the past",
}
"""What the primitives of the menu are, in a few words."""
SMALL: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("longformer", "", {"window": 6, "global_positions": (0,)}),
    ("longformer", "dilated", {"window": 4, "dilation": 3}),
    ("longformer", "causal window", {"window": 8, "causal": True}),
    ("streaming", "", {"sinks": 2, "window": 6}),
    ("bigbird", "", {"block": 2, "random": 2}),
    ("etc", "", {"global_tokens": 4, "radius": 3}),
    ("sparse_transformer", "strided", {"stride": 6}),
    ("sparse_transformer", "fixed", {"stride": 6, "kind": "fixed"}),
    ("axial", "rows", {"width": 8}),
    ("axial", "columns", {"width": 8, "axis": 0}),
)
"""Mechanisms of the catalogue, with options whose pattern shows among few positions."""
SHARPNESS = {"sharp": 3.0, "flat": 0.7, "equal": 0.0}
_EMPTY = "~full()"

Mask = NDArray[np.bool_]


class PatternStudio(BaseWidget):
    """A pattern of n positions (at most 128), to compose, to paint and to read.

    ``pattern``   its expression, or a Pattern; one that holds a tensor (documents, a table) cannot
                  be written, and begins as painted cells
    ``n``         how many positions
    ``scores``    what the softmax rows are made of: "sharp", "flat" or "equal" example scores, or
                  an array (at least n, at least n) of your own
    ``head_dim``  d in the FLOPs of a head, 4·d for each pair
    ``block``     the size of the blocks that are marked full, mixed or empty; 0 marks none

    What is chosen can be read and set from Python: ``expression``, ``n``, ``row`` (whose weights
    are shown), ``layer`` (after which the receptive field is shown), ``residual``, ``block``,
    ``head_dim``, ``scores``; ``painted`` holds three bytes (row, key, allowed) for each painted
    cell, which ``paint`` writes. ``pattern`` is what a form or a module takes, ``code`` its text,
    ``mask`` and ``weights`` are tensors, ``remarks`` are sentences about surprising effects.
    """

    _esm = STATIC / "pattern_studio.js"

    expression = traitlets.Unicode(_EMPTY).tag(sync=True)
    n = traitlets.Int(32).tag(sync=True)
    painted = traitlets.Bytes(b"").tag(sync=True, from_json=lambda value, _: bytes(value))
    row = traitlets.Int(0).tag(sync=True)
    layer = traitlets.Int(1).tag(sync=True)
    residual = traitlets.Bool(True).tag(sync=True)
    block = traitlets.Int(8).tag(sync=True)
    head_dim = traitlets.Int(64).tag(sync=True)
    scores = traitlets.Enum((*SHARPNESS, "given"), "sharp").tag(sync=True)
    _scores = traitlets.Bytes(b"").tag(sync=True)
    _side = traitlets.Int(0).tag(sync=True)
    _primitives: Any = traitlets.List().tag(sync=True)
    _presets: Any = traitlets.List().tag(sync=True)
    _words: Any = traitlets.Dict().tag(sync=True)

    def __init__(
        self,
        pattern: str | Pattern = "local(2) | global_([0])",
        n: int = 32,
        *,
        scores: Any = "sharp",
        head_dim: int = 64,
        block: int = 8,
        residual: bool = True,
        theme: str = "auto",
    ) -> None:
        expression, painted = _begun(pattern, _length(n))
        kind, data, side = _given(scores, n)
        super().__init__(
            expression=expression,
            n=n,
            painted=painted,
            row=n // 2,
            scores=kind,
            head_dim=head_dim,
            block=block,
            residual=residual,
            theme=theme,
            _scores=data,
            _side=side,
            _primitives=for_page(),
            _presets=[list(pair) for pair in presets()],
            _words=WORDS,
        )
        if masked := _fully_masked(self.mask.numpy()):
            warnings.warn(f"In this pattern {masked}.", stacklevel=2)

    def show(self, pattern: str | Pattern, n: int | None = None) -> None:
        """Another pattern, and another length, at once; what was painted is wiped."""
        length = self.n if n is None else _length(n)
        expression, painted = _begun(pattern, length)
        with self.hold_sync(), self.hold_trait_notifications():
            self.expression, self.n, self.painted = expression, length, painted

    def paint(
        self, rows: int | Sequence[int], keys: int | Sequence[int], allowed: bool = True
    ) -> None:
        """Allow or forbid these pairs of rows and keys, whatever the expression says."""
        cells = dict(_cells(self.painted))
        for i in _places("row", rows, self.n):
            for j in _places("key", keys, self.n):
                cells[i, j] = allowed
        self.painted = _packed(cells)

    def wipe(self) -> None:
        """Remove all painted cells."""
        self.painted = b""

    @property
    def pattern(self) -> Pattern:
        """What is shown, for any form or module; painted cells make it a listed pattern."""
        return _pattern(self.expression, self.n, self.painted)

    @property
    def code(self) -> str:
        """The expression that writes it, painted cells and all: ``read(studio.code)``."""
        return _code(self.expression, self.n, self.painted)

    @property
    def mask(self) -> Tensor:
        """(n, n), True = may attend."""
        return torch.from_numpy(_overlaid(self.expression, self.n, self.painted))

    @property
    def weights(self) -> Tensor:
        """(n, n): the softmax of the scores under the mask; fully masked rows are zero."""
        if self.scores == "given":
            given = np.frombuffer(self._scores, np.float32).reshape(self._side, self._side)
            scores = torch.from_numpy(given[: self.n, : self.n].astype(np.float64))
        else:
            scores = torch.from_numpy(SHARPNESS[self.scores] * example_scores(self.n))
        return masked_softmax(scores, self.mask)

    @property
    def remarks(self) -> list[str]:
        """Sentences on fully masked rows, and on numbers larger than the sequence."""
        masked = _fully_masked(self.mask.numpy())
        remarks = dict.fromkeys(read(self.expression).remarks(self.n))
        return [*([masked] if masked else []), *remarks]

    # What may be set

    @traitlets.validate("expression")
    def _expression_is_a_pattern(self, proposal: Any) -> str:
        as_trait_error(_dense, proposal["value"], self.n)
        return str(proposal["value"])

    @traitlets.validate("n")
    def _n_suits_the_pattern(self, proposal: Any) -> int:
        as_trait_error(_length, proposal["value"])
        as_trait_error(_dense, self.expression, proposal["value"])
        if self.scores == "given":
            as_trait_error(_enough, self._side, proposal["value"])
        return int(proposal["value"])

    @traitlets.validate("painted")
    def _painted_holds_cells(self, proposal: Any) -> bytes:
        found = np.frombuffer(proposal["value"], np.uint8)
        cells = found.reshape(-1, 3) if len(found) % 3 == 0 else None
        if cells is None or (cells[:, :2] >= MOST).any() or (cells[:, 2] > 1).any():
            raise traitlets.TraitError(
                "`painted` should hold three bytes for each cell: its row and its key, both from 0 "
                f"to {MOST - 1}, and 1 where it may be attended to or 0; paint() writes them"
            )
        return bytes(proposal["value"])

    @traitlets.validate("row")
    def _row_exists(self, proposal: Any) -> int:
        return within("row", proposal["value"], 0, self.n - 1)

    @traitlets.validate("layer")
    def _layer_counts(self, proposal: Any) -> int:
        return within("layer", proposal["value"], 1, 2 * MOST)

    @traitlets.validate("block")
    def _block_counts(self, proposal: Any) -> int:
        return within("block", proposal["value"], 0, MOST)

    @traitlets.validate("head_dim")
    def _head_dim_counts(self, proposal: Any) -> int:
        return within("head_dim", proposal["value"], 1, 65_536)

    @traitlets.validate("scores")
    def _scores_are_known(self, proposal: Any) -> str:
        if proposal["value"] == "given" and not self._side:
            raise traitlets.TraitError(
                "there are no given scores: hand an array to PatternStudio(…, scores=…)"
            )
        return str(proposal["value"])

    @traitlets.observe("n")
    def _row_stays_inside(self, _change: Any) -> None:
        self.row = min(self.row, self.n - 1)

    def still(self) -> Drawing:
        """The mask, the weights of the chosen row and the receptive field."""
        return draw(self)

    def __repr__(self) -> str:
        cells = len(self.painted) // 3
        by_hand = f", {cells} cells painted" if cells else ""
        return f"<PatternStudio: {self.expression}, n = {self.n}{by_hand}>"


@functools.cache
def presets() -> tuple[tuple[str, str], ...]:
    """(title, expression) of known patterns: those of the mechanisms' options, written out."""
    known = {card.name: card for card in cards()}
    found = [("Full attention", "full()"), ("Causal", "causal()")]
    for name, variant, given in SMALL:
        options = {key: value for key, value in given.items() if key != "causal"}
        made: PatternOptions = known[name].options(**options)  # type: ignore[assignment]
        title = f"{known[name].title}, {variant}" if variant else known[name].title
        found.append((title, made.pattern(causal=given.get("causal")).code))
    return tuple(found)


def example_scores(n: int) -> NDArray[np.float64]:
    """(n, n) pseudorandom scores from −1 to 1, the same on every machine."""
    low = np.uint64(2**32 - 1)
    i, j = np.arange(1, n + 1, dtype=np.uint64)[:, None], np.arange(1, n + 1, dtype=np.uint64)
    x = (i * np.uint64(0x9E3779B1) & low) ^ (j * np.uint64(0x85EBCA6B) & low)
    for shift, factor in ((15, 0x2C1B3C6D), (12, 0x297A2D39)):
        x = (x ^ (x >> np.uint64(shift))) * np.uint64(factor) & low
    return np.asarray((x ^ (x >> np.uint64(15))) * (2 / 2**32) - 1)


# What may be handed in


def _length(n: Any) -> int:
    if isinstance(n, bool) or not isinstance(n, int):
        raise TypeError(f"n should be a whole number, got {n!r}")
    if n > MOST:
        raise ValueError(
            f"the studio shows and paints at most {MOST} positions, got n={n}: a pattern's shape "
            "shows at small n, and figures.patterns.pattern_map draws up to 512"
        )
    if n < 1:
        raise ValueError(f"a pattern needs at least one position, got n={n}")
    return n


def _begun(pattern: str | Pattern, n: int) -> tuple[str, bytes]:
    """The expression and the painted cells that a pattern begins with."""
    if isinstance(pattern, str):
        _dense(pattern, n)
        return pattern, b""
    if not isinstance(pattern, Pattern):
        raise TypeError(
            f"`pattern` should be an expression or a Pattern, got {type(pattern).__name__}"
        )
    try:
        _refuse_unknown(pattern.code)
    except ValueError:
        mask = _flat(pattern, n)
        return _EMPTY, _packed({(int(i), int(j)): True for i, j in np.argwhere(mask)})
    _dense(pattern.code, n)
    return pattern.code, b""


@functools.lru_cache(maxsize=256)
def _dense(expression: str, n: int) -> Mask:
    """The mask that an expression writes; ValueError, in a sentence, where it writes none."""
    _refuse_unknown(expression)
    return _flat(read(expression), n)


def _refuse_unknown(expression: str) -> None:
    """A ValueError where the expression writes no pattern, or one that the page cannot compute."""
    read(expression)
    unknown = names(expression) - {one["name"] for one in for_page()} - {"per_head"}
    if unknown:
        raise ValueError(
            f"the studio's page does not know {min(unknown)!r}: hand the pattern itself to "
            "PatternStudio, which then shows its cells"
        )


def _flat(pattern: Pattern, n: int) -> Mask:
    dense = pattern.dense(n)
    if dense.dim() > 2:
        raise ValueError(
            f"{pattern} differs between heads or sequences, and the studio shows one mask: give "
            "one of them, as in pattern.of_head(0)"
        )
    return np.array(dense.numpy())


def _given(scores: Any, n: int) -> tuple[str, bytes, int]:
    """Kind, bytes and side of the scores."""
    if isinstance(scores, str):
        if scores not in SHARPNESS:
            raise ValueError(
                f'`scores` should be "sharp", "flat", "equal" or an array, got {scores!r}'
            )
        return scores, b"", 0
    found = numbers("scores", scores, "n m")
    side = min(*found.shape, MOST)
    _enough(side, n)
    return "given", found[:side, :side].astype("<f4").tobytes(), side


def _enough(side: int, n: int) -> None:
    if side < n:
        raise ValueError(f"the scores are given for {side} positions, but n is {n}")


def _places(name: str, places: int | Sequence[int], n: int) -> list[int]:
    found = [int(p) for p in ([places] if isinstance(places, int | np.integer) else places)]
    outside = [p for p in found if not 0 <= p < n]
    if outside:
        raise ValueError(f"{name} {outside[0]} is outside of a sequence of {n}: 0 … {n - 1}")
    return found


# Painted cells override the expression


def _cells(painted: bytes) -> Iterator[tuple[tuple[int, int], bool]]:
    for at in range(0, len(painted), 3):
        i, j, allowed = painted[at : at + 3]
        yield (i, j), bool(allowed)


def _packed(cells: dict[tuple[int, int], bool]) -> bytes:
    return b"".join(bytes((i, j, cells[i, j])) for i, j in sorted(cells))


def _overlaid(expression: str, n: int, painted: bytes) -> Mask:
    """The mask under its painted cells; those beyond n wait until n grows."""
    mask = _dense(expression, n).copy()
    for (i, j), allowed in _cells(painted):
        if max(i, j) < n:
            mask[i, j] = allowed
    return mask


@functools.lru_cache(maxsize=64)
def _pattern(expression: str, n: int, painted: bytes) -> Pattern:
    """Cached, so that the layout of equal patterns is computed once."""
    mask = _overlaid(expression, n, painted)
    if (mask == _dense(expression, n)).all():
        return read(expression)
    table = np.full((n, max(1, mask.sum(1).max())), -1)
    for i, row in enumerate(mask):
        keys = np.flatnonzero(row)
        table[i, : len(keys)] = keys
    description = f"{read(expression).description}, but for cells painted by hand"
    return Listed(torch.from_numpy(table), description, _code(expression, n, painted))


def _code(expression: str, n: int, painted: bytes) -> str:
    """The expression with what was painted, as one expression."""
    base, mask = _dense(expression, n), _overlaid(expression, n, painted)
    removed, added = _cells_code(base & ~mask), _cells_code(~base & mask)
    if removed:
        expression = f"{_enclosed(expression)} & ~({removed})"
    if not added:
        return expression
    return f"{expression if removed else _enclosed(expression)} | {added}"


def _cells_code(cells: Mask) -> str:
    """Rows that share their cells are written together."""
    groups: dict[tuple[int, ...], list[int]] = {}
    for i, row in enumerate(cells):
        if row.any():
            groups.setdefault(tuple(np.flatnonzero(row).tolist()), []).append(i)
    return " | ".join(
        f'places({rows}, of="row") & places({list(keys)}, of="column")'
        for keys, rows in groups.items()
    )


def _enclosed(text: str) -> str:
    name, _, rest = text.removeprefix("~").partition("(")
    plain = name.isidentifier() and rest.endswith(")") and not set("()") & set(rest[:-1])
    return text if plain else f"({text})"


# Remarks


def _fully_masked(mask: Mask) -> str:
    masked = np.flatnonzero(~mask.any(1))
    if not len(masked):
        return ""
    if len(masked) == 1:
        return f"row {masked[0]} attends to nothing: its output is zero"
    return f"rows {runs(masked)} attend to nothing: their outputs are zero"
