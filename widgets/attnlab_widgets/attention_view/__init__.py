"""Which tokens does each token attend to? All heads as maps, lines and a matrix, linked.

    with attnlab.watch(model) as seen:
        model(tokens)
    AttentionView(seen, tokens)

It needs no network, and ``save_html`` writes one file that needs no kernel either.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
import traitlets
from torch import Tensor

from attnlab.core.arguments import check_names, check_number
from attnlab.figures.drawing import Drawing
from attnlab.figures.labels import visible
from attnlab.lens.sources.layers import (
    SOMETIMES,
    STATISTICS,
    cells,
    has_attentions,
    is_cache,
    layers_of,
    outline,
    shapes,
)
from attnlab.lens.sources.patches import Patch, Patches
from attnlab.lens.sources.tokens import Found, Tokens
from attnlab_widgets.attention_view import vectors as vectors
from attnlab_widgets.attention_view.origins import UNASKED, Origins, Place, origins_of
from attnlab_widgets.attention_view.picture import draw
from attnlab_widgets.base import STATIC, BaseWidget, Choice, as_trait_error, within
from attnlab_widgets.quantization import MOST_TILES, block

WHOLE = 24_000_000
"""Up to this many weights are sent one by one; of more, tiles and each row's largest."""
_FULL = 160
_ORDERS = ("layer", *STATISTICS, *SOMETIMES)
_MOST_LEFT = 8192
"""Queries of a layer up to which each row says what its weights leave of one."""
_PANELS = ("heads", "lines", "matrix")


