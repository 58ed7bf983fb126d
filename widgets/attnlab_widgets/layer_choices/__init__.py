"""Which keys did a layer choose, by what scores, and how much of full attention does it keep?

    with attnlab.watch(model) as seen:
        model(tokens)
    LayerChoices(seen, names)                            # or WhoIsChosen.of(seen, names)
    LayerChoices.of(model, "a text", tokenizer)

The layers of a model that choose their keys: MoBA's router and NSA choose blocks, DeepSeek's
sparse attention tokens. The map shows full attention on the same queries and keys: what lies on
keys that are read, and what is lost. Beside it stand the scores of one query, and what of it was
chosen. ``attnlab.lens.selected`` defines the numbers.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
import traitlets
from torch import Tensor, nn

from attnlab.core.arrays import tokens_for
from attnlab.core.modes import mode
from attnlab.core.suggest import check_choice
from attnlab.figures.drawing import Drawing
from attnlab.figures.labels import visible
from attnlab.lens.selected import SELECTED, Selected, selected_in
from attnlab.lens.sources.inputs import inputs_of
from attnlab.lens.watch import watch
from attnlab_widgets.base import STATIC, BaseWidget, as_trait_error, check_range
from attnlab_widgets.layer_choices import words
from attnlab_widgets.layer_choices.picture import picture

MOST_TOKENS, MOST_NUMBERS = 256, 2_000_000
_WHOLE = 65535  # a weight of 1, in two bytes


class LayerChoices(BaseWidget):
    """The keys that each query of a layer chose, and the attention that they keep.

    ``seen``    what ``attnlab.watch`` recorded, or records of it: layers of moba, nsa or
                deepseek_sparse, the others are passed over. At most 256 tokens
    ``tokens``  names of the keys; the positions unless given
    ``batch``   which sequence of a batch
    ``layer``   which of the layers that chose
    ``head``    whose queries and keys; heads that choose together have the same scores
    ``branch``  "selected"; of NSA "compressed" and "window", too
    ``query``   the position of the token that is read out, the last unless given

    ``layer``, ``head``, ``branch`` and ``query`` can be read and set.
    """

    _esm = STATIC / "layer_choices.js"

    layer = traitlets.Int(0).tag(sync=True)
    head = traitlets.Int(0).tag(sync=True)
    branch = traitlets.Unicode(SELECTED).tag(sync=True)
    query = traitlets.Int(0).tag(sync=True)
    _told: Any = traitlets.Dict().tag(sync=True)
    _data = traitlets.Bytes().tag(sync=True)

    def __init__(
        self,
        seen: Any,
        tokens: Sequence[Any] | None = None,
        *,
        batch: int = 0,
        layer: int = 0,
        head: int = 0,
        branch: str = SELECTED,
        query: int | None = None,
        theme: str = "auto",
    ) -> None:
        self.layers = _fitting(selected_in(seen, batch))
        n, m = self.layers[0].allowed.shape
        names = [visible(each) for each in tokens_for("tokens", tokens, m, "keys")]
        told = {"tokens": names, "queries": n, "layers": [_told(one) for one in self.layers]}
        super().__init__(_told=told, _data=b"".join(map(_bytes, self.layers)), theme=theme)
        self.layer, self.head, self.branch = layer, head, branch
        self.query = m - 1 if query is None else query

    @classmethod
    def of(
        cls, model: nn.Module, inputs: Any, tokenizer: Any = None, *, batch: int = 0,
        tokens: Sequence[Any] | None = None, **given: Any,
    ) -> "LayerChoices":  # fmt: skip
        """The choices of a model that reads ``inputs``: a text with a tokenizer (or a task of
        attnlab), or tokens (n,) or (b, n). ``tokens`` are names in place of the tokenizer's,
        ``given`` any of the options above."""
        if not isinstance(model, nn.Module) or isinstance(model, type):
            raise TypeError(f"`model` should be an nn.Module, got {model!r}; load it first")
        with mode(model, training=False), torch.no_grad():
            found = inputs_of(model, inputs, tokenizer, None, None)
            with watch(model) as seen:
                found.run(model)
            read = found.read(found.own, batch) if tokens is None else None
            names = tokens if read is None else list(read)
            return cls(seen, names, batch=batch, **given)

    # What follows from the state

    @property
    def tokens(self) -> list[str]:
        """The names of the keys, made visible."""
        return list(self._told["tokens"])

    @property
    def selected(self) -> Selected:
        """The choice of the present layer."""
        return self.layers[self.layer]

    @property
    def row(self) -> int:
        """The number of the query among the n queries."""
        return self.query - len(self.tokens) + int(self._told["queries"])

    def kept(self) -> Tensor:
        """(n,): how much of full attention the present head and branch read, in float32."""
        return self.selected.kept(self.branch)[self.head].float()

    def description(self) -> str:
        """What the query reads, and what is kept."""
        return words.sentence(self)

    def still(self) -> Drawing:
        """The map and the scores of the query."""
        return picture(self)

    def __repr__(self) -> str:
        return f"LayerChoices: {self.description()}"

    # What may be set

    @traitlets.validate("layer")
    def _a_layer(self, proposal: Any) -> int:
        return as_trait_error(check_range, "layer", proposal["value"], len(self.layers))

    @traitlets.validate("head")
    def _a_head(self, proposal: Any) -> int:
        return as_trait_error(check_range, "head", proposal["value"], len(self.selected.full))

    @traitlets.validate("branch")
    def _a_branch(self, proposal: Any) -> str:
        as_trait_error(check_choice, "branch", proposal["value"], self.selected.branches)
        return str(proposal["value"])

    @traitlets.validate("query")
    def _a_query(self, proposal: Any) -> int:
        n, m = self.selected.allowed.shape
        value = as_trait_error(check_range, "query", proposal["value"], m)
        if value < m - n:
            raise traitlets.TraitError(f"`query` should be {m - n} to {m - 1} here, got {value}")
        return value

    @traitlets.observe("layer")
    def _settle(self, _change: Any) -> None:
        """Where the layer has fewer heads, its last one; where it has no such branch, its own."""
        self.head = min(self.head, len(self.selected.full) - 1)
        if self.branch not in self.selected.branches:
            self.branch = SELECTED


def _fitting(layers: list[Selected]) -> list[Selected]:
    """The layers, unless they are of different lengths or too large to be sent."""
    shapes = {tuple(one.allowed.shape) for one in layers}
    if len(shapes) > 1:
        raise ValueError(
            "the layers of `seen` should have read the same tokens, got "
            f"{' and '.join(f'{n} queries of {m} keys' for n, m in sorted(shapes))}; give one "
            "record, or watch one call of the model"
        )
    ((_, m),) = shapes
    if m > MOST_TOKENS:
        raise ValueError(
            f"at most {MOST_TOKENS} tokens can be shown, got {m}; watch the model on a shorter text"
        )
    numbers = sum(one.full.numel() * (1 + len(one.branches)) for one in layers)
    if numbers > MOST_NUMBERS:
        raise ValueError(
            f"{len(layers)} layers on {m} tokens are too many to be sent ({numbers:,} weights, at "
            f"most {MOST_NUMBERS:,}); give some of the records, such as seen[:1]"
        )
    return layers


# What the page is told


def _told(one: Selected) -> dict[str, Any]:
    return {
        "name": one.name, "of": one.of, "heads": len(one.full), "units": one.scores.shape[-1],
        "branches": list(one.branches),
    }  # fmt: skip


def _bytes(one: Selected) -> bytes:
    """Numbers as floats, flags as bytes, weights in two bytes; each part begins at a multiple of
    four."""
    marks = one.chosen.int() + 2 * one.always.int()
    parts = [
        one.unit.numpy().astype("<f4"), one.scores.float().numpy(), one.by_unit().float().numpy(),
        marks.numpy().astype("u1"), one.allowed.numpy().astype("u1"), _coded(one.full),
    ]  # fmt: skip
    for name, branch in one.branches.items():
        parts += [one.kept(name).float().numpy(), one.mean_kept(name).float().numpy()]
        parts += [branch.gates.float().numpy()]
        parts += [branch.read.numpy().astype("u1"), _coded(branch.weights)]
    return b"".join(part.tobytes() + bytes(-part.nbytes % 4) for part in parts)


def _coded(weights: Tensor) -> np.ndarray:
    found: np.ndarray = np.rint(weights.double().clamp(0, 1).numpy() * _WHOLE).astype("<u2")
    return found
