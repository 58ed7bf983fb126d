"""How does a phrase gather the values of its words?

    TreeExplorer("(S (NP the dog) (VP chased (NP a cat)))")
    TreeExplorer(tree, attention={"trained": weights})   # (layers, heads, n + m, n + m)

Hierarchical accumulation, step by step: the value of each node is laid over its leaves, averaged
from a phrase down to each word, and the averages are added up with a weight for each word. The tree
is drawn and can be edited, every cell is written out as a formula, and the subtree mask and
recorded attention are shown on the same drawing. The page computes all of it without a kernel.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import traitlets
from numpy.typing import NDArray

from attnlab.core.arguments import check_list, check_number
from attnlab.core.arrays import plain
from attnlab.core.suggest import check_choice
from attnlab.figures.drawing import Drawing
from attnlab.figures.labels import visible
from attnlab.figures.theme import THEMES
from attnlab.lens.tree_tables import Numbered, drawable, read, writable
from attnlab.structures.tree import Tree
from attnlab_widgets.base import STATIC, BaseWidget, Choice, as_trait_error, within
from attnlab_widgets.tree_explorer.picture import still_map, still_tables

STEPS = ("interpolation", "average", "aggregation", "mask", "attention")
MOST_WEIGHTS = 2**18  # of all attention maps together: a megabyte
_START = "(S (NP the dog) (VP chased (NP a cat)))"


class TreeExplorer(BaseWidget):
    """A tree, the tables of hierarchical accumulation over it, and attention between its nodes.

    ``tree``        bracketed text, a ``Tree`` or its nested lists; at most 24 words and 24 phrases
    ``attention``   names with (layers, heads, n + m, n + m): the weight with which each query (row)
                    attends to each key, the n leaves before the m nodes, a node before its
                    children. Pairs that may not attend are NaN; where every weight that the subtree
                    mask forbids is 0, the model is taken to have had that mask
    ``tokens``      how the n leaves are written, in place of their labels
    ``leaf_values`` n numbers; 1, 2, 3 … unless given
    ``node_values`` m numbers; 10, 20, 30 … unless given
    ``weights``     n numbers, the weight w of each leaf; 1 unless given
    ``step``        what is shown: "interpolation", "average", "aggregation", "mask", "attention"

    What is chosen can be read and set from Python: ``tree`` (text), ``step``, ``leaf_values``,
    ``node_values``, ``weights``, ``selected`` (a leaf 0 … n − 1 or a node n … n + m − 1), ``cell``
    (the node 0 … m − 1 and the leaf whose formula is written out), ``shown`` (the name of an
    attention map), ``layer``, ``head``.
    """

    _esm = STATIC / "tree_explorer.js"

    tree = traitlets.Unicode(_START).tag(sync=True)
    leaf_values: Any = traitlets.List(traitlets.Float()).tag(sync=True)
    node_values: Any = traitlets.List(traitlets.Float()).tag(sync=True)
    weights: Any = traitlets.List(traitlets.Float()).tag(sync=True)
    selected = traitlets.Int(0).tag(sync=True)
    cell: Any = traitlets.List(traitlets.Int(), [0, 0]).tag(sync=True)
    step = Choice(STEPS, "average").tag(sync=True)
    shown = traitlets.Unicode().tag(sync=True)
    layer = traitlets.Int(0).tag(sync=True)
    head = traitlets.Int(0).tag(sync=True)
    _maps: Any = traitlets.List().tag(sync=True)
    _shape = traitlets.Unicode().tag(sync=True)
    _data = traitlets.Bytes(b"").tag(sync=True)

    def __init__(
        self,
        tree: str | Tree | Sequence[Any] = _START,
        *,
        attention: Mapping[str, Any] | None = None,
        tokens: Sequence[Any] | None = None,
        leaf_values: Sequence[float] | None = None,
        node_values: Sequence[float] | None = None,
        weights: Sequence[float] | None = None,
        step: str | None = None,
        theme: str = "auto",
    ) -> None:
        text = _text(tree, tokens)
        numbered = Numbered(read(text))
        n, m = len(numbered.leaves), len(numbered.nodes)
        given = {"leaf_values": leaf_values, "node_values": node_values, "weights": weights}
        numbers = _defaults(n, m) | {
            name: _fitting(name, check_list(name, found), n, m)
            for name, found in given.items()
            if found is not None
        }
        maps = {} if attention is None else _attention(attention, numbered)
        shows = ("attention" if maps else "average") if step is None else _step(step, bool(maps))
        starts = np.cumsum([0, *(one.size for one in maps.values())])
        self._numbered = numbered
        super().__init__(
            tree=text,
            **numbers,
            selected=n,
            cell=[0, n - 1],
            _maps=[
                {"name": name, "layers": len(one), "heads": one.shape[1], "at": int(at)}
                for (name, one), at in zip(maps.items(), starts, strict=False)
            ],
            _shape=_shape(numbered) if maps else "",
            _data=b"".join(one.astype("<f4").tobytes() for one in maps.values()),
            shown=next(iter(maps), ""),
            step=shows,
            theme=theme,
        )

    # What follows from the tree and its numbers

    @property
    def interpolation(self) -> NDArray[np.float64]:
        """S (m + 1, n): the leaves' values, then each node's value above its own leaves, else 0."""
        return self._numbered.interpolation(self.leaf_values, self.node_values)

    @property
    def averages(self) -> NDArray[np.float64]:
        """Ŝ (m, n): the mean from a node down to a leaf; 0 where the leaf is not below."""
        return self._numbered.averages(self.leaf_values, self.node_values)

    @property
    def gathered(self) -> NDArray[np.float64]:
        """v̄ (m,): what each node gathers from its leaves, with their weights."""
        return self._numbered.gathered(self.leaf_values, self.node_values, self.weights)

    @property
    def mask(self) -> NDArray[np.bool_]:
        """(n + m, n + m), True = may attend: leaves to leaves, a node to its subtree."""
        return self._numbered.mask()

    # What may be set

    @traitlets.validate("tree")
    def _tree_can_be_read(self, proposal: Any) -> str:
        try:
            return read(proposal["value"]).bracketed()
        except ValueError as error:
            raise traitlets.TraitError(f"`tree`: {error}") from None

    @traitlets.observe("tree")
    def _numbers_follow_the_tree(self, _change: Any) -> None:
        """Lists that no longer fit begin anew; what is chosen stays inside the tree."""
        self._numbered = Numbered(read(self.tree))
        n, m = self._sizes
        for name, numbers in _defaults(n, m).items():
            if len(getattr(self, name)) != len(numbers):
                setattr(self, name, numbers)
        if self.selected >= n + m:
            self.selected = n
        if self.cell[0] >= m or self.cell[1] >= n:
            self.cell = [min(self.cell[0], m - 1), min(self.cell[1], n - 1)]
        self._cell_follows(None)

    @property
    def _sizes(self) -> tuple[int, int]:
        numbered = Numbered(read(self.tree))
        return len(numbered.leaves), len(numbered.nodes)

    @traitlets.validate("leaf_values", "node_values", "weights")
    def _numbers_fit(self, proposal: Any) -> list[float]:
        return as_trait_error(_fitting, proposal["trait"].name, proposal["value"], *self._sizes)

    @traitlets.validate("selected")
    def _selected_exists(self, proposal: Any) -> int:
        n, m = self._sizes
        if not 0 <= proposal["value"] < n + m:
            raise traitlets.TraitError(
                f"`selected` should be a word 0 … {n - 1} or a phrase {n} … {n + m - 1}, "
                f"got {proposal['value']}"
            )
        return int(proposal["value"])

    @traitlets.observe("selected")
    def _cell_follows(self, _change: Any) -> None:
        """A phrase keeps the word if it is below the phrase, and a word its phrase."""
        n = len(self._numbered.leaves)
        node, leaf = self.cell
        if self.selected >= n and self.selected != n + node:
            node = self.selected - n
            below = np.flatnonzero(self._numbered.spans()[node]).tolist()
            self.cell = [node, leaf if leaf in below else below[0]]
        elif self.selected < n and self.selected != leaf:
            above = self._numbered.above(self.selected)
            self.cell = [node if node in above else above[0], self.selected]

    @traitlets.validate("cell")
    def _cell_exists(self, proposal: Any) -> list[int]:
        n, m = self._sizes
        found = list(proposal["value"])
        if len(found) != 2 or not (0 <= found[0] < m and 0 <= found[1] < n):
            raise traitlets.TraitError(
                f"`cell` should be [phrase, word], from [0, 0] to [{m - 1}, {n - 1}], got {found}"
            )
        return found

    @traitlets.validate("step")
    def _step_can_be_shown(self, proposal: Any) -> str:
        return as_trait_error(_step, proposal["value"], bool(self._maps))

    @traitlets.validate("shown")
    def _shown_is_known(self, proposal: Any) -> str:
        if self._maps or proposal["value"]:
            names = tuple(m["name"] for m in self._maps)
            as_trait_error(check_choice, "shown", proposal["value"], names)
        return str(proposal["value"])

    @traitlets.observe("shown")
    def _map_exists(self, _change: Any) -> None:
        found = self._map
        self.layer = min(self.layer, found["layers"] - 1)
        self.head = min(self.head, found["heads"] - 1)

    @property
    def _map(self) -> dict[str, Any]:
        none = {"name": "", "layers": 1, "heads": 1}
        return next((one for one in self._maps if one["name"] == self.shown), none)

    @traitlets.validate("layer", "head")
    def _layer_and_head_exist(self, proposal: Any) -> int:
        name = proposal["trait"].name
        return within(name, proposal["value"], 0, self._map[f"{name}s"] - 1)

    # Without widgets

    @property
    def recorded(self) -> NDArray[np.float64]:
        """(n + m, n + m): the weights that are shown; NaN where a query may not attend."""
        found, count = self._map, len(self._numbered.parents)
        if not found["name"] or _shape(self._numbered) != self._shape:
            raise ValueError(
                "no attention was recorded for a tree of this shape; hand it in: "
                "TreeExplorer(tree, attention={name: weights})"
            )
        at = found["at"] + (self.layer * found["heads"] + self.head) * count**2
        weights = np.frombuffer(self._data, "<f4", count**2, 4 * at)
        return weights.reshape(count, count).astype(np.float64)

    @property
    def description(self) -> str:
        """What is shown, in sentences: what each phrase gathers, or to what the query attends."""
        numbered = self._numbered
        names, n = numbered.names(), len(numbered.leaves)
        if self.step == "mask":
            keys = ", ".join(names[key] for key in np.flatnonzero(self.mask[self.selected]))
            return f"{names[self.selected]} may attend to {keys}."
        if self._attention_is_shown:
            weights = self.recorded[self.selected]
            order = [key for key in np.argsort(-weights, kind="stable") if weights[key] > 0][:3]
            keys = ", ".join(f"{names[key]} ({weights[key]:.2f})" for key in order)
            return f"{names[self.selected]} attends most to {keys}."
        below = numbered.spans()
        return " ".join(
            f"{names[n + i]} gathers {value:.2f} from "
            f"{', '.join(names[j] for j in np.flatnonzero(below[i]))}."
            for i, value in enumerate(self.gathered)
        )

    @property
    def _attention_is_shown(self) -> bool:
        return self.step == "attention" and _shape(self._numbered) == self._shape

    def still(self) -> Drawing:
        """The tree with its tables, the mask or the attention."""
        tree, look = self._numbered, THEMES[self.theme]
        if self.step == "mask":
            return still_map(tree, self.mask, self.selected, "Who may attend to whom", look)
        if self._attention_is_shown:
            title = f"Attention, {self.shown}, layer {self.layer}, head {self.head}"
            return still_map(tree, self.recorded, self.selected, title, look)
        return still_tables(tree, self.leaf_values, self.node_values, self.weights, look)

    def __repr__(self) -> str:
        return f"TreeExplorer: {self.tree}. {self.description}"


def _text(tree: Any, tokens: Any) -> str:
    """What is handed in as bracketed text."""
    if isinstance(tree, str):
        found = Tree.read(tree)
    elif isinstance(tree, Tree | Sequence):
        found = tree if isinstance(tree, Tree) else Tree.of(tree)
    else:
        raise TypeError(
            "`tree` should be bracketed text, a Tree or nested lists such as "
            f'["S", "the", "dog"], got {type(tree).__name__}'
        )
    drawable(found)
    if tokens is None:
        return writable(found).bracketed()
    given = check_list("tokens", tokens)
    count = len(found.leaves())
    if len(given) != count:
        raise ValueError(f"`tokens` should name each of the {count} leaves, got {len(given)}")
    words = iter(given)

    def relabelled(one: Tree) -> Tree:
        label = visible(next(words)) if one.is_leaf else one.label
        return Tree(label, tuple(map(relabelled, one.children)))

    return writable(relabelled(found)).bracketed()


def _defaults(n: int, m: int) -> dict[str, list[float]]:
    """Numbers in which a leaf and a node are told apart: 1, 2, 3 … and 10, 20, 30 …"""
    return {
        "leaf_values": [float(j + 1) for j in range(n)],
        "node_values": [10.0 * (i + 1) for i in range(m)],
        "weights": [1.0] * n,
    }


def _fitting(name: str, values: Sequence[Any], n: int, m: int) -> list[float]:
    count, what = (m, "phrases") if name == "node_values" else (n, "words")
    if len(values) != count:
        raise ValueError(
            f"`{name}` should hold a number for each of the {count} {what}, got {len(values)}"
        )
    return [check_number(name, value) for value in values]


def _step(step: Any, recorded: bool) -> str:
    check_choice("step", step, STEPS)
    if step == "attention" and not recorded:
        raise ValueError(
            '`step` can be "attention" only where attention was recorded: '
            "TreeExplorer(tree, attention={name: weights})"
        )
    return str(step)


def _shape(numbered: Numbered) -> str:
    """Two trees have the same shape where their leaves and nodes have the same parents."""
    return f"{len(numbered.leaves)}: {' '.join(map(str, numbered.parents))}"


def _attention(attention: Any, numbered: Numbered) -> dict[str, NDArray[np.float64]]:
    """(layers, heads, n + m, n + m) each; NaN where the query may not attend."""
    if not isinstance(attention, Mapping) or not attention:
        raise TypeError(
            '`attention` should name weights: {"trained": (layers, heads, n + m, n + m)}'
        )
    maps = {str(name): _map(name, one, numbered) for name, one in attention.items()}
    found = sum(one.size for one in maps.values())
    if found > MOST_WEIGHTS:
        raise ValueError(
            f"`attention` holds {found:,} weights, more than the {MOST_WEIGHTS:,} that the page "
            "keeps; give fewer layers, heads or maps"
        )
    return maps


def _map(name: Any, weights: Any, numbered: Numbered) -> NDArray[np.float64]:
    n, m = len(numbered.leaves), len(numbered.nodes)
    who = f"attention[{name!r}]"
    array = plain(who, weights, "layers heads n+m n+m").astype(np.float64)
    if array.shape[2:] != (n + m, n + m) or not array.size:
        raise ValueError(
            f"`{who}` should be (layers, heads, {n + m}, {n + m}), the {n} leaves and then the {m} "
            f"nodes of the tree, got {array.shape}"
        )
    if np.isinf(array).any() or (array < 0).any():
        raise ValueError(f"`{who}` should hold weights of at least 0, or NaN")
    sums = np.nansum(array, -1)
    if not np.isclose(sums, 1, atol=1e-3).all():
        raise ValueError(
            f"each row of `{who}` should add up to 1, got {sums.min():.3f} to {sums.max():.3f}; "
            "hand in weights after the softmax, without dropout"
        )
    forbidden = ~numbered.mask()
    if not np.nan_to_num(array[..., forbidden]).any():
        array[..., forbidden] = np.nan
    return array