class AttentionView(BaseWidget):
    """All heads of one input, or of two to compare.

    ``source``         a recording of ``attnlab.watch``, outputs of a Hugging Face model, an
                       ``ActivationCache`` of TransformerLens, mixing matrices, or an array (n, m),
                       (heads, n, m) or (layers, heads, n, m); a dict {training step: source} gives
                       a step slider
    ``tokens``         the tokens of the queries, and of the keys unless ``source_tokens`` is given
    ``source_tokens``  what the encoder read, for encoder layers and cross-attention; of an array
                       with n ≠ m, the tokens of the keys
    ``compare``        a second source of the same shape on the same input: its difference to the
                       first can be shown
    ``names``          what the two are called
    ``batch``          which row of the batch
    ``image``          what a vision model saw: (height, width), (height, width, 3), (3, height,
                       width) or a PIL image; tokens of patches are then places in it
    ``grid``           (rows, columns) of the patches of the image; found from the number of tokens
                       where they are its last ones, in reading order
    ``model``          the model that was recorded (a dict of them for a dict of training steps):
                       "Why?" then also says from which earlier outputs the scores of the pinned
                       query come (``attnlab.lens.score_parts``), or why that is not known
    ``inputs``         with ``model``, the tokens that it read, (n,) or (b, n), or a dict of its
                       arguments

    What is chosen can be read and set from Python: ``layer``, ``head``; ``heads`` (others shown
    with it as lines); ``query`` and ``key`` (pinned, or None); ``threshold`` (a share of the
    largest weight shown), ``top_k`` (lines per query; 0 = all); ``hide_first`` and
    ``value_weighted`` (both renormalise the rows); ``step`` (its place in the slider), ``shown``
    ("first", "second", "difference"); ``sort`` and ``at_least`` (order and filter of the heads by
    one statistic); ``panels`` (which of "heads", "lines", "matrix" are shown) and ``bar`` (whether
    the row of controls is), for a view that is a part of another widget.
    """

    _esm = STATIC / "attention_view.js"

    _recording = traitlets.Dict().tag(sync=True)
    _data = traitlets.Bytes().tag(sync=True)
    _origins = traitlets.Dict().tag(sync=True)
    _origin_data = traitlets.Bytes().tag(sync=True)
    layer = traitlets.Int(0).tag(sync=True)
    head = traitlets.Int(0).tag(sync=True)
    heads: Any = traitlets.List().tag(sync=True)
    query = traitlets.Int(None, allow_none=True).tag(sync=True)
    key = traitlets.Int(None, allow_none=True).tag(sync=True)
    threshold = traitlets.Float(0.05).tag(sync=True)
    top_k = traitlets.Int(3).tag(sync=True)
    hide_first = traitlets.Bool(False).tag(sync=True)
    value_weighted = traitlets.Bool(False).tag(sync=True)
    step = traitlets.Int(0).tag(sync=True)
    shown = Choice(("first", "second", "difference"), "first").tag(sync=True)
    sort = Choice(_ORDERS, "layer").tag(sync=True)
    at_least = traitlets.Float(None, allow_none=True).tag(sync=True)
    panels: Any = traitlets.List(list(_PANELS)).tag(sync=True)
    bar = traitlets.Bool(True).tag(sync=True)

    def __init__(
        self,
        source: Any,
        tokens: Sequence[Any] | None = None,
        *,
        source_tokens: Sequence[Any] | None = None,
        compare: Any = None,
        names: tuple[str, str] = ("first", "second"),
        batch: int = 0,
        image: Any = None,
        grid: tuple[int, int] | None = None,
        model: Any = None,
        inputs: Any = None,
        theme: str = "auto",
    ) -> None:
        lists = _token_lists(tokens, source_tokens, image, grid)
        recording, data, self._records = _coded(source, lists, compare, names, batch)
        self._from = origins_of(model, inputs, recording["steps"], recording["compared"], batch)
        super().__init__(_recording=recording, _data=data, theme=theme)
        self.on_msg(self._asked)
        self.step = len(recording["steps"]) - 1
        self._forget_origins()

    def show(
        self,
        source: Any,
        tokens: Sequence[Any] | None = None,
        *,
        source_tokens: Sequence[Any] | None = None,
        compare: Any = None,
        names: tuple[str, str] = ("first", "second"),
        batch: int = 0,
        image: Any = None,
        grid: tuple[int, int] | None = None,
        model: Any = None,
        inputs: Any = None,
    ) -> None:
        """Show another recording in the same view; what is chosen stays where it still exists."""
        lists = _token_lists(tokens, source_tokens, image, grid)
        coded = _coded(source, lists, compare, names, batch)
        origins = origins_of(model, inputs, coded[0]["steps"], coded[0]["compared"], batch)
        with self.hold_sync():
            self._from = origins
            self._recording, self._data, self._records = coded
            self._settle()
            self._forget_origins()

    def still(self) -> Drawing:
        """What is chosen: all heads, lines and matrix."""
        return draw(self)

    def _asked(self, _widget: Any, content: Any, _buffers: Any) -> None:
        """Give what the page asks for: the vectors of a head, or the parts of scores."""
        if not isinstance(content, dict):
            return
        if "origins" in content:
            self._asked_for_origins(content["origins"])
        place: Any = content.get("vectors")
        if not _whole_numbers(place, 4) or not self._recorded(*place):
            return
        step, which, layer, head = place
        record, row = self._records[step][which][layer]
        found = vectors.answer(record, row, head)
        if isinstance(found, str):
            self.send({**content, "said": found})
        else:
            self.send({**content, "header": found.header}, [found.data])

    def _asked_for_origins(self, asked: Any) -> None:
        """While its last step of "Why?" is open: [step, layer, head, query, key]."""
        if not isinstance(asked, list | tuple) or len(asked) != 5:
            return
        *place, key = asked
        if _whole_numbers(place, 4) and (key is None or _whole_numbers([key], 1)):
            self._follow_origins(Place(*place), key)

    def _keep_origins(self) -> None:
        """Before the view is shown or stored: what is pinned is kept with it."""
        if getattr(self, "_from", None) is not None and self.query is not None:
            self._follow_origins(Place(self.step, self.layer, self.head, self.query), self.key)

    def _follow_origins(self, place: Place, key: int | None) -> None:
        """From which earlier outputs the scores of a query come: asks the model, if it has to."""
        origins: Origins | None = self._from
        if origins is None or not self._recorded(place.step, 0, place.layer, place.head):
            return
        layer = self._recording["layers"][place.layer]
        if not 0 <= place.query < layer["n"]:
            return
        key = key if key is not None and 0 <= key < layer["m"] else None
        known = self._origins.get("keys")
        if self._origins.get("place") == [*place] and (known is None or key in (None, *known)):
            return
        found = origins.answer(self, place, key)
        with self.hold_sync():
            if isinstance(found, str):
                self._origins, self._origin_data = {"place": [*place], "said": found}, b""
            else:
                self._origins, self._origin_data = found.header, found.data

    def _forget_origins(self) -> None:
        self._origins, self._origin_data = {} if self._from is None else UNASKED, b""

    def get_state(self, key: Any = None, drop_defaults: bool = False) -> Any:
        """What the page is sent and a notebook stores."""
        if key is None:
            self._keep_origins()
        return super().get_state(key, drop_defaults)

    def _repr_mimebundle_(self, **options: Any) -> Any:
        self._keep_origins()
        return super()._repr_mimebundle_(**options)

    def _saved_state(self) -> dict[str, Any]:
        self._keep_origins()
        return {**super()._saved_state(), **vectors.saved(self._records)}

    def _settle(self) -> None:
        layers, steps = self._recording["layers"], self._recording["steps"]
        self.heads = [pair for pair in self.heads if self._exists(*pair)]
        self.layer = min(self.layer, len(layers) - 1)
        self.head = min(self.head, layers[self.layer]["h"] - 1)
        n, m = layers[self.layer]["n"], layers[self.layer]["m"]
        self.query = None if self.query is None or self.query >= n else self.query
        self.key = None if self.key is None or self.key >= m else self.key
        self.step = len(steps) - 1
        if not self._recording["compared"]:
            self.shown = "first"
        self.value_weighted = self.value_weighted and self._recording["norms"]

    def _recorded(self, step: int, which: int, layer: int, head: int) -> bool:
        inside = 0 <= step < len(self._records) and 0 <= which < len(self._records[step])
        return inside and self._exists(layer, head)

    def _exists(self, layer: int, head: int) -> bool:
        layers = self._recording["layers"]
        return 0 <= layer < len(layers) and 0 <= head < layers[layer]["h"]

    # What may be set

    @traitlets.validate("layer")
    def _layer_exists(self, proposal: Any) -> int:
        return within("layer", proposal["value"], 0, len(self._recording["layers"]) - 1)

    @traitlets.validate("head")
    def _head_exists(self, proposal: Any) -> int:
        most = max(layer["h"] for layer in self._recording["layers"])
        return within("head", proposal["value"], 0, most - 1)

    @traitlets.validate("heads")
    def _heads_exist(self, proposal: Any) -> list[list[int]]:
        for pair in proposal["value"]:
            if not _whole_numbers(pair, 2) or not self._exists(*pair):
                raise traitlets.TraitError(
                    f"`heads` should hold pairs [layer, head] of this recording, got {pair!r}"
                )
        return [list(pair) for pair in proposal["value"]]

    @traitlets.validate("query", "key")
    def _place_exists(self, proposal: Any) -> int | None:
        name, value = proposal["trait"].name, proposal["value"]
        most = max(layer["n" if name == "query" else "m"] for layer in self._recording["layers"])
        return None if value is None else within(name, value, 0, most - 1)

    @traitlets.validate("at_least")
    def _a_finite_number(self, proposal: Any) -> float | None:
        value = proposal["value"]
        return value if value is None else as_trait_error(check_number, "at_least", value)

    @traitlets.validate("threshold")
    def _threshold_is_a_share(self, proposal: Any) -> float:
        if not 0 <= proposal["value"] <= 1:
            raise traitlets.TraitError(
                f"`threshold` should be from 0 to 1, got {proposal['value']}"
            )
        return float(proposal["value"])

    @traitlets.validate("top_k")
    def _top_k_counts(self, proposal: Any) -> int:
        if proposal["value"] < 0:
            raise traitlets.TraitError(
                f"`top_k` should be 0 (every line) or a number of lines, got {proposal['value']}"
            )
        return int(proposal["value"])

    @traitlets.validate("panels")
    def _panels_exist(self, proposal: Any) -> list[str]:
        found = proposal["value"]
        if not found or any(panel not in _PANELS for panel in found):
            raise traitlets.TraitError(f"`panels` should hold some of {[*_PANELS]}, got {found!r}")
        return [panel for panel in _PANELS if panel in found]

    @traitlets.validate("step")
    def _step_exists(self, proposal: Any) -> int:
        return within("step", proposal["value"], 0, len(self._recording["steps"]) - 1)

    @traitlets.validate("shown")
    def _shown_exists(self, proposal: Any) -> str:
        if proposal["value"] != "first" and not self._recording["compared"]:
            raise traitlets.TraitError("there is one recording; give a second one as `compare`")
        return str(proposal["value"])

    @traitlets.validate("value_weighted")
    def _values_are_known(self, proposal: Any) -> bool:
        if proposal["value"] and not self._recording["norms"]:
            raise traitlets.TraitError(
                "`value_weighted` needs the values, and this source holds weights only; give a "
                "recording of attnlab.watch"
            )
        return bool(proposal["value"])

    def __repr__(self) -> str:
        layers = self._recording["layers"]
        return (
            f"<AttentionView: {len(layers)} layers, {sum(x['h'] for x in layers)} heads, "
            f"{layers[0]['n']} queries × {layers[0]['m']} keys>"
        )


