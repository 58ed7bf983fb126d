"""All places of a target at once: what a decoder without an order of writing reads.

The decoder of such a model sees its own tokens from both sides, and the source. How long the target
is must be known before the first word is written. Training takes the length of the target; a
``LengthHead`` learns it from the source.
"""

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from attnlab.core.options import Options, Size
from attnlab.core.visibility import Visibility
from attnlab.objectives.batches import (
    UNSCORED,
    Batch,
    CrossEntropy,
    logits_of,
    one_by_one,
    summed_loss,
)
from attnlab.objectives.encodings import beside
from attnlab.objectives.hiding import check_targets, check_tokens


@dataclass(frozen=True, kw_only=True)
class ParallelOptions(Options):
    """length: the weight of the loss of each target's length; 0 if the length is given."""

    length: float = 0.0

    def check(self) -> None:
        if not (math.isfinite(self.length) and self.length >= 0):
            raise ValueError(f"length is the weight of a loss, 0 or more, got {self.length}")


class Answers(NamedTuple):
    """Logits at each place of the target, and those of its length."""

    tokens: Float[Tensor, "b n v"]
    lengths: Float[Tensor, "b l"]


def tokens_of(answers: Answers | Tensor) -> Float[Tensor, "b n v"]:
    """The logits of the tokens alone."""
    return answers.tokens if isinstance(answers, Answers) else answers


def open_to_all(tokens: Tensor) -> Visibility:
    """Every token sees every other one, (b, n, n)."""
    b, n = tokens.shape[:2]
    return Visibility(torch.ones(b, n, n, dtype=torch.bool, device=tokens.device))


def check_pairs(name: str, batch: Batch, vocab: int) -> None:
    """A ValueError for a batch without a source, or whose targets are no tokens."""
    if batch.source is None:
        raise ValueError(
            f"{name} writes a target for a source, and this task has no source; take a task of "
            "kind='encoder_decoder', such as 'two_dialects'"
        )
    if batch.targets.shape != batch.inputs.shape[:2]:
        raise ValueError(
            f"{name} writes a target (b, n), and the targets of this task are of shape "
            f"{tuple(batch.targets.shape)} for inputs of shape {tuple(batch.inputs.shape)}"
        )
    check_tokens(name, batch, vocab)
    check_targets(name, batch, vocab)


def places(name: str, batch: Batch) -> Bool[Tensor, "b n"]:
    """True at the tokens of each target; a ValueError unless they stand at its beginning."""
    real = batch.targets != UNSCORED
    if (real[:, 1:] & ~real[:, :-1]).any():
        raise ValueError(
            f"{name} writes a target from its first word on, and a row of this task has a scored "
            "target after one that is not scored"
        )
    return real


def decoder_padding(real: Bool[Tensor, "b n"]) -> Bool[Tensor, "b n"]:
    """Padding that leaves a place to a target without tokens: a decoder has to read one."""
    return real | (~real.any(-1, keepdim=True) & (torch.arange(real.shape[1]) == 0))


class LengthHead(nn.Module):
    """The length of a target, 0 to ``longest``, from the mean over the encoder's vectors."""

    def __init__(self, dim: int, longest: int) -> None:
        super().__init__()
        self.longest = longest
        self.linear = nn.Linear(dim, longest + 1)

    def forward(
        self, memory: Float[Tensor, "b m dim"], padding: Bool[Tensor, "b m"] | None
    ) -> Float[Tensor, "b l"]:
        if padding is None:
            mean = memory.mean(1)
        else:
            kept = memory.masked_fill(~padding[..., None], 0)
            mean = kept.sum(1) / padding.sum(1, keepdim=True).clamp(min=1)
        logits: Tensor = self.linear(mean)
        return logits


class Parallel(CrossEntropy):
    """What objectives share whose model writes all places at once.

    vocab: how many tokens the task has. The mask is the token after them, so the model needs one
        more.
    """

    models = ("encoder_decoder",)
    orders = "given"
    specials = 1

    def __init__(self, vocab: Size, options: ParallelOptions = ParallelOptions()) -> None:
        super().__init__()
        self.vocab, self.options = vocab, options
        self.head: LengthHead | None = None

    def extra_repr(self) -> str:
        return ", ".join(filter(None, (f"vocab={self.vocab}", str(self.options))))

    @property
    def weight(self) -> float:
        """The weight of the loss of each length."""
        return self.options.length

    def fitted(self, model: Any) -> None:
        """The head that learns the length, where that is asked."""
        if self.weight and self.head is None:
            if not all(hasattr(model, each) for each in ("dim", "encode", "decode", "logits")):
                raise ValueError(
                    f"the length is read from the encoder, and this {type(model).__name__} has no "
                    "encode, decode and logits; take a TinyTransformer of kind='encoder_decoder', "
                    "or length=0"
                )
            self.head = beside(LengthHead(model.dim, getattr(model, "max_len", 256)), model)

    def answers(self, model: Any, batch: Batch) -> Any:
        """Logits (b, n, v); with those of the lengths where they are asked."""
        if not self.weight:
            return logits_of(model, batch)
        if self.head is None:
            raise ValueError("no head for the length yet: call objective.fitted(model) first")
        structure = getattr(batch, "structure", None)
        memory = model.encode(batch.source, batch.source_padding)
        x = model.decode(
            batch.inputs, batch.padding, memory, batch.source_padding, structure=structure
        )
        return Answers(model.logits(x), self.head(memory, batch.source_padding))

    def lengths(self, batch: Batch) -> Int[Tensor, "b"]:
        """How long each target is, UNSCORED where it is empty."""
        length = batch.padding.sum(-1)  # type: ignore[union-attr]
        empty = (batch.targets == UNSCORED).all(-1)
        return length.masked_fill(empty, UNSCORED)

    def loss(self, answers: Any, batch: Batch) -> Tensor:
        """Cross-entropy summed over the scored tokens, and the weighted one of the lengths."""
        loss = summed_loss(tokens_of(answers), batch.targets)
        if isinstance(answers, Answers):
            loss = loss + self.weight * summed_loss(answers.lengths, self.lengths(batch))
        return loss

    def length_one_by_one(self, answers: Any, batch: Batch) -> Tensor | float:
        """The weighted sum of -log p(length), one target after the other; 0 where it is given."""
        if not isinstance(answers, Answers):
            return 0.0
        return self.weight * one_by_one(answers.lengths, self.lengths(batch))[0]

    def right(self, answers: Any, batch: Batch) -> Tensor:
        """How many scored tokens are the likeliest answer."""
        return super().right(tokens_of(answers), batch)
