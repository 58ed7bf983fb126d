"""One vector for each text, by the encoder of a model; and rows that hold several texts."""

from typing import Any, Literal, TypeVar

from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from attnlab.objectives.batches import Batch
from attnlab.objectives.hiding import real_tokens

Part = TypeVar("Part", bound=nn.Module)

Pooling = Literal["first", "mean"]
"""Which vector stands for a text: that of its first token, or the mean over its real ones."""


def check_encoder(name: str, model: nn.Module) -> None:
    """A ValueError for a model that gives no vectors of texts."""
    if not callable(getattr(model, "encode", None)):
        raise ValueError(
            f"{name} reads the vectors of an encoder, and this {type(model).__name__} has no "
            "encode(tokens, padding) that gives (b, n, dim); take a TinyTransformer of "
            "kind='token_classifier' or 'classifier'"
        )


def beside(part: Part, model: nn.Module) -> Part:
    """A new part in the dtype of a model's weights, and on their device."""
    like = next((p for p in model.parameters() if p.is_floating_point()), None)
    return part if like is None else part.to(like)


def encoded(
    name: str, model: Any, tokens: Int[Tensor, "b n"], real: Bool[Tensor, "b n"], pooling: Pooling
) -> Float[Tensor, "b dim"]:
    """One vector for each text; that of a text without real tokens is 0."""
    check_encoder(name, model)
    vectors: Tensor = model.encode(tokens, padding=real)
    kept = vectors.masked_fill(~real[..., None], 0)
    if pooling == "first":
        return kept[:, 0]
    return kept.sum(1) / real.sum(1, keepdim=True).clamp(min=1)


def texts_of(
    name: str, batch: Batch, count: int, *, rest: bool = False
) -> tuple[Int[Tensor, "b c t"], Bool[Tensor, "b c t"]]:
    """The texts of each row, which are of one width, and which of their tokens are real.

    rest: whether a few tokens may be left over, which are left out; else that is a ValueError.
    """
    width = batch.inputs.shape[1]
    if width < count or (width % count and not rest):
        raise ValueError(
            f"{name} compares {count} texts, which stand one behind the other in a row; a row of "
            f"{width} tokens cannot hold {count} of the same width"
        )
    t = width // count
    tokens, real = batch.inputs[:, : count * t], real_tokens(batch)[:, : count * t]
    return tokens.reshape(-1, count, t), real.reshape(-1, count, t)
