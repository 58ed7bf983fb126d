r"""Attention between words, where a tokenizer has split words into pieces.

What one asks of a head ("does a verb attend to its object?") is about words, and many models read
pieces of words. The map of the pieces becomes a map of the words by two rules:

- attention **to** a word is the sum of the attention to its pieces, $\sum_{j \in v} A_{ij}$;
- attention **from** a word is the mean of the attention from its pieces,
  $\frac{1}{|w|} \sum_{i \in w}$.

So rows remain distributions: what was 1 in sum is 1 in sum.

Clark, Khandelwal, Levy, Manning. What Does BERT Look At? An Analysis of BERT's Attention.
BlackboxNLP 2019, arXiv:1906.04341, section 4.1.
"""

from collections.abc import Sequence
from itertools import groupby

import torch
from jaxtyping import Float
from torch import Tensor

from attnlab.core.shapes import checked


@checked
def word_spans(words: Sequence[int | None]) -> list[range]:
    """The places of the pieces of each word, in order, for the number of the word of each piece.

    Neighbours with the same number are one word. None, which tokenizers of Hugging Face
    (``word_ids()``) give for tokens such as [CLS], is a word for itself.
    """
    for place, word in enumerate(words):  # `checked` looks at the first call of a kind alone
        if word is not None and type(word) is not int:
            raise TypeError(f"words[{place}] should be a whole number or None, got {word!r}")
    keys = [(word, place if word is None else -1) for place, word in enumerate(words)]
    spans, begin = list[range](), 0
    for _, pieces in groupby(keys):
        count = len(list(pieces))
        spans.append(range(begin, begin + count))
        begin += count
    return spans


@checked
def word_map(
    weights: Float[Tensor, "... n m"],
    words: Sequence[int | None],
    keys: Sequence[int | None] | None = None,
) -> Float[Tensor, "... w v"]:
    """The attention between the words of one text, from that between its pieces.

    ``words`` has the number of the word of each of the n queries, as ``word_spans`` reads it, and
    ``keys`` that of each of the m keys; not given, the keys are the queries.
    """
    own, read = words, words if keys is None else keys
    for name, given, there in zip(("words", "keys"), (own, read), weights.shape[-2:], strict=True):
        if len(given) != there:
            raise ValueError(
                f"{name} should have one number for each of the {there} pieces, got {len(given)}"
            )
    rows, columns = (_pieces(word_spans(each), weights) for each in (own, read))
    return (rows / rows.sum(-1, keepdim=True).clamp_min(1)) @ weights @ columns.mT


def _pieces(spans: list[range], like: Tensor) -> Tensor:
    """(words, pieces): 1 where the piece is one of the word's."""
    found = torch.zeros(len(spans), sum(map(len, spans)), dtype=like.dtype, device=like.device)
    for word, span in enumerate(spans):
        found[word, span.start : span.stop] = 1
    return found
