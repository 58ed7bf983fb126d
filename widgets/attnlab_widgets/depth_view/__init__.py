"""How does each token come to its final state, and where does it stop?

    DepthView(tokens, states)                       # states (s, n, dim), one after every layer
    DepthView(tokens, states, left=left)            # left (n,): the step after which each stopped
    DepthView(tokens, states, residual=residual)    # of a solver, by iteration
    DepthView.of(model, "a text", tokenizer)        # what a model does, with its guesses

One token a row, layers or steps across. A cell is coloured by how far the state is from the one
with which the token leaves, by how much the step changed it, or by how sure the model would be of
its answer there. A saved file stays alive.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
import traitlets

from attnlab.core.arguments import check_list, check_texts
from attnlab.core.arrays import numbers, tokens_for
from attnlab.figures.drawing import Drawing
from attnlab.figures.labels import visible
from attnlab.lens.depths import Passage, passage, passed_in
from attnlab.models.tiny import TinyTransformer
from attnlab_widgets.base import STATIC, BaseWidget, Choice, as_trait_error, check_range
from attnlab_widgets.depth_view import words as depth_words
from attnlab_widgets.depth_view.picture import picture

MOST_TOKENS, MOST_STEPS, MOST_CELLS = 256, 128, 16_384


class DepthView(BaseWidget):
    """Tokens on their way through the layers.

    ``tokens``         n names; the positions where None. At most 256
    ``states``         (s, n, dim): the state of every token after every step, at most 128
    ``start``          (n, dim): the state before the first step
    ``left``           (n,): the step, counted from 1, after which each token stopped; the last
                       unless given
    ``guesses``        s lists of n texts: what the model would answer from each state
    ``probabilities``  (s, n): how probable that answer is
    ``residual``       (s,): of a solver, how far the whole state is from an equilibrium
    ``what``           what a step is called: "layer", "step"; ``steps`` the name of each, 1 … s
                       unless given
    ``colour``         "distance" (to the state with which the token leaves), "change" (by the step)
                       or "probability" (of the guess); the change where there is a residual
    ``order``          of the rows: "text", or "left" for those first that leave first
    ``token``          the one that is read out: at first the one that leaves last

    ``token``, ``step`` (counted from 0; later ones are veiled), ``colour`` and ``order`` can be
    read and set. ``found`` holds the numbers.
    """

    _esm = STATIC / "depth_view.js"

    token = traitlets.Int(0).tag(sync=True)
    step = traitlets.Int(0).tag(sync=True)
    colour = Choice(("distance", "change", "probability"), "distance").tag(sync=True)
    order = Choice(("text", "left"), "text").tag(sync=True)
    _depth: Any = traitlets.Dict().tag(sync=True)
    _data = traitlets.Bytes().tag(sync=True)

    def __init__(
        self,
        tokens: Sequence[Any] | None,
        states: Any,
        *,
        start: Any = None,
        left: Any = None,
        guesses: Sequence[Sequence[Any]] | None = None,
        probabilities: Any = None,
        residual: Any = None,
        what: str = "step",
        steps: Sequence[Any] | None = None,
        token: int | None = None,
        colour: str | None = None,
        order: str = "text",
        theme: str = "auto",
    ) -> None:
        check_texts(what=what)
        self.found = _passage(states, start, left, guesses, probabilities, residual, steps)
        n, s = self.found.distance.shape
        told = {
            "tokens": [visible(each) for each in tokens_for("tokens", tokens, n, "tokens")],
            "what": visible(what, 20),
            "steps": self.found.steps,
            "left": self.found.left.tolist(),
            "guesses": self.found.guesses,
            "probabilities": self.found.probabilities is not None,
            "residual": None if self.found.residual is None else self.found.residual.tolist(),
        }
        super().__init__(_depth=told, _data=_bytes(self.found), theme=theme)
        self.token = self.found.last() if token is None else token
        usual = "distance" if residual is None else "change"
        self.step, self.order = s - 1, order
        self.colour = usual if colour is None else colour

    @classmethod
    def of(
        cls, model: TinyTransformer, inputs: Any, tokenizer: Any = None, *,
        tokens: Sequence[Any] | None = None, **given: Any,
    ) -> "DepthView":  # fmt: skip
        """The tokens of a text on their way through a model, with its answers after every layer.

        ``inputs``     a text (with a tokenizer, or a task of attnlab) or tokens (n,)
        ``tokens``     n names, in place of the tokenizer's
        ``given``      ``token``, ``colour``, ``order`` and ``theme``, as above
        """
        names, found = passed_in(model, inputs, tokenizer)
        return cls(names if tokens is None else tokens, **(found | given))

    # What follows from the state

    @property
    def tokens(self) -> list[str]:
        """The names of the tokens, made visible."""
        return list(self._depth["tokens"])

    def rows(self) -> list[int]:
        """The tokens in the order of the rows."""
        left = self.found.left.tolist()
        keys = left if self.order == "left" else [0] * len(left)
        return sorted(range(len(left)), key=lambda i: keys[i])

    def values(self) -> Any:
        """(n, s): what colours the cells; NaN after a token has left."""
        named = {"distance": self.found.distance, "change": self.found.change,
                 "probability": self.found.probabilities}  # fmt: skip
        found = named[self.colour]
        assert found is not None
        return found.double()

    def description(self) -> str:
        """What is common to all tokens, and the way of the chosen one."""
        return depth_words.announcement(self.found, self.tokens, self._depth["what"], self.token)

    def still(self) -> Drawing:
        """The tokens on their way, up to the present step."""
        return picture(self)

    def __repr__(self) -> str:
        return f"DepthView: {self.description()}"

    # What may be set

    @traitlets.validate("token", "step")
    def _in_range(self, proposal: Any) -> int:
        name = proposal["trait"].name
        count = len(self._depth["tokens" if name == "token" else "steps"])
        return as_trait_error(check_range, name, proposal["value"], count)

    @traitlets.validate("colour")
    def _known_colour(self, proposal: Any) -> str:
        if proposal["value"] == "probability" and not self._depth["probabilities"]:
            raise traitlets.TraitError(
                "`colour` cannot be 'probability', for no `probabilities` are given"
            )
        return str(proposal["value"])


# What is given


def _passage(
    states: Any, start: Any, left: Any, guesses: Any, probabilities: Any, residual: Any, steps: Any
) -> Passage:
    x = torch.from_numpy(numbers("states", states, "s n dim"))
    s, n, dim = x.shape
    if s > MOST_STEPS or n > MOST_TOKENS or s * n > MOST_CELLS:
        raise ValueError(
            f"`states` are of {s} steps and {n} tokens; at most {MOST_STEPS} steps, {MOST_TOKENS} "
            f"tokens and {MOST_CELLS:,} of both together can be shown"
        )
    begin = None if start is None else _shaped("start", start, "n dim", (n, dim))
    return passage(
        x,
        start=begin,
        left=None if left is None else _left(left, n, s),
        steps=None if steps is None else _names("steps", steps, s),
        **_guessed(guesses, probabilities, s, n),
        residual=None if residual is None else _residual(residual, s),
    )


def _shaped(name: str, given: Any, axes: str, shape: tuple[int, ...]) -> torch.Tensor:
    array = numbers(name, given, axes)
    if array.shape != shape:
        raise ValueError(f"`{name}` should have the shape {shape}, got {array.shape}")
    return torch.from_numpy(array)


def _left(given: Any, n: int, s: int) -> torch.Tensor:
    found = _shaped("left", given, "n", (n,))
    if (found != found.round()).any() or found.min() < 1 or found.max() > s:
        raise ValueError(f"`left` should hold whole numbers from 1 to {s}, the number of steps")
    return found.long()


def _names(name: str, given: Any, count: int) -> list[str]:
    found = check_list(name, given)
    if len(found) != count:
        raise ValueError(f"`{name}` should name {count} steps, got {len(found)}")
    return [visible(each, 20) for each in found]


def _residual(given: Any, s: int) -> torch.Tensor:
    found = _shaped("residual", given, "s", (s,))
    if found.min() < 0:
        raise ValueError("`residual` should hold numbers of at least 0")
    return found


def _guessed(guesses: Any, probabilities: Any, s: int, n: int) -> dict[str, Any]:
    if guesses is None and probabilities is None:
        return {}
    if guesses is None or probabilities is None:
        raise ValueError("`guesses` and `probabilities` belong together: give both")
    rows = [check_list("guesses", row) for row in check_list("guesses", guesses)]
    if [len(row) for row in rows] != [n] * s:
        raise ValueError(f"`guesses` should be {s} lists of {n} texts, a list for each step")
    probable = _shaped("probabilities", probabilities, "s n", (s, n))
    if probable.min() < 0 or probable.max() > 1:
        raise ValueError("`probabilities` should be from 0 to 1")
    columns = zip(*rows, strict=True)
    return {
        "guesses": [[visible(each) for each in column] for column in columns],
        "probabilities": probable.T.contiguous().float().double(),  # as a page gets them
    }


def _bytes(found: Passage) -> bytes:
    """Distance, change and probabilities, (n, s) floats each."""
    parts = [found.distance, found.change, found.probabilities]
    arrays = [part.numpy().astype("<f4") for part in parts if part is not None]
    return b"".join(np.ascontiguousarray(array).tobytes() for array in arrays)
