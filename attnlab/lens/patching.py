r"""Patching: put what one text made into the run of another, and see whether the answer follows.

Two texts give two answers. A part of the run of the first (the output of a head, its pattern, the
stream at a position) is replaced by the same part of the run of the second, and everything after it
is computed again. What counts is the difference of two logits at one position,
$D = \ell_{a} - \ell_{b}$, and how much of the way from one text to the other it goes:

$$\mathrm{moved} = \frac{D_{\mathrm{patched}} - D_{\mathrm{text}}}
  {D_{\mathrm{other}} - D_{\mathrm{text}}}$$

0 is nothing, 1 is all of it; less than 0 or more than 1 occurs where parts work against each other.

A patched head reaches the answer on every way that there is. **Path patching** takes one of them:
from a sender to what one receiver reads as its query, key or value, or to the logits. In a run of
the first text all other sublayers keep what they added there, and only the sender is that of the
second; what the receiver's matrix then makes of the stream is put into a run of the first text
(Wang et al. 2023, appendix B). With ``through_feed_forward`` the feed-forward layers between the
two are computed anew, so that the path leads through them as well.

What is replaced is replaced by *another text*, so all that both texts share is left standing, and
the answer depends on the two texts: choose them so that they differ in one thing. Other choices
(zeros, a mean over texts) ask other questions.

Common mistakes: texts of different lengths, whose positions do not match; a difference of logits
that is nearly the same in both texts, by which one divides; the sum of the shares of single heads
taken for the share of all together, which it need not be.

Vig, Gehrmann, Belinkov, Qian, Nevo, Singer, Shieber. Investigating Gender Bias in Language Models
Using Causal Mediation Analysis. NeurIPS 2020, arXiv:2004.12265. Wang, Variengien, Conmy, Shlegeris,
Steinhardt. Interpretability in the Wild. ICLR 2023, arXiv:2211.00593. Heimersheim, Nanda. How to
Use and Interpret Activation Patching. 2024, arXiv:2404.15255.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor, nn

from attnlab.core.integers import check_integer
from attnlab.core.modes import mode
from attnlab.core.suggest import check_choice
from attnlab.lens.logit_parts import answers_of
from attnlab.lens.stream import Step, Stream, followed
from attnlab.lens.watch import watch
from attnlab.models.tiny import TinyTransformer

INTO = ("query", "key", "value", "logits")
Positions: TypeAlias = tuple[int, ...] | None
HeadName: TypeAlias = tuple[int, int]
Hook: TypeAlias = Callable[..., Any]


@dataclass(frozen=True)
class Head:
    """The output of one head, before the output matrix; at some positions, or at all."""

    layer: int
    head: int
    positions: Positions = None


@dataclass(frozen=True)
class FeedForward:
    """What the feed-forward layer of a layer adds; at some positions, or at all."""

    layer: int
    positions: Positions = None


@dataclass(frozen=True)
class Residual:
    """The stream that a layer reads; ``layer`` may be the number of layers, which is what the last
    norm reads. At some positions, or at all."""

    layer: int
    positions: Positions = None


@dataclass(frozen=True)
class Pattern:
    """Where one head looks: its weights are those of the other text, its values stay."""

    layer: int
    head: int


@dataclass(frozen=True)
class Path:
    """From the output of one head to what another reads.

    ``sender``    (layer, head), or "embedding": the vectors of the tokens at their positions
    ``receiver``  (layer, head) of a later layer; None where it is the logits
    ``into``      "query", "key" or "value"; "logits" for the way straight to the answer
    ``through_feed_forward``  whether the feed-forward layers between them are computed anew
    """

    sender: HeadName | str
    receiver: HeadName | None
    into: str
    through_feed_forward: bool = False


Patch: TypeAlias = Head | FeedForward | Residual | Pattern | Path


class Patching:
    """The runs of two texts, and what becomes of the first with parts of the second.

    model:    a TinyTransformer; of an encoder-decoder the decoder is patched.
    text:     (b, n) tokens of the runs that are patched.
    other:    (b, n) tokens of the runs that patches come from.
    answer:   a token or class, or one for each text, (b,).
    instead:  the one that it is compared with, in the same way.
    position: at which the model answers, or one for each text, (b,); −1 is the last. A classifier
              has none.
    more:     other arguments of the model, for both texts, such as ``source=``.

    All shares are those of the mean difference over the b pairs of texts. There is no padding: both
    texts of a pair have n tokens. The model is left as it was, and no gradient is computed.

    Raises a ValueError where the layers do not stand one after another on one stream or share a
    sublayer, and where both texts have the same difference of logits.
    """

    def __init__(
        self,
        model: TinyTransformer,
        text: Tensor,
        other: Tensor,
        *,
        answer: int | Tensor,
        instead: int | Tensor,
        position: int | Tensor = -1,
        **more: Any,
    ) -> None:
        self._text, self._other = (followed(model, each, **more) for each in (text, other))
        self._model = self._text.model
        if text.shape != other.shape:
            raise ValueError(
                "text and other should have one shape, so that their positions match, got "
                f"{tuple(text.shape)} and {tuple(other.shape)}"
            )
        self._tokens, self._other_tokens, self._more = text, other, more
        _refuse_shared(self._text.steps)
        logits = self._text.logits
        rows, count = logits.shape[:1], logits.shape[-1]
        answers = (("answer", answer), ("instead", instead))
        self._answers = [answers_of(*each, rows, count, logits.device) for each in answers]
        self._at = self._position(position)
        self.difference, self.difference_of_other = (
            float(self._differences(run.logits).mean()) for run in (self._text, self._other)
        )
        whole = self.difference_of_other - self.difference
        size = max(abs(self.difference), abs(self.difference_of_other))
        if not abs(whole) > 1e-6 * size:
            raise ValueError(
                "both texts have the same difference of logits, "
                f"{self.difference:.4g}, so nothing can move; choose texts, or answers, that the "
                "model tells apart"
            )
        self._whole = whole
        self._weights: dict[int, Tensor] = {}

    @property
    def layers(self) -> int:
        """How many layers the model has."""
        return self._text.layers

    def logits(self, *patches: Patch) -> Tensor:
        """What the model gives for ``text`` with these parts of ``other``, all together."""
        return self._run(self._edits(patches))

    def moved(self, *patches: Patch) -> float:
        """How much of the way to the other text's answer these patches go: 0 nothing, 1 all."""
        found = float(self._differences(self.logits(*patches)).mean())
        return (found - self.difference) / self._whole

    # ---- each in turn

    def heads(self) -> np.ndarray:
        """(layers, heads): the share of each head alone; NaN where a layer has no such head."""
        return self._each(lambda layer, head: Head(layer, head))

    def patterns(self) -> np.ndarray:
        """(layers, heads): the share of each head's pattern alone."""
        return self._each(lambda layer, head: Pattern(layer, head))

    def residual(self) -> np.ndarray:
        """(layers + 1, n): the share of the stream that a layer reads at one position; the last row
        is what the last norm reads."""
        n = self._tokens.shape[1]
        rows = [[self.moved(Residual(at, (i,))) for i in range(n)] for at in range(self.layers + 1)]
        return np.array(rows)

    def paths(
        self, receiver: HeadName, *, through_feed_forward: bool = False
    ) -> dict[str, np.ndarray]:
        """Into the "query", "key" and "value" of ``receiver``: (layers below it, heads), the share
        of each path from one head alone."""
        layer, _ = self._named(receiver)
        if not layer:
            raise ValueError("the first layer reads the embedding alone: no head is below it")
        return {
            into: self._each(
                lambda at, head, into=into: Path(  # type: ignore[misc]
                    (at, head), receiver, into, through_feed_forward
                ),
                layer,
            )
            for into in INTO[:3]
        }

    def _each(self, patch: Callable[[int, int], Patch], layers: int | None = None) -> np.ndarray:
        steps = [self._text.of(at) for at in range(layers or self.layers)]
        counts = [0 if step.heads is None else step.heads.heads for step in steps]
        if not any(counts):
            raise ValueError(f"no layer has heads: {steps[0].whole}")
        found = np.full((len(steps), max(counts)), np.nan)
        for layer, count in enumerate(counts):
            for head in range(count):
                found[layer, head] = self.moved(patch(layer, head))
        return found

    # ---- reading the arguments

    def _position(self, position: Any) -> Tensor | None:
        if self._model.kind == "classifier":
            if isinstance(position, Tensor) or position != -1:
                raise ValueError("a classifier answers once for each text: leave position out")
            return None
        b, n = self._tokens.shape[:2]
        found = torch.as_tensor(position)
        if found.is_floating_point() or found.dtype == torch.bool:
            raise TypeError(f"position should be whole numbers, got {found.dtype}")
        if found.dim() and found.shape != (b,):
            raise ValueError(
                f"position should be one for each text, ({b},), got {tuple(found.shape)}"
            )
        if not -n <= int(found.min()) <= int(found.max()) < n:
            raise ValueError(f"position should be from {-n} to {n - 1}, got {position!r}")
        return found.expand(b).to(self._text.logits.device) % n

    def _named(self, head: Any) -> HeadName:
        if not isinstance(head, Sequence) or isinstance(head, str) or len(head) != 2:
            raise TypeError(f"a head should be a pair (layer, head), got {head!r}")
        self._step_of(*head)
        return head[0], head[1]

    def _step_of(self, layer: Any, head: Any) -> Step:
        step = self._text.of(self._layer(layer))
        if step.heads is None:
            raise ValueError(f"layer {layer} has no heads: {step.whole}")
        if check_integer("head", head, at_least=0) >= step.heads.heads:
            raise ValueError(f"head should be from 0 to {step.heads.heads - 1}, got {head}")
        return step

    def _layer(self, layer: Any, most: int | None = None) -> int:
        most = self.layers - 1 if most is None else most
        if check_integer("layer", layer, at_least=0) > most:
            raise ValueError(f"layer should be from 0 to {most}, got {layer}")
        return int(layer)

    def _places(self, positions: Any) -> Any:
        """An index of the positions."""
        if positions is None:
            return slice(None)
        n = self._tokens.shape[1]
        if not isinstance(positions, Sequence) or isinstance(positions, str):
            raise TypeError(f"positions should be a tuple of whole numbers, got {positions!r}")
        for each in positions:
            if not -n <= check_integer("a position", each) < n:
                raise ValueError(f"positions should be from {-n} to {n - 1}, got {each}")
        return list(positions)

    # ---- edits: a module, when, and what is done to what it takes or gives

    def _edits(self, patches: Sequence[Patch]) -> list["_Edit"]:
        paths = [self._checked(patch) for patch in patches if isinstance(patch, Path)]
        found = [edit for patch in patches for edit in self._of(patch)]
        if straight := [path for path in paths if path.into == "logits"]:
            if len(straight) < len(patches):
                raise ValueError("paths to the logits are patched together, not with other patches")
            return self._pinned(straight)
        receivers = dict.fromkeys(
            (path.receiver, path.into, path.through_feed_forward) for path in paths
        )
        for receiver, into, _ in receivers:
            own = [path for path in paths if (path.receiver, path.into) == (receiver, into)]
            if len({path.through_feed_forward for path in own}) > 1:
                raise ValueError(
                    f"the paths into the {into} of {receiver} should lead all through the "
                    "feed-forward layers, or none"
                )
            found.insert(0, self._received(own))  # before a Pattern reads the values
        return found

    def _of(self, patch: Any) -> list["_Edit"]:
        if isinstance(patch, Head):
            return [self._head(patch)]
        if isinstance(patch, Pattern):
            return self._pattern(patch)
        if isinstance(patch, FeedForward):
            layer, at = self._layer(patch.layer), self._places(patch.positions)
            step = self._other.of(layer, "feed_forward")
            return [_Edit(step.sublayer, "gives", lambda x: _put(x, at, step.added))]
        if isinstance(patch, Residual):
            return [self._residual(patch)]
        if isinstance(patch, Path):
            return []
        raise TypeError(
            "a patch should be a Head, FeedForward, Residual, Pattern or Path of "
            f"attnlab.lens.patching, got {type(patch).__name__}"
        )

    def _head(self, patch: Head) -> "_Edit":
        step, at = self._step_of(patch.layer, patch.head), self._places(patch.positions)
        given = self._other.of(patch.layer).joined
        return _Edit(_output(step), "takes", lambda x: _put(x, at, given, _columns(step, patch)))

    def _residual(self, patch: Residual) -> "_Edit":
        layer, at = self._layer(patch.layer, self.layers), self._places(patch.positions)
        given = self._other.after_layers()[layer]
        module = self._text.norm if layer == self.layers else self._text.of(layer).join
        return _Edit(module, "takes", lambda x: _put(x, at, given))

    def _pattern(self, patch: Pattern) -> list["_Edit"]:
        step = self._step_of(patch.layer, patch.head)
        assert step.heads is not None
        heads, seen = step.heads, {}
        weights = self._weights_of(patch.layer)[:, patch.head]
        group = patch.head * heads.kv_heads // heads.heads

        def keep(value: Tensor) -> Tensor:
            seen["values"] = heads.split(value, heads.value_dim)[:, group]
            return value

        def mix(x: Tensor) -> Tensor:
            return _put(x, slice(None), None, _columns(step, patch), weights @ seen["values"])

        return [_Edit(heads.value, "gives", keep), _Edit(_output(step), "takes", mix)]

    def _received(self, paths: Sequence[Path]) -> "_Edit":
        """What the receiver of these paths reads in the end, put into its query, key or value."""
        receiver, into = paths[0].receiver, paths[0].into
        assert receiver is not None
        step = self._step_of(*receiver)
        assert step.heads is not None
        heads, head = step.heads, receiver[1]
        if into != "query" and heads.kv_heads != heads.heads:
            raise ValueError(
                f"head {receiver} shares its {into} with other heads, so no path leads into it "
                "alone; patch the head as a whole"
            )
        matrix = getattr(heads, into)
        width = heads.value_dim if into == "value" else heads.head_dim
        columns = slice(head * width, (head + 1) * width)
        found: list[Tensor] = []
        self._run([*self._pinned(paths), _Edit(matrix, "gives", _kept(found))])
        return _Edit(matrix, "gives", lambda x: _put(x, slice(None), found[0], columns))

    def _checked(self, path: Path) -> Path:
        """The same path, with its heads as tuples."""
        check_choice("into", path.into, INTO)
        if (path.receiver is None) != (path.into == "logits"):
            raise ValueError(
                'a path into "logits" has no receiver (None), and every other path has one'
            )
        receiver = None if path.receiver is None else self._named(path.receiver)
        if path.sender == "embedding":
            return replace(path, receiver=receiver)
        sender = self._named(path.sender)
        if receiver is not None and receiver[0] <= sender[0]:
            raise ValueError(
                f"the receiver should stand in a later layer than the sender, got {receiver} after "
                f"{sender}"
            )
        return replace(path, sender=sender, receiver=receiver)

    def _pinned(self, paths: Sequence[Path]) -> list["_Edit"]:
        """Every sublayer keeps what it added to ``text``; the senders are those of ``other``."""
        edits = []
        senders = {path.sender for path in paths}
        live = any(path.through_feed_forward for path in paths)
        if "embedding" in senders:
            edits.append(self._residual(Residual(0)))
        for step in self._text.steps:
            own = [each for each in senders if each != "embedding" and each[0] == step.layer]
            if step.what == "feed_forward" and live:
                continue
            if step.what == "attention" and own:
                edits.append(_Edit(_output(step), "takes", _given(step.joined)))
                edits += [self._head(Head(*each)) for each in own]
            else:
                edits.append(_Edit(step.sublayer, "gives", _given(step.added)))
        return edits

    # ---- running

    def _differences(self, logits: Tensor) -> Tensor:
        """(b,) float64: the logit of the answer less that of the other."""
        if self._at is not None:
            logits = logits[torch.arange(len(logits), device=logits.device), self._at]
        answer, instead = (logits.gather(-1, each[:, None])[:, 0] for each in self._answers)
        return answer.double() - instead.double()

    def _run(self, edits: Sequence["_Edit"]) -> Tensor:
        with mode(self._model, training=False), torch.no_grad(), _edited(edits):
            found: Tensor = self._model(self._tokens, **self._more)
        for edit in edits:
            if not edit.done:
                raise ValueError(
                    f"this layer does not call its {type(edit.module).__name__} in a run, so what "
                    "it makes cannot be replaced; patch the head as a whole"
                )
        return found

    def _weights_of(self, layer: int) -> Tensor:
        """(b, h, n, n): the pattern of a layer in the other text."""
        if layer not in self._weights:
            self._weights[layer] = self._seen(self._other_tokens, self._other, layer)
        return self._weights[layer]

    def _seen(self, tokens: Tensor, run: Stream, layer: int) -> Tensor:
        step = run.of(layer)
        names = {id(module): name for name, module in self._model.named_modules()}
        name = names[id(step.sublayer)]
        with mode(self._model, training=False), torch.no_grad(), watch(self._model) as seen:
            self._model(tokens, **self._more)
        calls = [call for call in seen if call.name == name]
        said = (
            f"the output of {type(step.sublayer).__name__} is not its weights times its values, so "
            "a pattern cannot be put into it; patch the head as a whole"
        )
        if len(calls) != 1 or step.heads is None or step.joined is None:
            raise ValueError(said)
        weights, values = calls[0].weights, calls[0].values
        values = values.repeat_interleave(weights.shape[1] // values.shape[1], dim=1)
        made = step.heads.join(weights.to(values) @ values)
        if made.shape != step.joined.shape or not torch.allclose(
            made, step.joined, rtol=1e-3, atol=1e-4 * float(step.joined.abs().max())
        ):
            raise ValueError(said)
        return weights.to(values)


class _Edit:
    """What is done to what a module takes (its first argument) or gives."""

    def __init__(self, module: Any, when: str, change: Callable[[Tensor], Tensor]) -> None:
        self.module, self.when, self.change, self.done = module, when, change, False

    def hook(self) -> Any:
        if self.when == "takes":
            return self.module.register_forward_pre_hook(self._takes)
        return self.module.register_forward_hook(self._gives)

    def _takes(self, _module: nn.Module, given: tuple[Any, ...]) -> tuple[Any, ...]:
        self.done = True
        return (self.change(given[0]), *given[1:])

    def _gives(self, _module: nn.Module, _given: Any, out: Tensor) -> Tensor:
        self.done = True
        return self.change(out)


@contextmanager
def _edited(edits: Sequence[_Edit]) -> Iterator[None]:
    with ExitStack() as hooks:
        for edit in edits:
            hooks.callback(edit.hook().remove)
        yield


def _put(
    x: Tensor, at: Any, given: Tensor | None, columns: slice = slice(None), made: Any = None
) -> Tensor:
    """``x`` with some positions and columns of another tensor."""
    new = x.clone()
    new[:, at, columns] = made if given is None else given[:, at, columns]
    return new


def _given(value: Tensor | None) -> Callable[[Tensor], Tensor]:
    assert value is not None
    return lambda _: value


def _kept(into: list[Tensor]) -> Callable[[Tensor], Tensor]:
    def keep(value: Tensor) -> Tensor:
        into.append(value)
        return value

    return keep


def _columns(step: Step, patch: Head | Pattern) -> slice:
    """The columns of one head, where all stand side by side."""
    assert step.heads is not None
    width = step.heads.value_dim
    return slice(patch.head * width, (patch.head + 1) * width)


def _output(step: Step) -> Any:
    assert step.heads is not None
    return step.heads.output


def _refuse_shared(steps: Sequence[Step]) -> None:
    own = [id(step.sublayer) for step in steps]
    if len(set(own)) < len(own):
        raise ValueError(
            "layers of this model share a sublayer, so a patch in one would stand in all of them; "
            "take a depth whose layers are their own, such as depth='plain'"
        )