def _whole_numbers(value: Any, count: int) -> bool:
    """Whether it is a list or tuple of so many integers."""
    if not isinstance(value, list | tuple) or len(value) != count:
        return False
    return all(isinstance(one, int) and not isinstance(one, bool) for one in value)


# A recording as JSON and bytes


def _token_lists(
    tokens: Sequence[Any] | None,
    source_tokens: Sequence[Any] | None,
    image: Any,
    grid: tuple[int, int] | None,
) -> Tokens:
    if image is None and grid is not None:
        raise ValueError("`grid` is that of the patches of an image: give the `image`, too")
    patches = None if image is None else Patches(image, grid)
    return Tokens(_listed("tokens", tokens), _listed("source_tokens", source_tokens), patches)


def _coded(
    source: Any, token_lists: Tokens, compare: Any, names: tuple[str, str], batch: int
) -> tuple[dict[str, Any], bytes, vectors.Records]:
    """What the front end reads, a description and one run of bytes; and the records behind it."""
    steps, sources = _steps(source, compare)
    token_lists.outline = outline(sources[0][0])
    layers: list[dict[str, Any]] = []
    blocks: list[list[list[dict[str, Any]]]] = []
    statistics: list[Any] = []
    parts: list[bytes] = []
    records: vectors.Records = []
    at = broken = 0
    places_of: dict[bytes, int] = {}  # of masks, which most layers share
    complete = sum(cells(one) for pair in sources for one in pair) <= WHOLE
    heads = sum(shape[0] for pair in sources for one in pair for shape in shapes(one))
    tiles = int((MOST_TILES / max(1, heads)) ** 0.5)
    for pair in sources:
        blocks.append([])
        statistics.append([])
        records.append([])
        for one in pair:
            headers, numbers, described = [], [], []
            records[-1].append([])
            for layer in layers_of(one, batch):
                places = token_lists.place(layer)
                coded = block(layer.maps, layer.norms, complete, layer.mask, tiles)
                headers.append(coded.header | {"at": at})
                parts.append(coded.data)
                at += len(coded.data)
                if coded.bits:
                    known = places_of.setdefault(coded.bits, at)
                    coded.header["mask"]["at"] = known
                    if known == at:
                        parts.append(coded.bits)
                        at += len(coded.bits)
                broken += layer.broken
                records[-1][-1].append((layer.record, layer.row))
                numbers.append(layer.statistics())
                h, n, m = layer.shape
                left = layer.left_over() if layer.shape[1] <= _MOST_LEFT else None
                if left is not None:
                    headers[-1]["left"] = at
                    parts.append(_in_bytes(left))
                    at += len(parts[-1])
                called = {"name": layer.name, "title": layer.title, "kind": layer.kind}
                described.append(called | {"h": h, "n": n, "m": m} | places)
            _same(layers, described)
            layers = layers or described
            blocks[-1].append(headers)
            statistics[-1].append(numbers)
    token_lists.all_read()
    recording = {
        "steps": steps,
        "names": _named(names),
        "compared": len(sources[0]) == 2,
        "norms": all(x["norms"] for step in blocks for one in step for x in one),
        "signed": any(x["signed"] for step in blocks for one in step for x in one),
        "layers": layers,
        "tokens": [[_label_of(token) for token in one] for one in token_lists.sets],
        "blocks": blocks,
        "statistics": statistics,
        "broken": broken,
    }
    if token_lists.patches is not None:
        recording["image"] = token_lists.patches.sent()
        recording["grids"] = token_lists.patches.grids(token_lists.sets)
    return recording, b"".join(parts), records


