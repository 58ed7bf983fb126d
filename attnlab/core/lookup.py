"""Looking up rows of a table by whole numbers, refused in a sentence where there is no such row."""

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F


def rows_of(
    table: Float[Tensor, "rows d"], ids: Int[Tensor, "... n"], what: str, advice: str = ""
) -> Float[Tensor, "... n d"]:
    """``table[ids]``; ``what`` the ids are called in an error, and what its reader should do."""
    return F.embedding(checked_ids(ids, len(table), what, advice), table)


def one_hot(
    ids: Int[Tensor, "... n"], like: Float[Tensor, "rows d"], what: str
) -> Float[Tensor, "... n rows"]:
    """In the table's dtype: a 1 where the id is, so that ``one_hot @ table`` looks up.

    ``what`` the ids are called in an error.
    """
    return F.one_hot(checked_ids(ids, len(like), what), len(like)).to(like.dtype)


def checked_ids(
    ids: Int[Tensor, "... n"], rows: int, what: str, advice: str = ""
) -> Int[Tensor, "... n"]:
    """The ids as int64; a ValueError unless all lie in 0 … rows - 1.

    On a GPU the check waits for the device; an index error inside a kernel would make the whole
    CUDA context unusable. Nothing is checked while ``torch.compile`` traces, nor on the meta
    device, whose tensors hold no numbers.
    """
    ids = ids.long()
    if ids.numel() and not ids.is_meta and not torch.compiler.is_compiling():
        low, high = (int(end) for end in ids.aminmax())
        if low < 0 or high >= rows:
            wrong = low if low < 0 else high
            raise ValueError(
                f"{what} should lie in 0 … {rows - 1}, the rows of the table; {wrong} does not"
                f"{'; ' * bool(advice)}{advice}"
            )
    return ids
