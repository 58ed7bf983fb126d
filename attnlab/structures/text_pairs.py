"""Pairs of texts in one sequence: what a layer is told that reads a question and another text.

Each sequence of a batch holds the tokens of a question and then those of a text.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from attnlab.core.integers import check_integer
from attnlab.structures.structure import Structure, cached


@dataclass(frozen=True, eq=False)
class TextPairs(Structure):
    """b pairs of a question and a text, in sequences of n tokens; made by ``of``."""

    padding: Bool[Tensor, "b n"]  # True = a token of the question or of the text
    in_text: Bool[Tensor, "b n"]  # True = a token of the text

    missing = (
        "which tokens are the question's is missing: give structure=TextPairs.of(questions, texts)"
    )

    @classmethod
    def of(
        cls, questions: Sequence[int], texts: Sequence[int], length: int | None = None
    ) -> "TextPairs":
        """Pair r has ``questions[r]`` tokens of a question and then ``texts[r]`` of a text.

        With ``length`` every row has so many tokens, otherwise as many as the longest pair.
        """
        asked = [
            check_integer("the length of a question", count, at_least=1) for count in questions
        ]
        read = [check_integer("the length of a text", count, at_least=1) for count in texts]
        if len(asked) != len(read) or not asked:
            raise ValueError(
                "a batch has at least one question, and a text for each, got "
                f"{len(asked)} questions and {len(read)} texts"
            )
        longest = max(map(sum, zip(asked, read, strict=True)))
        length = longest if length is None else check_integer("length", length, at_least=1)
        if longest > length:
            raise ValueError(
                f"the longest pair has {longest} tokens, which is more than length={length}"
            )
        first, both = torch.tensor(asked)[:, None], torch.tensor(asked) + torch.tensor(read)
        places = torch.arange(length)
        padding = places < both[:, None]
        return cls(padding, padding & (places >= first))

    @classmethod
    def example(cls, padding: Bool[Tensor, "b n"]) -> "TextPairs":
        """Pairs whose question is the first half, rounded up, of the tokens that ``padding`` marks;
        the other tokens are the text that is read with it."""
        counted = padding.cumsum(1)
        asked = (counted[:, -1:] + 1) // 2 if padding.shape[1] else counted
        return cls(padding, padding & (counted > asked))

    def __getitem__(self, rows: slice) -> "TextPairs":
        return TextPairs(self.padding[rows], self.in_text[rows])

    def __repr__(self) -> str:
        b, n = self.padding.shape
        return f"<TextPairs: {b} pairs of a question and a text, {n} tokens>"

    @cached
    def together(self) -> Bool[Tensor, "b 1 n n"]:
        """What each token may attend to where both are read together: all that is real."""
        return (self.padding[:, :, None] & self.padding[:, None])[:, None]

    @cached
    def apart(self) -> Bool[Tensor, "b 1 n n"]:
        """The mask if the two texts are read separately: each token attends within its own text."""
        same = self.in_text[:, :, None] == self.in_text[:, None]
        mask: Tensor = self.together & same[:, None]
        return mask

    def pooled(self, x: Float[Tensor, "b n dim"]) -> Float[Tensor, "b dim"]:
        """The vector of the first token, which is [CLS]; zeros where all is padding."""
        first = self.padding.int().argmax(1)
        found = x[torch.arange(len(x), device=x.device), first]
        return found.masked_fill(~self.padding.any(1, keepdim=True), 0)

    def part(
        self, tokens: Int[Tensor, "b n"], *, text: bool
    ) -> tuple[Int[Tensor, "b m"], Bool[Tensor, "b m"]]:
        """The tokens of the questions alone, or with ``text`` of the texts, and their padding."""
        chosen = self.in_text if text else self.padding & ~self.in_text
        order = (~chosen).int().argsort(dim=1, stable=True)[:, : int(chosen.sum(1).max())]
        own = chosen.gather(1, order)
        return tokens.gather(1, order).masked_fill(~own, 0), own