def _steps(source: Any, compare: Any) -> tuple[list[str], list[list[Any]]]:
    """Names of training steps, and for each its one or two sources."""
    if not isinstance(source, Mapping) or has_attentions(source) or is_cache(source):
        return [""], [[source] if compare is None else [source, compare]]
    if not source:
        raise ValueError("`source` is an empty dict; it should map training steps to recordings")
    if compare is None:
        return [str(step) for step in source], [[one] for one in source.values()]
    if not isinstance(compare, Mapping) or list(compare) != list(source):
        raise ValueError("`compare` should be a dict with the same training steps as `source`")
    return [str(step) for step in source], [[one, compare[step]] for step, one in source.items()]


def _in_bytes(shares: np.ndarray) -> bytes:
    """Shares of one as float32, a whole number of them for each head."""
    return np.ascontiguousarray(shares, "<f4").tobytes()


def _same(known: list[dict[str, Any]], other: list[dict[str, Any]]) -> None:
    def shapes(layers: list[dict[str, Any]]) -> list[tuple[int, int, int]]:
        return [(layer["h"], layer["n"], layer["m"]) for layer in layers]

    if known and shapes(known) != shapes(other):
        raise ValueError(
            "recordings that are compared should have the same layers, heads and lengths, got "
            f"(heads, queries, keys) {shapes(known)} and {shapes(other)}"
        )


