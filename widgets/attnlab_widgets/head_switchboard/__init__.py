"""Which heads does a small language model need?

    copier, _ = attnlab.pretrained.load("induction")
    HeadSwitchboard(copier, "uncopyrightables" * 2)
    HeadSwitchboard(writer, "the name of the name", task=documentation, heads=[(0, 1), (2, 3)])

Every head is a switch. A silent head attends as before, but nothing of it reaches the rest of the
model; the predicted letters that are wrong without it go dark. Beside each switch stands the
importance of the head: how strongly the loss of this text changes, to first order, as the head is
scaled (``attnlab.compression.head_importance``). Above the letters stands who writes them: what
each head, feed-forward layer and embedding adds to the logit of the letter that is pointed at
(``attnlab.lens.logit_parts``). All choices of heads are computed when the widget is made, so a
saved file stays alive.
"""

from collections.abc import Sequence
from itertools import pairwise
from string import ascii_lowercase
from typing import Any

import numpy as np
import torch
import traitlets
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from attnlab.compression.head_importance import naive as importances
from attnlab.core.arguments import check_list, check_texts
from attnlab.core.arrays import plain, tokens_for
from attnlab.core.integers import check_integer
from attnlab.figures.drawing import Drawing
from attnlab.figures.labels import visible
from attnlab.lens.head_states import (
    MOST_BYTES,
    MOST_HEADS,
    MOST_TOKENS,
    Head,
    States,
    layers_of,
    run,
)
from attnlab.models.tiny import TinyTransformer
from attnlab_widgets.base import STATIC, BaseWidget, Checked, as_trait_error
from attnlab_widgets.head_switchboard.picture import picture
from attnlab_widgets.head_switchboard.writers import buffer, mean_parts, writers
from attnlab_widgets.words import listed