def _listed(name: str, tokens: Sequence[Any] | None) -> list[Any] | None:
    if tokens is None or isinstance(tokens, Found):
        return tokens
    if isinstance(tokens, str | bytes):
        raise TypeError(f"`{name}` should be a list of tokens, got one text; split it first")
    if not isinstance(tokens, Iterable):
        raise TypeError(f"`{name}` should be a list of tokens, got {type(tokens).__name__}")
    if isinstance(tokens, Tensor) and (tokens.is_meta or tokens.layout != torch.strided):
        raise TypeError(f"`{name}` should be a dense tensor with values, or a list of tokens")
    found = np.asarray(tokens).tolist() if hasattr(tokens, "numpy") else list(tokens)
    if any(isinstance(token, list | tuple | np.ndarray) for token in found):
        raise ValueError(f"`{name}` should be those of one row of the batch: give {name}[0], say")
    return found


def _named(names: tuple[str, str]) -> list[str]:
    found = check_names("names", names)
    if len(found) != 2:
        raise ValueError(
            f"`names` should hold two names, for `source` and `compare`, got {names!r}"
        )
    return found


def _label_of(token: Any) -> list[str]:
    """A token's short visible label and, where it differs, its longer text."""
    if isinstance(token, Patch):
        return token.label
    text = token if isinstance(token, str) else visible(token)
    short = visible(token)
    if text == short:
        return [short]
    more = text if len(text) <= _FULL else f"{text[:_FULL]}… ({len(text):,} characters)"
    return [short, more.encode("utf-8", "replace").decode()]