class HeadSwitchboard(BaseWidget):
    """The heads of a language model as switches, over what it predicts in one text.

    ``model``   a ``TinyTransformer`` of kind "language_model"
    ``text``    a text of letters a … z, which become the tokens 0 … 25; or, with ``task``, any text
                that the task encodes; or tokens, (n,). From 2 to 64 tokens
    ``task``    what encodes the text and names tokens, as ``load("documentation")`` returns it
    ``tokens``  how the n tokens are shown, where ``text`` is tokens
    ``heads``   the heads that can be silenced, as pairs (layer, head), at most 8; all of them
                unless given
    ``silent``  those of them that are silent at first

    ``silent`` can be read and set, as pairs [layer, head]; ``settings`` is whether the chart of all
    choices is shown.
    """

    _esm = STATIC / "head_switchboard.js"

    silent: Any = Checked().tag(sync=True)
    settings = traitlets.Bool(False).tag(sync=True)
    _board: Any = traitlets.Dict().tag(sync=True)
    _maps = traitlets.Bytes(b"").tag(sync=True)
    _writers = traitlets.Bytes(b"").tag(sync=True)

    def __init__(
        self,
        model: TinyTransformer,
        text: str | Sequence[int] | Tensor,
        *,
        task: Any = None,
        tokens: Sequence[Any] | None = None,
        heads: Sequence[Head] | None = None,
        silent: Sequence[Head] = (),
        theme: str = "auto",
    ) -> None:
        sizes = [layer.heads for layer in layers_of(model).values()]
        ids, labels, unit = _read(text, task, tokens, model)
        chosen = _switchable(heads, sizes)
        _check_room(chosen, len(ids))
        self._states = run(model, ids, chosen)
        self._labels, self._unit, self._ids = labels, unit, ids.tolist()
        self._written, told = writers(model, ids, chosen)
        names = _names(self._states, self._ids, labels, task, unit)
        super().__init__(
            _board={
                "heads": [list(head) for head in chosen],
                "all": sum(sizes),
                "unit": unit,
                "tokens": labels,
                "names": list(names.values()),
                "guesses": _numbered(self._states.guesses[:, :-1], names),
                "coming": _numbered(np.array(self._ids[1:]), names),
                "repeats": _repeats(self._ids),
                "importance": [shown_importance(x) for x in _importance(model, ids, chosen)],
                "writers": told,
            },
            _writers=buffer(self._written),
            _maps=b"".join(one.tobytes() for one in self._states.maps.values()),
            silent=_silent(silent, chosen),
            theme=theme,
        )
        self._names = names

    @traitlets.validate("silent")
    def _silent_heads(self, proposal: Any) -> list[list[int]]:
        return as_trait_error(_silent, proposal["value"], self._states.heads)

    # What follows from the switches

    def right(self) -> Tensor:
        """(n - 1,) bool: whether token i + 1 is predicted after token i."""
        return torch.from_numpy(self._right(self._state()))

    def guesses(self) -> list[str]:
        """What the model predicts after each token but the last."""
        return [self._names[int(guess)] for guess in self._states.guesses[self._state(), :-1]]

    def importance(self) -> list[str]:
        """How strongly the loss of the text, in nats per token, changes as each head is scaled."""
        return list(self._board["importance"])

    def writers(self, at: int | None = None) -> dict[str, float]:
        """What each part of the model adds to the logit of token ``at`` of the text, from 1, above
        the mean of all logits: by the name of the part, in its order in the model.

        Unless ``at`` is given, the mean over the tokens that repeat, or over all where none does.
        The parts sum to the logit less the mean of all logits, and are those of the run with the
        present heads silent; where parts of all choices are too many to store, of the run with all
        heads on. A ValueError for a model whose logits are no sum of known parts.
        """
        if self._written is None:
            raise ValueError(self._board["writers"]["why"])
        chosen = (
            self._repeating()
            if at is None
            else np.arange(len(self._ids) - 1) == _place(at, len(self._ids)) - 1
        )
        return mean_parts(self._written, self._state(), chosen)

    def _repeating(self) -> NDArray[np.bool_]:
        """(n - 1,) bool: the tokens that repeat; all where none does."""
        repeats = np.array(self._board["repeats"], dtype=bool)
        return repeats if repeats.any() else ~repeats

    def description(self) -> str:
        """How many predictions are right, in a sentence: of the tokens that repeat, after the same
        token as before, and of the others."""
        now = self._tally(self._state())
        heads = [_name(head) for head in self.silent]
        if not heads:
            return f"With all {self._board['all']} heads, {now} are right."
        silent = f"head{'s' * (len(heads) > 1)} {listed(heads)}"
        if (self._right(self._state()) == self._right(0)).all():
            return f"Without {silent} the same {now} are right as with all heads."
        whole = " and ".join(str(right) for right, _ in self._rights(0))
        return f"Without {silent}, {now} are right; with all, {whole}."

    def _rights(self, state: int) -> list[tuple[int, int]]:
        """How many are right, and of how many: of those that repeat and of the others, or of all
        where none or each repeats."""
        right, repeats = self._right(state), np.array(self._board["repeats"])
        groups = (repeats, ~repeats) if 0 < repeats.sum() < len(repeats) else (repeats | True,)
        return [(int(right[group].sum()), int(group.sum())) for group in groups]

    def _tally(self, state: int) -> str:
        (now, count), *others = self._rights(state)
        units = self._unit + ("" if count == 1 else "s")
        if not others:
            return f"{now} of {count} {units}"
        ((more, rest),) = others
        verb = "repeats" if count == 1 else "repeat"
        return f"{now} of the {count} {units} that {verb} and {more} of the {rest} others"

    def map_of(self, head: Sequence[int]) -> NDArray[np.uint8]:
        """(n, n) the map of a head under the present switches: 254 · √weight, 255 where masked."""
        layer = head[0]
        bits = [bit for bit, (at, _) in enumerate(self._states.heads) if at < layer]
        variant = self._state() & (2 ** len(bits) - 1)
        heads = [one for at, one in self._states.heads if at == layer]
        found: NDArray[np.uint8] = self._states.maps[layer][variant, heads.index(head[1])]
        return found

    def still(self) -> Drawing:
        """The heads with their maps, and the predicted letters."""
        return picture(self)

    def __repr__(self) -> str:
        return f"HeadSwitchboard: {self.description()}"

    def _state(self) -> int:
        silent = [tuple(head) for head in self.silent]
        return sum(1 << bit for bit, head in enumerate(self._states.heads) if head in silent)

    def _right(self, state: int) -> Any:
        return self._states.guesses[state, :-1] == np.array(self._ids[1:])


def _read(
    text: Any, task: Any, tokens: Any, model: TinyTransformer
) -> tuple[Tensor, list[str], str]:
    """Tokens, how they are shown, and what one of them is called."""
    if isinstance(text, str):
        if tokens is not None:
            raise ValueError("`tokens` names given tokens; of a text the letters are shown")
        ids, labels, unit = _encoded(text, task)
    else:
        if task is not None and tokens is not None:
            raise ValueError("`task` and `tokens` both name the tokens: give one of the two")
        array = plain("text", text, "n")
        if not np.issubdtype(array.dtype, np.integer):
            raise TypeError(
                f"`text` should be a text, or tokens as whole numbers, got {array.dtype}"
            )
        ids, unit = torch.from_numpy(array.astype(np.int64)), "token"
        if task is not None and not hasattr(task, "tokens"):
            raise TypeError(f"`task` cannot name tokens, being {type(task).__name__}")
        named = tokens if task is None else task.tokens(ids)
        labels = [visible(token) for token in tokens_for("tokens", named, len(ids), "tokens")]
    most = min(MOST_TOKENS, model.max_len)
    if not 2 <= len(ids) <= most:
        raise ValueError(f"`text` should have 2 to {most} tokens, got {len(ids)}")
    if model.vocab is None or not 0 <= ids.min() <= ids.max() < model.vocab:
        most = (model.vocab or 0) - 1
        raise ValueError(f"the tokens of this model are 0 … {most}, got {_outside(ids, most)}")
    return ids, labels, unit


def _outside(ids: Tensor, most: int) -> int:
    return int(ids[(ids < 0) | (ids > most)][0])


def _encoded(text: str, task: Any) -> tuple[Tensor, list[str], str]:
    if task is not None:
        if not hasattr(task, "encode"):
            raise TypeError(
                f"`task` has no text of its own to encode, being {type(task).__name__}; give "
                "tokens as `text`, or a task such as the one that load('documentation') returns"
            )
        ids = task.encode(text)
        return ids, [visible(token) for token in task.tokens(ids)], "token"
    check_texts(text=text)
    other = sorted(set(text) - set(ascii_lowercase))
    if other:
        raise ValueError(
            f"without `task`, `text` should consist of the letters a … z, got {other[0]!r}"
        )
    return torch.tensor([ascii_lowercase.index(letter) for letter in text]), list(text), "letter"


def _place(at: Any, n: int) -> int:
    if not 1 <= check_integer("at", at) < n:
        raise ValueError(
            f"`at` should be from 1 to {n - 1}, the tokens that are predicted, got {at}"
        )
    return int(at)


def _importance(model: TinyTransformer, ids: Tensor, heads: Sequence[Head]) -> list[float]:
    """|∂L/∂ξ| of the mean loss L of the text, for each of these heads."""

    def loss(model: Any, text: Tensor, _: object) -> tuple[Tensor, int]:
        return F.cross_entropy(model(text)[0, :-1].float(), text[0, 1:]), 1

    home = next(model.parameters()).device
    found = list(importances(model, ids[None].to(home), loss).values())
    return [float(found[layer][head]) for layer, head in heads]


def shown_importance(value: float) -> str:
    """Two digits that count, and no more than four places: 0.24, 0.0031."""
    return (
        f"{value:#.2g}".rstrip(".")
        if value >= 0.001
        else f"{value:.4f}".rstrip("0").rstrip(".") or "0"
    )


def _switchable(heads: Any, sizes: list[int]) -> list[Head]:
    every = [(layer, head) for layer, size in enumerate(sizes) for head in range(size)]
    if heads is None:
        if len(every) > MOST_HEADS:
            raise ValueError(
                f"this model has {len(every)} heads, and at most {MOST_HEADS} can be switches; "
                "choose them, such as heads=[(0, 0), (1, 2)]"
            )
        return every
    found = sorted(set(_pairs("heads", heads)))
    if not 1 <= len(found) <= MOST_HEADS:
        raise ValueError(f"`heads` should be 1 to {MOST_HEADS} different heads, got {len(found)}")
    for head in found:
        if head not in every:
            raise ValueError(
                f"this model has no head {_name(head)}: its layers 0 … {len(sizes) - 1} have "
                f"{', '.join(map(str, sizes))} heads"
            )
    return found


def _silent(silent: Any, heads: Sequence[Head]) -> list[list[int]]:
    """The switches that are silent, in order."""
    wanted = set(_pairs("silent", silent))
    unknown = sorted(wanted - set(heads))
    if unknown:
        raise ValueError(
            f"head {_name(unknown[0])} is no switch here; those are {', '.join(map(_name, heads))}"
        )
    return [list(head) for head in heads if head in wanted]


def _check_room(heads: Sequence[Head], n: int) -> None:
    below = [sum(at < layer for at, _ in heads) for layer, _ in heads]
    size = sum(2**count for count in below) * n * n
    if size > MOST_BYTES:
        raise ValueError(
            f"the maps of {len(heads)} switches and {n} tokens need {size:,} bytes, more than the "
            f"{MOST_BYTES:,} that a saved notebook should hold; choose fewer `heads` or a "
            "shorter `text`"
        )


def _pairs(name: str, heads: Any) -> list[Head]:
    found = []
    for pair in check_list(name, heads):
        both = check_list(f"a head of {name}", pair)
        if len(both) != 2:
            raise ValueError(f"`{name}` should hold pairs (layer, head), got {pair!r}")
        layer, head = (check_integer(f"a number in `{name}`", number) for number in both)
        found.append((layer, head))
    return found


def _names(
    states: States, ids: list[int], labels: list[str], task: Any, unit: str
) -> dict[int, str]:
    """How every token that occurs or is predicted is shown."""
    known = dict(zip(ids, labels, strict=True))
    wanted = sorted({*ids, *np.unique(states.guesses).tolist()})
    if task is not None:
        shown = task.tokens(torch.tensor(wanted))
        return {token: visible(text) for token, text in zip(wanted, shown, strict=True)}
    letters = dict(enumerate(ascii_lowercase)) if unit == "letter" else {}
    return {token: known.get(token, letters.get(token, f"#{token}")) for token in wanted}


def _repeats(ids: list[int]) -> list[bool]:
    """Whether each token but the first has come after the same one before, so that it can be
    copied."""
    pairs = list(pairwise(ids))
    return [pair in pairs[:at] for at, pair in enumerate(pairs)]


def _numbered(tokens: Any, names: dict[int, str]) -> Any:
    """Tokens as indices into the list of names."""
    return np.searchsorted(np.array(list(names)), tokens).tolist()


def _name(head: Sequence[int]) -> str:
    return f"{head[0]}.{head[1]}"
